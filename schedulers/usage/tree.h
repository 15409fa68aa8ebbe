#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "schedulers/usage/files.h"
#include "schedulers/usage/watcher.h"

// Where the control groups of jobs are: every shape that Slurm, Torque and PBS make, in both
// versions of control groups.
//
//   v1  ROOT/<controller>/slurm[_NODE]/uid_<uid>/job_<id>/step_<s>/task_<t>
//       ROOT/<controller>/torque/<id>
//       ROOT/<controller>/{pbspro.service,pbs_jobs.service}/jobid/<id>
//   v2
//   ROOT[/unified]/system.slice/[NODE_]slurmstepd.scope/{job_<id>,<SLUID>}/step_<s>/{slurm,user/task_<t>}
//       ROOT[/unified]/{torque/<id>,{pbspro.service,pbs_jobs.service}/jobid/<id>}
namespace scriptorium::usage {

// The v1 controllers that we read, and the one tree of v2.
enum class Controller : std::uint8_t {
  kUnified,
  kMemory,
  kCpuacct,
  kCpuset,
  kFreezer,
  kDevices,
  kBlkio
};
inline constexpr std::size_t kControllers = 7;
const char* to_string(Controller controller) noexcept;  // "unified", "memory", ...

// The directory of one job below one controller.
struct ControlGroup {
  std::string path;  // also after its removal
  std::uint64_t inode = 0;
  bool there = false;
};
struct ControlGroups : std::array<ControlGroup, kControllers> {
  bool owner_in_path = false;  // root wrote the job's uid there
  ControlGroup& of(Controller c) { return at(static_cast<std::size_t>(c)); }
  const ControlGroup& of(Controller c) const { return at(static_cast<std::size_t>(c)); }
};

inline bool is_step(std::string_view directory) { return directory.starts_with("step_"); }
inline bool is_task(std::string_view directory) { return directory.starts_with("task_"); }

// A directory whose children are jobs.
struct JobParent {
  std::string path;
  Controller controller = Controller::kUnified;
  std::string scheduler;             // "slurm", "torque", "pbs"
  std::string node;                  // slurmd's node name; "" = the path does not say
  std::optional<std::uint32_t> uid;  // v1 of Slurm: made by root, so to be trusted
};

// What a job's directory is called.
struct JobName {
  std::string id;      // "4711"; the SLUID where the name is one
  bool sluid = false;  // Slurm >= 26.05
};
std::optional<JobName> parse_job_name(std::string_view scheduler, std::string_view directory);
// Crockford's base 32 behind an 's', as Slurm >= 26.05 names its groups.
bool is_sluid(std::string_view name) noexcept;

// Finds the parents of jobs below a root such as /sys/fs/cgroup, by the names of its directories
// alone, so that a tree of plain files serves as well.
class CgroupTree {
 public:
  CgroupTree(std::string root, Files& files) : root_(std::move(root)), files_(files) {}

  struct Found {
    std::vector<JobParent> parents;
    std::vector<std::string>
        above;  // directories in which a parent, or one above it, may appear: to be watched
  };
  Found find() const;

  // Controllers that are there at all, for `check` and `status`: "v1 memory cpuacct", "v2", "" =
  // none.
  std::string describe() const;

 private:
  struct Base {
    std::string path;
    Controller controller;
  };
  std::vector<Base> bases() const;

  std::string root_;
  Files& files_;
};

// The directories in which jobs appear, found and watched. Threads: one.
class JobParents {
 public:
  // `node`: this host, where the path of a job does not name its node. `nodes`: of slurmds whose
  // jobs are measured, where paths name nodes; empty = all.
  JobParents(std::string root, std::string node, std::vector<std::string> nodes, Files& files,
             Watcher& watcher);

  // Finds them again. What is not there any more is kept until all notifications of it were read.
  void refresh();
  bool stale() const noexcept { return stale_; }
  void set_stale() noexcept { stale_ = true; }

  const std::map<std::string, JobParent>& by_path() const noexcept { return parents_; }
  const JobParent* find(const std::string& path) const;  // also of a former one
  void ended(const std::string& path) { former_.erase(path); }
  bool measures(const std::string& node) const;
  std::string describe_tree() const { return tree_.describe(); }

 private:
  CgroupTree tree_;
  std::string node_;
  std::vector<std::string> nodes_;
  Watcher& watcher_;
  bool stale_ = true;
  std::set<std::string> above_;
  std::map<std::string, JobParent> parents_, former_;
};

}  // namespace scriptorium::usage
