#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/job_group.h"
#include "core/base/file.h"

// Processes, as /proc shows them.
namespace scriptorium::checkpoint {

// Names as the kernel keeps them, at most 15 bytes.
inline constexpr std::string_view kServiceName = "scriptorium-che";
inline constexpr std::string_view kRunName = "scriptorium-run";

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  std::uint64_t start = 0;         // clock ticks since the machine started
  std::uint64_t memory_bytes = 0;  // resident or swapped out
  bool is_zombie = false;
  std::vector<uid_t> uids;       // real, effective, saved, file system
  bool has_capabilities = true;  // permitted, effective or ambient ones
};
// Pure: from the texts of /proc/PID/stat and /proc/PID/status.
std::optional<Process> parse_process(std::string_view stat, std::string_view status);

// Files of /proc have no size, and a read gives a part of them. "" = it cannot be read.
std::string read_proc(const std::string& path);
std::optional<Process> read_process(pid_t pid);
// Those that can be seen; with `uid`, of that real user only.
std::vector<Process> processes_of(uid_t uid);
std::vector<Process> all_processes();
std::string read_group_text(pid_t pid);  // /proc/PID/cgroup; "" if the process has ended

// Pure: the process and all that descend from it, itself first; none if it is not in the list.
std::vector<Process> tree_of(pid_t root, const std::vector<Process>& all);

std::int64_t start_time_ns(const Process& process);  // since 1970
bool belongs_to(const Process& process, uid_t uid);  // all of its user ids
bool is_in_job(const Process& process, const JobOwner& owner);
// It is not there any more, or has another one's number; or it ends within a second. A process that
// ends loses its memory, its files and its control group first: /proc then shows it as one of root,
// and in no job, although it is not a zombie yet.
bool has_ended(const Process& process);

// The process that the scheduler started, and that ends the job when it ends: of the owner's
// processes in the job whose parents are not, the one that started first.
std::optional<Process> first_process(const JobOwner& owner);

// "NAME=value" of this process.
std::vector<std::string> own_environment();

// A descriptor of one process: a later one with the same number is not meant by it.
UniqueFd open_process(pid_t pid);
bool is_running(const UniqueFd& process);
void send_signal(const UniqueFd& process, int signal);
// Waits until it has ended; false: not within that time.
bool wait_for_end(const UniqueFd& process, int limit_ms);

// Kills everything that descends from this process, and waits for it. For a subreaper
// (PR_SET_CHILD_SUBREAPER), from which nothing can escape by losing its parent.
void end_descendants();

}  // namespace scriptorium::checkpoint
