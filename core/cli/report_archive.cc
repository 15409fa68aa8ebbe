#include "core/cli/report_archive.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "core/base/file.h"

namespace scriptorium::cli {
namespace {

constexpr std::size_t kMaxDepth = 20;
constexpr std::uint64_t kMaxRecordBytes = 64U << 20;
constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

struct DirClose {
  void operator()(DIR* d) const noexcept { ::closedir(d); }
};

class Walker {
 public:
  Walker(const RecordWalk& walk, const std::function<void(const std::string&, std::string)>& use)
      : walk_(walk), use_(use) {}

  Result<WalkCounts> run() {
    UniqueFd root(::open(walk_.root.c_str(),
                         kDirectory));  // a symbolic link as the root is the administrator's choice
    std::string path;
    if (!root && errno == EACCES && !walk_.only_directory.empty()) {
      root.reset(
          ::open((walk_.root + '/' + walk_.only_directory).c_str(), kDirectory | O_NOFOLLOW));
      path = walk_.only_directory;
    }
    if (!root) return system_error("archive " + walk_.root, errno);
    enter(root.release(), path, 0);
    return counts_;
  }

 private:
  // Takes ownership of the descriptor.
  void enter(int fd, const std::string& path, std::size_t depth) {
    const std::unique_ptr<DIR, DirClose> stream(::fdopendir(fd));
    if (stream == nullptr) return static_cast<void>(UniqueFd(fd));
    std::vector<std::string> below;
    while (const dirent* entry = ::readdir(stream.get())) {
      const std::string_view name = entry->d_name;
      if (name.starts_with('.')) continue;  // including files being written
      ++counts_.looked_at;
      const std::string inner = path.empty() ? std::string(name) : path + '/' + std::string(name);
      bool directory = entry->d_type == DT_DIR;
      if (entry->d_type == DT_UNKNOWN) {
        struct stat st{};
        directory =
            ::fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
      }
      if (directory) {
        below.emplace_back(name);
      } else if ((walk_.scripts || name.find(kUsage) != std::string_view::npos) &&
                 name.find(".json") != std::string_view::npos &&
                 (!walk_.wanted || walk_.wanted(inner))) {
        read(fd, entry->d_name, inner);
      }
    }
    if (depth >= kMaxDepth) return;
    for (const std::string& name : below) {
      const int inner = ::openat(fd, name.c_str(), kDirectory | O_NOFOLLOW);
      if (inner < 0) {
        ++counts_.closed;
        continue;
      }
      enter(inner, path.empty() ? name : path + '/' + name, depth + 1);
    }
  }

  void read(int directory, const char* name, const std::string& path) {
    struct stat st{};
    if (::fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) return;
    if (st.st_mtim.tv_sec * kSecond + st.st_mtim.tv_nsec < walk_.since.nanoseconds) return;
    const UniqueFd fd(
        ::openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!fd) {
      ++counts_.closed;
      return;
    }
    auto bytes = read_fd(fd.get(), kMaxRecordBytes, static_cast<std::uint64_t>(st.st_size));
    if (!bytes) return;
    ++counts_.read;
    use_(walk_.root + '/' + path, *std::move(bytes));
  }

  const RecordWalk& walk_;
  const std::function<void(const std::string&, std::string)>& use_;
  WalkCounts counts_;
};

}  // namespace

Result<WalkCounts> walk_records(const RecordWalk& walk,
                                const std::function<void(const std::string&, std::string)>& use) {
  return Walker(walk, use).run();
}

}  // namespace scriptorium::cli
