#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/api/kit/repeat_limit.h"
#include "core/api/logger.h"
#include "core/base/time.h"
#include "schedulers/usage/counter_files.h"
#include "schedulers/usage/counters.h"
#include "schedulers/usage/files.h"
#include "schedulers/usage/life.h"

// What /proc says of the processes of a job: its owner and its environment, and what no control
// group counts. Everybody may read a process's times and pages; its I/O and its environment only
// its user, or one with CAP_SYS_PTRACE. Threads: one.
namespace scriptorium::usage {

// "/proc/4711/stat".
std::string process_file(const std::string& proc, std::uint32_t pid, const char* file);
// Of the times in a process's stat.
double ticks_per_second();

// Bytes that a job's processes read and wrote, ended ones as they were last seen: what a process
// did between its last reading and its end is lost.
class ProcessIo {
 public:
  // False if nothing could be read of any process for want of rights.
  bool update(Files& files, const std::string& proc, const std::vector<std::uint32_t>& pids);
  IoBytes total() const;

 private:
  struct One {
    std::uint64_t read = 0, written = 0;
    std::uint64_t round = 0;
  };
  std::map<std::uint32_t, One> living_;
  std::uint64_t ended_read_ = 0, ended_written_ = 0, round_ = 0;
  bool any_ = false;
};

// Name and real uid of a process, from its status. The effective uid, which owns /proc/PID, is
// another one's while a set-uid program runs; the real uid stays that of the user who started it.
struct ProcessOwner {
  std::string name;
  std::uint32_t uid = 0;
};
std::optional<ProcessOwner> process_owner(Files& files, const std::string& proc, std::uint32_t pid);

// The directories of a job that may hold processes: its own, its steps' and its tasks'.
class ProcessGroups {
 public:
  struct Group {
    std::string path;
    bool foreign = false;  // slurmstepd and the extern step's sleep, not the job's own
    bool empty = false;    // when it was read last
  };
  explicit ProcessGroups(Files& files) : files_(files) {}

  // Lists them, unless they are known since the last call.
  const std::vector<Group>& list(const ReadScope& scope);
  // One was made or removed.
  void forget() { known_ = false; }
  bool known() const noexcept { return known_; }

  // `all_groups`: also of those that had none when they were read last, such as the ones between a
  // job and its tasks.
  std::vector<std::uint32_t> processes(bool foreign_too, bool all_groups);

 private:
  void add_step(const std::string& path, const std::string& step);

  Files& files_;
  bool known_ = false;
  std::vector<Group> groups_;
};

// Whether a process is in the control group or in one below it, down to `depth` levels.
bool has_process(Files& files, const std::string& group, int depth);

struct ProcessOptions {
  std::string proc = "/proc";
  bool io = true;  // read and written bytes, where no control group counts them
};

class ProcessReader {
 public:
  ProcessReader(const ProcessOptions& options, Files& files, Logger& log, const Clock& clock)
      : options_(options), files_(files), log_(log), clock_(clock), groups_(files) {}

  ProcessGroups& groups() noexcept { return groups_; }
  // Sets what no counter gave, and the owner of a job whose path does not name it. False if the job
  // has no process at all.
  bool read(const ReadScope& scope, RepeatLimit& logged, Reading& into);
  // The job's own processes, as of then; none of a job that has too many of them.
  const std::vector<std::uint32_t>& own() const noexcept { return own_; }
  // How long the job has run, by its oldest directory and process.
  double age_seconds(const ReadScope& scope);
  // SLURM_JOB_GPUS of one of the processes.
  const std::optional<std::string>& gpus() const noexcept { return gpus_; }
  // The counters began again: what is known is another job's.
  void begin_life();

 private:
  void read_owner(const ReadScope& scope, const std::vector<std::uint32_t>& pids);
  void read_environment(JobSeen& job, const std::vector<std::uint32_t>& pids);
  void read_usage(const std::vector<std::uint32_t>& pids, RepeatLimit& logged, Reading& into);

  static constexpr int kEnvironmentTries = 5;

  const ProcessOptions& options_;
  Files& files_;
  Logger& log_;
  const Clock& clock_;
  ProcessGroups groups_;
  std::vector<std::uint32_t> own_;
  std::optional<ProcessIo> io_;
  int environment_tries_ = kEnvironmentTries;  // that are left
  std::optional<std::string> gpus_;
};

}  // namespace scriptorium::usage
