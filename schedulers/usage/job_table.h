#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/time.h"
#include "schedulers/usage/life.h"
#include "schedulers/usage/missed_jobs.h"
#include "schedulers/usage/tree.h"

namespace scriptorium::usage {

// Counters for `status`.
struct UsageCounts {
  std::uint64_t readings = 0;    // of a job
  std::uint64_t sweeps = 0;      // of all jobs
  std::uint64_t started = 0;     // lives begun
  std::uint64_t ended = 0;       // lives ended
  std::uint64_t at_removal = 0;  // of these, with a last reading at the end
  std::uint64_t unread = 0;      // of these, gone before the first reading
  // Jobs at least that came and went unseen (v1: with the directory of their user).
  std::uint64_t missed = 0;
  std::uint64_t overflows = 0;   // of inotify's queue
  std::uint64_t unreadable = 0;  // files that this user may not read
  std::size_t jobs = 0;          // now
  std::size_t open_files = 0;
  double last_sweep_seconds = 0;
};

// Where a job is in its life on this node.
enum class Stage : std::uint8_t {
  kListed,     // there since our start, without a process: set up just now, or left behind long ago
  kSettingUp,  // its first process was not seen yet
  kRunning,    // a process was seen
  kVanishing,  // the first of its directories is gone, and the others follow
  kClearing,   // likewise, after kListed: it was left behind, so it is not a job
};

// One job, and how what is seen of it changes its stage and its next reading. Pure.
struct TrackedJob {
  TrackedJob(std::string its_key, Life its_life, Stage its_stage)
      : key(std::move(its_key)), life(std::move(its_life)), stage(its_stage) {}

  const std::string key;
  Life life;
  Stage stage;
  // What its summary says if it ends now: kSample, unless it was read at the removal of a task or
  // when no process was left, and no task was made since.
  LastRead last_read = LastRead::kSample;
  ControlGroups groups;
  Moment vanished;  // of kVanishing and kClearing
  // SteadyTime::min(): at once.
  SteadyTime next_reading = SteadyTime::min();
  std::size_t early_readings = 0;    // that were due
  std::uint32_t empty_readings = 0;  // in a row, without a process
  // Read at the removal from one controller, those from the others are to follow: "/step_0/task_0".
  std::set<std::string> ended_tasks;

  JobSeen& seen() noexcept { return life.state().job; }
  bool vanishing() const noexcept { return stage >= Stage::kVanishing; }

  // ---- what was seen
  void began_before(std::chrono::nanoseconds age, Moment now);  // its directory was seen
  void group_removed(Controller controller, Moment now);
  void directory_made(std::string_view name);
  // A step or a task, "/step_0/task_0". `read`: the job was read after that.
  void task_removed(const std::string& task, bool read);
  // The kernel reports that no process is left. `read`: as above.
  void emptied(bool read);
  // By a timed reading; `sweep`: of all jobs.
  void count_processes(bool any, bool sweep) noexcept;

  // After a timed reading.
  void schedule(SteadyTime now) noexcept;
  // Whether the reading that is due now is worth a usage.sample.
  bool sample_due() const noexcept;
};

// The jobs of this node: which there are, when each is to be read, when one has ended. It is given
// what was seen, and when; it reads nothing itself. Pure; no files, no clock, no logger. Threads:
// one.
class JobTable {
 public:
  using Jobs = std::map<std::string, TrackedJob>;  // by scheduler, node and id

  // Counts lives and readings in `counts`.
  JobTable(std::chrono::milliseconds interval, UsageCounts& counts)
      : interval_(interval), counts_(counts) {}

  // Lives that an earlier process began. `same_boot`: else they have ended, whatever is there now.
  void restore(std::vector<LifeState> lives, bool same_boot);
  // All jobs were listed: those of restore() that were not among them ended at their last reading.
  void end_restored();

  // ---- what was seen

  // How a directory came to be seen. kAtStart: by the first listing.
  enum class Seen : std::uint8_t { kAtStart, kListed, kMade };
  struct Appeared {
    TrackedJob& job;
    bool began = false;      // unknown until now
    bool restored = false;   // likewise, and it continues a life of restore()
    bool new_group = false;  // its directory below this controller was unknown
  };
  // The directory of a job, known or not. `inode`: 0 = not known.
  Appeared appeared(const JobParent& parent, const JobName& name, std::uint64_t inode, Seen seen,
                    Moment now, const std::string& path);
  // A directory that stayed behind when its job ended; appeared() makes a job of it again.
  bool is_left_over(std::uint64_t inode) const { return left_over_.contains(inode); }
  // The others were not listed any more.
  void keep_left_over(std::set<std::uint64_t> inodes) { left_over_ = std::move(inodes); }
  // Notifications were lost.
  void overflowed();

  // ---- readings

  // True if the counters had begun again, so that another life of the job began.
  bool add(TrackedJob& job, const Reading& reading);
  // When a job is to be read, or has vanished for so long that it ends.
  SteadyTime next_due() const noexcept;

  // ---- the end

  // Ends the jobs whose directories are all gone, or will not go; returns their keys.
  std::vector<std::string> end_due(Moment now);

  struct Output {
    std::vector<NodeUsage> ended;        // without GPUs
    std::vector<std::string> discarded;  // JobSeen::key() of what was no job
  };
  Output take() { return std::exchange(output_, {}); }

  Jobs& jobs() noexcept { return jobs_; }
  const Jobs& jobs() const noexcept { return jobs_; }
  TrackedJob* find(const std::string& key);
  static std::string key_of(const JobParent& parent, const JobName& name);
  std::vector<LifeState> lives() const;
  MissedJobs& missed() noexcept { return missed_; }

 private:
  Life begin(const JobParent& parent, const JobName& name, Moment now);
  void adopt(TrackedJob& job, const JobParent& parent, std::uint64_t inode, Moment now,
             const std::string& path);
  void begin_next_life(TrackedJob& job, Moment now);
  void end_at_last_reading(const Life& life);
  void end(Jobs::iterator found, LastRead last, Moment now);
  void add_ended(NodeUsage node);

  std::chrono::milliseconds interval_;
  Jobs jobs_;
  std::map<std::string, LifeState> restored_;  // likewise by key
  std::set<std::uint64_t> left_over_;          // inodes
  MissedJobs missed_;
  UsageCounts& counts_;
  Output output_;
};

}  // namespace scriptorium::usage
