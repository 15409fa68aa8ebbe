#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace scriptorium::usage {

// Counts the jobs that came and went with the directories of their user before these could be
// watched. Slurm makes a directory of a user below each v1 controller for the user's first job and
// removes it after the last one, so each held a job. One in which none was seen is explained by a
// job that was seen below another controller only; if there are more of them than of such jobs,
// jobs were missed. Pure; not thread-safe.
class MissedJobs {
 public:
  // The directory `name` ("uid_1001") appeared in, or was removed from, a controller's own
  // directory, "/sys/fs/cgroup/memory/slurm_n1".
  void owner_appeared(const std::string& above, std::string_view name);
  void owner_removed(const std::string& above, std::string_view name);

  // Of the directory of a user's jobs, "/sys/fs/cgroup/memory/slurm_n1/uid_1001":
  void job_listed(const std::string& owner);  // it holds a job, known or not
  void job_began(const std::string& owner);   // a job was seen, below whatever controller
  void job_seen(const std::string& owner);    // a job was seen in this very directory

  struct Missed {
    std::uint64_t jobs = 0;
    std::string owner;  // of one of them: "slurm_n1/uid_1001"
  };
  // How many were missed of users whose directories are all gone, who are then forgotten.
  Missed take();
  void clear() { owners_.clear(); }

 private:
  struct Place {
    bool there = false;
    bool had_job = false;
    std::int64_t without_job = 0;  // directories that are gone
    std::int64_t jobs = 0;         // seen below this controller
  };
  struct Owner {
    std::map<std::string, Place> places;  // by the controller's own directory
    std::int64_t jobs = 0;                // seen anywhere
  };

  Owner& owner_of(const std::string& path);
  Place& place_of(const std::string& path);

  // Users with a directory now, or since the last take(); by "slurm_n1/uid_1001".
  std::map<std::string, Owner> owners_;
};

}  // namespace scriptorium::usage
