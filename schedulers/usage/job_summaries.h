#pragma once

#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/api/plugin_context.h"
#include "core/base/command.h"
#include "core/base/guarded.h"
#include "schedulers/usage/job_config.h"
#include "schedulers/usage/job_facts.h"
#include "schedulers/usage/queued_jobs.h"

namespace scriptorium::usage {

// What squeue says of these jobs, "4711,4712"; those that slurmctld does not know are left out.
// `runner`: of at most kMaxAnswer. Waits for some seconds at most.
Result<std::vector<QueuedJob>> ask_squeue(CommandRunner& runner, const JobConfig& config,
                                          const std::string& ids, const std::stop_token& stop);

// Adds what the nodes know themselves of the job: its id, its owner, how often it was restarted.
void complete_from_nodes(JobFacts& facts, const std::vector<NodeUsage>& nodes);

// Makes usage.job of the jobs whose nodes all report to this process: asks slurmctld, in one
// question for all that ended, what they were, waits until it says how they ended, but not for
// long, and then reports what is known. Owns:    the nodes it was given until their key was told in
// Ready::done. Threads: one, but for status_json(), which any may call.
class JobSummaries {
 public:
  JobSummaries(JobConfig config, PluginContext context);

  // Also one that was given before, to this or an earlier process: its event has the same id.
  void node_ended(NodeUsage node);

  struct Ready {
    std::vector<Event> events;
    std::vector<std::string>
        done;  // JobSeen::key() of nodes that need not be given again, once the events are durable
  };
  // May ask slurmctld, for a few seconds at most.
  Ready poll(const std::stop_token& stop);
  // When poll() has something to do; nothing if no job waits.
  std::optional<SteadyTime> next_poll() const;

  std::string status_json() const;

 private:
  struct Waiting {
    std::vector<NodeUsage> nodes;
    SteadyTime ask_from;
    SteadyTime deadline;
    int absent = 0;                  // answers without this job
    std::optional<QueuedJob> known;  // the last answer about it
    bool settled = false;            // nothing better will come
  };
  struct Counts {
    std::uint64_t made = 0, left_to_accounting = 0, unanswered = 0, questions = 0,
                  failed_questions = 0, waiting = 0;
    std::string last_error;
  };

  bool asks(const NodeUsage& node) const;
  void ask(const std::stop_token& stop);
  void learn(Waiting& job, const std::vector<QueuedJob>& answer, const std::string& id) const;
  void give(Waiting& job, Ready& into);

  const JobConfig config_;
  const PluginContext context_;
  CommandRunner runner_{kMaxAnswer};
  std::map<std::string, Waiting>
      waiting_;  // by life: job id and the second in which its first node began
  SteadyTime next_question_;
  mutable Guarded<Counts> counts_;
};

}  // namespace scriptorium::usage
