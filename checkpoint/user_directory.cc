#include "checkpoint/user_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/base/ascii.h"

namespace scriptorium::checkpoint {

Result<UserDirectory> UserDirectory::open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error("open " + path, errno);
  return UserDirectory(std::move(fd));
}

bool UserDirectory::lock() const noexcept {
  // Where the file system has no such locks, two jobs of one user in one directory are not told
  // apart.
  return ::flock(fd(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

void UserDirectory::unlock() const noexcept { ::flock(fd(), LOCK_UN); }

bool UserDirectory::has(const std::string& name) const noexcept {
  struct stat found{};
  return ::fstatat(fd(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
}

std::string UserDirectory::line(const std::string& name) const {
  const UniqueFd file(::openat(fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  const auto text = file ? read_fd(file.get(), 256) : Result<std::string>(std::string{});
  return text ? std::string(trim(*text, " \n")) : std::string{};
}

Result<void> UserDirectory::put(const std::string& name, std::string_view text) const {
  const std::string temporary = "." + name + ".new";
  remove_tree(temporary);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const UniqueFd file(::openat(fd(), temporary.c_str(), kFlags, 0600));
  if (!file) return system_error("create " + name, errno);
  auto written = write_fd(file.get(), text);
  if (written) written = sync_fd(file.get(), name);
  if (written) written = rename(temporary, name);
  if (!written) remove(temporary);
  return written;
}

void UserDirectory::remove(const std::string& name) const noexcept {
  ::unlinkat(fd(), name.c_str(), 0);
}

void UserDirectory::remove_tree(const std::string& name) const noexcept {
  if (::unlinkat(fd(), name.c_str(), 0) == 0 || errno == ENOENT) return;
  std::error_code ignored;  // what is left fails the next step, which then says so
  std::filesystem::remove_all("/proc/self/fd/" + std::to_string(fd()) + "/" + name, ignored);
}

Result<UserDirectory> UserDirectory::make_folder(const std::string& name) const {
  remove_tree(name);
  if (::mkdirat(fd(), name.c_str(), 0700) != 0) return system_error("create " + name, errno);
  return open_folder(name);
}

Result<UserDirectory> UserDirectory::open_folder(const std::string& name) const {
  UniqueFd folder(::openat(fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) return system_error("open " + name, errno);
  return UserDirectory(std::move(folder));
}

Result<void> UserDirectory::rename(const std::string& from, const std::string& to) const {
  if (::renameat(fd(), from.c_str(), fd(), to.c_str()) != 0)
    return system_error("rename " + from + " to " + to, errno);
  return {};
}

std::uint64_t UserDirectory::free_bytes() const noexcept {
  struct statvfs room{};
  if (::fstatvfs(fd(), &room) != 0) return 0;
  return static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize;
}

}  // namespace scriptorium::checkpoint
