#include "core/cli/usage_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "core/base/fault_point.h"
#include "core/base/file.h"

namespace scriptorium::cli {
namespace {

constexpr std::string_view kName = "scriptorium-usage-";
constexpr std::string_view kRunning = "running\n";
constexpr std::string_view kEnded = "ended\n";
constexpr std::uint64_t kMostPartBytes = 16U << 20;

std::string file_name(std::string_view text) {
  std::string name(text);
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

}  // namespace

UsageFiles::UsageFiles(std::string directory, std::string_view job, std::string_view node)
    : directory_(std::move(directory)), job_(file_name(job)), node_(file_name(node)) {}

Result<void> UsageFiles::replace(const std::string& name, std::string_view bytes) const {
  const std::string path = directory_ + "/" + name;
  // Hidden, of this node alone, and what an earlier process left of it is removed, so that nothing
  // of that name is opened.
  const std::string temporary =
      directory_ + "/." + name.substr(name.front() == '.' ? 1 : 0) + "." + node_ + "~";
  ::unlink(temporary.c_str());
  UniqueFd fd(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd) return system_error("open " + temporary, errno);
  auto written = write_fd(fd.get(), bytes);
  FAULT_POINT("usage.before_rename");
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0)
    written = system_error("rename " + temporary, errno);
  if (!written) ::unlink(temporary.c_str());
  return written;
}

Result<void> UsageFiles::write_report(std::string_view text, std::string_view json) const {
  const std::string name = std::string(kName) + job_;
  auto written = replace(name + ".json", json);
  if (written) written = replace(name + ".txt", text);
  return written;
}

Result<void> UsageFiles::write_part(std::string_view part, bool ended) const {
  return replace("." + std::string(kName) + job_ + "." + node_,
                 std::string(ended ? kEnded : kRunning).append(part));
}

std::vector<std::string> UsageFiles::part_names() const {
  const std::string begin = "." + std::string(kName) + job_ + ".";
  std::vector<std::string> names;
  std::error_code problem;
  for (std::filesystem::directory_iterator it(directory_, problem), end; !problem && it != end;
       it.increment(problem)) {
    const std::string name = it->path().filename();
    if (name.starts_with(begin) && !name.ends_with('~')) names.push_back(name);
  }
  return names;
}

UsageFiles::Parts UsageFiles::read_parts() const {
  Parts parts;
  for (const std::string& name : part_names()) {
    const UniqueFd fd(
        ::open((directory_ + "/" + name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd) continue;
    const auto stat = stat_fd(fd.get());
    if (!stat || !stat->is_regular() || stat->owner != ::geteuid()) continue;
    const auto bytes = read_fd(fd.get(), kMostPartBytes, stat->size);
    if (!bytes) continue;
    std::string_view text = *bytes;
    const bool ended = text.starts_with(kEnded);
    parts.all_ended = parts.all_ended && ended;
    text.remove_prefix(std::min(text.size(), (ended ? kEnded : kRunning).size()));
    parts.texts.emplace_back(text);
  }
  return parts;
}

void UsageFiles::remove_parts() const {
  for (const std::string& name : part_names()) ::unlink((directory_ + "/" + name).c_str());
}

}  // namespace scriptorium::cli
