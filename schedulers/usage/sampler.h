#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/api/kit/repeat_limit.h"
#include "core/api/logger.h"
#include "core/base/file.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "schedulers/usage/files.h"
#include "schedulers/usage/gpu.h"
#include "schedulers/usage/life.h"
#include "schedulers/usage/missed_jobs.h"
#include "schedulers/usage/process.h"
#include "schedulers/usage/tree.h"
#include "schedulers/usage/watcher.h"

namespace scriptorium::usage {

struct SamplerOptions {
  std::string root = "/sys/fs/cgroup";
  std::string proc = "/proc";
  std::string node;  // this host, where the path of a job does not name its node
  std::vector<std::string>
      nodes;  // of slurmds whose jobs are measured, where paths name nodes; empty = all
  std::chrono::milliseconds interval{30'000};
  bool samples = false;    // keep each reading as a UsageSample, not only what is counted of it
  bool process_io = true;  // read and written bytes from /proc where no control group counts them
  std::size_t kept_files =
      2048;  // descriptors that stay open between readings; at most half of RLIMIT_NOFILE
  std::string
      gpu_jobs_dir;       // "/run/gpustat": a prolog's word on which job holds which GPU; "" = none
  std::string sluid_dir;  // a prolog's word on which SLUID is which job; "" = none
};

// Counters for `status`.
struct SamplerCounts {
  std::uint64_t readings = 0;    // of a job
  std::uint64_t sweeps = 0;      // of all jobs
  std::uint64_t started = 0;     // lives begun
  std::uint64_t ended = 0;       // lives ended
  std::uint64_t at_removal = 0;  // of these, with a last reading at the end
  std::uint64_t unread = 0;      // of these, gone before the first reading
  std::uint64_t missed =
      0;  // jobs at least that came and went unseen (v1: with the directory of their user)
  std::uint64_t overflows = 0;   // of inotify's queue
  std::uint64_t unreadable = 0;  // files that this user may not read
  std::size_t jobs = 0;          // now
  std::size_t open_files = 0;
  double last_sweep_seconds = 0;
};

// Reads the counters of all jobs of the node: a sweep of all of them every `interval`, some early
// ones for each new job, and a last one when inotify reports that the job's first task is removed,
// some milliseconds before its control groups vanish.
//
// Never writes anything, never makes a child, and keeps no descriptor of a directory, so that the
// scheduler can always remove its control groups. Threads: one. Blocks on nothing but the kernel's
// files.
class Sampler {
 public:
  Sampler(SamplerOptions options, Files& files, GpuMonitor& gpus, Logger& log, const Clock& clock);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler();

  // Lives that an earlier process began; those whose control groups are gone are ended at their
  // last reading. Once, before the first step(). `same_boot`: else all are gone, whatever is
  // there now.
  void restore(std::vector<LifeState> lives, bool same_boot);

  // Wakes up when something was made or removed; -1 without inotify.
  int notify_fd() const noexcept { return watcher_.fd(); }
  // When step() has something to read.
  SteadyTime next_due() const noexcept;
  // Acts on inotify's notifications and reads what is due.
  void step();
  // Looks for jobs and reads all of them, now.
  void sweep();

  struct Output {
    std::vector<UsageSample> samples;
    std::vector<NodeUsage> ended;
    bool empty() const noexcept { return samples.empty() && ended.empty(); }
  };
  Output take() { return std::exchange(output_, {}); }

  std::vector<LifeState> lives() const;
  SamplerCounts counts() const;
  std::string describe_tree() const { return tree_.describe(); }

 private:
  static constexpr std::size_t kSlots = 24;
  struct Slot {
    int fd = -1;
    bool missing = false;  // its group has no such file; tried again rarely
  };
  struct Group {
    std::string path;
    std::uint64_t inode = 0;
    bool there = false;
  };
  // A directory that holds processes.
  struct Leaf {
    std::string path;
    std::string step;
    bool foreign = false;  // slurmstepd and the extern step's sleep, not the job's own
    bool empty = false;    // when it was read last
  };
  struct Tracked {
    explicit Tracked(Life l) : life(std::move(l)) {}
    Life life;
    std::string name;  // in jobs_
    std::array<Group, kControllers> groups;
    std::array<Slot, kSlots> slots;
    std::vector<Leaf> leaves;
    std::vector<std::string> watches;
    bool leaves_known = false;
    bool at_end =
        false;  // the last reading was taken when a task was removed, and no task was made since
    bool just_made = false;  // its directory was seen to be made, so its start is known
    bool had_process = false;
    bool uid_in_path = false;     // root wrote it there, so no process needs to be asked
    bool there_at_start = false;  // at ours: it may be a directory that a job left behind long ago
    bool fresh = true;            // there may be something to read that was not there before
    std::set<std::string> ended_tasks;  // read at their end, by their removal from one controller
    LastRead end_kind = LastRead::kRemoval;
    std::size_t early = 0;  // next of the early readings
    SteadyTime next_early;
    std::uint64_t timed_readings = 0;
    std::optional<SteadyTime> vanished;  // when its first directory was found gone
    Timestamp vanished_time;
    std::optional<std::uint64_t> failures;       // memory.failcnt
    std::map<std::string, std::uint64_t> kills;  // by task directory
    bool kills_unknown = false;  // a limit was hit after which no task could be asked
    std::optional<ProcessIo> io;
    bool environment_known = false;
    int environment_tries = 0;
    std::optional<std::string> gpus;  // SLURM_JOB_GPUS
    std::uint32_t empty_sweeps = 0;   // without a process
  };
  using Jobs = std::map<std::string, std::unique_ptr<Tracked>>;
  struct SlotInfo;
  static const std::array<SlotInfo, kSlots>& slot_table();

  // What is there.
  void refresh_parents();
  void list_jobs(const JobParent& parent, std::set<std::string>* seen,
                 std::set<std::uint64_t>* left);
  void job_appeared(const JobParent& parent, const std::string& directory, std::uint64_t inode,
                    bool just_now);
  const std::string& node_of(const JobParent& parent) const;
  std::string job_key(const JobParent& parent, const JobName& name) const;  // in jobs_
  static void take_uid(Tracked& job, std::uint32_t uid);
  Tracked& begin(const JobParent& parent, const JobName& name, bool just_now);
  void adopt(Tracked& job, Controller controller, const std::string& path, std::uint64_t inode);
  void watch_job(Tracked& job, const std::string& path);
  void watch(Tracked& job, WatchKind kind, const std::string& path);
  void find_leaves(Tracked& job);
  void step_seen(Tracked& job, std::string_view step);
  std::vector<std::uint32_t> processes(Tracked& job, bool foreign_too, bool all_groups);
  void learn(Tracked& job, const std::vector<std::uint32_t>& pids);
  void learn_owner(Tracked& job, const std::vector<std::uint32_t>& pids);
  void claim_gpus(Tracked& job);
  void read_prolog_files();

  // inotify's notifications: sampler_changes.cc.
  void count_missed();
  bool measures(const std::string& node) const;
  void act(const Change& change, std::set<std::string>& read_now);
  void act_on_owner(const Change& change);
  void act_on_job(const Change& change);
  void group_appeared_in(Tracked& job, const Change& change);
  void task_removed(Tracked& job, const Change& change, std::set<std::string>& read_now);
  void group_removed(Tracked& job, std::size_t controller);

  // Reading.
  enum class Occasion { kTimed, kEnd };
  bool read(Tracked& job, Occasion occasion);
  Reading measure(Tracked& job, Occasion occasion);
  void measure_v1(Tracked& job, Occasion occasion, bool slow, Reading& reading);
  void measure_v2(Tracked& job, bool slow, Reading& reading);
  void measure_processes(Tracked& job, Reading& reading);
  void count_kills(Tracked& job, Reading& reading, bool at_end);
  std::optional<std::string_view> text(Tracked& job, std::size_t slot);
  // Stores the number that a file holds; leaves `into` as it is if there is no such file.
  void read_number(Tracked& job, std::size_t slot, std::optional<std::uint64_t>& into);
  bool check_gone(Tracked& job);

  bool has_process(const std::string& path, int depth);
  void guess_start(Tracked& job);
  void end_at_last_reading(const Life& life);
  void add_ended(NodeUsage node);
  void end_old_life(Tracked& job, Timestamp time, SteadyTime at);
  void take_reading(Tracked& job, const Reading& reading, bool sample);
  void finish(Jobs::iterator job, LastRead last);
  void finish_vanished();
  void close_files(Tracked& job);
  void close_file(Slot& slot);
  void leave_over(const Tracked& job);
  void set_next_early(Tracked& job) noexcept;
  void cannot_read(const std::string& path, int code);

  const SamplerOptions options_;
  Files& files_;
  GpuMonitor& gpus_;
  Logger& log_;
  const Clock& clock_;
  CgroupTree tree_;
  Watcher watcher_;
  std::map<std::string, JobParent> parents_;  // by path
  std::map<std::string, JobParent>
      former_parents_;  // removed, but inotify's notifications of them may not have been read yet
  std::set<std::string> above_;
  MissedJobs missed_;
  bool parents_stale_ = true;
  Jobs jobs_;                                  // by scheduler, node and id
  std::map<std::string, LifeState> restored_;  // likewise; until the first look
  std::set<std::uint64_t>
      left_over_;  // inodes of directories that stayed behind when their job had ended
  SteadyTime next_sweep_;
  std::vector<char> buffer_;
  std::string path_;  // of the file that is being opened; kept for its memory
  std::map<std::string, GpuClaim> prolog_gpus_;
  SamplerCounts counts_;
  RepeatLimit logged_;
  Output output_;
  std::optional<std::uint32_t> node_cpus_;
  std::optional<std::uint64_t> node_memory_;
};

}  // namespace scriptorium::usage
