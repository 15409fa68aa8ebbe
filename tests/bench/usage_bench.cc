// What a sweep of the usage sampler costs a job, beside a bare loop that reads the same files.
//   usage_bench [SWEEPS]
// As root where cgroup v1 (memory, cpuacct) or v2 is mounted: real control groups with a sleeping
// process each, made and removed by this program. Else a tree of plain files, which costs less than
// the kernel's: the output says which. Prints CPU time of the sweeping thread, least and median of
// all sweeps. Then what the steps of jobs cost more, and last, what the programs of jobs with 16
// processes each cost a process, and the threads of one a thread.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "schedulers/usage/program_reader.h"
#include "schedulers/usage/sampler.h"
#include "schedulers/usage/step_reader.h"
#include "tests/bench/bench_fixture.h"

namespace {

using namespace scriptorium;
using namespace scriptorium::usage;
namespace fs = std::filesystem;

constexpr const char* kCgroups = "/sys/fs/cgroup";

double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  return out.good();
}

// A root for the sampler with jobs in it, below which nothing else stands.
class Tree {
 public:
  enum class Kind { kV1, kV2, kPlain };

  // `steps`: of srun, beside the batch step.
  Tree(Kind kind, int jobs, int steps = 0) : kind_(kind), steps_(steps) {
    std::array<char, 64> pattern{"/tmp/usage-bench.XXXXXX"};
    if (::mkdtemp(pattern.data()) == nullptr) bench::fail("cannot make a directory in /tmp");
    root_ = pattern.data();
    const std::string own = "scr-bench-" + std::to_string(::getpid());
    for (const char* controller : controllers(kind)) {
      fs::path top = root_ / controller;
      if (kind != Kind::kPlain) {
        top = fs::path(kCgroups) / controller / own;
        fs::create_directory(top);
        fs::create_symlink(top, root_ / controller);
        tops_.push_back(top);
      }
      make_parents(top);
    }
    for (int i = 1; i <= jobs; ++i) make_job(i);
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  ~Tree() {
    for (const pid_t child : children_) ::kill(child, SIGKILL);
    for (const pid_t child : children_) ::waitpid(child, nullptr, 0);
    for (const fs::path& top : tops_) {
      std::vector<fs::path> all{top};
      for (const auto& entry : fs::recursive_directory_iterator(top)) {
        if (entry.is_directory()) all.push_back(entry.path());
      }
      std::sort(all.begin(), all.end(), [](const fs::path& a, const fs::path& b) {
        return a.string().size() > b.string().size();
      });
      for (const fs::path& directory : all) ::rmdir(directory.c_str());
    }
    fs::remove_all(root_);
  }

  const fs::path& root() const { return root_; }
  std::string job_path(const char* controller, int job) const {
    const char* below = kind_ == Kind::kV2 ? "system.slice/slurmstepd.scope" : "slurm/uid_0";
    return root_ / controller / below / ("job_" + std::to_string(job));
  }

  // The files that a sweep reads of each job: counters, and the lists of processes.
  std::vector<std::string> files(int job) const {
    if (kind_ == Kind::kV2) {
      const std::string base = job_path("unified", job);
      std::vector<std::string> all;
      for (const char* file :
           {"/cpu.stat", "/cpu.pressure", "/memory.pressure", "/io.pressure", "/cgroup.procs",
            "/step_batch/cgroup.procs", "/step_batch/user/cgroup.procs",
            "/step_batch/user/task_0/cgroup.procs"}) {
        all.push_back(base + file);
      }
      return all;
    }
    const std::string memory = job_path("memory", job), cpuacct = job_path("cpuacct", job);
    return {cpuacct + "/cpuacct.usage",
            cpuacct + "/cpuacct.stat",
            memory + "/memory.stat",
            memory + "/memory.usage_in_bytes",
            memory + "/memory.failcnt",
            memory + "/memory.max_usage_in_bytes",
            memory + "/cgroup.procs",
            memory + "/step_batch/cgroup.procs",
            memory + "/step_batch/task_0/cgroup.procs"};
  }

 private:
  static std::vector<const char*> controllers(Kind kind) {
    if (kind == Kind::kV2) return {"unified"};
    return {"memory", "cpuacct"};
  }
  void make_parents(const fs::path& top) {
    const fs::path parent =
        top / (kind_ == Kind::kV2 ? "system.slice/slurmstepd.scope" : "slurm/uid_0");
    fs::create_directories(parent);
    parents_.push_back(parent);
  }
  void make_job(int job) {
    const pid_t child = kind_ == Kind::kPlain ? 0 : ::fork();
    if (child < 0) bench::fail("fork");
    if (kind_ != Kind::kPlain && child == 0) {
      while (true) ::pause();
    }
    if (kind_ != Kind::kPlain) children_.push_back(child);
    for (const fs::path& parent : parents_) {
      const fs::path directory = parent / ("job_" + std::to_string(job));
      const fs::path task =
          directory / (kind_ == Kind::kV2 ? "step_batch/user/task_0" : "step_batch/task_0");
      fs::create_directories(task);
      for (int i = 0; i < steps_; ++i)
        fs::create_directories(directory / ("step_" + std::to_string(i)) / "task_0");
      const std::string pid = std::to_string(kind_ == Kind::kPlain ? ::getpid() : child);
      if (!write_file(task / "cgroup.procs", pid + "\n"))
        bench::fail("cannot put a process into a control group");
      if (kind_ != Kind::kPlain) continue;
      write_file(directory / "cgroup.procs", "");
      write_file(directory / "step_batch/cgroup.procs", "");
      write_file(directory / "cpuacct.usage", "123456789\n");
      write_file(directory / "cpuacct.stat", "user 12\nsystem 3\n");
      std::string stat;
      for (int i = 0; i < 40; ++i) stat += "some_counter_of_the_kernel " + std::to_string(i) + "\n";
      write_file(directory / "memory.stat",
                 stat + "total_cache 4096\ntotal_rss 4096\ntotal_shmem 0\ntotal_swap 0\n");
      for (const char* file :
           {"memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.failcnt"}) {
        write_file(directory / file, "4096\n");
      }
    }
  }

  Kind kind_;
  int steps_;
  fs::path root_;
  std::vector<fs::path> tops_, parents_;
  std::vector<pid_t> children_;
};

struct Cost {
  double least = 0, median = 0;  // µs a job
};

template <typename Work>
Cost measure(int sweeps, int jobs, Work work) {
  std::vector<double> costs;
  for (int i = 0; i < sweeps; ++i) {
    const double before = thread_seconds();
    work();
    costs.push_back((thread_seconds() - before) * 1e6 / jobs);
  }
  std::sort(costs.begin(), costs.end());
  return {costs.front(), costs[costs.size() / 2]};
}

void bare_read(const std::vector<std::string>& files) {
  std::array<char, 65536> buffer;
  for (const std::string& file : files) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) bench::fail("cannot read " + file);
    while (::read(fd, buffer.data(), buffer.size()) > 0) {
    }
    ::close(fd);
  }
}

bool usable(Tree::Kind kind) {
  if (::geteuid() != 0) return false;
  const char* name = kind == Tree::Kind::kV2 ? "unified" : "memory";
  const fs::path probe = fs::path(kCgroups) / name / ("scr-probe-" + std::to_string(::getpid()));
  std::error_code error;
  if (!fs::exists(fs::path(kCgroups) / name / "cgroup.procs", error) ||
      !fs::create_directory(probe, error))
    return false;
  ::rmdir(probe.c_str());
  return true;
}

void run(const char* title, Tree::Kind kind, int sweeps) {
  std::printf("\n%s\n%6s  %18s  %18s  %18s  %18s  %10s\n", title, "jobs", "sweep, kept files",
              "sweep, opening", "with samples", "bare open+read", "a sweep");
  for (const int jobs : {1, 16, 256}) {
    const Tree tree(kind, jobs);
    std::vector<std::string> files;
    for (int job = 1; job <= jobs; ++job) {
      for (std::string& file : tree.files(job)) files.push_back(std::move(file));
    }
    bench::WarningLogger log;
    GpuMonitor gpus(std::vector<std::unique_ptr<GpuReader>>{}, system_clock());
    const auto sampler = [&](std::size_t kept, bool samples) {
      SamplerOptions options;
      options.root = tree.root();
      options.node = "bench";
      options.kept_files = kept;
      options.samples = samples;
      options.process_io = false;
      auto made = std::make_unique<Sampler>(options, real_files(), gpus, log, system_clock());
      for (int i = 0; i < 8; ++i) made->sweep();
      if (made->counts().jobs != static_cast<std::size_t>(jobs))
        bench::fail("the sampler does not see all jobs");
      return made;
    };
    const auto sweep_cost = [&](std::size_t kept, bool samples) {
      const auto made = sampler(kept, samples);
      return measure(sweeps, jobs, [&] {
        made->sweep();
        made->take();
      });
    };
    const Cost kept = sweep_cost(8192, false);
    const Cost opening = sweep_cost(0, false);
    const Cost samples = sweep_cost(8192, true);
    const Cost bare = measure(sweeps, jobs, [&] { bare_read(files); });
    std::printf("%6d  %8.1f / %7.1f  %8.1f / %7.1f  %8.1f / %7.1f  %8.1f / %7.1f  %7.2f ms\n", jobs,
                kept.least, kept.median, opening.least, opening.median, samples.least,
                samples.median, bare.least, bare.median, kept.median * jobs / 1000);
    std::fflush(stdout);
  }
}

// The steps of 256 jobs with three steps of srun each, of which all are read at every fourth sweep.
void run_steps(const char* title, Tree::Kind kind, int sweeps) {
  constexpr int kJobs = 256;
  constexpr int kSteps = 3;
  const Tree tree(kind, kJobs, kSteps);
  bench::WarningLogger log;
  CounterFiles counters(real_files(), 0, log, system_clock());
  const Cgroup1Reader v1(counters);
  struct Job {
    ControlGroups groups;
    JobSeen seen;
    StepTable steps;
    StepReader reader{real_files(), system_clock()};
  };
  std::vector<Job> jobs(kJobs);
  std::vector<std::string> files;
  const Moment now{system_clock().steady(), system_clock().now()};
  for (int i = 0; i < kJobs; ++i) {
    Job& job = jobs[static_cast<std::size_t>(i)];
    job.seen.other_steps = true;
    for (const auto& [controller, name] :
         {std::pair(Controller::kUnified, "unified"), std::pair(Controller::kMemory, "memory"),
          std::pair(Controller::kCpuacct, "cpuacct")}) {
      if ((controller == Controller::kUnified) != (kind == Tree::Kind::kV2)) continue;
      job.groups.of(controller) = {.path = tree.job_path(name, i + 1), .there = true};
    }
    for (int step = 0; step < kSteps; ++step) {
      const std::string directory = "/step_" + std::to_string(step);
      job.steps.appeared(std::to_string(step), now);
      if (kind == Tree::Kind::kV2) {
        files.push_back(tree.job_path("unified", i + 1) + directory + "/cpu.stat");
        continue;
      }
      files.push_back(tree.job_path("cpuacct", i + 1) + directory + "/cpuacct.usage");
      files.push_back(tree.job_path("memory", i + 1) + directory + "/memory.stat");
    }
  }
  const auto read_all = [&] {
    for (Job& job : jobs)
      job.reader.read_timed({.groups = job.groups, .job = job.seen, .steps = job.steps, .now = now},
                            v1, false);
  };
  read_all();
  for (const Job& job : jobs) {
    if (!job.steps.find("2")->cpu_seconds) bench::fail("the steps were not read");
  }
  // Four sweeps at a time: the mean of them.
  const Cost four = measure(sweeps, 4 * kJobs, [&] {
    for (int i = 0; i < 4; ++i) read_all();
  });
  const Cost bare = measure(sweeps, 4 * kJobs, [&] { bare_read(files); });
  std::printf("%-34s  %8.2f / %7.2f, bare %8.2f / %7.2f\n", title, four.least, four.median,
              bare.least, bare.median);
}

// The programs of 256 jobs, whose control groups do not matter for it.
void run_programs(int rounds) {
  constexpr int kJobs = 256;
  constexpr int kProcesses = 16;
  std::vector<pid_t> children;
  std::vector<LifeState> lives(kJobs);
  std::vector<std::vector<std::uint32_t>> pids(kJobs);
  std::vector<std::string> stats;
  std::vector<std::string> once;
  for (int i = 0; i < kJobs * kProcesses; ++i) {
    const pid_t child = ::fork();
    if (child < 0) bench::fail("fork");
    if (child == 0) {
      while (true) ::pause();
    }
    children.push_back(child);
    pids[static_cast<std::size_t>(i % kJobs)].push_back(static_cast<std::uint32_t>(child));
    const std::string process = "/proc/" + std::to_string(child);
    stats.push_back(process + "/stat");
    for (const char* file : {"/stat", "/cmdline", "/cgroup"}) once.push_back(process + file);
  }
  SteadyTime now{std::chrono::hours(1)};
  const auto read_all = [&] {
    now += std::chrono::minutes(2);
    for (std::size_t job = 0; job < lives.size(); ++job)
      read_programs(real_files(), "/proc", pids[job], now, nullptr, lives[job]);
  };
  const int processes = kJobs * kProcesses;
  const Cost first = measure(rounds, processes, [&] {
    for (LifeState& life : lives) {
      life = {};
      life.job.scheduler = "slurm";
    }
    read_all();
  });
  const Cost later = measure(rounds, processes, read_all);
  const Cost not_due = measure(rounds, processes, [&] {
    for (std::size_t job = 0; job < lives.size(); ++job)
      read_programs(real_files(), "/proc", pids[job], now, nullptr, lives[job]);
  });
  const Cost bare_first = measure(rounds, processes, [&] { bare_read(once); });
  const Cost bare = measure(rounds, processes, [&] { bare_read(stats); });
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  std::printf("\nprograms of %d jobs with %d processes each, in us a process\n", kJobs, kProcesses);
  const auto line = [](const char* what, const Cost& cost) {
    std::printf("%-34s  %8.2f / %7.2f\n", what, cost.least, cost.median);
  };
  line("first reading, with the names", first);
  line("bare open+read of these files", bare_first);
  line("each later one, at most each 120 s", later);
  line("bare open+read of stat", bare);
  line("a sweep in which it is not due", not_due);
}

// The threads of a process, one by one.
void run_threads(int rounds) {
  constexpr int kThreads = 64;
  std::mutex mutex;
  std::condition_variable_any ended;
  std::vector<std::jthread> threads;  // which use the two above
  for (int i = 1; i < kThreads; ++i) {
    threads.emplace_back([&](const std::stop_token& stop) {
      std::unique_lock lock(mutex);
      ended.wait(lock, stop, [] { return false; });
    });
  }
  const auto self = static_cast<std::uint32_t>(::getpid());
  LifeState life;
  SteadyTime now{std::chrono::hours(1)};
  const auto read = [&] {
    now += std::chrono::minutes(2);
    read_programs(real_files(), "/proc", {self}, now, nullptr, life);
  };
  read();
  if (!life.programs.shares(std::nullopt).programs.at(0).busy_threads)
    bench::fail("the threads were not read");
  const Cost cost = measure(rounds, kThreads, read);
  std::vector<std::string> files;
  for (const DirectoryEntry& thread : list_directories(real_files(), "/proc/self/task"))
    files.push_back("/proc/self/task/" + thread.name + "/schedstat");
  const Cost bare = measure(rounds, kThreads, [&] { bare_read(files); });
  std::printf("%-34s  %8.2f / %7.2f, bare %8.2f / %7.2f, in us a thread\n",
              "a process with 64 threads", cost.least, cost.median, bare.least, bare.median);
}

}  // namespace

int main(int argc, char** argv) {
  const int sweeps = argc > 1 ? std::atoi(argv[1]) : 60;
  if (sweeps < 1) bench::fail("usage: usage_bench [SWEEPS]");
  std::printf("CPU time of a sweep, in us a job, least / median of %d sweeps\n", sweeps);
  bool real = false;
  if (usable(Tree::Kind::kV1)) {
    run("cgroup v1 (memory, cpuacct), one process a job", Tree::Kind::kV1, sweeps);
    real = true;
  }
  if (usable(Tree::Kind::kV2)) {
    run("cgroup v2 (no memory controller on a hybrid host), one process a job", Tree::Kind::kV2,
        sweeps);
    real = true;
  }
  if (!real)
    run("PLAIN FILES: not root, or no control groups that may be used", Tree::Kind::kPlain, sweeps);
  std::printf("\n3 steps of 256 jobs each, in us a job and sweep\n");
  if (usable(Tree::Kind::kV1)) run_steps("cgroup v1", Tree::Kind::kV1, sweeps);
  if (usable(Tree::Kind::kV2)) run_steps("cgroup v2 (cpu.stat alone)", Tree::Kind::kV2, sweeps);
  run_programs(sweeps);
  run_threads(sweeps);
  return 0;
}
