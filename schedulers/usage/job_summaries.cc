#include "schedulers/usage/job_summaries.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/number.h"
#include "core/base/time.h"
#include "schedulers/slurm_client/command.h"
#include "schedulers/slurm_client/names.h"
#include "schedulers/usage/job_events.h"

namespace scriptorium::usage {
namespace {

using namespace std::literals;

constexpr auto kBetweenQuestions = 1s;
constexpr auto kPatience = 8s;  // for a job's final state, and for its other nodes on this machine
constexpr auto kQuestionPatience = 5s;
constexpr int kAbsences = 2;  // answers without a job, from which on slurmctld does not know it
// The nodes of a large srun job all end at once, and none of them knows whether it is the first.
constexpr std::size_t kSpreadSeconds = 10;
constexpr std::size_t kMostInAQuestion = 500;
constexpr std::int64_t kRecent = 60 * kSecond;

// Nothing but a number may go into a command line.
bool has_number(const NodeUsage& node) {
  return node.job.scheduler == "slurm" && parse_number<std::uint64_t>(node.job.job_id).has_value();
}

bool same_life(const NodeUsage& a, const NodeUsage& b) {
  return a.job.started_at <= b.ended_at && b.job.started_at <= a.ended_at;
}

}  // namespace

void complete_from_nodes(JobFacts& facts, const std::vector<NodeUsage>& nodes) {
  const JobSeen& first = nodes.front().job;
  facts.job.id = first.job_id;
  for (const NodeUsage& node : nodes) {
    if (!facts.restarts) facts.restarts = node.job.restarts;
    if (!facts.sluid) facts.sluid = node.job.sluid;
    if (facts.user.id || !node.job.uid) continue;
    facts.user.id = std::to_string(*node.job.uid);
    facts.user.verified = node.job.uid_trusted;
  }
  for (const NodeUsage& node : nodes) {
    if (!facts.user.verified && !facts.user.unverified_reason)
      facts.user.unverified_reason = node.job.uid_problem;
  }
  if (facts.user.verified) slurm_client::add_names(facts.user);
}

Result<std::vector<QueuedJob>> ask_squeue(CommandRunner& runner, const JobConfig& config,
                                          const std::string& ids, const std::stop_token& stop) {
  const auto squeue = slurm_client::find_command(config.squeue, "squeue");
  if (!squeue) return squeue.error();
  const auto guard = slurm_client::new_guard();
  if (!guard) return guard.error();
  const auto answer =
      runner.run({*squeue,
                  {"-h", "-a", "--local", "-t", "all", "-j", ids},
                  slurm_client::squeue_environment(config.slurm_conf, queue_format(*guard))},
                 stop, std::chrono::steady_clock::now() + kQuestionPatience);
  if (!answer) return answer.error();
  if (answer->status == 0) return parse_queue(answer->output, *guard);
  if (slurm_client::says_unknown_job(answer->error)) return std::vector<QueuedJob>{};
  return exit_error("squeue", *answer);
}

JobSummaries::JobSummaries(JobConfig config, PluginContext context)
    : config_(std::move(config)), context_(std::move(context)) {}

bool JobSummaries::asks(const NodeUsage& node) const {
  return config_.resolve == Resolve::kSlurmctld && has_number(node);
}

void JobSummaries::node_ended(NodeUsage node) {
  const SteadyTime now = context_.clock.steady();
  std::string key = node.job.scheduler + ' ' + node.job.job_id;
  for (auto found = waiting_.find(key); found != waiting_.end(); found = waiting_.find(key)) {
    auto& nodes = found->second.nodes;
    if (std::any_of(nodes.begin(), nodes.end(),
                    [&](const NodeUsage& n) { return n.job.key() == node.job.key(); }))
      return;
    if (same_life(nodes.front(), node)) break;
    key += '+';  // an earlier life of a job that was requeued still waits
  }
  auto [place, fresh] = waiting_.try_emplace(key);
  Waiting& job = place->second;
  auto from = now;
  if (!node.job.batch_step)
    from += std::chrono::seconds(std::hash<std::string>{}(node.job.key()) % kSpreadSeconds);
  job.ask_from = fresh ? from : std::min(job.ask_from, from);
  job.deadline = job.ask_from + kPatience;
  job.settled = job.settled || !asks(node);
  job.nodes.push_back(std::move(node));
  counts_.with([&](Counts& c) { c.waiting = waiting_.size(); });
}

void JobSummaries::learn(Waiting& job, const std::vector<QueuedJob>& answer,
                         const std::string& id) const {
  const auto row =
      std::find_if(answer.begin(), answer.end(), [&](const QueuedJob& q) { return q.id == id; });
  Timestamp ended = job.nodes.front().ended_at;
  for (const NodeUsage& node : job.nodes) ended = std::max(ended, node.ended_at);
  if (row == answer.end()) {
    job.settled = ++job.absent >= kAbsences;
    // What ended long ago it may have forgotten; what ended just now it knows, and does not say
    // us.
    if (job.settled && context_.clock.now().nanoseconds - ended.nanoseconds < kRecent) {
      context_.log.warning("USAGE_JOBS_HIDDEN",
                           "slurmctld does not list a job that ended a moment ago, so its usage "
                           "goes out without what it had asked for; "
                           "give our user operator level if PrivateData hides jobs, and see that "
                           "slurm_conf is this cluster's",
                           {{"job", id}, {"uid", static_cast<std::uint64_t>(::geteuid())}});
    }
    return;
  }
  const auto& started = row->facts.started_at;
  // The clocks of two machines may differ by a little.
  const bool this_life = (row->is_final || row->running) && started &&
                         started->nanoseconds <= ended.nanoseconds + 5 * kSecond;
  if (this_life) {
    job.known = *row;
    job.settled = row->is_final && job.nodes.size() >= row->facts.request.nodes.value_or(1);
  } else if (row->facts.restarts.value_or(0) > 0) {
    // It was put back into the queue: the question was the same, the end is known, the times are of
    // another life.
    job.known = *row;
    job.known->facts.state = "REQUEUED";
    job.known->facts.exit_code.reset();
    for (auto* time : {&job.known->facts.started_at, &job.known->facts.ended_at}) time->reset();
    for (auto* seconds : {&job.known->facts.elapsed_seconds, &job.known->facts.suspended_seconds})
      seconds->reset();
    job.known->facts.restarts = *row->facts.restarts - 1;
    job.settled = true;
  } else {
    job.settled = true;  // the number is another job's by now
  }
}

void JobSummaries::ask(const std::stop_token& stop) {
  const SteadyTime now = context_.clock.steady();
  std::vector<Waiting*> asked;
  std::string ids;
  for (auto& [key, job] : waiting_) {
    if (job.settled || job.ask_from > now || asked.size() >= kMostInAQuestion) continue;
    asked.push_back(&job);
    ids += (ids.empty() ? "" : ",") + job.nodes.front().job.job_id;
  }
  if (asked.empty() || now < next_question_) return;
  next_question_ = now + kBetweenQuestions;
  const auto answer = ask_squeue(runner_, config_, ids, stop);
  counts_.with([&](Counts& c) {
    ++c.questions;
    if (!answer) {
      ++c.failed_questions;
      c.last_error = answer.error().message();
    }
  });
  if (!answer) {
    context_.log.warning("USAGE_JOBS_UNANSWERED",
                         "slurmctld did not say what finished jobs had asked for; their usage goes "
                         "out without it if it does not "
                         "answer soon",
                         {{"reason", answer.error().message()}});
    return;
  }
  for (Waiting* job : asked) learn(*job, *answer, job->nodes.front().job.job_id);
}

void JobSummaries::give(Waiting& job, Ready& into) {
  for (const NodeUsage& node : job.nodes) into.done.push_back(node.job.key());
  const bool script_ran_here = std::any_of(job.nodes.begin(), job.nodes.end(),
                                           [](const NodeUsage& n) { return n.job.batch_step; });
  const std::uint32_t expected = job.known ? job.known->facts.request.nodes.value_or(1) : 1;
  if (expected > job.nodes.size()) {
    counts_.with([](Counts& c) { ++c.left_to_accounting; });
    return;
  }
  // Without an answer only the node of the script can be taken for the whole job.
  if (!job.known && asks(job.nodes.front())) {
    counts_.with([](Counts& c) { ++c.unanswered; });
    if (!script_ran_here) return;
  }
  JobFacts facts = job.known ? std::move(job.known->facts) : JobFacts{};
  complete_from_nodes(facts, job.nodes);
  const std::string scheduler = job.nodes.front().job.scheduler;
  into.events.push_back(job_event(context_.cluster, scheduler,
                                  view_of(std::move(facts), std::move(job.nodes)),
                                  config_.findings));
  counts_.with([](Counts& c) { ++c.made; });
}

JobSummaries::Ready JobSummaries::poll(const std::stop_token& stop) {
  Ready ready;
  ask(stop);
  const SteadyTime now = context_.clock.steady();
  for (auto job = waiting_.begin(); job != waiting_.end();) {
    if (!job->second.settled && now < job->second.deadline) {
      ++job;
      continue;
    }
    give(job->second, ready);
    job = waiting_.erase(job);
  }
  counts_.with([&](Counts& c) { c.waiting = waiting_.size(); });
  return ready;
}

std::optional<SteadyTime> JobSummaries::next_poll() const {
  std::optional<SteadyTime> next;
  for (const auto& [key, job] : waiting_) {
    const SteadyTime at =
        job.settled ? SteadyTime{} : std::min(std::max(job.ask_from, next_question_), job.deadline);
    next = next ? std::min(*next, at) : at;
  }
  return next;
}

std::string JobSummaries::status_json() const {
  return counts_.with([](const Counts& c) {
    nlohmann::ordered_json json{{"made", c.made},
                                {"waiting", c.waiting},
                                {"unanswered", c.unanswered},
                                {"left_to_accounting", c.left_to_accounting},
                                {"questions", c.questions},
                                {"failed_questions", c.failed_questions}};
    json["last_error"] =
        c.last_error.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(c.last_error);
    return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  });
}

}  // namespace scriptorium::usage
