#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/api/spool_adapter.h"
#include "core/base/command.h"
#include "core/base/guarded.h"
#include "core/base/time.h"
#include "schedulers/slurm/config.h"
#include "schedulers/slurm/squeue.h"

namespace scriptorium::slurm {

// An answer of slurmctld about one job or about all of them.
struct QueueAnswer {
  SteadyTime asked;  // what it says was true at some moment after that
  std::vector<QueueRow> rows;
};

// Asks slurmctld by squeue, and spares it: slurmctld serves no submission while it lists its jobs,
// so to list all of them may take at most one hundredth of the time in all. One such answer serves
// all that ask. A question about one job costs it about 0.4 ms, whatever the queue's length; that
// counts as well, so that the sum stays below one hundredth.
//
// squeue's text is the only interface that is tied to no release of Slurm. libslurm would be
// faster, but one binary fits one release only, and it ends the calling process when it does not
// find its slurm.conf.
//
// Owns:    the squeue processes; none outlives the call that started it.
// Threads: any. Those that list all jobs wait for each other.
// Fails:   kTransient when slurmctld cannot be asked now, kInvalidConfig when there is no squeue.
class Queue {
 public:
  // `log` and `clock` must outlive this.
  Queue(SlurmConfig config, Logger& log, const Clock& clock);

  // One job, or the array or heterogeneous job that it belongs to. No rows: slurmctld knows no such
  // job.
  Result<QueueAnswer> one(std::uint64_t job, const std::stop_token& stop, SteadyTime deadline);
  // All jobs. The last answer, if it was asked for after `since`; a new one, if it is time for
  // that; else null.
  Result<std::shared_ptr<const QueueAnswer>> all(SteadyTime since, const std::stop_token& stop,
                                                 SteadyTime deadline);
  // When all jobs may be listed again.
  SteadyTime next_list() const;
  // Lists them now, for a person who waits for it.
  Result<QueueAnswer> list(const std::stop_token& stop, SteadyTime deadline);

  SchedulerLoad load() const;

  // So much longer than an answer took is the pause before the next of its kind.
  static constexpr int kShare = 100;
  // What a question about one job costs slurmctld: REQUEST_JOB_INFO_SINGLE and
  // REQUEST_PARTITION_INFO, by sdiag.
  static constexpr std::chrono::microseconds kCostOfOne{400};

 private:
  struct State {
    SteadyTime next_list;  // all that was asked so far is paid for by then
    std::shared_ptr<const QueueAnswer> last;
    std::uint64_t single_questions = 0;
    std::uint64_t lists = 0;
    SteadyTime window_begin;  // of two windows: what was spent in this one and in the one before
    SteadyTime::duration spent{};
    SteadyTime::duration spent_before{};
    SteadyTime::duration window_before{};
  };

  Result<QueueAnswer> ask(const std::optional<std::string>& job, const std::stop_token& stop,
                          SteadyTime deadline);
  void spend(State& state, SteadyTime::duration cost) const;

  const SlurmConfig config_;
  Logger& log_;
  const Clock& clock_;
  // True while somebody lists all jobs. No timed mutex: ThreadSanitizer of gcc 12 does not see
  // pthread_mutex_clocklock().
  Guarded<bool> listing_;
  Guarded<State> state_;
  Guarded<std::vector<std::unique_ptr<CommandRunner>>> runners_;  // that are not running
};

}  // namespace scriptorium::slurm
