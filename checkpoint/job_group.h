#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Which job a process belongs to, by the control groups that the kernel names in /proc/PID/cgroup.
// Pure: functions of text. The groups are made by the scheduler as root, so a user cannot enter
// another job's. Users may make groups below a group that was delegated to them, with any name, so
// a path counts only from the top of the hierarchy:
//
//   v1  freezer or cpuset  /slurm[_NODE]/uid_<uid>/job_<id>/step_batch[/...]
//       freezer or cpuset  /oar/<user>_<id>[/...]
//   v2  /system.slice/[NODE_]slurmstepd.scope/job_<id>/step_batch/user[/...]
//       /oar.slice/oar-u<uid>.slice/oar-u<uid>-j<id>.slice[/...]
//       /oar/<user>_<id>[/...]
namespace scriptorium::checkpoint {

// The job that a request is for, and its owner as the kernel names the request's file.
struct JobOwner {
  std::string job;
  uid_t uid = 0;
  std::string user;  // the name of `uid`
};

struct GroupLine {
  std::string controllers;  // "cpu,cpuacct"; "name=systemd"; "" = version 2
  std::string path;
};
std::vector<GroupLine> parse_group_lines(std::string_view text);

// The text of /proc/PID/cgroup is of a process in that job of that user. False where any
// hierarchy says that it is in another job.
bool is_in_job(std::string_view text, const JobOwner& owner);
// Whose job that is, "slurm" or "oar"; "" if it is not in that job.
std::string scheduler_of(std::string_view text, const JobOwner& owner);

// Where a process must be entered to be in the same groups: the files cgroup.procs, of the
// hierarchies that /proc/self/mountinfo shows. `required`: the group is one of the job's.
struct GroupEntry {
  std::string procs;
  bool required = false;
};
std::vector<GroupEntry> entries_of(std::string_view group_text, std::string_view mountinfo,
                                   const JobOwner& owner);

}  // namespace scriptorium::checkpoint
