#include "schedulers/usage/tree.h"

#include <algorithm>
#include <array>

#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium::usage {
namespace {

struct ControllerName {
  const char* directory;
  Controller controller;
};
// A controller may share its directory with another; the first name that is there counts.
constexpr std::array kV1Names = {
    ControllerName{"memory", Controller::kMemory},
    ControllerName{"cpuacct", Controller::kCpuacct},
    ControllerName{"cpu,cpuacct", Controller::kCpuacct},
    ControllerName{"cpuset", Controller::kCpuset},
    ControllerName{"freezer", Controller::kFreezer},
    ControllerName{"devices", Controller::kDevices},
    ControllerName{"blkio", Controller::kBlkio},
};

constexpr std::string_view kScope = "slurmstepd.scope";

std::optional<std::uint32_t> uid_of(std::string_view name) {
  if (!name.starts_with("uid_")) return std::nullopt;
  name.remove_prefix(4);
  return parse_number<std::uint32_t>(name);
}

}  // namespace

const char* to_string(Controller controller) noexcept {
  switch (controller) {
    case Controller::kUnified: return "unified";
    case Controller::kMemory: return "memory";
    case Controller::kCpuacct: return "cpuacct";
    case Controller::kCpuset: return "cpuset";
    case Controller::kFreezer: return "freezer";
    case Controller::kDevices: return "devices";
    case Controller::kBlkio: return "blkio";
  }
  return "?";
}

bool is_sluid(std::string_view name) noexcept {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  return name.size() == 14 && name.front() == 's' &&
         name.find_first_not_of(kDigits, 1) == std::string_view::npos;
}

std::optional<JobName> parse_job_name(std::string_view scheduler, std::string_view directory) {
  if (directory.empty() || directory.size() > 128) return std::nullopt;
  if (scheduler == "slurm") {
    if (is_sluid(directory)) return JobName{std::string(directory), true};
    if (!directory.starts_with("job_")) return std::nullopt;
    const std::string_view id = directory.substr(4);
    if (!is_all_digits(id)) return std::nullopt;
    return JobName{std::string(id), false};
  }
  // "4711.server", "4711[3].server"
  if (!is_digit(directory.front())) return std::nullopt;
  return JobName{std::string(directory), false};
}

std::vector<CgroupTree::Base> CgroupTree::bases() const {
  std::vector<Base> bases;
  Identity found;
  for (const char* below : {"", "/unified"}) {
    if (files_.identify(root_ + below + "/cgroup.controllers", found) == 0)
      bases.push_back({root_ + below, Controller::kUnified});
  }
  std::array<bool, kControllers> have{};
  for (const ControllerName& name : kV1Names) {
    bool& seen = have.at(static_cast<std::size_t>(name.controller));
    if (seen) continue;
    const std::string path = root_ + "/" + name.directory;
    // Below a v2 root, a directory of that name would be a group of somebody, not a controller.
    if (files_.identify(path + "/cgroup.controllers", found) == 0 ||
        files_.identify(path, found) != 0)
      continue;
    bases.push_back({path, name.controller});
    seen = true;
  }
  return bases;
}

CgroupTree::Found CgroupTree::find() const {
  Found found;
  found.above.push_back(root_);  // a controller may be mounted later
  for (const Base& base : bases()) {
    const bool unified = base.controller == Controller::kUnified;
    found.above.push_back(base.path);
    for (const DirectoryEntry& entry : list_directories(files_, base.path)) {
      const std::string path = base.path + "/" + entry.name;
      if (entry.name == "torque") {
        found.parents.push_back({path, base.controller, "torque", {}, {}});
      } else if (entry.name == "pbspro.service" || entry.name == "pbs_jobs.service") {
        found.above.push_back(path);
        found.parents.push_back({path + "/jobid", base.controller, "pbs", {}, {}});
      } else if (unified && entry.name == "system.slice") {
        found.above.push_back(path);
        for (const DirectoryEntry& scope : list_directories(files_, path)) {
          const std::string_view name = scope.name;
          if (!name.ends_with(kScope)) continue;
          std::string_view node = name.substr(0, name.size() - kScope.size());
          if (!node.empty() && node.back() != '_') continue;
          if (!node.empty()) node.remove_suffix(1);
          found.parents.push_back(
              {path + "/" + scope.name, base.controller, "slurm", std::string(node), {}});
        }
      } else if (!unified && (entry.name == "slurm" || entry.name.starts_with("slurm_"))) {
        found.above.push_back(path);
        const std::string node = entry.name.size() > 6 ? entry.name.substr(6) : std::string{};
        for (const DirectoryEntry& owner : list_directories(files_, path)) {
          const auto uid = uid_of(owner.name);
          if (uid)
            found.parents.push_back({path + "/" + owner.name, base.controller, "slurm", node, uid});
        }
      }
    }
  }
  return found;
}

std::string CgroupTree::describe() const {
  std::string v1;
  std::string v2;
  for (const Base& base : bases()) {
    if (base.controller == Controller::kUnified) {
      v2 = "v2";
    } else {
      v1.append(v1.empty() ? "v1 " : " ").append(to_string(base.controller));
    }
  }
  return v1 + (v1.empty() || v2.empty() ? "" : ", ") + v2;
}

JobParents::JobParents(std::string root, std::string node, std::vector<std::string> nodes,
                       Files& files, Watcher& watcher)
    : tree_(std::move(root), files),
      node_(std::move(node)),
      nodes_(std::move(nodes)),
      watcher_(watcher) {}

void JobParents::refresh() {
  // What appears between listing and watching is found by the next round, as the watch is there by
  // then.
  for (int round = 0; round < 8; ++round) {
    bool news = false;
    CgroupTree::Found found = tree_.find();
    std::set<std::string> now(found.above.begin(), found.above.end());
    // Also those that were there before: a directory may have been removed and made again since.
    for (const std::string& path : now) {
      const auto added = watcher_.add({WatchKind::kAbove, path, {}});
      news = news || !above_.contains(path) || added == Watcher::Added::kNew;
    }
    for (const std::string& path : above_) {
      if (!now.contains(path)) watcher_.forget(path);
    }
    above_ = std::move(now);
    std::map<std::string, JobParent> parents;
    for (JobParent& parent : found.parents) {
      if (!measures(parent.node)) continue;
      if (parent.node.empty()) parent.node = node_;
      const std::string path = parent.path;
      const auto added = watcher_.add({WatchKind::kParent, path, {}});
      news = news || !parents_.contains(path) || added == Watcher::Added::kNew;
      parents.emplace(path, std::move(parent));
    }
    for (const auto& [path, parent] : parents_) {
      if (!parents.contains(path) && watcher_.forget(path)) former_.insert_or_assign(path, parent);
    }
    parents_ = std::move(parents);
    if (!news) break;
  }
  stale_ = false;
}

bool JobParents::measures(const std::string& node) const {
  return nodes_.empty() || node.empty() || std::ranges::find(nodes_, node) != nodes_.end();
}

const JobParent* JobParents::find(const std::string& path) const {
  for (const auto* parents : {&parents_, &former_}) {
    if (const auto found = parents->find(path); found != parents->end()) return &found->second;
  }
  return nullptr;
}

}  // namespace scriptorium::usage
