#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/api/executables.h"
#include "core/api/kit/repeat_limit.h"
#include "core/api/logger.h"
#include "core/base/time.h"
#include "schedulers/usage/cgroup_readers.h"
#include "schedulers/usage/files.h"
#include "schedulers/usage/gpu.h"
#include "schedulers/usage/job_table.h"
#include "schedulers/usage/process.h"
#include "schedulers/usage/step_reader.h"
#include "schedulers/usage/tree.h"
#include "schedulers/usage/watcher.h"

namespace scriptorium::usage {

// A job by its directory's name.
struct JobDirectory {
  std::string scheduler;  // "slurm", "torque", "pbs"
  std::string name;       // "job_4711"
};

struct SamplerOptions {
  std::string root = "/sys/fs/cgroup";
  std::string proc = "/proc";
  std::string node;  // this host, where the path of a job does not name its node
  // Of slurmds whose jobs are measured, where paths name nodes; empty = all.
  std::vector<std::string> nodes;
  std::optional<JobDirectory> only;  // the one job that is measured; absent: all
  std::chrono::milliseconds interval{30'000};
  bool samples = false;    // keep each reading as a UsageSample, not only what is counted of it
  bool process_io = true;  // read and written bytes from /proc where no control group counts them
  // Descriptors that stay open between readings; at most half of RLIMIT_NOFILE.
  std::size_t kept_files = 2048;
  // "/run/gpustat": a prolog's files that say which job holds which GPU; "" = none.
  std::string gpu_jobs_dir;
  // A prolog's files that say which SLUID is which job; "" = none.
  std::string sluid_dir;
  Executables* executables = nullptr;  // null: the files of programs are not asked for
};

// Reads the counters of all jobs of the node: a sweep of all of them every `interval`, some early
// ones for each new job, and a last one when inotify reports that the job's first task is removed,
// some milliseconds before its control groups vanish. JobTable decides; this carries what inotify
// and the directories say to it, and what it asks for to the readers.
//
// Never writes anything, never makes a child, and keeps no descriptor of a directory, so that the
// scheduler can always remove its control groups. Threads: one. Blocks on nothing but the kernel's
// files.
class Sampler {
 public:
  Sampler(SamplerOptions options, Files& files, GpuMonitor& gpus, Logger& log, const Clock& clock);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

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
  // Lists the jobs and reads all of them, now.
  void sweep();

  struct Output {
    std::vector<UsageSample> samples;
    std::vector<NodeUsage> ended;
    bool empty() const noexcept { return samples.empty() && ended.empty(); }
  };
  Output take() { return std::exchange(output_, {}); }

  std::vector<LifeState> lives() const;
  // What each job has used up to its last reading, in the shape of one that ended then.
  std::vector<NodeUsage> so_far() const;
  UsageCounts counts() const;
  std::string describe_tree() const { return parents_.describe_tree(); }

 private:
  // What reads one job.
  struct Readers {
    Readers(const Sampler& owner, CounterFiles& files);
    ReadScope scope(TrackedJob& job, bool at_end, Moment now) const;
    Reading read_counters(const ReadScope& scope, const Clock& clock);
    void group_removed(Controller controller);
    // The counters began again: what the readers remember is of another job.
    void begin_life();

    Cgroup1Reader v1;
    Cgroup2Reader v2;
    ProcessReader processes;
    StepReader steps;
    std::uint64_t timed_readings = 0;
    std::vector<std::string> watches;  // paths
  };
  // What a listing of all jobs found.
  struct Listing {
    std::set<std::string> paths;
    std::set<std::uint64_t> left_over;  // of what jobs left behind
  };

  Moment now() const { return {clock_.steady(), clock_.now()}; }
  Listing list_jobs();
  // The job, if it began with this; null if it was known or is not a job.
  TrackedJob* appeared(const JobParent& parent, const std::string& directory, std::uint64_t inode,
                       JobTable::Seen seen, Moment time);
  void watch(TrackedJob& job, WatchKind kind, const std::string& path);
  void watch_user(TrackedJob& job, const std::string& path);
  void watch_group(TrackedJob& job, Controller controller, const std::string& path);
  void check_groups(TrackedJob& job);
  void remove_group(TrackedJob& job, Controller controller);
  void forget(const std::string& key);
  void end_jobs();
  void add_node_facts(NodeUsage& node) const;  // and the method, if it has GPUs

  // inotify's notifications. `read_now`: jobs that were read since these came.
  void act(const Change& change, std::set<std::string>& read_now);
  void act_on_owner(const Change& change);
  void act_on_parent(const Change& change);
  void act_on_removed_task(TrackedJob& job, const Change& change, std::set<std::string>& read_now);
  void report_missed();

  bool read_at_end(TrackedJob& job);
  ReadScope scope(TrackedJob& job, bool at_end) const {
    return readers_.at(job.key).scope(job, at_end, now());
  }
  void read_timed(TrackedJob& job, bool sweep, bool sample);
  void count_step_gpus(TrackedJob& job);
  void take_step_gpus(TrackedJob& job);  // of the steps that have ended
  void add_sample(TrackedJob& job, const Reading& reading);

  const SamplerOptions options_;
  const ProcessOptions process_options_;
  Files& files_;
  GpuMonitor& gpus_;
  Logger& log_;
  const Clock& clock_;
  UsageCounts counts_;
  Watcher watcher_;
  JobParents parents_;
  JobTable table_;
  CounterFiles counter_files_;
  std::unordered_map<std::string, Readers> readers_;  // by TrackedJob::key
  GpuClaims claims_;
  RepeatLimit logged_;
  SteadyTime next_sweep_;
  Output output_;
  std::optional<std::uint32_t> node_cpus_;
  std::optional<std::uint64_t> node_memory_;
};

}  // namespace scriptorium::usage
