#include "checkpoint/run/job.h"

#include "core/base/ascii.h"

namespace scriptorium::checkpoint {

std::optional<BatchJob> find_batch_job(
    const std::function<std::string(const std::string&)>& environment) {
  if (const std::string id = environment("OAR_JOB_ID"); is_all_digits(id)) {
    const std::string array = environment("OAR_ARRAY_ID");
    const std::string index = environment("OAR_ARRAY_INDEX");
    if (!is_all_digits(array) || !is_all_digits(index)) return BatchJob{Scheduler::kOar, id, id};
    return BatchJob{Scheduler::kOar, id, index == "1" ? array : array + "_" + index};
  }
  if (const std::string id = environment("SLURM_JOB_ID"); is_all_digits(id))
    return BatchJob{Scheduler::kSlurm, id, id};
  return std::nullopt;
}

std::vector<pid_t> shells_above(const Process& self, Scheduler scheduler,
                                const std::function<std::optional<Process>(pid_t)>& process,
                                const std::function<std::string(pid_t)>& name) {
  std::vector<pid_t> shells;
  if (self.uids.empty()) return {};
  for (pid_t next = self.parent; next > 1;) {
    const auto parent = process(next);
    const std::string parent_name = name(next);
    // Slurm's is recognized by its name also where Slurm runs as the user. A login session has
    // none.
    if (parent_name == "slurmstepd") return shells;
    if (parent_name.starts_with("sshd") || !parent) return {};
    if (!belongs_to(*parent, self.uids.front())) {
      if (scheduler != Scheduler::kOar) return {};
      // oarexec's own script, as the user: it waits for the job's first process, which alone gets
      // the signal, and gives OAR the exit code.
      if (!shells.empty() && name(shells.back()) == "perl") shells.pop_back();
      return shells;
    }
    shells.push_back(next);
    next = parent->parent;
  }
  return {};
}

}  // namespace scriptorium::checkpoint
