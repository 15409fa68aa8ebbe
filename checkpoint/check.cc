#include "checkpoint/check.h"

#include <chrono>
#include <string_view>
#include <utility>

#include "checkpoint/image.h"
#include "checkpoint/processes.h"
#include "core/base/ascii.h"
#include "core/base/command.h"
#include "core/base/number.h"

namespace scriptorium::checkpoint {
namespace {

constexpr std::chrono::seconds kPatience{10};
// The first kernel with CAP_CHECKPOINT_RESTORE.
constexpr std::pair kFirstKernel{5, 9};

std::pair<int, int> kernel_version(std::string_view release) {
  const int version = take_number<int>(release).value_or(0);
  if (!release.empty()) release.remove_prefix(1);
  return {version, take_number<int>(release).value_or(0)};
}

std::string proctrack() {
  const auto scontrol = find_program({}, "scontrol", "/usr/bin:/usr/local/bin:/opt/slurm/bin");
  if (!scontrol) return {};
  CommandRunner runner;
  const auto answer = runner.run({.program = *scontrol,
                                  .arguments = {"show", "config"},
                                  .environment = {"PATH=/usr/bin:/bin"}},
                                 {}, std::chrono::steady_clock::now() + kPatience);
  std::string_view text = answer ? std::string_view(answer->output) : std::string_view{};
  while (!text.empty()) {
    std::string_view value = take_until(text, '\n');
    if (trim(take_until(value, '=')) == "ProctrackType") return std::string(trim(value));
  }
  return {};
}

bool has_hierarchy(std::string_view mountinfo) {
  for (const char* type : {" - cgroup2 ", ",freezer", ",cpuset"}) {
    if (mountinfo.find(type) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

NodeFacts node_facts(Engine& engine) {
  return {.kernel = this_machine().kernel,
          .ptrace_scope = read_proc("/proc/sys/kernel/yama/ptrace_scope"),
          .mountinfo = read_proc("/proc/self/mountinfo"),
          .proctrack = proctrack(),
          .engine = engine.probe()};
}

std::vector<CheckLine> check_lines(const NodeFacts& facts) {
  std::vector<CheckLine> lines;
  const bool is_new = kernel_version(facts.kernel) >= kFirstKernel;
  lines.push_back(
      {is_new, "kernel: " + facts.kernel +
                   (is_new ? "" : "; needs Linux 5.9 or later (CAP_CHECKPOINT_RESTORE)")});
  lines.push_back(facts.engine ? CheckLine{true, "criu: " + *facts.engine + " works"}
                               : CheckLine{false, "criu: " + facts.engine.error().detail});
  const std::string_view scope = trim(facts.ptrace_scope, " \n");
  if (scope == "3") {
    lines.push_back({false, "ptrace_scope: 3 denies every dump until the node is started again"});
  } else if (!scope.empty() && scope != "0") {
    lines.push_back(
        {true, "ptrace_scope: " + std::string(scope) + "; criu gets CAP_SYS_PTRACE for a dump"});
  }
  const bool has_groups = has_hierarchy(facts.mountinfo);
  lines.push_back({has_groups, has_groups ? "control groups: mounted"
                                          : "control groups: neither version 2 nor freezer or "
                                            "cpuset is mounted, so a job's processes are unknown"});
  if (!facts.proctrack.empty()) {
    const bool tracks = facts.proctrack == "proctrack/cgroup";
    lines.push_back({tracks, "Slurm: ProctrackType=" + facts.proctrack +
                                 (tracks ? ""
                                         : "; needs proctrack/cgroup, so that a resumed program "
                                           "is in its job and ends with it")});
  }
  return lines;
}

}  // namespace scriptorium::checkpoint
