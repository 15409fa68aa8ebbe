#include "core/daemon/state_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

namespace scriptorium {
namespace {

// What a daemon makes in state_dir. Everything else there, such as an archive, keeps its owner.
bool is_ours(std::string_view name) {
  return name == "lock" || name == "control.sock" || name == "in-flight" ||
         name.starts_with("capture.key") || name.starts_with("journal.") ||
         name.starts_with("bad.");
}

struct CloseDirectory {
  void operator()(DIR* d) const noexcept { ::closedir(d); }
};

// Calls `each(name)` for everything in an open directory.
template <typename Each>
Result<void> each_name(const UniqueFd& directory, Each each) {
  UniqueFd again(::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, CloseDirectory> stream(again ? ::fdopendir(again.get()) : nullptr);
  if (!stream) return system_error("state_dir", errno);
  static_cast<void>(again.release());  // closedir closes it
  while (const dirent* entry =
             ::readdir(stream.get())) {  // NOLINT(concurrency-mt-unsafe): the stream is ours alone
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") {
      if (auto done = each(std::string(name)); !done) return done;
    }
  }
  return {};
}

// Gives a file, or a directory with its content, to the user. Leaves files of others alone, and
// links, through which the user would get another file.
Result<void> give(const UniqueFd& directory, const std::string& name, const StateDirOwner& user,
                  int depth) {
  const UniqueFd fd(::openat(directory.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return system_error("state_dir: " + name, errno);
  const auto stat = stat_fd(fd.get());
  if (!stat) return stat.error();
  if (stat->owner != ::geteuid() || S_ISLNK(stat->mode) ||
      (!stat->is_directory() && stat->links != 1))
    return {};
  if (stat->is_directory() && depth > 0) {
    const UniqueFd inside(
        ::openat(directory.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!inside) return system_error("state_dir: " + name, errno);
    auto given = each_name(
        inside, [&](const std::string& child) { return give(inside, child, user, depth - 1); });
    if (!given) return given;
  }
  if (::fchownat(fd.get(), "", user.uid, user.gid, AT_EMPTY_PATH) != 0)
    return system_error("state_dir: chown " + name, errno);
  return {};
}

// Makes the directories above, with mode 0755 whatever our umask is.
Result<void> make_above(const std::string& directory) {
  const std::filesystem::path above = std::filesystem::path(directory).parent_path();
  std::error_code failed;
  if (above.empty() || std::filesystem::exists(above, failed)) return {};
  if (auto made = make_above(above); !made) return made;
  if (::mkdir(above.c_str(), 0755) != 0 && errno != EEXIST)
    return system_error("state_dir: mkdir " + above.string(), errno);
  if (::chmod(above.c_str(), 0755) != 0)
    return system_error("state_dir: chmod " + above.string(), errno);
  return sync_parent(above);
}

Result<UniqueFd> make_state_dir(const std::string& directory) {
  if (auto made = make_above(directory); !made) return made.error();
  if (::mkdir(directory.c_str(), 0750) != 0)
    return system_error("state_dir: mkdir " + directory, errno);
  if (auto synced = sync_parent(directory); !synced) return synced.error();
  return UniqueFd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Why state_dir must not be given away; "" = it may be.
Result<std::string> why_not_give(const UniqueFd& fd, const FileStat& stat) {
  std::string owner = "belongs to uid " + std::to_string(stat.owner);
  if (stat.owner != ::geteuid()) return owner;
  if ((stat.mode & (S_IWGRP | S_IWOTH)) != 0)
    return std::string("can be written by others than its owner");
  bool empty = true;
  bool ours = false;
  auto searched = each_name(fd, [&](const std::string& name) {
    empty = false;
    ours = ours || name == "lock" || name == "journal.db";
    return Result<void>{};
  });
  if (!searched) return searched.error();
  if (!empty && !ours) return owner + " and holds things that are not Scriptorium's";
  return std::string{};
}

}  // namespace

Result<std::string> give_state_dir(std::string directory, const StateDirOwner& user, bool dry_run) {
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && errno == ENOENT) {
    if (dry_run) return directory + " is not there yet; `run` makes it, for " + user.name;
    auto made = make_state_dir(directory);
    if (!made) return made.error();
    fd = *std::move(made);
  }
  // A link, or not a directory: not ours to give away. The start continues and reports what this
  // user cannot do there.
  if (!fd) return std::string{};
  const auto stat = stat_fd(fd.get());
  if (!stat) return stat.error();
  if (stat->owner == user.uid) return std::string{};
  const auto refused = why_not_give(fd, *stat);
  if (!refused) return refused.error();
  if (!refused->empty()) {
    return Error{ErrorKind::kInvalidConfig, "state_dir " + directory + " " + *refused + "; chown " +
                                                user.name + " " + directory +
                                                ", or name another state_dir"};
  }
  if (dry_run)
    return directory + " belongs to uid " + std::to_string(stat->owner) + "; `run` gives it to " +
           user.name;
  auto given = each_name(fd, [&](const std::string& name) {
    return is_ours(name) ? give(fd, name, user, 2) : Result<void>{};
  });
  if (!given) return given.error();
  // Last, so that the next start repeats the rest if this one is killed in between.
  if (::fchown(fd.get(), user.uid, user.gid) != 0)
    return system_error("state_dir: chown " + directory, errno);
  return directory + " was given to " + user.name;
}

Result<UniqueFd> lock_state_dir(const std::string& state_dir) {
  if (auto made = make_directories(state_dir, 0750); !made)
    return Error{ErrorKind::kTransient, "state_dir: " + made.error().message()};
  const std::string file = state_dir + "/lock";
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd)
    return Error{ErrorKind::kTransient, system_error("state_dir: open " + file, errno).message()};
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      return Error{ErrorKind::kTransient, system_error("state_dir: lock " + file, errno).message()};
    std::string owner = "?";
    if (auto text = read_fd(fd.get(), 32); text && !text->empty())
      owner = text->substr(0, text->find('\n'));
    return Error{ErrorKind::kExhausted,
                 state_dir + ": process " + owner +
                     " already works on it; stop that one first, or configure another state_dir"};
  }
  if (::ftruncate(fd.get(), 0) != 0) return system_error("state_dir: " + file, errno);
  if (auto written = write_fd(fd.get(), std::to_string(::getpid()) + "\n"); !written)
    return written.error().with_context("state_dir: " + file);
  return fd;
}

}  // namespace scriptorium
