#include "core/capture/foreign_filter.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>

// linux/fanotify.h has these since 5.19 and 6.0. The daemon asks a newer kernel for them even if it
// was built with older headers.
#ifndef FAN_MARK_EVICTABLE
#define FAN_MARK_EVICTABLE 0x00000200
#endif
#ifndef FAN_MARK_IGNORE
#define FAN_MARK_IGNORE 0x00000400
#endif
#ifndef FAN_MARK_IGNORED_SURV_MODIFY
#define FAN_MARK_IGNORED_SURV_MODIFY 0x00000040
#endif

namespace scriptorium {
namespace {

// Is the directory the root, or below it? By identity and not by name: the same file system may be
// mounted twice.
bool is_within(int directory, const std::string& root) {
  struct stat wanted{};
  if (::stat(root.c_str(), &wanted) != 0) return true;
  UniqueFd at(::openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::optional<struct stat> before;
  while (at) {
    struct stat here{};
    if (::fstat(at.get(), &here) != 0) return true;
    if (here.st_dev == wanted.st_dev && here.st_ino == wanted.st_ino) return true;
    // The top of all is its own parent.
    if (before && before->st_dev == here.st_dev && before->st_ino == here.st_ino) return false;
    before = here;
    at.reset(::openat(at.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  return true;  // unknown, so the directory is not left out
}

}  // namespace

void ForeignFilter::saw(std::string_view path) {
  const auto slash = path.rfind('/');
  if (!works_ || slash == std::string_view::npos || slash == 0 || marks_ >= kMarksMost) return;
  std::string directory(path.substr(0, slash));
  if (seen_.size() >= kCountedMost && !seen_.contains(directory)) seen_.clear();
  const auto counted = seen_.try_emplace(std::move(directory), 0).first;
  if (++counted->second < kThreshold) return;
  // The count starts again, because the mark may be evicted, or the path may lead elsewhere now.
  counted->second = 0;
  ++marks_;
  const auto done = access_.leave_out(counted->first);
  if (done || done.error().kind() != ErrorKind::kPermanent) return;
  works_ = false;
  seen_.clear();
}

void ForeignFilter::forget() {
  seen_.clear();
  if (marks_ == 0) return;
  marks_ = 0;
  access_.leave_nothing_out();
}

Result<void> leave_out_directory(int fanotify_fd, const std::string& root,
                                 const std::string& directory) {
  if (fanotify_fd < 0) return Error{ErrorKind::kPermanent, "there is no fanotify"};
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const UniqueFd fd(
      static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, directory.c_str(), &how, sizeof how)));
  if (!fd) return system_error("open " + directory, errno);
  if (is_within(fd.get(), root))
    return Error{ErrorKind::kTransient, directory + " is part of the spool"};
  std::array<char, 32> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd.get());
  // By the descriptor's own link, so that the checked directory is marked even if the path leads
  // elsewhere by now.
  if (::fanotify_mark(
          fanotify_fd,
          FAN_MARK_ADD | FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY | FAN_MARK_EVICTABLE,
          FAN_CLOSE_WRITE | FAN_EVENT_ON_CHILD, AT_FDCWD, link.data()) != 0) {
    const int code = errno;
    // A kernel before 6.0 does not know the flags.
    return Error{code == EINVAL || code == ENOSYS ? ErrorKind::kPermanent : ErrorKind::kTransient,
                 system_error("fanotify_mark " + directory, code).message()};
  }
  return {};
}

void leave_nothing_out(int fanotify_fd) {
  ::fanotify_mark(fanotify_fd, FAN_MARK_FLUSH, 0, AT_FDCWD, "/");
}

}  // namespace scriptorium
