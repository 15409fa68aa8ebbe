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
#include <string_view>
#include <utility>

#include "core/capture/foreign_filter.h"

namespace scriptorium {
namespace {

std::string fanotify_init_problem(int code) {
  switch (code) {
    case EPERM:
      return "fanotify needs CAP_SYS_ADMIN in the first user namespace, and a system call filter "
             "that allows fanotify_init and "
             "fanotify_mark";
    case ENOSYS: return "this kernel has no fanotify";
    case EMFILE: return "fanotify groups used up; raise fs.fanotify.max_user_groups";
    default: return system_error("fanotify_init", code).message();
  }
}

std::string fanotify_mark_problem(int code) {
  switch (code) {
    case EPERM:
      return "fanotify_mark: marking a whole file system needs CAP_SYS_ADMIN in the first user "
             "namespace";
    case ENODEV:
    case EOPNOTSUPP:
    case EXDEV: return "fanotify_mark: the spool's file system does not support it";
    case EINVAL:
      return "fanotify_mark: this kernel has no FAN_MARK_FILESYSTEM (Linux 4.20 or newer has)";
    case ENOSPC: return "fanotify marks used up; raise fs.fanotify.max_user_marks";
    default: return system_error("fanotify_mark", code).message();
  }
}

// Beneath `directory`, and no link on the way. An invalid descriptor, and errno, if it cannot be.
UniqueFd open_beneath(int directory, const char* name, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(
      ::syscall(SYS_openat2, directory, *name == '\0' ? "." : name, &how, sizeof how)));
}

// O_NONBLOCK: a FIFO in the spool must not hold us.
constexpr int kForReading = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

// Calls `take` with an entry of readdir() and whether it is a directory, until it returns false.
template <typename Take>
Result<void> each_entry(DIR* dir, const std::string& path, const Take& take) {
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(dir);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_directory = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat s{};
      is_directory = ::fstatat(::dirfd(dir), entry->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 &&
                     S_ISDIR(s.st_mode);
    }
    if (!take(*entry, is_directory)) return {};
  }
  if (errno != 0) return system_error("list " + path, errno);
  return {};
}

std::string watch_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

class DirectAccess final : public SpoolAccess {
 public:
  DirectAccess(SpoolRoot root, OpenedNotifications& opened)
      : root_(std::move(root)),
        inotify_(std::move(opened.inotify)),
        fanotify_(std::move(opened.fanotify)) {}

  const std::string& root() const override { return root_.path(); }
  int inotify_fd() const override { return inotify_.get(); }
  int fanotify_fd() const override { return fanotify_.get(); }

  Result<FileStat> stat(const std::string& path) override { return root_.stat(path); }
  Result<std::vector<SpoolName>> list(const std::string& path) override {
    std::vector<SpoolName> names;
    auto listed =
        root_.each_name(path, [&](std::string_view name, std::uint64_t inode, bool is_directory) {
          names.push_back({std::string(name), inode, is_directory});
          return true;
        });
    if (!listed) return listed.error();
    return names;
  }
  Result<UniqueFd> open(const std::string& path) override { return root_.open(path); }
  Result<std::vector<OpenedName>> list_open(const std::string& path) override {
    return root_.list_open(path);
  }
  Result<int> watch(const std::string& path, std::uint32_t mask) override {
    return root_.watch(inotify_.get(), path, mask);
  }
  void unwatch(int number) override { ::inotify_rm_watch(inotify_.get(), number); }
  Result<void> mark() override { return root_.mark(fanotify_.get()); }
  Result<void> leave_out(const std::string& directory) override {
    return leave_out_directory(fanotify_.get(), root_.path(), directory);
  }
  void leave_nothing_out() override { scriptorium::leave_nothing_out(fanotify_.get()); }

 private:
  const SpoolRoot root_;
  const UniqueFd inotify_;
  const UniqueFd fanotify_;
};

}  // namespace

void SpoolRoot::DirectoryCloser::operator()(DIR* dir) const noexcept { ::closedir(dir); }

Result<SpoolRoot> SpoolRoot::find(std::string configured, std::string below) {
  struct Freed {
    void operator()(char* text) const noexcept {
      std::free(text);
    }  // NOLINT: realpath's memory is malloc's
  };
  const std::string whole = below.empty() ? configured : configured + "/" + below;
  const std::unique_ptr<char, Freed> resolved(::realpath(whole.c_str(), nullptr));
  if (resolved == nullptr) return system_error(whole, errno);
  SpoolRoot root(std::move(configured), std::move(below), resolved.get());
  auto stat = stat_path(root.resolved_);
  if (!stat) return stat.error();
  if (!stat->is_directory())
    return Error{ErrorKind::kInvalidConfig, whole + ": is not a directory"};
  if (!root.below_.empty()) {
    if (auto opened = root.resolve("", O_PATH | O_DIRECTORY); !opened)
      return opened.error().with_context(whole);
  }
  return root;
}

Result<UniqueFd> SpoolRoot::resolve(const std::string& path, int flags) const {
  UniqueFd root(::open(configured_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return system_error("open " + configured_, errno);
  if (!below_.empty()) root = open_beneath(root.get(), below_.c_str(), O_PATH | O_DIRECTORY);
  UniqueFd fd;
  if (root) fd = open_beneath(root.get(), path.c_str(), flags);
  if (fd) return fd;
  const int code = errno;
  if (code == ELOOP) return Error{ErrorKind::kPermanent, "a symbolic link stands in the way"};
  if (code == ENXIO) return Error{ErrorKind::kPermanent, "not a regular file"};  // a socket
  return system_error("open " + path, code);
}

Result<FileStat> SpoolRoot::stat(const std::string& path) const {
  auto fd = resolve(path, O_PATH | O_NOFOLLOW);
  if (!fd) return fd.error();
  return stat_fd(fd->get());
}

Result<SpoolRoot::Directory> SpoolRoot::directory(const std::string& path) const {
  auto fd = resolve(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!fd) return fd.error();
  Directory dir(::fdopendir(fd->get()));
  if (dir == nullptr) return system_error("list " + path, errno);
  static_cast<void>(fd->release());  // closedir closes it
  return dir;
}

Result<void> SpoolRoot::each_name(const std::string& path, const TakeName& take) const {
  auto dir = directory(path);
  if (!dir) return dir.error();
  return each_entry(dir->get(), path, [&](const dirent& entry, bool is_directory) {
    return take(entry.d_name, entry.d_ino, is_directory);
  });
}

Result<std::vector<OpenedName>> SpoolRoot::list_open(const std::string& path) const {
  auto dir = directory(path);
  if (!dir) return dir.error();
  std::vector<OpenedName> names;
  std::size_t opened = 0;
  auto listed = each_entry(dir->get(), path, [&](const dirent& entry, bool is_directory) {
    OpenedName& name =
        names.emplace_back(OpenedName{{entry.d_name, entry.d_ino, is_directory}, {}});
    if (is_directory || opened == kMostOpenedNames) return true;
    name.fd = open_beneath(::dirfd(dir->get()), entry.d_name, kForReading);
    if (name.fd) {
      auto stat = stat_fd(name.fd.get());
      if (!stat || !stat->is_regular()) name.fd.reset();
    }
    if (name.fd) ++opened;
    return true;
  });
  if (!listed) return listed.error();
  return names;
}

Result<UniqueFd> SpoolRoot::open(const std::string& path) const {
  auto fd = resolve(path, kForReading);
  if (!fd) return fd;
  auto stat = stat_fd(fd->get());
  if (!stat) return stat.error();
  if (!stat->is_regular()) return Error{ErrorKind::kPermanent, "not a regular file"};
  return fd;
}

Result<int> SpoolRoot::watch(int inotify, const std::string& path, std::uint32_t mask) const {
  auto fd = resolve(path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  if (!fd) return fd.error();
  // By the descriptor: inotify takes paths only, and a path may lead elsewhere by now.
  const int number = ::inotify_add_watch(inotify, watch_path(fd->get()).c_str(),
                                         mask | IN_ONLYDIR | IN_EXCL_UNLINK);
  if (number >= 0) return number;
  if (errno == ENOSPC)
    return Error{ErrorKind::kExhausted,
                 "inotify watches used up; raise fs.inotify.max_user_watches"};
  return system_error("watch " + (path.empty() ? resolved_ : path), errno);
}

Result<void> SpoolRoot::mark(int fanotify) const {
  auto fd = resolve("", O_RDONLY | O_DIRECTORY);
  if (!fd) return fd.error();
  if (::fanotify_mark(fanotify, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_CLOSE_WRITE, fd->get(),
                      nullptr) != 0) {
    return Error{errno == ENOENT ? ErrorKind::kVanished : ErrorKind::kTransient,
                 fanotify_mark_problem(errno)};
  }
  return {};
}

OpenedNotifications open_notifications(const SpoolRoot& root, Notifications wanted) {
  OpenedNotifications opened;
  if (wanted.inotify) {
    opened.inotify.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (!opened.inotify) {
      opened.inotify_problem =
          errno == EMFILE ? "inotify instances used up; raise fs.inotify.max_user_instances"
                          : system_error("inotify_init", errno).message();
    }
  }
  if (wanted.fanotify) {
    opened.fanotify.reset(
        ::fanotify_init(FAN_CLASS_NOTIF | FAN_UNLIMITED_QUEUE | FAN_CLOEXEC | FAN_NONBLOCK,
                        O_RDONLY | O_LARGEFILE | O_CLOEXEC | O_NONBLOCK));
    if (!opened.fanotify) {
      opened.fanotify_problem = fanotify_init_problem(errno);
    } else if (auto marked = root.mark(opened.fanotify.get()); !marked) {
      opened.fanotify.reset();
      opened.fanotify_problem = marked.error().message();
    }
  }
  return opened;
}

Result<OpenedAccess> open_direct_access(const std::string& root, Notifications wanted) {
  auto found = SpoolRoot::find(root);
  if (!found) return found.error();
  OpenedNotifications notifications = open_notifications(*found, wanted);
  OpenedAccess opened;
  opened.fanotify_problem = std::move(notifications.fanotify_problem);
  opened.inotify_problem = std::move(notifications.inotify_problem);
  opened.access = std::make_unique<DirectAccess>(*std::move(found), notifications);
  return opened;
}

}  // namespace scriptorium
