#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace scriptorium::usage {

struct DirectoryEntry {
  std::string name;
  std::uint64_t inode = 0;
  bool directory = false;
};

struct Identity {
  std::uint64_t inode = 0;
  std::int64_t mtime_ns = 0;
  std::uint32_t owner = 0;
};

// The few calls by which the sampler looks at control groups, /proc and /sys. A test gives its own,
// to fail them as a kernel does (ENODEV from an open descriptor of a removed group). Every answer
// below 0 is an errno with its sign turned. Threads: any.
class Files {
 public:
  Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  virtual ~Files() = default;

  virtual int open(const std::string& path) noexcept;  // for reading; the caller closes it
  // One pread. A counter file comes whole from offset 0, a list in pieces of a page.
  virtual long read(int fd, char* buffer, std::size_t size, std::size_t offset) noexcept;
  // Appends what the directory holds, without "." and "..".
  virtual int list(const std::string& path, std::vector<DirectoryEntry>& into) noexcept;
  virtual int identify(const std::string& path, Identity& into) noexcept;
};

// The machine's own. Lives for ever.
Files& real_files();

// A small file's text, up to `limit` bytes; what lies beyond is left. < 0: the errno, `into` is
// then empty.
int read_text(Files& files, const std::string& path, std::string& into,
              std::size_t limit = std::size_t{1} << 20);

// Whether an answer says that what was opened or read is not there any more.
bool says_gone(int code) noexcept;

// The names below a directory that are directories; empty if it cannot be listed.
std::vector<DirectoryEntry> list_directories(Files& files, const std::string& path);

}  // namespace scriptorium::usage
