#pragma once

#include <memory>
#include <string>

#include "core/api/free_source.h"
#include "core/base/guarded.h"
#include "schedulers/usage/config.h"
#include "schedulers/usage/files.h"
#include "schedulers/usage/sampler.h"

namespace scriptorium::usage {

// Measures the jobs of its node, and imports finished jobs from accounting, as its configuration
// says.
//
// Three threads: the caller of run() reads counters and never waits for anything but the kernel;
// the publisher writes events, which may take as long as the journal is full, and asks slurmctld;
// GpuMonitor reads GPUs. What waits for the publisher is bounded: samples are thinned, and counted;
// summaries of nodes are kept here and in the state file.
class UsageSource final : public FreeSource {
 public:
  UsageSource(UsageConfig config, const PluginContext& context, Files& files = real_files());
  ~UsageSource() override;

  Result<void> check() override;
  Result<void> run(EventWriter& writer, std::stop_token stop, bool once) override;
  std::string status_json() const override;
  Result<std::unique_ptr<OwnJob>> own_job() override;

 private:
  class Node;  // the measuring side of one run()

  struct Status {
    std::string tree;
    UsageCounts counts;
    std::size_t gpus = 0;
    std::uint64_t samples_thinned = 0;
    std::uint64_t nodes_dropped = 0;
    std::size_t nodes_waiting = 0;
    std::string jobs;  // JobSummaries' own, as JSON
    std::string state_problem;
  };

  Result<void> run_node(EventWriter& writer, const std::stop_token& stop, bool once);

  const UsageConfig config_;
  const PluginContext context_;
  Files& files_;
  Guarded<Status> status_;
};

}  // namespace scriptorium::usage
