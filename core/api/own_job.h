#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "core/api/event.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium {

// Measures the job that the calling process runs in, for the job's owner and with no more than the
// owner's rights. A job on several nodes has such a process on each: every one gives its part, and
// one of them merges the parts.
//
// Borrows: the source that made it, which must outlive it.
// Threads: one. Takes descriptors and threads of its own only from the first step() on, so that a
//          process may fork before.
class OwnJob {
 public:
  struct Place {
    std::string job;   // the scheduler's id: "4711"
    std::string node;  // this node's name
    // A launcher of the scheduler started this process on each node, and ends what it leaves
    // behind.
    bool is_launched = false;
    bool measures = true;  // false: another process of the same launch measures this node
    bool merges = true;    // false: the process of another node merges the parts
  };

  OwnJob() = default;
  OwnJob(const OwnJob&) = delete;
  OwnJob& operator=(const OwnJob&) = delete;
  virtual ~OwnJob() = default;

  virtual const Place& place() const noexcept = 0;

  // Reads what is due, with `now` all of the job; true if the job was read. kPermanent: nothing on
  // this node counts what the job uses.
  virtual Result<bool> step(bool now) = 0;
  // When to call step() again at the latest, and a descriptor that is readable when there is reason
  // to call it before; -1: none.
  virtual SteadyTime next_step() const = 0;
  virtual int notify_fd() const noexcept = 0;

  // What the job used on this node up to the last reading, for merge().
  virtual std::string part() const = 0;
  // usage.job, and usage.node for each part. `parts`: of this process and of those on other nodes;
  // what is damaged, or of another run of the job, is left out. `running`: the job has not ended.
  // May ask the scheduler, for some seconds at most, unless `stop` is requested.
  virtual std::vector<Event> merge(const std::vector<std::string>& parts, bool running,
                                   const std::stop_token& stop) = 0;
};

}  // namespace scriptorium
