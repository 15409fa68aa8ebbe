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
#include <filesystem>
#include <string_view>
#include <system_error>
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

// Opens `name` beneath `directory`, without a link on the way. Sets errno if it cannot.
UniqueFd open_beneath(int directory, const char* name, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(
      ::syscall(SYS_openat2, directory, *name == '\0' ? "." : name, &how, sizeof how)));
}

// O_NONBLOCK: opening a FIFO in the spool must not block.
constexpr int kForReading = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

struct DirectoryCloser {
  void operator()(DIR* dir) const noexcept { ::closedir(dir); }
};

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
  Result<std::vector<SpoolName>> list(const std::string& path) override { return root_.list(path); }
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

Result<SpoolRoot> SpoolRoot::find(std::string configured, std::string below) {
  const std::string whole = below.empty() ? configured : configured + "/" + below;
  std::error_code failed;
  std::string resolved = std::filesystem::canonical(whole, failed);
  if (failed) return system_error(whole, failed.value());
  SpoolRoot root(std::move(configured), std::move(below), std::move(resolved));
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

Result<void> SpoolRoot::each_name(const std::string& path, const TakeName& take) const {
  auto fd = resolve(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!fd) return fd.error();
  const std::unique_ptr<DIR, DirectoryCloser> dir(::fdopendir(fd->get()));
  if (dir == nullptr) return system_error("list " + path, errno);
  const int directory = fd->release();  // closedir closes it
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_directory = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat s{};
      is_directory =
          ::fstatat(directory, entry->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(s.st_mode);
    }
    if (!take({entry->d_name, entry->d_ino, is_directory}, directory)) return {};
  }
  if (errno != 0) return system_error("list " + path, errno);
  return {};
}

Result<std::vector<SpoolName>> SpoolRoot::list(const std::string& path) const {
  std::vector<SpoolName> names;
  auto listed = each_name(path, [&](SpoolName name, int) {
    names.push_back(std::move(name));
    return true;
  });
  if (!listed) return listed.error();
  return names;
}

Result<std::vector<OpenedName>> SpoolRoot::list_open(const std::string& path) const {
  std::vector<OpenedName> names;
  std::size_t opened = 0;
  auto listed = each_name(path, [&](SpoolName name, int directory) {
    UniqueFd fd;
    if (!name.is_directory && opened < kMostOpenedNames)
      fd = open_beneath(directory, name.name.c_str(), kForReading);
    if (fd) {
      const auto stat = stat_fd(fd.get());
      if (!stat || !stat->is_regular()) fd.reset();
    }
    if (fd) ++opened;
    names.push_back({std::move(name), std::move(fd)});
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
  // By the descriptor's own link: inotify takes only paths, and this one may lead elsewhere by now.
  const std::string link = "/proc/self/fd/" + std::to_string(fd->get());
  const int number = ::inotify_add_watch(inotify, link.c_str(), mask | IN_ONLYDIR | IN_EXCL_UNLINK);
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
