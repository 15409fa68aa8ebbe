#include "core/config/config_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/file.h"
#include "core/base/text.h"

namespace scriptorium {

std::optional<std::string> read_config_file(const std::string& file, const std::string& remedy,
                                            Problems& problems) {
  const auto refuse = [&](std::string why) {
    problems.add({.position = {file, 0}, .problem = std::move(why)});
    return std::nullopt;
  };
  // O_NONBLOCK: a FIFO must not block the start.
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) return refuse(system_error("cannot be opened", errno).message() + remedy);
  const auto stat = stat_fd(fd.get());
  if (!stat) return refuse(stat.error().message());
  if (stat->is_directory()) return refuse("is a directory, not a file");
  if (!stat->is_regular()) return refuse("is not a regular file");
  const std::string too_large =
      "is larger than " + format_bytes(kMostConfigBytes) + ", which no configuration needs";
  if (stat->size > kMostConfigBytes)
    return refuse(too_large + " (" + format_bytes(stat->size) + ")");
  auto bytes = read_fd(fd.get(), kMostConfigBytes + 1, stat->size);
  if (!bytes) return refuse(bytes.error().message());
  if (bytes->size() > kMostConfigBytes) return refuse(too_large);
  return *std::move(bytes);
}

std::vector<std::string> toml_files(const std::string& folder, Problems& problems, bool& complete) {
  struct CloseDirectory {
    void operator()(DIR* d) const noexcept { ::closedir(d); }
  };
  std::vector<std::string> result;
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir(folder.c_str()));
  if (!directory) {
    if (errno != ENOENT) {
      problems.add(
          {.position = {folder, 0}, .problem = system_error("cannot be listed", errno).message()});
      complete = false;
    }
    return result;
  }
  errno = 0;
  while (const dirent* entry = ::readdir(
             directory.get())) {  // NOLINT(concurrency-mt-unsafe): no other thread uses the stream
    const std::string_view name = entry->d_name;
    if (name.starts_with('.') || !name.ends_with(".toml")) continue;
    result.push_back(folder + "/" + std::string(name));
  }
  if (errno != 0) {
    problems.add(
        {.position = {folder, 0}, .problem = system_error("cannot be listed", errno).message()});
    complete = false;
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace scriptorium
