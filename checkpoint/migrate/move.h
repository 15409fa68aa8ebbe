#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/migrate/classify.h"
#include "checkpoint/migrate/slurm.h"
#include "core/base/time.h"

namespace scriptorium::checkpoint {

// Where the move of a job is. Written before the step that it names has its effect.
enum class MoveStage : std::uint8_t { kPlanned, kSignalled, kSaved, kReleased, kResuming, kEnded };

// What must be remembered to continue a move that was broken off.
struct MoveState {
  std::string job;
  std::string display_id;
  uid_t uid = 0;
  std::string from;
  std::string to;       // "" = not known yet
  std::string drained;  // the node that is drained meanwhile; "" = the job excludes `from`
  int restarts = 0;     // of the life that is moved; once it is saved, of the newest life
  std::int64_t lost_seconds = 0;  // of its work, if it is requeued
  MoveMethod method = MoveMethod::kTrap;
  MoveStage stage = MoveStage::kPlanned;
  Timestamp begun;  // of the signal
  Timestamp stage_begun;
  // What the job had before; "" = none.
  std::string excluded_nodes;
  std::string required_nodes;
  std::string priority;
  // The job still has what was meant for its next life only.
  bool has_temporary_changes = false;
};

// kMoved, kHeld and kRequeued are what was asked for. kMovable: in a test. kWaiting: saved, but not
// started yet.
enum class MoveOutcome : std::uint8_t {
  kMoved,
  kHeld,
  kRequeued,
  kMovable,
  kLeft,
  kNotMoved,
  kWaiting,
  kEnded,
  kBrokenOff,
  kUndone
};
const char* to_string(MoveOutcome outcome);

// The steps of one job's move, decided on what Slurm shows of it. Pure: the caller executes orders.
// Threads: one.
class Move {
 public:
  // A state that was read from a file is continued.
  Move(MoveState state, std::chrono::seconds timeout, bool holds);

  // kSignal, kRelease: write state(), then do it, and then say failed() if it was not done.
  // kInspect: say inspected(). kEnd: outcome() and reason() are final.
  enum class Order : std::uint8_t { kWait, kSignal, kRelease, kInspect, kEnd };
  // `seen`: nothing if Slurm does not know the job.
  Order next(const std::optional<SlurmJob>& seen, Timestamp now);
  void failed(const std::string& why);
  void inspected(const Result<std::optional<BatchProcess>>& batch, Timestamp now);
  // The user interrupts. kRelease: a saved job is to be started before the end.
  Order broken_off();

  const MoveState& state() const noexcept { return state_; }
  MoveState& state() noexcept { return state_; }
  MoveOutcome outcome() const noexcept { return outcome_; }
  const std::string& reason() const noexcept { return reason_; }
  // From the signal until the job was seen to be resumed.
  double downtime_seconds() const noexcept { return downtime_seconds_; }

 private:
  Order enter(MoveStage stage, Timestamp now, Order order);
  Order end(MoveOutcome outcome, std::string reason);
  Order wait_saved(const SlurmJob& job, Timestamp now);
  Order wait_resumed(const SlurmJob& job, Timestamp now);
  bool is_late(Timestamp now) const;
  double seconds_since(Timestamp time, Timestamp now) const;

  MoveState state_;
  std::chrono::seconds timeout_;
  bool holds_;
  MoveOutcome outcome_ = MoveOutcome::kBrokenOff;
  std::string reason_;
  double downtime_seconds_ = 0;
};

}  // namespace scriptorium::checkpoint
