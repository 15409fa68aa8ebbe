#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
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

// The same with the file open for reading, where it is a regular one that can be opened.
struct OpenedName {
  SpoolName name;
  UniqueFd fd;
};
inline constexpr std::size_t kMostOpenedNames = 8;

// The only way in which capture reaches a spool. All paths are relative to its root ("" = the root
// itself). Nothing is ever written, and nothing outside the root is reached: paths are resolved
// beneath it and symbolic links are refused. No descriptor of the spool's file system is kept open
// between calls, so that it can be unmounted while the daemon runs.
//
// Threads: watch(), unwatch() and mark() from the capture thread; list(), open() and stat() from
// any.
class SpoolAccess {
 public:
  virtual ~SpoolAccess() = default;

  // The root as the kernel names it, without a final '/' (links resolved when it was opened).
  virtual const std::string& root() const = 0;
  virtual Result<FileStat> stat(const std::string& path) = 0;  // of a link: the link itself
  virtual Result<std::vector<SpoolName>> list(const std::string& path) = 0;
  // For reading. Never blocks on a FIFO; kPermanent for anything but a regular file.
  virtual Result<UniqueFd> open(const std::string& path) = 0;
  // list() and open() in one request. The first kMostOpenedNames files come open; for one that did
  // not, open() says why.
  virtual Result<std::vector<OpenedName>> list_open(const std::string& path) = 0;

  // Notifications. The descriptors are non-blocking, and -1 if there are none.
  virtual int inotify_fd() const = 0;
  virtual int fanotify_fd() const = 0;
  virtual Result<int> watch(const std::string& path, std::uint32_t mask) = 0;  // the watch's number
  virtual void unwatch(int number) = 0;
  virtual Result<void> mark() = 0;  // fanotify: the root's whole file system, closed after writing
  // fanotify: content events of files directly in `directory` (absolute, outside the spool) are not
  // wanted any more, until leave_nothing_out(). Some may still come; see leave_out_directory() in
  // foreign_filter.h for the errors.
  virtual Result<void> leave_out(const std::string& directory) = 0;
  virtual void leave_nothing_out() = 0;
};

// Which notifications to open.
struct Notifications {
  bool inotify = true;
  bool fanotify = true;
};

// A spool's directory, and everything that is done with it by this process's own rights. Both ways
// of access use it: the direct one in the daemon, the spool opener in its own process.
class SpoolRoot {
 public:
  // Every call looks `configured` up again, so that a spool that was unmounted is found again. With
  // `below`, the root is that directory beneath it, without symbolic links on the way. kVanished if
  // it is not there; kInvalidConfig if it is not a directory.
  static Result<SpoolRoot> find(std::string configured, std::string below = {});

  // As the kernel named it when it was found.
  const std::string& path() const noexcept { return resolved_; }
  Result<FileStat> stat(const std::string& path) const;
  // Calls `take` for each name, until it returns false. `directory` is open during the call.
  using TakeName = std::function<bool(SpoolName name, int directory)>;
  Result<void> each_name(const std::string& path, const TakeName& take) const;
  Result<std::vector<SpoolName>> list(const std::string& path) const;
  Result<std::vector<OpenedName>> list_open(const std::string& path) const;
  Result<UniqueFd> open(const std::string& path) const;
  Result<int> watch(int inotify, const std::string& path, std::uint32_t mask) const;
  Result<void> mark(int fanotify) const;

 private:
  SpoolRoot(std::string configured, std::string below, std::string resolved)
      : configured_(std::move(configured)),
        below_(std::move(below)),
        resolved_(std::move(resolved)) {}
  Result<UniqueFd> resolve(const std::string& path, int flags) const;

  std::string configured_;
  std::string below_;
  std::string resolved_;
};

// The descriptors to read notifications from. Where one was asked for and is missing, its problem
// says why.
struct OpenedNotifications {
  UniqueFd inotify;
  UniqueFd fanotify;
  std::string inotify_problem;
  std::string fanotify_problem;
};
OpenedNotifications open_notifications(const SpoolRoot& root, Notifications wanted);

struct OpenedAccess {
  std::unique_ptr<SpoolAccess> access;
  std::string fanotify_problem;
  std::string inotify_problem;
};
// Access with this process's own rights. kVanished if the root is not there.
Result<OpenedAccess> open_direct_access(const std::string& root, Notifications wanted);

}  // namespace scriptorium
