#include "schedulers/usage/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "core/base/file.h"
#include "core/base/time.h"

namespace scriptorium::usage {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

}  // namespace

int Files::open(const std::string& path) noexcept {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  return fd >= 0 ? fd : -errno;
}

long Files::read(int fd, char* buffer, std::size_t size, std::size_t offset) noexcept {
  while (true) {
    const ssize_t got = ::pread(fd, buffer, size, static_cast<off_t>(offset));
    if (got >= 0) return got;
    if (errno != EINTR) return -errno;
  }
}

int Files::list(const std::string& path, std::vector<DirectoryEntry>& into) noexcept try {
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir(path.c_str()));
  if (directory == nullptr) return -errno;
  errno = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    into.push_back({std::string(name), entry->d_ino, entry->d_type == DT_DIR});
  }
  return -errno;
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

int Files::identify(const std::string& path, Identity& into) noexcept {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0) return -errno;
  into.inode = found.st_ino;
  into.mtime_ns = static_cast<std::int64_t>(found.st_mtim.tv_sec) * kSecond + found.st_mtim.tv_nsec;
  into.owner = found.st_uid;
  return 0;
}

Files& real_files() {
  static Files files;
  return files;
}

bool says_gone(int code) noexcept { return code == -ENOENT || code == -ENODEV || code == -ENOTDIR; }

int read_text(Files& files, const std::string& path, std::string& into, std::size_t limit) {
  into.clear();
  const UniqueFd fd(files.open(path));
  if (!fd) return fd.get();
  std::size_t filled = 0;
  while (filled < limit) {
    into.resize(std::min(filled + 4096, limit));
    const long got = files.read(fd.get(), into.data() + filled, into.size() - filled, filled);
    if (got < 0) {
      into.clear();
      return static_cast<int>(got);
    }
    filled += static_cast<std::size_t>(got);
    if (got < 2048) break;  // the kernel gives a list in pieces of nearly a page
  }
  into.resize(filled);
  return 0;
}

std::vector<DirectoryEntry> list_directories(Files& files, const std::string& path) {
  std::vector<DirectoryEntry> found;
  static_cast<void>(files.list(path, found));
  std::erase_if(found, [](const DirectoryEntry& entry) { return !entry.directory; });
  return found;
}

}  // namespace scriptorium::usage
