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

constexpr std::size_t kLongestPath = 1024;
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

// What programs differ by.
auto key_of(const ProgramUse& program) {
  return std::tie(program.name, program.script, program.container, program.path, program.build_id);
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

// By place, whether a process has the program.
std::vector<bool> ProgramTable::running() const {
  std::vector<bool> runs(programs_.size());
  for (const Process& process : processes_) {
    if (process.program != kOther) runs[process.program] = true;
  }
  return runs;
}

// `program`: its name, script, container and file. `runs`: running(); grows with the table.
std::uint32_t ProgramTable::place_of(ProgramUse program, std::vector<bool>& runs) {
  auto found = std::find_if(programs_.begin(), programs_.end(),
                            [&](const ProgramUse& one) { return key_of(one) == key_of(program); });
  const bool is_new = found == programs_.end();
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
  }
  if (is_new) *found = std::move(program);
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
  std::vector<bool> runs = running();
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
        process.program = place_of({.name = std::move(identity->program.name),
                                    .script = std::move(identity->program.script),
                                    .container = std::move(identity->container)},
                                   runs);
        process.task = identity->task;
        process.command = one.command;
        process.program_seconds = 0;
        process.is_answered = false;
      }
    }
    const double more = std::max(0.0, one.cpu_seconds - process.cpu_seconds);
    process.cpu_seconds += more;
    process.program_seconds += more;
    process.threads = one.threads;
    process.busy_threads = one.busy_threads;
    if (process.program == kOther) {
      other_cpu_seconds_ = other_cpu_seconds_.value_or(0) + more;
    } else {
      programs_[process.program].cpu_seconds += more;
    }
    next.push_back(std::move(process));
  }
  remember(std::move(next), now);
  count_at_once();
}

void ProgramTable::learn(const FindExecutable& find) {
  std::vector<bool> runs = running();
  std::vector<bool> emptied;  // by place: programs from which something moved
  for (Process& process : processes_) {
    if (process.is_answered || process.command.empty()) continue;
    const auto executable = find(process.pid, process.start_ticks);
    // The process may execute another program since it was asked for, or since it was read.
    if (!executable || (!executable->path.empty() && executable->command != process.command))
      continue;
    process.is_answered = true;
    if (executable->path.empty() || process.program == kOther) continue;
    const ProgramUse& from = programs_[process.program];
    const std::uint32_t place = place_of({.name = from.name,
                                          .script = from.script,
                                          .container = from.container,
                                          .path = bounded_text(executable->path, kLongestPath),
                                          .build_id = executable->build_id},
                                         runs);
    if (place == kOther) continue;
    emptied.resize(programs_.size());
    emptied[process.program] = true;
    double& seconds = programs_[process.program].cpu_seconds;
    seconds = std::max(0.0, seconds - process.program_seconds);
    ProgramUse& to = programs_[place];
    to.cpu_seconds += process.program_seconds;
    // At least itself, which may have ended since.
    to.processes = std::max<std::uint64_t>(to.processes, 1);
    to.threads = std::max(to.threads, process.threads);
    keep_most(to.busy_threads, process.busy_threads);
    if (process.task) keep_most(to.ranks, std::optional<std::uint64_t>(1));
    process.program = place;
  }
  if (emptied.empty()) return;
  remove_emptied(emptied);
  count_at_once();
}

// A program without a file, of which all processes turned out to have one, is not one.
void ProgramTable::remove_emptied(const std::vector<bool>& emptied) {
  constexpr double kRounding = 1e-6;  // s
  const std::vector<bool> runs = running();
  for (std::size_t place = emptied.size(); place > 0;) {
    --place;
    const ProgramUse& program = programs_[place];
    if (!emptied[place] || runs[place] || program.cpu_seconds > kRounding || !program.path.empty())
      continue;
    programs_.erase(programs_.begin() + static_cast<std::ptrdiff_t>(place));
    for (Process& process : processes_) {
      if (process.program != kOther && process.program > place) --process.program;
    }
  }
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
void ProgramTable::count_at_once() {
  std::vector<ProgramUse> at_once(programs_.size(), ProgramUse{.busy_threads = 0});
  std::vector<std::pair<std::uint32_t, std::uint64_t>> tasks;  // each of a program
  for (const Process& process : processes_) {
    if (process.program == kOther || process.is_missing) continue;
    ProgramUse& use = at_once[process.program];
    ++use.processes;
    use.threads += process.threads;
    add_known(use.busy_threads, process.busy_threads);
    if (process.task) tasks.emplace_back(process.program, *process.task);
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
    return std::tuple_cat(std::tie(b.cpu_seconds), key_of(a)) <
           std::tuple_cat(std::tie(a.cpu_seconds), key_of(b));
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
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::string>, ProgramUse>
      merged;
  std::optional<double> other;
  for (const NodeUsage& node : nodes) {
    for (const ProgramUse& one : node.programs.programs) {
      const auto [found, is_new] = merged.try_emplace(key_of(one), one);
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
