#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/api/event.h"
#include "core/api/query.h"

namespace scriptorium::cli {

// Runs that wait for the modules of their scripts, for a file tree, where both are records of their
// own. First add() all runs, then take() the records of scripts that wants() does not rule out, in
// any order; then use_all(). Keeps some hundred bytes for each run, and each list of modules once.
// Threads: one at a time.
class ScriptModules {
 public:
  // A run, and the usage.job that describes it. Its nodes and programs are not kept.
  void add(const Event& usage, JobRun run);
  // Whether a file may be the record of a script of these runs: every path holds the job's id.
  bool wants(std::string_view path) const;
  // The script is that of the runs of its job (of an array: of all tasks) that were submitted with
  // it. An id that was used again is another job: the newest script before the run counts.
  void take(const Event& script);
  // Calls use() for each run. Returns how many have no script here.
  std::size_t use_all(const std::function<void(const JobRun&)>& use);

 private:
  struct Waiting {
    JobRun run;
    Timestamp submitted_at;
    Timestamp script_at;  // of the script that `modules` are of
    const std::vector<std::string>* modules = nullptr;
  };

  std::unordered_map<std::string, std::vector<Waiting>> jobs_;  // by cluster, scheduler and id
  std::unordered_set<std::string> numbers_;                     // in the ids
  bool has_other_ids_ = false;                                  // without a number
  std::set<std::vector<std::string>> modules_;
};

}  // namespace scriptorium::cli
