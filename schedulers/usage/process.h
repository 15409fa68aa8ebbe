#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "schedulers/usage/counters.h"
#include "schedulers/usage/files.h"

// What /proc says of the processes of a job, where no control group does. Everybody may read a
// process's times and pages; its I/O and its environment only its user, or one with CAP_SYS_PTRACE.
namespace scriptorium::usage {

struct ProcessTotals {
  std::optional<double> cpu_seconds, user_seconds;  // with ended children that were waited for
  std::optional<std::uint64_t> anon_bytes, shared_bytes;
  std::size_t processes = 0;  // that could be read
};
ProcessTotals sum_processes(Files& files, const std::string& proc,
                            const std::vector<std::uint32_t>& pids);

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

// How long ago the oldest of them was started, in seconds; nothing if none could be read.
std::optional<double> oldest_age(Files& files, const std::string& proc,
                                 const std::vector<std::uint32_t>& pids);

// Name and real uid of a process, from its status. The effective uid, which owns /proc/PID, is
// another one's while a set-uid program runs; the real uid stays that of the user who started it.
struct ProcessOwner {
  std::string name;
  std::uint32_t uid = 0;
};
std::optional<ProcessOwner> process_owner(Files& files, const std::string& proc, std::uint32_t pid);

// What the environment of a job's process says of the job. Its user writes it: good for what
// concerns only him.
struct JobEnvironment {
  std::optional<std::string> job_id;
  std::optional<std::uint32_t> restarts;
  std::optional<std::string> gpus;  // SLURM_JOB_GPUS: indexes on this node
};
std::optional<JobEnvironment> job_environment(Files& files, const std::string& proc,
                                              std::uint32_t pid);

}  // namespace scriptorium::usage
