#include "core/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace scriptorium {
namespace {

FileStat convert(const struct stat& s) {
  FileStat result;
  result.device = s.st_dev;
  result.inode = s.st_ino;
  result.size = static_cast<std::uint64_t>(s.st_size);
  result.links = s.st_nlink;
  result.mtime_ns = static_cast<std::int64_t>(s.st_mtim.tv_sec) * 1'000'000'000 + s.st_mtim.tv_nsec;
  result.owner = s.st_uid;
  result.mode = s.st_mode;
  return result;
}

}  // namespace

void UniqueFd::reset(int fd) noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

bool FileStat::is_regular() const noexcept { return S_ISREG(mode); }
bool FileStat::is_directory() const noexcept { return S_ISDIR(mode); }

Result<FileStat> stat_fd(int fd) {
  struct stat s{};
  if (::fstat(fd, &s) != 0) return system_error("fstat", errno);
  return convert(s);
}

Result<FileStat> stat_path(const std::string& path) {
  struct stat s{};
  if (::stat(path.c_str(), &s) != 0) return system_error(path, errno);
  return convert(s);
}

Result<std::string> read_fd(int fd, std::uint64_t limit, std::uint64_t size_hint) {
  std::string bytes;
  // One byte more than expected, so that the first read of a file of the hinted size is short and
  // no second one is needed.
  std::size_t chunk = static_cast<std::size_t>(
      std::min<std::uint64_t>(size_hint > 0 ? size_hint + 1 : 4096, limit));
  std::size_t filled = 0;
  while (filled < limit) {
    bytes.resize(std::min<std::uint64_t>(filled + chunk, limit));
    const ssize_t n =
        ::pread(fd, bytes.data() + filled, bytes.size() - filled, static_cast<off_t>(filled));
    if (n < 0) {
      if (errno == EINTR) continue;
      return system_error("read", errno);
    }
    if (n == 0) break;
    const bool last = filled + static_cast<std::size_t>(n) < bytes.size();
    filled += static_cast<std::size_t>(n);
    if (last && size_hint > 0 && filled >= size_hint) break;
    chunk = std::max<std::size_t>(chunk, 65536);
  }
  bytes.resize(filled);
  return bytes;
}

Result<std::string> read_file(const std::string& path, std::uint64_t limit) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error("open " + path, errno);
  auto stat = stat_fd(fd.get());
  if (!stat) return stat.error().with_context(path);
  if (stat->is_directory()) return Error{ErrorKind::kTransient, path + ": is a directory"};
  auto bytes = read_fd(fd.get(), limit + 1, stat->size);
  if (!bytes) return bytes.error().with_context(path);
  if (bytes->size() > limit)
    return Error{ErrorKind::kTransient, path + ": larger than " + std::to_string(limit) + " bytes"};
  return bytes;
}

Result<void> write_fd(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return system_error("write", errno);
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> sync_fd(int fd, std::string_view what) {
  while (::fsync(fd) != 0) {
    if (errno != EINTR) return system_error(std::string("fsync ").append(what), errno);
  }
  return {};
}

Result<void> sync_parent(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  UniqueFd directory(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return system_error("open " + folder, errno);
  return sync_fd(directory.get(), folder);
}

Result<void> replace_file(const std::string& path, std::string_view bytes, std::uint32_t mode) {
  const std::string temporary = path + ".tmp";
  UniqueFd fd(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return system_error("open " + temporary, errno);
  // The umask of a systemd unit may have removed bits.
  if (::fchmod(fd.get(), mode) != 0) return system_error("chmod " + temporary, errno);
  if (auto written = write_fd(fd.get(), bytes); !written)
    return written.error().with_context(temporary);
  if (auto synced = sync_fd(fd.get(), temporary); !synced) return synced;
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return system_error("rename " + temporary, errno);
  return sync_parent(path);
}

Result<void> make_directories(const std::string& path, std::uint32_t mode) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (!part.empty()) {
      if (::mkdir(part.c_str(), mode) == 0) {
        // Otherwise a power cut could remove the directory with everything synced in it.
        if (auto synced = sync_parent(part); !synced) return synced;
      } else if (errno != EEXIST) {
        return system_error("mkdir " + part, errno);
      }
    }
    if (at == std::string::npos) break;
  }
  auto stat = stat_path(path);
  if (!stat) return stat.error();
  if (!stat->is_directory()) return Error{ErrorKind::kTransient, path + ": is not a directory"};
  return {};
}

}  // namespace scriptorium
