#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/migrate/move.h"
#include "core/base/file.h"
#include "core/base/result.h"

namespace scriptorium::checkpoint {

// A node that was drained by scriptorium-migrate.
struct DrainState {
  std::string node;
  std::string reason;  // as Slurm shows it
};

// Pure. Parsing fails with kCorrupt.
std::string move_state_text(const MoveState& state);
Result<MoveState> parse_move_state(std::string_view text);

// The moves that are not done yet, and the nodes that were drained: a file of mode 0600 for each,
// from which a later run continues or takes them back. Files survive a power cut.
// Threads: one. Several processes may use it; a move and a drain are locked by one at a time.
class StateFolder {
 public:
  static Result<StateFolder> open(const std::string& path);

  // "job-4711", "node-n1". While the descriptor is open, other processes get kPermanent.
  Result<UniqueFd> lock(const std::string& name) const;

  Result<void> put(const MoveState& state) const;
  Result<void> put(const DrainState& state) const;
  void remove_move(const std::string& job) const;
  void remove_drain(const std::string& node) const;
  Result<std::optional<MoveState>> move(const std::string& job) const;
  Result<std::optional<DrainState>> drain(const std::string& node) const;
  // Those that can be read.
  std::vector<MoveState> moves() const;

 private:
  explicit StateFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Pure: $XDG_STATE_HOME/scriptorium-migrate, else for root /var/lib/scriptorium-migrate, else in
// ~/.local/state. "" = there is no home directory.
std::string state_folder_path(const std::string& xdg_state_home, const std::string& home,
                              bool is_root);

}  // namespace scriptorium::checkpoint
