#include "checkpoint/job_group.h"

#include <algorithm>

#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/path.h"

namespace scriptorium::checkpoint {
namespace {

constexpr const char* kSlurm = "slurm";
constexpr const char* kOar = "oar";

// The job that a group belongs to, as its path says. One of uid and user is absent where the path
// does not name the owner so.
struct NamedJob {
  const char* scheduler;
  std::string job;
  std::optional<uid_t> uid;
  std::string user;
};

std::optional<std::string> after(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  return name.empty() ? std::nullopt : std::optional(std::string(name));
}

std::optional<std::string> id_after(std::string_view name, std::string_view prefix) {
  auto id = after(name, prefix);
  return id && is_all_digits(*id) ? std::move(id) : std::nullopt;
}

std::optional<uid_t> uid_after(std::string_view name, std::string_view prefix) {
  const auto text = id_after(name, prefix);
  return text ? parse_number<uid_t>(*text) : std::nullopt;
}

// "slurm", "slurm_node7"
std::optional<NamedJob> slurm_v1(const std::vector<std::string>& names) {
  if (names.size() < 4 || names[3] != "step_batch") return std::nullopt;
  if (names[0] != "slurm" && !after(names[0], "slurm_")) return std::nullopt;
  const auto uid = uid_after(names[1], "uid_");
  auto job = id_after(names[2], "job_");
  if (!uid || !job) return std::nullopt;
  return NamedJob{kSlurm, *std::move(job), uid, {}};
}

// "slurmstepd.scope", "node7_slurmstepd.scope"
std::optional<NamedJob> slurm_v2(const std::vector<std::string>& names) {
  if (names.size() < 5 || names[0] != "system.slice" || names[3] != "step_batch" ||
      names[4] != "user" ||
      (names[1] != "slurmstepd.scope" && !names[1].ends_with("_slurmstepd.scope")))
    return std::nullopt;
  auto job = id_after(names[2], "job_");
  return job ? std::optional(NamedJob{kSlurm, *std::move(job), {}, {}}) : std::nullopt;
}

std::optional<NamedJob> oar_cpuset(const std::vector<std::string>& names) {
  if (names.size() < 2 || names[0] != "oar") return std::nullopt;
  const auto underscore = names[1].rfind('_');  // a user's name may contain one, an id does not
  if (underscore == std::string::npos || underscore == 0) return std::nullopt;
  std::string job = names[1].substr(underscore + 1);
  if (!is_all_digits(job)) return std::nullopt;
  return NamedJob{kOar, std::move(job), {}, names[1].substr(0, underscore)};
}

std::optional<NamedJob> oar_slice(const std::vector<std::string>& names) {
  constexpr std::string_view kSlice = ".slice";
  if (names.size() < 3 || names[0] != "oar.slice" || !names[1].ends_with(kSlice) ||
      !names[2].ends_with(kSlice))
    return std::nullopt;
  const std::string owner = names[1].substr(0, names[1].size() - kSlice.size());
  const auto uid = uid_after(owner, "oar-u");
  auto job =
      id_after(std::string_view(names[2]).substr(0, names[2].size() - kSlice.size()), owner + "-j");
  if (!uid || !job) return std::nullopt;
  return NamedJob{kOar, *std::move(job), uid, {}};
}

std::optional<NamedJob> named_job(const GroupLine& line) {
  const std::vector<std::string> names = names_of(line.path);
  // Another namespace's view of a path ends in "..": it is not below our root.
  if (std::ranges::find(names, "..") != names.end()) return std::nullopt;
  if (line.controllers.starts_with("name=")) return std::nullopt;
  if (auto job = oar_cpuset(names)) return job;
  if (!line.controllers.empty()) return slurm_v1(names);
  auto job = slurm_v2(names);
  return job ? job : oar_slice(names);
}

// The hierarchies that schedulers use to find and kill every process of a job.
bool is_tracking(const GroupLine& line) {
  std::string_view rest = line.controllers;
  if (rest.empty()) return true;
  while (!rest.empty()) {
    const std::string_view name = take_until(rest, ',');
    if (name == "freezer" || name == "cpuset") return true;
  }
  return false;
}

bool is_jobs_group(const GroupLine& line, const JobOwner& owner) {
  const auto job = named_job(line);
  return job && job->job == owner.job && (!job->uid || *job->uid == owner.uid) &&
         (job->user.empty() || job->user == owner.user);
}

struct Mount {
  std::string directory;
  std::vector<std::string> controllers;  // none: version 2
};

// Octal escapes of blanks do not appear in the paths that schedulers use.
std::vector<Mount> hierarchies(std::string_view mountinfo) {
  std::vector<Mount> mounts;
  while (!mountinfo.empty()) {
    std::string_view line = take_until(mountinfo, '\n');
    std::vector<std::string_view> before;
    while (!line.empty()) {
      const std::string_view field = take_until(line, ' ');
      if (field == "-") break;
      before.push_back(field);
    }
    const std::string_view type = take_until(line, ' ');
    take_until(line, ' ');  // the source
    if (before.size() < 5 || before[3] != "/") continue;
    if (type == "cgroup2") mounts.push_back({std::string(before[4]), {}});
    if (type != "cgroup") continue;
    Mount mount{std::string(before[4]), {}};
    while (!line.empty()) mount.controllers.emplace_back(take_until(line, ','));
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

bool holds(const Mount& mount, const GroupLine& line) {
  if (line.controllers.empty()) return mount.controllers.empty();
  std::string_view rest = line.controllers;
  while (!rest.empty()) {
    const std::string_view controller = take_until(rest, ',');
    if (std::ranges::find(mount.controllers, controller) == mount.controllers.end()) return false;
  }
  return true;
}

}  // namespace

std::vector<GroupLine> parse_group_lines(std::string_view text) {
  std::vector<GroupLine> lines;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    take_until(line, ':');
    if (const auto colon = line.find(':'); colon != std::string_view::npos)
      lines.push_back({std::string(line.substr(0, colon)), std::string(line.substr(colon + 1))});
  }
  return lines;
}

bool is_in_job(std::string_view text, const JobOwner& owner) {
  bool tracked = false;
  for (const GroupLine& line : parse_group_lines(text)) {
    if (!named_job(line)) continue;
    if (!is_jobs_group(line, owner)) return false;
    tracked = tracked || is_tracking(line);
  }
  return tracked;
}

std::string scheduler_of(std::string_view text, const JobOwner& owner) {
  if (!is_in_job(text, owner)) return {};
  for (const GroupLine& line : parse_group_lines(text)) {
    if (const auto job = named_job(line)) return job->scheduler;
  }
  return {};
}

std::vector<GroupEntry> entries_of(std::string_view group_text, std::string_view mountinfo,
                                   const JobOwner& owner) {
  const std::vector<Mount> mounts = hierarchies(mountinfo);
  std::vector<GroupEntry> entries;
  for (const GroupLine& line : parse_group_lines(group_text)) {
    const bool required = is_jobs_group(line, owner);
    const auto mount = std::ranges::find_if(mounts, [&](const Mount& m) { return holds(m, line); });
    // A required group without a mount fails to open, and so the resume is refused.
    const std::string directory = mount == mounts.end() ? std::string{} : mount->directory;
    if (required || !directory.empty())
      entries.push_back(
          {directory + (line.path == "/" ? "" : line.path) + "/cgroup.procs", required});
  }
  return entries;
}

}  // namespace scriptorium::checkpoint
