#pragma once

#include <array>
#include <climits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/capture/guarded_adapter.h"
#include "core/capture/spool_access.h"
#include "core/capture/spool_presence.h"

namespace scriptorium {

// Which file of the spool the descriptor of a notification is, as its path tells.
//
// The scheduler may write through another mount than ours: then the path does not begin with the
// spool's root, and only its end may be an entry's file.
//
// Threads: the capture thread.
class ContentLocator {
 public:
  struct Place {
    std::string_view path;      // as the kernel names it, without " (deleted)"
    std::string_view relative;  // the part of it that may be below the spool's root
    SpoolPath in_spool;         // of `relative`
    bool below_root = false;    // `path` begins with the spool's root
    bool deleted = false;       // or its name really ends with " (deleted)"
  };

  ContentLocator(SpoolAccess& access, const GuardedAdapter& adapter, const SpoolPresence& presence)
      : access_(access), adapter_(adapter), presence_(presence) {}

  // As the kernel names it. Valid until the next call, as all of Place.
  std::optional<std::string_view> path_of(int fd);
  std::optional<Place> locate(int fd);
  // For a place that is not below the root: the directory in front of it is the spool's root under
  // another name, or the very file also stands in the spool. The first is as good as the root's own
  // name: both come from the writer's mounts, and neither tells who he is.
  bool is_of_spool(const Place& place, const FileStat& stat);
  // What was learnt of other mounts may no longer hold.
  void forget_mounts() { shows_root_.clear(); }

  static constexpr std::string_view kDeleted = " (deleted)";

 private:
  std::string_view tail_of(std::string_view path) const;
  bool shows_root(std::string_view directory);

  SpoolAccess& access_;
  const GuardedAdapter& adapter_;
  const SpoolPresence& presence_;
  std::unordered_map<std::string, bool> shows_root_;  // directory -> it is the spool's root
  std::array<char, PATH_MAX> path_buffer_{};
};

}  // namespace scriptorium
