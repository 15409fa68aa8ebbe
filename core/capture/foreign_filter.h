#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/capture/spool_access.h"

namespace scriptorium {

// A mark on a file system tells of every file that anybody closes there: a compiler's objects, a
// chatty log, our own archive. Each such event costs an open descriptor, a readlink and a close
// (about 5 us). Directories that bring many of them are reported here, and the kernel is then told
// to leave out what stands directly in them (Linux 6.0 and newer, fanotify_mark(2), FAN_MARK_IGNORE
// with FAN_EVENT_ON_CHILD; older kernels go on as before).
//
// The marks are evictable: they pin no inode, and one that went away is learnt again. All of them
// are let go at each scan, and when a directory is moved into the spool, so that a mistake can live
// no longer than until then.
//
// Threads: the capture thread only.
class ForeignFilter {
 public:
  explicit ForeignFilter(SpoolAccess& access) : access_(access) {}

  // A file was closed that is none of the spool's; `path` is absolute, as /proc/self/fd names it.
  void saw(std::string_view path);
  // What has been left out so far may be part of the spool now.
  void forget();

  std::uint64_t directories_left_out() const { return left_out_; }  // since the start

 private:
  // A directory is left out at its 16th event: an entry's own directory sees two or three.
  static constexpr std::uint32_t kThreshold = 16;
  static constexpr std::size_t kCountedMost = 1024;
  static constexpr std::uint32_t kMarksMost = 4096;  // between two calls of forget()

  SpoolAccess& access_;
  std::unordered_map<std::string, std::uint32_t> seen_;
  std::uint32_t marks_ = 0;
  std::uint64_t left_out_ = 0;
  bool works_ = true;  // false: this kernel cannot
};

// For SpoolAccess::leave_out(): marks `directory` (absolute) on the descriptor, unless it is the
// spool's root, stands below it, or a symbolic link is on the way: the path comes from an event,
// and whoever may mount in a namespace of his own can make it any. kPermanent if the kernel has no
// such marks; other errors mean this directory only.
Result<void> leave_out_directory(int fanotify_fd, const std::string& root,
                                 const std::string& directory);
// For SpoolAccess::leave_nothing_out().
void leave_nothing_out(int fanotify_fd);

}  // namespace scriptorium
