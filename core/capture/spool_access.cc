#include "core/capture/spool_access.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "core/capture/foreign_filter.h"

namespace scriptorium {
namespace {

struct DirCloser {
  void operator()(DIR* dir) const noexcept { ::closedir(dir); }
};

std::string fanotify_init_problem(int code) {
  switch (code) {
    case EPERM:
      return "fanotify needs CAP_SYS_ADMIN in the first user namespace, and a system call filter that allows fanotify_init and "
             "fanotify_mark";
    case ENOSYS: return "this kernel has no fanotify";
    case EMFILE: return "fanotify groups used up; raise fs.fanotify.max_user_groups";
    default: return system_error("fanotify_init", code).message();
  }
}

std::string fanotify_mark_problem(int code) {
  switch (code) {
    case EPERM: return "fanotify_mark: marking a whole file system needs CAP_SYS_ADMIN in the first user namespace";
    case ENODEV:
    case EOPNOTSUPP:
    case EXDEV: return "fanotify_mark: the spool's file system does not support it";
    case EINVAL: return "fanotify_mark: this kernel has no FAN_MARK_FILESYSTEM (Linux 4.20 or newer has)";
    case ENOSPC: return "fanotify marks used up; raise fs.fanotify.max_user_marks";
    default: return system_error("fanotify_mark", code).message();
  }
}

class DirectAccess final : public SpoolAccess {
 public:
  DirectAccess(std::string configured, std::string resolved) : configured_(std::move(configured)), root_(std::move(resolved)) {}

  const std::string& root() const override { return root_; }
  int inotify_fd() const override { return inotify_.get(); }
  int fanotify_fd() const override { return fanotify_.get(); }

  std::string start_inotify() {
    inotify_.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (inotify_) return {};
    if (errno == EMFILE) return "inotify instances used up; raise fs.inotify.max_user_instances";
    return system_error("inotify_init", errno).message();
  }

  std::string start_fanotify() {
    fanotify_.reset(::fanotify_init(FAN_CLASS_NOTIF | FAN_UNLIMITED_QUEUE | FAN_CLOEXEC | FAN_NONBLOCK,
                                    O_RDONLY | O_LARGEFILE | O_CLOEXEC | O_NONBLOCK));
    if (!fanotify_) return fanotify_init_problem(errno);
    if (auto marked = mark(); !marked) {
      fanotify_.reset();
      return marked.error().message();
    }
    return {};
  }

  Result<void> mark() override {
    if (::fanotify_mark(fanotify_.get(), FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_CLOSE_WRITE, AT_FDCWD, root_.c_str()) != 0) {
      return Error{errno == ENOENT ? ErrorKind::kVanished : ErrorKind::kTransient, fanotify_mark_problem(errno)};
    }
    return {};
  }

  Result<void> leave_out(const std::string& directory) override { return leave_out_directory(fanotify_.get(), root_, directory); }
  void leave_nothing_out() override { scriptorium::leave_nothing_out(fanotify_.get()); }

  Result<FileStat> stat(const std::string& path) override {
    auto fd = resolve(path, O_PATH | O_NOFOLLOW);
    if (!fd) return fd.error();
    return stat_fd(fd->get());
  }

  Result<std::vector<SpoolName>> list(const std::string& path) override {
    auto fd = resolve(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!fd) return fd.error();
    const std::unique_ptr<DIR, DirCloser> dir(::fdopendir(fd->get()));
    if (dir == nullptr) return system_error("list " + path, errno);
    static_cast<void>(fd->release());  // closedir closes it
    std::vector<SpoolName> names;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(dir.get());
      if (entry == nullptr) break;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      bool is_directory = entry->d_type == DT_DIR;
      if (entry->d_type == DT_UNKNOWN) {
        struct stat s{};
        is_directory = ::fstatat(::dirfd(dir.get()), entry->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(s.st_mode);
      }
      names.push_back({std::string(name), entry->d_ino, is_directory});
    }
    if (errno != 0) return system_error("list " + path, errno);
    return names;
  }

  Result<UniqueFd> open(const std::string& path) override {
    // O_NONBLOCK: a FIFO in the spool must not hold us.
    auto fd = resolve(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (!fd) return fd;
    auto stat = stat_fd(fd->get());
    if (!stat) return stat.error();
    if (!stat->is_regular()) return Error{ErrorKind::kPermanent, "not a regular file"};
    return fd;
  }

  Result<int> watch(const std::string& path, std::uint32_t mask) override {
    const int number = ::inotify_add_watch(inotify_.get(), (path.empty() ? root_ : root_ + "/" + path).c_str(),
                                           mask | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK);
    if (number < 0) {
      if (errno == ENOSPC) return Error{ErrorKind::kExhausted, "inotify watches used up; raise fs.inotify.max_user_watches"};
      return system_error("watch " + (path.empty() ? root_ : path), errno);
    }
    return number;
  }

  void unwatch(int number) override { ::inotify_rm_watch(inotify_.get(), number); }

 private:
  Result<UniqueFd> resolve(const std::string& path, int flags) {
    UniqueFd root(::open(configured_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!root) return system_error("open " + configured_, errno);
    open_how how{};
    how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, root.get(), path.empty() ? "." : path.c_str(), &how, sizeof how)));
    if (fd) return fd;
    const int code = errno;
    if (code == ELOOP) return Error{ErrorKind::kPermanent, "a symbolic link stands in the way"};
    if (code == ENXIO) return Error{ErrorKind::kPermanent, "not a regular file"};  // a socket
    return system_error("open " + path, code);
  }

  std::string configured_;
  std::string root_;
  UniqueFd inotify_;
  UniqueFd fanotify_;
};

}  // namespace

Result<OpenedAccess> open_direct_access(const std::string& root, Notifications wanted) {
  struct Freed {
    void operator()(char* text) const noexcept { std::free(text); }  // NOLINT: realpath's memory is malloc's
  };
  const std::unique_ptr<char, Freed> resolved(::realpath(root.c_str(), nullptr));
  if (resolved == nullptr) return system_error(root, errno);
  auto stat = stat_path(resolved.get());
  if (!stat) return stat.error();
  if (!stat->is_directory()) return Error{ErrorKind::kInvalidConfig, root + ": is not a directory"};
  OpenedAccess opened;
  auto access = std::make_unique<DirectAccess>(root, resolved.get());
  if (wanted.inotify) opened.inotify_problem = access->start_inotify();
  if (wanted.fanotify) opened.fanotify_problem = access->start_fanotify();
  opened.access = std::move(access);
  return opened;
}

}  // namespace scriptorium
