#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/api/own_job.h"
#include "core/api/plugin_context.h"
#include "core/base/command.h"
#include "schedulers/usage/gpu.h"
#include "schedulers/usage/job_config.h"
#include "schedulers/usage/own_place.h"
#include "schedulers/usage/sampler.h"

namespace scriptorium::usage {

// The nodes of one run of a job, by name: of the parts, the newest of each node that is of this job
// and ran while the node of `own` did. Pure.
std::vector<NodeUsage> nodes_of_parts(const std::vector<std::string>& parts, const NodeUsage& own);

// Measures the job of this process with a Sampler of its own. A part is a node_record().
class OwnUsage final : public OwnJob {
 public:
  struct Options {
    SamplerOptions sampler;
    GpuMonitor::Options gpus;
    JobConfig jobs;
  };
  // Looks in /proc/self and in the environment. kVanished: not in a job.
  static Result<std::unique_ptr<OwnJob>> find(Options options, const PluginContext& context,
                                              Files& files);
  OwnUsage(OwnPlace own, Options options, Variables variables, const PluginContext& context,
           Files& files);
  ~OwnUsage() override;

  const Place& place() const noexcept override { return own_.place; }
  Result<bool> step(bool now) override;
  SteadyTime next_step() const override;
  int notify_fd() const noexcept override;
  std::string part() const override;
  std::vector<Event> merge(const std::vector<std::string>& parts, bool running,
                           const std::stop_token& stop) override;

 private:
  struct Measuring;

  // What the scheduler says of the job, else what it wrote into the environment.
  const JobFacts& facts(const std::stop_token& stop);

  const OwnPlace own_;
  const Options options_;
  const Variables variables_;
  const PluginContext context_;
  Files& files_;
  std::unique_ptr<Measuring> measuring_;  // from the first step() on
  std::optional<NodeUsage> node_;         // as of the last reading
  CommandRunner runner_{kMaxAnswer};
  JobFacts facts_;
  int questions_left_;
  SteadyTime next_question_ = SteadyTime::min();
};

}  // namespace scriptorium::usage
