#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace scriptorium {

// Owns one file descriptor and closes it.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

// Identity and state of a file, from fstat().
struct FileStat {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::uint64_t links = 0;
  std::int64_t mtime_ns = 0;
  std::uint32_t owner = 0;  // uid
  std::uint32_t mode = 0;   // st_mode, with the type bits
  bool is_regular() const noexcept;
  bool is_directory() const noexcept;
};
Result<FileStat> stat_fd(int fd);
Result<FileStat> stat_path(const std::string& path);  // follows links

// Reads an open file from its start with pread(), at most `limit` bytes. The descriptor's offset
// does not change. If the file grows meanwhile, the result may lack the new bytes.
Result<std::string> read_fd(int fd, std::uint64_t limit, std::uint64_t size_hint = 0);

// Reads a small file of ours whole; kTransient if it is larger than `limit`.
Result<std::string> read_file(const std::string& path, std::uint64_t limit = 64U << 20);

// Writes all bytes; a short write is continued.
Result<void> write_fd(int fd, std::string_view bytes);

// Replaces a file of ours atomically (temporary file, fsync, rename, fsync of the directory), so
// that a crash leaves either the old or the new content.
Result<void> replace_file(const std::string& path, std::string_view bytes, std::uint32_t mode);

// Syncs the directory that holds the name; afterwards the name survives a power cut.
Result<void> sync_parent(const std::string& path);

// Like mkdir -p, with `mode` for new directories. Their names are synced and survive a power cut.
Result<void> make_directories(const std::string& path, std::uint32_t mode);

Result<void> sync_fd(int fd, std::string_view what);

}  // namespace scriptorium
