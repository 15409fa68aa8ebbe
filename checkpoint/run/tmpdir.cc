#include "checkpoint/run/tmpdir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "core/base/file.h"
#include "core/base/text.h"

namespace scriptorium::checkpoint {

std::string job_tmpdir(const std::string& value, const std::string& save_dir) {
  static constexpr std::array<std::string_view, 4> kShared{"/", "/tmp", "/var/tmp", "/dev/shm"};
  std::string path = std::filesystem::path(value).lexically_normal();
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const bool is_shared = std::find(kShared.begin(), kShared.end(), path) != kShared.end();
  if (!path.starts_with('/') || is_shared || (save_dir + "/").starts_with(path + "/")) return {};
  return path;
}

Result<void> copy_own_files(const std::string& from, const std::string& to,
                            std::uint64_t room) try {
  std::uint64_t bytes = 0;
  std::filesystem::create_directory(to);
  for (std::filesystem::recursive_directory_iterator entry(from), end; entry != end; ++entry) {
    const std::filesystem::path& path = entry->path();
    const std::filesystem::path copy = to / path.lexically_relative(from);
    struct stat found{};
    if (::lstat(path.c_str(), &found) != 0) return system_error("read " + path.string(), errno);
    if (found.st_uid != ::geteuid()) {
      if (S_ISDIR(found.st_mode)) entry.disable_recursion_pending();
    } else if (S_ISDIR(found.st_mode)) {
      // A folder that cannot be written could neither be filled nor removed.
      if (std::filesystem::create_directory(copy))
        std::filesystem::permissions(copy, std::filesystem::perms::owner_all);
    } else if (S_ISLNK(found.st_mode)) {
      std::filesystem::remove(copy);
      std::filesystem::copy_symlink(path, copy);
    } else if (S_ISREG(found.st_mode)) {
      bytes += static_cast<std::uint64_t>(found.st_size);
      if (bytes > room) {
        return Error{ErrorKind::kPermanent, "they are larger than the " + format_bytes(room) +
                                                " that the file system has room for"};
      }
      std::filesystem::remove(copy);
      std::filesystem::copy_file(path, copy);
      std::filesystem::last_write_time(copy, std::filesystem::last_write_time(path));
    }
  }
  return {};
} catch (const std::filesystem::filesystem_error& e) {
  return Error{ErrorKind::kPermanent, e.what()};
}

}  // namespace scriptorium::checkpoint
