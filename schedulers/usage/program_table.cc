#include "schedulers/usage/program_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium::usage {
namespace {

// No process has used more: 30,000 years of CPU time.
constexpr std::uint64_t kMostMilliseconds = 1'000'000'000'000'000;

double sum_of(const std::vector<ProgramUse>& programs) {
  return std::accumulate(programs.begin(), programs.end(), 0.0,
                         [](double sum, const ProgramUse& one) { return sum + one.cpu_seconds; });
}

std::optional<double> share_of(double part, const std::optional<double>& whole) {
  if (!whole || !(*whole > 0)) return std::nullopt;
  return std::clamp(part / *whole, 0.0, 1.0);
}

// The field before the next colon or the end; nothing if it is not such a number.
template <typename Number>
std::optional<Number> take_field(std::string_view& text) {
  return parse_number<Number>(take_until(text, ':'));
}

}  // namespace

const ProgramTable::Process* ProgramTable::find(std::uint32_t pid) const {
  const auto found = std::lower_bound(
      processes_.begin(), processes_.end(), pid,
      [](const Process& process, std::uint32_t wanted) { return process.pid < wanted; });
  return found != processes_.end() && found->pid == pid ? &*found : nullptr;
}

// `runs`: by place, whether a process has the program; grows with the table.
std::uint32_t ProgramTable::place_of(ProgramName name, std::vector<bool>& runs) {
  auto found = std::find_if(programs_.begin(), programs_.end(), [&](const ProgramUse& one) {
    return one.name == name.name && one.script == name.script;
  });
  if (found == programs_.end() && programs_.size() < kMostPrograms) {
    found = programs_.insert(programs_.end(), ProgramUse{});
    runs.push_back(false);
  } else if (found == programs_.end()) {
    for (auto one = programs_.begin(); one != programs_.end(); ++one) {
      if (runs[static_cast<std::size_t>(one - programs_.begin())]) continue;
      if (found == programs_.end() || one->cpu_seconds < found->cpu_seconds) found = one;
    }
    if (found == programs_.end()) return kOther;
    other_cpu_seconds_ = other_cpu_seconds_.value_or(0) + found->cpu_seconds;
    *found = {};
  }
  found->name = std::move(name.name);
  found->script = std::move(name.script);
  const auto place = static_cast<std::uint32_t>(found - programs_.begin());
  runs[place] = true;
  return place;
}

void ProgramTable::take(std::vector<ProcessNow> now, const Identify& identify) {
  // A process that changes its group while the groups are read is in two of them.
  std::sort(now.begin(), now.end(),
            [](const ProcessNow& a, const ProcessNow& b) { return a.pid < b.pid; });
  now.erase(std::unique(now.begin(), now.end(),
                        [](const ProcessNow& a, const ProcessNow& b) { return a.pid == b.pid; }),
            now.end());
  std::vector<bool> runs(programs_.size());
  for (const Process& process : processes_) {
    if (process.program != kOther) runs[process.program] = true;
  }
  std::vector<Process> next;
  next.reserve(now.size());
  for (const ProcessNow& one : now) {
    const Process* const before = find(one.pid);
    const bool is_known = before != nullptr && before->start_ticks == one.start_ticks;
    Process process = is_known ? *before : Process{.pid = one.pid, .start_ticks = one.start_ticks};
    process.is_missing = false;
    if (!is_known || process.command != one.command) {
      auto identity = identify(one);
      if (!identity && !is_known) continue;
      if (identity) {
        process.program = place_of(std::move(identity->program), runs);
        process.task = identity->task;
        process.command = one.command;
      }
    }
    const double more = std::max(0.0, one.cpu_seconds - process.cpu_seconds);
    process.cpu_seconds += more;
    if (process.program == kOther) {
      other_cpu_seconds_ = other_cpu_seconds_.value_or(0) + more;
    } else {
      programs_[process.program].cpu_seconds += more;
    }
    next.push_back(std::move(process));
  }
  remember(std::move(next), now);
  count_at_once(now);
}

// `next`: the processes that were counted now. One that a single reading did not meet is kept
// beside them: its group may not have been read.
void ProgramTable::remember(std::vector<Process> next, const std::vector<ProcessNow>& now) {
  std::vector<Process> missing;
  for (Process& process : processes_) {
    const auto met =
        std::lower_bound(now.begin(), now.end(), process.pid,
                         [](const ProcessNow& one, std::uint32_t pid) { return one.pid < pid; });
    if (process.is_missing || (met != now.end() && met->pid == process.pid)) continue;
    process.is_missing = true;
    missing.push_back(std::move(process));
  }
  processes_.clear();
  std::merge(std::make_move_iterator(next.begin()), std::make_move_iterator(next.end()),
             std::make_move_iterator(missing.begin()), std::make_move_iterator(missing.end()),
             std::back_inserter(processes_),
             [](const Process& a, const Process& b) { return a.pid < b.pid; });
}

// The most processes, threads and tasks of each program at one reading.
void ProgramTable::count_at_once(const std::vector<ProcessNow>& now) {
  std::vector<ProgramUse> at_once(programs_.size(), ProgramUse{.busy_threads = 0});
  std::vector<std::pair<std::uint32_t, std::uint64_t>> tasks;  // each of a program
  for (const ProcessNow& one : now) {
    const Process* const process = find(one.pid);
    if (process == nullptr || process->program == kOther) continue;
    ++at_once[process->program].processes;
    at_once[process->program].threads += one.threads;
    add_known(at_once[process->program].busy_threads, one.busy_threads);
    if (process->task) tasks.emplace_back(process->program, *process->task);
  }
  std::sort(tasks.begin(), tasks.end());
  tasks.erase(std::unique(tasks.begin(), tasks.end()), tasks.end());
  for (const auto& [program, task] : tasks)
    at_once[program].ranks = at_once[program].ranks.value_or(0) + 1;
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    programs_[i].processes = std::max(programs_[i].processes, at_once[i].processes);
    programs_[i].threads = std::max(programs_[i].threads, at_once[i].threads);
    if (at_once[i].processes > 0) keep_most(programs_[i].busy_threads, at_once[i].busy_threads);
    keep_most(programs_[i].ranks, at_once[i].ranks);
  }
}

ProgramShares ProgramTable::shares(std::optional<double> total_seconds) const {
  return share_out(programs_, other_cpu_seconds_, total_seconds);
}

ProgramTable::State ProgramTable::state() const {
  State state{.programs = programs_, .other_cpu_seconds = other_cpu_seconds_, .processes = {}};
  for (const Process& process : processes_) {
    state.processes.append(state.processes.empty() ? "" : " ")
        .append(std::to_string(process.pid))
        .append(":")
        .append(std::to_string(process.start_ticks))
        .append(":")
        .append(std::to_string(std::llround(process.cpu_seconds * 1000)))
        .append(":")
        .append(process.program == kOther ? "" : std::to_string(process.program))
        .append(":")
        .append(process.task ? std::to_string(*process.task) : "");
  }
  return state;
}

ProgramTable ProgramTable::from(State state) {
  ProgramTable table;
  table.programs_ = std::move(state.programs);
  if (table.programs_.size() > kMostPrograms) table.programs_.resize(kMostPrograms);
  table.other_cpu_seconds_ = state.other_cpu_seconds;
  for (std::string_view rest = state.processes; !rest.empty();) {
    std::string_view fields = take_until(rest, ' ');
    const auto pid = take_field<std::uint32_t>(fields);
    const auto start_ticks = take_field<std::uint64_t>(fields);
    const auto milliseconds = take_field<std::uint64_t>(fields);
    const auto program = take_field<std::uint32_t>(fields);
    const auto task = take_field<std::uint64_t>(fields);
    if (!pid || !start_ticks || !milliseconds || *milliseconds > kMostMilliseconds) continue;
    table.processes_.push_back(
        {.pid = *pid,
         .program = program && *program < table.programs_.size() ? *program : kOther,
         .start_ticks = *start_ticks,
         .cpu_seconds = static_cast<double>(*milliseconds) / 1000,
         .task = task,
         .command = {}});
  }
  auto& all = table.processes_;
  std::sort(all.begin(), all.end(),
            [](const Process& a, const Process& b) { return a.pid < b.pid; });
  all.erase(std::unique(all.begin(), all.end(),
                        [](const Process& a, const Process& b) { return a.pid == b.pid; }),
            all.end());
  return table;
}

ProgramShares share_out(std::vector<ProgramUse> programs, std::optional<double> other_cpu_seconds,
                        std::optional<double> total_seconds) {
  ProgramShares shares;
  if (programs.empty()) return shares;
  std::sort(programs.begin(), programs.end(), [](const ProgramUse& a, const ProgramUse& b) {
    return std::tie(b.cpu_seconds, a.name, a.script) < std::tie(a.cpu_seconds, b.name, b.script);
  });
  while (programs.size() > kMostProgramsShown) {
    other_cpu_seconds = other_cpu_seconds.value_or(0) + programs.back().cpu_seconds;
    programs.pop_back();
  }
  const double seen = sum_of(programs) + other_cpu_seconds.value_or(0);
  const double factor = total_seconds && seen > *total_seconds ? *total_seconds / seen : 1;
  for (ProgramUse& one : programs) {
    one.cpu_seconds *= factor;
    one.cpu_ratio = share_of(one.cpu_seconds, total_seconds);
  }
  const auto rest = [&](double seconds) {
    return ProgramShare{seconds, share_of(seconds, total_seconds)};
  };
  shares.programs = std::move(programs);
  if (other_cpu_seconds) shares.other = rest(*other_cpu_seconds * factor);
  if (total_seconds) shares.unseen = rest(std::max(0.0, *total_seconds - seen));
  return shares;
}

ProgramShares merge_programs(const std::vector<NodeUsage>& nodes,
                             std::optional<double> total_seconds) {
  std::map<std::pair<std::string, std::string>, ProgramUse> merged;
  std::optional<double> other;
  for (const NodeUsage& node : nodes) {
    for (const ProgramUse& one : node.programs.programs) {
      const auto [found, is_new] = merged.try_emplace({one.name, one.script}, one);
      if (is_new) continue;
      ProgramUse& sum = found->second;
      sum.cpu_seconds += one.cpu_seconds;
      sum.processes += one.processes;
      sum.threads += one.threads;
      add_known(sum.busy_threads, one.busy_threads);
      if (one.ranks) sum.ranks = sum.ranks.value_or(0) + *one.ranks;
    }
    if (node.programs.other) other = other.value_or(0) + node.programs.other->cpu_seconds;
  }
  std::vector<ProgramUse> programs;
  programs.reserve(merged.size());
  for (auto& [name, one] : merged) programs.push_back(std::move(one));
  return share_out(std::move(programs), other, total_seconds);
}

}  // namespace scriptorium::usage
