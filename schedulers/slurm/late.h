#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "core/api/kit/repeat_limit.h"
#include "core/api/logger.h"
#include "core/api/spool_adapter.h"
#include "core/base/command.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "schedulers/slurm/config.h"
#include "schedulers/slurm/queue.h"
#include "schedulers/slurm/squeue.h"
#include "schedulers/slurm_client/names.h"

namespace scriptorium::slurm {

// Says whose jobs were that went out unverified: asks slurmctld, and accounting (sacct) about what
// slurmctld has forgotten. The entry may be gone, so the times decide: a row counts if its submit
// time is the script's or a second before it.
//
// Both are spared: slurmctld as all that use `queue` do it, accounting by a pause after each round
// of questions. Where there is no accounting, slurmctld's answer is all there is.
//
// Owns:    the sacct process, which does not outlive the call.
// Threads: one at a time.
// Fails:   kTransient, if neither can be asked now.
class LateResolver final : public LateOwnerResolver {
 public:
  // `log` and `clock` must outlive this.
  LateResolver(std::shared_ptr<Queue> queue, SlurmConfig config, Logger& log, const Clock& clock,
               slurm_client::AccountNames names = slurm_client::system_account_names());

  // At most this many jobs in one sacct; fewer after one that did not end in time or answered too
  // much.
  static constexpr std::size_t kAtOnce = 100;
  // Jobs that accounting is asked about before the next pause.
  static constexpr std::size_t kARound = 300;
  // The pause before the next questions, as a multiple of the time that the last ones took; at most
  // kLongestPause.
  static constexpr int kPause = 20;
  static constexpr std::chrono::seconds kLongestPause{60};
  // An answer may be as large; that is some hundred thousand rows.
  static constexpr std::size_t kMaxAnswer = std::size_t{16} << 20;

  Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries,
                                           std::stop_token stop, SteadyTime deadline) override;

 private:
  // A query that has no answer yet.
  struct Open {
    std::size_t place = 0;  // in `queries`
    EntryIdentity entry;
    SteadyTime since;
    bool not_in_queue = false;  // slurmctld was asked, and does not list it
  };
  struct Accounted {
    bool is_there = true;         // false: this Slurm keeps no account, or there is no sacct
    std::optional<Error> failed;  // this question was not answered
    bool heavy = false;           // as the answer was too large, or
    bool late = false;            // did not come in time: fewer jobs at once may do
    std::vector<QueueRow> rows;
  };

  std::vector<Open> open_queries(std::span<const OwnerQuery> queries,
                                 std::vector<OwnerAnswer>& answers) const;
  Result<void> ask_queue(std::vector<Open>& open, std::vector<OwnerAnswer>& answers,
                         const std::stop_token& stop, SteadyTime deadline);
  // True if it answered about some of them, though it may not know them.
  Result<bool> ask_accounting(std::vector<Open>& open, std::vector<OwnerAnswer>& answers,
                              const std::stop_token& stop, SteadyTime deadline);
  Accounted ask(std::span<const std::uint64_t> ids, const std::stop_token& stop,
                SteadyTime deadline);
  // The jobs in the order in which they are asked for.
  std::vector<std::uint64_t> ids_in_turn(const std::vector<Open>& open) const;
  // Accounting has answered about these jobs: their queries are answered, or unknown.
  void close(std::span<const std::uint64_t> about, const std::vector<QueueRow>& rows,
             std::vector<Open>& open, std::vector<OwnerAnswer>& answers);
  void log_no_accounting();
  void log_failed(const Error& error);
  // Takes the answer if it names the owner.
  bool settle(OwnerAnswer& answer, OwnerAnswer&& found);

  const std::shared_ptr<Queue> queue_;
  const SlurmConfig config_;
  Logger& log_;
  const Clock& clock_;
  slurm_client::CachedNames names_;
  CommandRunner runner_{kMaxAnswer};
  SteadyTime next_round_;  // accounting is not asked before
  std::size_t at_once_ = kAtOnce;
  std::uint64_t begin_at_ =
      0;  // the job that the next round begins with, so that a heavy one holds up no other
  RepeatLimit logged_;
};

}  // namespace scriptorium::slurm
