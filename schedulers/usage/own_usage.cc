#include "schedulers/usage/own_usage.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "schedulers/slurm_client/names.h"
#include "schedulers/usage/events.h"
#include "schedulers/usage/job_events.h"
#include "schedulers/usage/job_summaries.h"

namespace scriptorium::usage {
namespace {

using namespace std::chrono_literals;

constexpr int kMostQuestions = 3;
constexpr auto kBetweenQuestions = 60s;
// The clocks of two nodes may differ by a little.
constexpr std::int64_t kClockNs = 5 * kSecond;

bool same_run(const NodeUsage& a, const NodeUsage& b) {
  return a.job.scheduler == b.job.scheduler && a.job.job_id == b.job.job_id &&
         a.job.started_at.nanoseconds <= b.ended_at.nanoseconds + kClockNs &&
         b.job.started_at.nanoseconds <= a.ended_at.nanoseconds + kClockNs;
}

}  // namespace

std::vector<NodeUsage> nodes_of_parts(const std::vector<std::string>& parts, const NodeUsage& own) {
  std::map<std::string, NodeUsage> newest;
  newest.emplace(own.job.node, own);
  for (const std::string& part : parts) {
    auto node = parse_node(part);
    if (!node || !same_run(*node, own)) continue;
    const auto [found, is_new] = newest.try_emplace(node->job.node, *node);
    if (!is_new && found->second.ended_at < node->ended_at) found->second = *std::move(node);
  }
  std::vector<NodeUsage> nodes;
  for (auto& [name, node] : newest) nodes.push_back(std::move(node));
  return nodes;
}

struct OwnUsage::Measuring {
  Measuring(const Options& options, Files& files, const PluginContext& context)
      : gpus(options.gpus, files, context.log, context.clock),
        sampler(options.sampler, files, gpus, context.log, context.clock) {}

  GpuMonitor gpus;
  Sampler sampler;
};

Result<std::unique_ptr<OwnJob>> OwnUsage::find(Options options, const PluginContext& context,
                                               Files& files) {
  std::string groups;
  static_cast<void>(read_text(files, options.sampler.proc + "/self/cgroup", groups));
  Variables variables = read_variables(::environ);
  auto own = find_own_place(groups, variables);
  if (!own) {
    return Error{ErrorKind::kVanished,
                 "this process does not run in a job: neither its control groups nor SLURM_JOB_ID "
                 "and PBS_JOBID name one"};
  }
  options.sampler.only = own->directory;
  // Several slurmds on a machine have jobs of the same number.
  if (!own->place.node.empty()) options.sampler.nodes = {own->place.node};
  if (own->place.node.empty()) own->place.node = options.sampler.node;
  // A report is of what was seen, however little.
  options.jobs.findings.set("min_samples", 1);
  return std::unique_ptr<OwnJob>(std::make_unique<OwnUsage>(*std::move(own), std::move(options),
                                                            std::move(variables), context, files));
}

OwnUsage::OwnUsage(OwnPlace own, Options options, Variables variables, const PluginContext& context,
                   Files& files)
    : own_(std::move(own)),
      options_(std::move(options)),
      variables_(std::move(variables)),
      context_(context),
      files_(files),
      facts_(facts_of(variables_, own_.directory.scheduler)),
      questions_left_(own_.directory.scheduler == "slurm" &&
                              options_.jobs.resolve == Resolve::kSlurmctld
                          ? kMostQuestions
                          : 0) {}

OwnUsage::~OwnUsage() = default;

Result<bool> OwnUsage::step(bool now) {
  if (!measuring_) measuring_ = std::make_unique<Measuring>(options_, files_, context_);
  Sampler& sampler = measuring_->sampler;
  const std::uint64_t before = sampler.counts().readings;
  sampler.step();
  if (now && sampler.counts().readings == before) sampler.sweep();
  static_cast<void>(sampler.take());
  if (sampler.counts().readings == before) {
    if (node_) return false;
    return Error{ErrorKind::kPermanent,
                 "job " + own_.place.job + " has no control groups on this node (" +
                     own_.place.node + ") that can be read below " + options_.sampler.root +
                     "; run this on a node of the job, where the scheduler makes control groups "
                     "for jobs"};
  }
  for (NodeUsage& node : sampler.so_far()) {
    // The directory may have a name that its owner does not know.
    node.job.job_id = own_.place.job;
    node_ = std::move(node);
  }
  return true;
}

SteadyTime OwnUsage::next_step() const { return measuring_->sampler.next_due(); }

int OwnUsage::notify_fd() const noexcept { return measuring_->sampler.notify_fd(); }

std::string OwnUsage::part() const { return node_ ? node_record(*node_) : std::string{}; }

const JobFacts& OwnUsage::facts(const std::stop_token& stop) {
  const SteadyTime now = context_.clock.steady();
  if (questions_left_ == 0 || now < next_question_ || stop.stop_requested()) return facts_;
  --questions_left_;
  next_question_ = now + kBetweenQuestions;
  auto answer = ask_squeue(runner_, options_.jobs, own_.place.job, stop);
  if (!answer) return facts_;
  for (QueuedJob& job : *answer) {
    if (job.id != own_.place.job) continue;
    facts_ = std::move(job.facts);
    questions_left_ = 0;
  }
  return facts_;
}

std::vector<Event> OwnUsage::merge(const std::vector<std::string>& parts, bool running,
                                   const std::stop_token& stop) {
  if (!node_) return {};
  std::vector<NodeUsage> nodes = nodes_of_parts(parts, *node_);
  JobFacts facts = this->facts(stop);
  // How it will have ended is not known here.
  facts.state = running ? std::optional<std::string>("RUNNING") : std::nullopt;
  complete_from_nodes(facts, nodes);
  const auto cluster = variables_.find("SLURM_CLUSTER_NAME");
  const std::string name = cluster == variables_.end() ? context_.cluster : cluster->second;
  std::vector<Event> events;
  for (const NodeUsage& node : nodes) {
    slurm_client::add_names(events.emplace_back(node_event(name, node)).user);
  }
  events.insert(events.begin(),
                job_event(name, own_.directory.scheduler,
                          view_of(std::move(facts), std::move(nodes)), options_.jobs.findings));
  return events;
}

}  // namespace scriptorium::usage
