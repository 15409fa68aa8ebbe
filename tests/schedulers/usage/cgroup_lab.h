#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "schedulers/usage/files.h"
#include "tests/support/fake_clock.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::usage::test {

using scriptorium::test::FakeClock;
using scriptorium::test::TempDir;

// Control groups of jobs as plain files, in the shapes that the kernel and Slurm give them, with a
// /proc beside them.
class CgroupLab {
 public:
  std::string root() const { return dir_.path() + "/cgroup"; }
  std::string proc() const { return dir_.path() + "/proc"; }
  std::string path(const std::string& relative) const { return dir_.path_to(relative); }
  const TempDir& dir() const { return dir_; }
  // A process in /proc, with the uids that the kernel lists: real, effective, saved, of the file
  // system.
  void process(int pid, unsigned real, unsigned effective, const std::string& name = "bash") const {
    const std::string uids = std::to_string(real) + "\t" + std::to_string(effective) + "\t" +
                             std::to_string(effective) + "\t" + std::to_string(effective);
    dir_.write("proc/" + std::to_string(pid) + "/status",
               "Name:\t" + name + "\nUmask:\t0022\nUid:\t" + uids + "\nGid:\t0\t0\t0\t0\n");
  }

  void write(const std::string& relative, const std::string& text) const {
    dir_.write("cgroup/" + relative, text);
  }
  void remove(const std::string& relative) const {
    std::filesystem::remove_all(root() + "/" + relative);
  }

  // Gives a directory the fake clock's time, as it would be made by whoever starts a job then.
  void made_at(const std::string& relative, Timestamp time) const {
    const timespec at{time.nanoseconds / 1'000'000'000, time.nanoseconds % 1'000'000'000};
    const timespec both[2] = {at, at};
    ::utimensat(AT_FDCWD, (root() + "/" + relative).c_str(), both, 0);
  }

 private:
  TempDir dir_;
};

// One job of Slurm under v1, with the batch step's task and the extern step.
class V1Job {
 public:
  V1Job(const CgroupLab& lab, std::string id, std::string slurm = "slurm", std::string uid = "1001",
        Timestamp start = FakeClock::kStart)
      : lab_(lab), below_(slurm + "/uid_" + uid + "/job_" + id) {
    for (const char* controller : {"freezer", "cpuset", "memory", "cpuacct"})
      lab_.write(of(controller) + "/cgroup.procs", "");
    lab_.write(of("cpuset") + "/cpuset.effective_cpus", "0-3\n");
    cpu(0);
    memory(0);
    for (const char* controller : {"memory", "cpuacct"}) {
      lab_.write(of(controller) + "/step_extern/task_special/cgroup.procs", "");
      lab_.write(of(controller) + "/step_batch/task_0/cgroup.procs", "101\n102\n");
      lab_.write(of(controller) + "/step_batch/cgroup.procs", "");
    }
    lab_.write(of("cpuacct") + "/step_batch/cpuacct.usage", "0\n");
    lab_.write(of("memory") + "/step_batch/task_0/memory.oom_control",
               "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
    for (const char* controller : {"freezer", "cpuset", "memory", "cpuacct"})
      lab_.made_at(of(controller), start);
  }

  // Makes of groups that stand where no sampler looks, each of them whole and at once, groups of
  // Slurm: as the kernel does it.
  void appear() {
    const std::string slurm = "slurm" + below_.substr(below_.find('/'));
    for (const char* controller : {"freezer", "cpuset", "memory", "cpuacct"}) {
      const std::string place = lab_.root() + "/" + controller + "/" + slurm;
      std::filesystem::create_directories(std::filesystem::path(place).parent_path());
      std::filesystem::rename(lab_.root() + "/" + of(controller), place);
    }
    below_ = slurm;
  }

  std::string of(const std::string& controller) const { return controller + "/" + below_; }
  void cpu(double seconds) const {
    lab_.write(of("cpuacct") + "/cpuacct.usage",
               std::to_string(static_cast<std::uint64_t>(seconds * 1e9)) + "\n");
    lab_.write(of("cpuacct") + "/cpuacct.stat",
               "user " + std::to_string(static_cast<std::uint64_t>(seconds * 75)) + "\nsystem " +
                   std::to_string(static_cast<std::uint64_t>(seconds * 25)) + "\n");
  }
  void memory(std::uint64_t anon, std::uint64_t shmem = 0, std::uint64_t file = 0,
              std::uint64_t limit = 104857600) const {
    const std::string charged = std::to_string(anon + shmem + file) + "\n";
    lab_.write(of("memory") + "/memory.stat", "cache 0\nrss 0\nhierarchical_memory_limit " +
                                                  std::to_string(limit) + "\ntotal_cache " +
                                                  std::to_string(file + shmem) + "\ntotal_rss " +
                                                  std::to_string(anon) + "\ntotal_shmem " +
                                                  std::to_string(shmem) + "\ntotal_swap 0\n");
    lab_.write(of("memory") + "/memory.usage_in_bytes", charged);
    lab_.write(of("memory") + "/memory.max_usage_in_bytes", charged);
    lab_.write(of("memory") + "/memory.failcnt", "0\n");
  }
  // In the order in which slurmstepd removes them.
  void end_tasks() const {
    for (const char* controller : {"cpuacct", "memory"})
      lab_.remove(of(controller) + "/step_batch/task_0");
    for (const char* controller : {"cpuacct", "memory"})
      lab_.remove(of(controller) + "/step_batch");
  }
  void vanish() const {
    for (const char* controller : {"cpuacct", "memory", "cpuset", "freezer", "devices"})
      lab_.remove(of(controller));
  }

 private:
  const CgroupLab& lab_;
  std::string below_;
};

// A step of srun with one task, in such a job.
class V1Step {
 public:
  V1Step(const CgroupLab& lab, const V1Job& job, const std::string& number, double cpu_seconds = 0)
      : lab_(lab), job_(job), directory_("/step_" + number) {
    lab_.write(of("cpuset") + "/cpuset.effective_cpus", "0-1\n");
    cpu(cpu_seconds);
    memory(0, 0);
    for (const char* controller : {"memory", "cpuacct"})
      lab_.write(of(controller) + "/task_0/cgroup.procs", "");
    kills(0);
  }
  std::string of(const std::string& controller) const { return job_.of(controller) + directory_; }
  void cpu(double seconds) const {
    lab_.write(of("cpuacct") + "/cpuacct.usage",
               std::to_string(static_cast<std::uint64_t>(seconds * 1e9)) + "\n");
  }
  void memory(std::uint64_t anon, std::uint64_t peak_charged) const {
    lab_.write(of("memory") + "/memory.stat", "total_rss " + std::to_string(anon) + "\n");
    lab_.write(of("memory") + "/memory.max_usage_in_bytes", std::to_string(peak_charged) + "\n");
  }
  void kills(int count) const {
    lab_.write(of("memory") + "/task_0/memory.oom_control",
               "oom_kill_disable 0\nunder_oom 0\noom_kill " + std::to_string(count) + "\n");
  }
  void end_task() const { lab_.remove(of("cpuacct") + "/task_0"); }
  void vanish() const {
    for (const char* controller : {"cpuacct", "memory", "cpuset"}) lab_.remove(of(controller));
  }

 private:
  const CgroupLab& lab_;
  const V1Job& job_;
  std::string directory_;
};

// One job under v2.
class V2Job {
 public:
  V2Job(const CgroupLab& lab, const std::string& directory,
        const std::string& scope = "system.slice/slurmstepd.scope",
        Timestamp start = FakeClock::kStart)
      : lab_(lab), path_(scope + "/" + directory) {
    lab_.write("cgroup.controllers", "cpuset cpu io memory pids\n");
    lab_.write("cgroup.procs", "");
    cpu(0);
    memory(0);
    file("memory.peak", "0\n");
    file("memory.max", "104857600\n");
    file("memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n");
    file("memory.swap.current", "0\n");
    file("io.stat", "");
    file("cpuset.cpus", "0-1\n");
    file("cpuset.cpus.effective", "0-1\n");
    file("cgroup.events", "populated 1\nfrozen 0\n");
    file("step_extern/user/task_special/cgroup.procs", "");
    file("step_batch/slurm/cgroup.procs", "100\n");
    file("step_batch/cpu.stat", "usage_usec 0\n");
    file("step_batch/user/task_0/cgroup.procs", "101\n");
    lab_.made_at(path_, start);
  }
  const std::string& path() const { return path_; }
  void file(const std::string& name, const std::string& text) const {
    lab_.write(path_ + "/" + name, text);
  }
  void cpu(double seconds) const {
    const auto micros = static_cast<std::uint64_t>(seconds * 1e6);
    file("cpu.stat", "usage_usec " + std::to_string(micros) + "\nuser_usec " +
                         std::to_string(micros * 3 / 4) + "\nsystem_usec " +
                         std::to_string(micros / 4) + "\n");
  }
  void memory(std::uint64_t anon, std::uint64_t shmem = 0, std::uint64_t other_file = 0) const {
    file("memory.stat", "anon " + std::to_string(anon) + "\nfile " +
                            std::to_string(shmem + other_file) + "\nkernel 0\nshmem " +
                            std::to_string(shmem) + "\n");
    file("memory.current", std::to_string(anon + shmem + other_file) + "\n");
  }
  void end_tasks() const { lab_.remove(path_ + "/step_batch/user/task_0"); }
  void vanish() const { lab_.remove(path_); }

 private:
  const CgroupLab& lab_;
  std::string path_;
};

// The machine's files, of which a test makes some fail as the kernel would.
class FailingFiles : public Files {
 public:
  std::map<std::string, int> open_errors;  // by the end of the path
  std::map<std::string, int> read_errors;  // likewise: it opens, and then says this
  int opened = 0;
  std::function<void(const std::string&)>
      before_list;  // what happens just before a directory is listed

  int list(const std::string& path, std::vector<DirectoryEntry>& into) noexcept override {
    if (before_list) before_list(path);
    return Files::list(path, into);
  }
  int open(const std::string& path) noexcept override {
    for (const auto& [end, code] : open_errors) {
      if (path.ends_with(end)) return -code;
    }
    const int fd = Files::open(path);
    if (fd >= 0) ++opened;
    failing_.erase(fd);
    for (const auto& [end, code] : read_errors) {
      if (fd >= 0 && path.ends_with(end)) failing_[fd] = code;
    }
    return fd;
  }
  long read(int fd, char* buffer, std::size_t size, std::size_t offset) noexcept override {
    if (const auto found = failing_.find(fd); found != failing_.end()) return -found->second;
    return Files::read(fd, buffer, size, offset);
  }

 private:
  std::map<int, int> failing_;
};

}  // namespace scriptorium::usage::test
