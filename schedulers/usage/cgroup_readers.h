#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "schedulers/usage/counter_files.h"
#include "schedulers/usage/life.h"
#include "schedulers/usage/process.h"

// Which files of a job's control groups are read, and what of the reading they give. Per-job
// objects. Threads: one.
namespace scriptorium::usage {

class Cgroup1Reader {
 public:
  explicit Cgroup1Reader(CounterFiles& files);

  // `groups`: where the tasks are, each of which counts its kills.
  void read(const ReadScope& scope, ProcessGroups& groups, Reading& into);
  // The devices that the job may use, as devices.list has them.
  std::optional<std::string_view> devices(const ReadScope& scope);
  // Kills in the groups of tasks below this directory; nothing where some could not be counted.
  std::optional<std::uint64_t> kills_in(const std::string& directory) const;
  void group_removed(Controller controller) { files_.close(controller); }
  // The counters began again: what was counted was another job's.
  void begin_life() { kills_ = {}; }

 private:
  struct Kills {
    std::optional<std::uint64_t> failures;       // memory.failcnt
    std::map<std::string, std::uint64_t> tasks;  // oom_kill, by directory
    bool unknown = false;  // a limit was hit after which no task could be asked
  };
  void count_kills(const ReadScope& scope, ProcessGroups& groups, Reading& into);

  Files& shared_;
  JobFiles files_;
  Kills kills_;
};

class Cgroup2Reader {
 public:
  // `root`: up to where a limit of a group above the job counts.
  Cgroup2Reader(CounterFiles& files, const std::string& root);

  void read(const ReadScope& scope, Reading& into);
  // By cgroup.events, no process is left in the job.
  bool is_empty(const ReadScope& scope);
  void group_removed(Controller controller) { files_.close(controller); }

 private:
  void read_limit(const std::string& job, Reading& into) const;

  Files& shared_;
  const std::string& root_;
  JobFiles files_;
};

}  // namespace scriptorium::usage
