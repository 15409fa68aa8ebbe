#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "core/api/logger.h"
#include "core/api/spool_adapter.h"
#include "core/base/time.h"
#include "schedulers/slurm/config.h"
#include "schedulers/slurm/queue.h"
#include "schedulers/slurm/squeue.h"
#include "schedulers/slurm_client/names.h"

namespace scriptorium::slurm {

// Asks slurmctld who owns jobs: one by one while few are new, and else from a list of all jobs, for
// which they wait until slurmctld may be asked for one again.
//
// Threads: one at a time; load() from any.
// Fails:   as Queue.
class SqueueResolver final : public OwnerResolver {
 public:
  // `log` and `clock` must outlive this.
  SqueueResolver(std::shared_ptr<Queue> queue, SlurmConfig config, Logger& log, const Clock& clock,
                 slurm_client::AccountNames names = slurm_client::system_account_names());

  // So many new jobs are asked for one by one, at most kSinglesARound in a kRound: each takes a
  // process and 3 ms of CPU here.
  static constexpr std::size_t kMostSingles = 50;
  static constexpr std::size_t kSinglesARound = 25;
  static constexpr std::chrono::seconds kRound{1};

  std::chrono::milliseconds min_interval() const override;
  SchedulerLoad load() const override { return queue_->load(); }
  // A job that slurmctld does not list in two answers, kRound apart, is kUnknown.
  Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries,
                                           std::stop_token stop, SteadyTime deadline) override;
  Result<void> check() override;

 private:
  struct Absence {
    SteadyTime first;  // when the first answer without it was asked for
    SteadyTime last;
  };
  struct LatestEntry {
    std::int64_t script_mtime_ns = 0;
    SteadyTime asked;
  };
  // Tells two entries of one id apart.
  using EntryKey = std::pair<std::uint64_t, std::int64_t>;

  // A query that is asked for, one of a job that slurmctld could know.
  struct Asked {
    const OwnerQuery* query = nullptr;
    std::size_t place = 0;  // among all queries, and so of its answer
    std::uint64_t id = 0;
    EntryKey key() const { return {id, query->script_mtime_ns}; }
  };
  using Answers = std::vector<OwnerAnswer>;

  // The queries that are asked for; the others are answered.
  std::vector<Asked> to_ask(std::span<const OwnerQuery> queries, Answers& answers);
  // Which of them are asked for now, one job after the other.
  std::vector<const Asked*> choose_single(const std::vector<Asked>& asked);
  // `hidden` counts jobs that slurmctld does not list though their entries are there.
  Result<void> ask_singly(const std::vector<Asked>& asked, Answers& answers, std::size_t& hidden,
                          const std::stop_token& stop, SteadyTime deadline);
  Result<void> ask_for_list(const std::vector<Asked>& asked, const std::set<std::uint64_t>& ids,
                            Answers& answers, std::size_t& hidden, const std::stop_token& stop,
                            SteadyTime deadline);
  void log_hidden(std::size_t hidden);
  OwnerAnswer answer_of(const QueueAnswer& answer, const RowsById& rows, const Asked& asked,
                        std::size_t& hidden);
  OwnerAnswer::State note_absence(const EntryKey& entry, SteadyTime asked);
  void forget_old();

  const std::shared_ptr<Queue> queue_;
  const SlurmConfig config_;
  Logger& log_;
  const Clock& clock_;
  slurm_client::CachedNames names_;
  std::map<EntryKey, Absence> absent_;
  std::map<std::uint64_t, LatestEntry> latest_;
  std::shared_ptr<const QueueAnswer>
      list_;  // the last list of all jobs, while there are jobs that it may name
  SteadyTime round_begin_;
  std::size_t asked_in_round_ = 0;
  bool postponed_ = false;  // the last resolve() could only wait for the next list
};

// Tells a job without a script, or an array's task, from a job whose entry was never seen.
class SqueueNumbers final : public NumberResolver {
 public:
  explicit SqueueNumbers(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  Result<std::optional<std::vector<NumberUse>>> numbers(const Question& question,
                                                        std::stop_token stop,
                                                        SteadyTime deadline) override;

 private:
  const std::shared_ptr<Queue> queue_;
};

}  // namespace scriptorium::slurm
