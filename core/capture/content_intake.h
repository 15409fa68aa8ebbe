#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/capture/action_runner.h"
#include "core/capture/foreign_filter.h"
#include "core/capture/notification_reader.h"

namespace scriptorium {

// Takes the closed files that fanotify reports. The scheduler's files go into the table; all others
// are dropped as early as possible.
//
// Which file of the spool a descriptor is follows from its path. The scheduler may write through
// another mount than ours: then the path does not begin with the spool's root, and only its end may
// be an entry's file.
//
// Threads: the capture thread. Borrows everything for its life.
class ContentIntake {
 public:
  ContentIntake(const CaptureContext& context, const EntryTable& table,
                const SpoolPresence& presence, ActionRunner& runner)
      : context_(context), table_(table), presence_(presence), runner_(runner) {}

  void take(const ContentEvent& event);
  // What was learnt about other mounts, or about directories outside the spool, may have changed.
  void forget_mounts() { is_root_.clear(); }
  void forget_foreign() { foreign_.forget(); }

 private:
  struct Place {
    std::string_view path;      // as the kernel names it, without " (deleted)"
    std::string_view relative;  // the part of it that may be below the spool's root
    SpoolPath in_spool;         // of `relative`
    bool below_root = false;    // `path` begins with the spool's root
    bool deleted = false;       // or its name really ends with " (deleted)"
  };

  void take_file(int fd);
  void read(int fd, const Place& place, FileStat stat);
  // As the kernel names it. Valid until the next call, as all of Place.
  std::optional<std::string_view> path_of(int fd);
  std::optional<Place> locate(int fd);
  std::string_view tail_of(std::string_view path) const;
  bool is_of_spool(const Place& place, const FileStat& stat);
  bool is_root(std::string_view directory);

  const CaptureContext& context_;
  const EntryTable& table_;
  const SpoolPresence& presence_;
  ActionRunner& runner_;
  ForeignFilter foreign_{context_.access};
  const pid_t own_pid_ = ::getpid();
  std::uint64_t own_writes_ = 0;
  std::unordered_map<std::string, bool> is_root_;  // directories, by the paths of other mounts
  std::array<char, PATH_MAX> path_buffer_{};
};

}  // namespace scriptorium
