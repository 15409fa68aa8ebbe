#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/result.h"

namespace scriptorium {

// One name in a directory of the spool.
struct SpoolName {
  std::string name;
  std::uint64_t inode = 0;
  bool is_directory = false;
};

// The one way in which capture reaches a spool. All paths are relative to its root ("" = the root itself). Nothing is
// ever written, and nothing outside the root is reached: paths are resolved beneath it and symbolic links are refused.
// No descriptor of the spool's file system is held between calls, so that it can be unmounted while we run.
//
// Threads: watch(), unwatch() and mark() from the capture thread; list(), open() and stat() from any.
class SpoolAccess {
 public:
  virtual ~SpoolAccess() = default;

  // The root as the kernel names it, without a final '/' (links resolved when it was last looked up).
  virtual const std::string& root() const = 0;
  virtual Result<FileStat> stat(const std::string& path) = 0;  // of a link: the link itself
  virtual Result<std::vector<SpoolName>> list(const std::string& path) = 0;
  // For reading. Never blocks on a FIFO; kPermanent for anything but a regular file.
  virtual Result<UniqueFd> open(const std::string& path) = 0;

  // Notifications. The descriptors are non-blocking, and -1 if there are none.
  virtual int inotify_fd() const = 0;
  virtual int fanotify_fd() const = 0;
  virtual Result<int> watch(const std::string& path, std::uint32_t mask) = 0;  // the watch's number
  virtual void unwatch(int number) = 0;
  virtual Result<void> mark() = 0;  // fanotify: the root's whole file system, closed after writing
  // fanotify: content events of what stands directly in `directory` (absolute, outside the spool) need not come any more,
  // until leave_nothing_out(). A wish only; see leave_out_directory() in foreign_filter.h for the errors.
  virtual Result<void> leave_out(const std::string& directory) = 0;
  virtual void leave_nothing_out() = 0;
};

// Which notifications to open.
struct Notifications {
  bool inotify = true;
  bool fanotify = true;
};

// Access with this process's own rights. `fanotify_problem` says why there is no fanotify though it was asked for.
// kVanished if the root is not there.
struct OpenedAccess {
  std::unique_ptr<SpoolAccess> access;
  std::string fanotify_problem;
  std::string inotify_problem;
};
Result<OpenedAccess> open_direct_access(const std::string& root, Notifications wanted);

}  // namespace scriptorium
