#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/capture/spool_access.h"

namespace scriptorium {

// A mark on a file system reports every file that any process closes there: a compiler's objects, a
// busy log, our own archive. Each such event costs an open descriptor, a readlink and a close
// (about 5 us). This filter counts them by directory and asks the kernel to leave out the files
// directly in a directory with many (Linux 6.0 and newer, fanotify_mark(2), FAN_MARK_IGNORE with
// FAN_EVENT_ON_CHILD; older kernels keep reporting them).
//
// The marks are evictable: they pin no inode, and a directory whose mark was evicted is counted
// again. All marks are removed at each scan, and when a directory is moved into the spool, so that
// a mistake lasts no longer than until then.
//
// Threads: the capture thread only.
class ForeignFilter {
 public:
  explicit ForeignFilter(SpoolAccess& access) : access_(access) {}

  // A file outside the spool was closed; `path` is absolute, as /proc/self/fd names it.
  void saw(std::string_view path);
  // Directories that have been left out may be part of the spool now.
  void forget();

 private:
  // A directory is left out at its 16th event: an entry's own directory sees two or three.
  static constexpr std::uint32_t kThreshold = 16;
  static constexpr std::size_t kCountedMost = 1024;
  static constexpr std::uint32_t kMarksMost = 4096;  // between two calls of forget()

  SpoolAccess& access_;
  std::unordered_map<std::string, std::uint32_t> seen_;
  std::uint32_t marks_ = 0;
  bool works_ = true;  // false: this kernel cannot
};

// For SpoolAccess::leave_out(): marks `directory` (absolute) on the descriptor, unless it is the
// spool's root or below it, or a symbolic link is on the way: the path comes from an event, and a
// user who may mount in a namespace of his own can forge it. kPermanent if the kernel has no such
// marks; other errors concern this directory only.
Result<void> leave_out_directory(int fanotify_fd, const std::string& root,
                                 const std::string& directory);
// For SpoolAccess::leave_nothing_out().
void leave_nothing_out(int fanotify_fd);

}  // namespace scriptorium
