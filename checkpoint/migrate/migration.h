#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/migrate/move.h"
#include "checkpoint/migrate/options.h"
#include "checkpoint/migrate/report.h"
#include "checkpoint/migrate/slurm.h"
#include "checkpoint/migrate/state_folder.h"

namespace scriptorium::checkpoint {

// One run of scriptorium-migrate: which jobs are moved, and their moves, a few at a time. A run
// that ends in between is continued by the next one, from the state folder.
// Threads: one.
class Migration {
 public:
  using Say = std::function<void(const std::string&)>;

  // All are borrowed. `say` gets a line for each step.
  Migration(Slurm& slurm, const StateFolder& folder, const MigrateOptions& options, Say say);

  // Asked between two jobs by prepare(), which then begins nothing; step() need not be called.
  void stop_when(std::function<bool()> stops) { stops_ = std::move(stops); }
  // Finds out what can be done; with a node to drain, drains it. Fails: nothing is begun.
  Result<void> prepare(Timestamp now);
  // Does what is due; false: all is done. kTransient: Slurm has not answered for minutes; the moves
  // can be continued by another run.
  Result<bool> step(Timestamp now);
  // No further move begins; jobs that are saved are started.
  void break_off();
  // Takes back what an earlier run has left, instead of the above.
  Result<void> undo();

  // In the end: a report for each job.
  const std::vector<MoveReport>& reports() const noexcept { return reports_; }

 private:
  struct Planned {
    SlurmJob job;
    MoveState state;
  };
  struct Active {
    Move move;
    UniqueFd lock;
  };
  struct WaitedFor {
    SlurmJob job;
    Timestamp since;
    std::string reason;
  };

  Result<std::vector<SlurmJob>> list_jobs() const;
  bool is_meant(const MoveState& state) const;
  Result<void> collect(Timestamp now);
  void plan(const SlurmJob& job, Timestamp now);
  Result<std::string> find_place(const SlurmJob& job, const MoveState& state) const;
  Verdict judge(const SlurmJob& job) const;
  Result<void> drain();
  Result<void> undo_drain();
  void undo_move(const MoveState& state);
  void begin_next();
  void advance(Active& active, const std::vector<SlurmJob>& seen, Timestamp now);
  void order_signal(Active& active, const SlurmJob& job);
  void order_release(Active& active, const char* start);
  void finish(Active& active);
  void check_waited_for(const std::vector<SlurmJob>& seen, Timestamp now);
  SlurmChanges changes_of(const MoveState& state) const;
  void report(const SlurmJob& job, MoveOutcome outcome, std::string reason, bool is_as_asked);
  void save(const MoveState& state);

  Slurm& slurm_;
  const StateFolder& folder_;
  const MigrateOptions& options_;
  Say say_;
  std::function<bool()> stops_ = [] { return false; };
  std::string requeue_exit_;
  std::vector<std::string> known_;  // ids of jobs that were classified, or whose move is continued
  std::vector<Planned> planned_;
  std::vector<Active> active_;
  std::vector<WaitedFor> waited_for_;
  std::vector<MoveReport> reports_;
  std::optional<Timestamp> silent_since_;
  std::optional<UniqueFd> node_lock_;
};

}  // namespace scriptorium::checkpoint
