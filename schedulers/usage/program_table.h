#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/executables.h"
#include "schedulers/usage/program_name.h"
#include "schedulers/usage/records.h"

namespace scriptorium::usage {

// A process at one reading.
struct ProcessNow {
  std::uint32_t pid = 0;
  std::uint64_t start_ticks = 0;  // since boot; differs where a number is used again
  std::string command;            // changes with each program that the process executes
  double cpu_seconds = 0;         // its own, without those of its children
  std::uint64_t threads = 1;
  // Those that used at least a tenth of the CPU time of the one that used most. Absent: not known.
  std::optional<std::uint64_t> busy_threads;
  bool is_blocked = false;  // in a wait that nothing interrupts, where asking for more may hang too
};

// What a process is asked once for each program that it executes.
struct ProcessIdentity {
  ProgramName program;
  std::optional<std::uint64_t> task;  // srun_task()
  std::string container;              // container_of()
};

// The CPU time of one life of a job on one node, by program. The time that a process used between
// two readings counts for the program that it ran at the second one. What a process used after its
// last reading, and a process that no reading met, are not in it. Pure; no files, no clock.
//
// Programs differ by name, script, container, and the file that they were started from. Until the
// file of a process is known, its time counts for the program of these without a file; then what it
// has used since it executes that program moves.
//
// Bounded: kMostPrograms programs. One more takes the place of the one that used least of those
// that do not run, whose time becomes that of `other`; while all of them run, it counts as other
// itself.
class ProgramTable {
 public:
  static constexpr std::size_t kMostPrograms = 128;
  // Called for a process that is new or executes another command. Nothing: it cannot be asked now,
  // so a new process is left out of this reading.
  using Identify = std::function<std::optional<ProcessIdentity>(const ProcessNow&)>;

  // Executables::find() for a process.
  using FindExecutable =
      std::function<std::optional<Executable>(std::uint32_t pid, std::uint64_t start_ticks)>;

  // All processes of the job.
  void take(std::vector<ProcessNow> now, const Identify& identify);

  // Asks for the file of each process whose file is not known, and counts by those that are found.
  void learn(const FindExecutable& find);

  // `total_seconds`: what the whole job used on this node.
  ProgramShares shares(std::optional<double> total_seconds) const;

  // For the state file: the programs, the time of `other`, and the processes as text. What the text
  // holds that is odd is left out.
  struct State {
    std::vector<ProgramUse> programs;
    std::optional<double> other_cpu_seconds;
    std::string processes;  // "pid:start:seconds:program:task ..."
  };
  State state() const;
  static ProgramTable from(State state);

 private:
  struct Process {
    std::uint32_t pid = 0;
    std::uint32_t program = kOther;  // in programs_
    std::uint64_t start_ticks = 0;
    double cpu_seconds = 0;      // of these, all are counted
    double program_seconds = 0;  // of these, since it executes its program
    std::uint64_t threads = 1;   // this and the next: at the last reading
    std::optional<std::uint64_t> busy_threads;
    std::optional<std::uint64_t> task;
    std::string command;       // "" after a restart: it is identified again
    bool is_missing = false;   // from the last reading
    bool is_answered = false;  // whether its file is known or cannot be known
  };
  static constexpr std::uint32_t kOther = UINT32_MAX;

  const Process* find(std::uint32_t pid) const;
  std::vector<bool> running() const;
  std::uint32_t place_of(ProgramUse program, std::vector<bool>& runs);
  void remove_emptied(const std::vector<bool>& emptied);
  void remember(std::vector<Process> next, const std::vector<ProcessNow>& now);
  void count_at_once();

  std::vector<ProgramUse> programs_;
  std::optional<double> other_cpu_seconds_;
  std::vector<Process> processes_;  // by pid
};

// The programs with the most CPU time, and the others as one. Where the processes' times add up to
// more than the total (a process may have used some before it came to the job), all are reduced by
// the same factor.
ProgramShares share_out(std::vector<ProgramUse> programs, std::optional<double> other_cpu_seconds,
                        std::optional<double> total_seconds);
inline constexpr std::size_t kMostProgramsShown = 32;

// The same programs of several nodes as one.
ProgramShares merge_programs(const std::vector<NodeUsage>& nodes,
                             std::optional<double> total_seconds);

}  // namespace scriptorium::usage
