// spool-storm: writes job entries into a folder with exactly the system calls that slurmctld makes, at a chosen rate, and
// removes each after a chosen lifetime. For system tests and benchmarks; `--help` lists the options.
//
// The manifest has one line a job, written once the job's script was closed:
//     ID SHA256(script without its final NUL) SHA256(environment without its count) TIME-OF-CLOSE-IN-NS
// so that a test can compare an archive with what was there, byte for byte.
//
// What slurmctld does (seen by strace of 22.05): mkdir hash.D (EEXIST is usual), mkdir job.N 0700, creat environment 0600,
// write the count, one write a variable, close, creat script 0700, one write of all bytes and a final NUL, close. No
// temporary name, no rename, no fsync. At the purge: unlink environment, unlink script, rmdir.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/sha256.h"

namespace {

volatile sig_atomic_t stopped = 0;
void on_signal(int) { stopped = 1; }

struct Options {
  std::string spool;
  std::string manifest;
  long jobs = 1000;
  long first_id = 1;
  double rate = 0;        // jobs a second; 0 = as fast as it goes
  long lifetime_ms = -1;  // -1 = entries stay
  long early_every = 0;   // each so-manieth entry goes at once, whatever the lifetime
  long script_bytes = 2048;
  long variables = 60;
  long distinct = 0;  // number of different scripts; 0 = each its own
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "spool-storm: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

[[noreturn]] void usage(int status) {
  std::fprintf(status == 0 ? stdout : stderr,
               "usage: spool-storm SPOOL [--jobs N] [--first-id N] [--rate JOBS_PER_SECOND] [--lifetime-ms MS]\n"
               "                   [--early-every K] [--script-bytes N] [--variables N] [--distinct K] [--manifest FILE]\n"
               "  --rate 0          as fast as it goes (the default)\n"
               "  --lifetime-ms     remove each entry so long after it was written; 0 = at once, -1 = never (the default)\n"
               "  --early-every K   every Kth entry is removed at once\n"
               "  --distinct K      only K different scripts; 0 = each its own (the default)\n"
               "SIGTERM ends it early, with a whole manifest.\n");
  std::exit(status);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view a = argv[i];
    if (a == "--help") usage(0);
    if (!a.starts_with("--")) {
      if (!o.spool.empty()) usage(64);
      o.spool = a;
      continue;
    }
    if (i + 1 == argc) usage(64);
    const char* value = argv[++i];
    if (a == "--jobs")
      o.jobs = std::atol(value);
    else if (a == "--first-id")
      o.first_id = std::atol(value);
    else if (a == "--rate")
      o.rate = std::atof(value);
    else if (a == "--lifetime-ms")
      o.lifetime_ms = std::atol(value);
    else if (a == "--early-every")
      o.early_every = std::atol(value);
    else if (a == "--script-bytes")
      o.script_bytes = std::atol(value);
    else if (a == "--variables")
      o.variables = std::atol(value);
    else if (a == "--distinct")
      o.distinct = std::atol(value);
    else if (a == "--manifest")
      o.manifest = value;
    else
      usage(64);
  }
  if (o.spool.empty()) usage(64);
  return o;
}

std::int64_t now_ns(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Until `at` on the monotonic clock; a signal ends it early.
void wait_until(std::int64_t at) {
  const timespec t{at / 1'000'000'000, at % 1'000'000'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr);
}

void write_all(int fd, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write " + name);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::string script_of(const Options& o, long id) {
  const long content = o.distinct > 0 ? id % o.distinct : id;
  std::string text = "#!/bin/bash\n#SBATCH --time=00:10:00\n#SBATCH --ntasks=8\nmodule load GROMACS/2023.1\n# script " +
                     std::to_string(content) + "\nsrun gmx mdrun -deffnm run-" + std::to_string(content) + "\n";
  // Filled with varied text, so that compression has something to do.
  std::uint64_t x = 0x9E3779B97F4A7C15ULL * static_cast<std::uint64_t>(content + 1);
  while (static_cast<long>(text.size()) < o.script_bytes) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    text +=
        "echo step " + std::to_string(x % 100000) + " of input file /scratch/project/data-" + std::to_string(x % 977) + ".dat\n";
  }
  if (static_cast<long>(text.size()) > o.script_bytes && o.script_bytes > 0)
    text.resize(static_cast<std::size_t>(o.script_bytes));
  return text;
}

std::vector<std::string> environment_of(const Options& o, long id) {
  std::vector<std::string> list{"SLURM_JOB_NAME=storm-" + std::to_string(id),
                                "PATH=/usr/local/bin:/usr/bin:/bin",
                                "USER=storm",
                                "SLURM_SUBMIT_DIR=/home/storm/run-" + std::to_string(id),
                                "BASH_FUNC_ml%%=() {  eval $(lmod $@)\n}",
                                "TOKEN=a=b=c=="};
  for (long i = static_cast<long>(list.size()); i < o.variables; ++i) {
    list.push_back("VARIABLE_" + std::to_string(i) + "=/opt/software/library/" + std::to_string(i * 37 % 101) +
                   "/lib64:/usr/lib");
  }
  list.resize(static_cast<std::size_t>(std::max(0L, o.variables)));
  return list;
}

struct Storm {
  const Options& o;
  std::string directory(long id) const { return o.spool + "/hash." + std::to_string(id % 10) + "/job." + std::to_string(id); }

  void write_entry(long id, const std::string& script, const std::vector<std::string>& environment) const {
    const std::string hash = o.spool + "/hash." + std::to_string(id % 10);
    const std::string dir = directory(id);
    ::mkdir(hash.c_str(), 0700);
    if (::mkdir(dir.c_str(), 0700) != 0) {
      // hash.D was taken away between the two calls, as some tests do on purpose.
      if (errno != ENOENT) fail("mkdir " + dir);
      ::mkdir(hash.c_str(), 0700);
      if (::mkdir(dir.c_str(), 0700) != 0) fail("mkdir " + dir);
    }
    std::string name = dir + "/environment";
    int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) fail("creat " + name);
    const auto count = static_cast<std::uint32_t>(environment.size());
    write_all(fd, {reinterpret_cast<const char*>(&count), sizeof count}, name);
    for (const std::string& v : environment) write_all(fd, {v.c_str(), v.size() + 1}, name);
    ::close(fd);
    name = dir + "/script";
    fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    if (fd < 0) fail("creat " + name);
    write_all(fd, {script.c_str(), script.size() + 1}, name);
    ::close(fd);
  }

  void remove_entry(long id) const {
    const std::string dir = directory(id);
    ::unlink((dir + "/environment").c_str());
    ::unlink((dir + "/script").c_str());
    ::rmdir(dir.c_str());
  }
};

std::string hex_sha256(std::string_view bytes) { return scriptorium::sha256_hex(bytes); }

}  // namespace

int main(int argc, char** argv) {
  const Options o = parse(argc, argv);
  const Storm storm{o};
  struct sigaction action{};
  action.sa_handler = on_signal;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  std::FILE* manifest = nullptr;
  if (!o.manifest.empty()) {
    manifest = std::fopen(o.manifest.c_str(), "ae");
    if (manifest == nullptr) fail("open " + o.manifest);
  }

  struct Due {
    std::int64_t at;
    long id;
  };
  std::deque<Due> due;
  std::vector<std::int64_t> took;
  took.reserve(static_cast<std::size_t>(std::max(0L, o.jobs)));
  const std::int64_t start = now_ns(CLOCK_MONOTONIC);
  const std::int64_t step = o.rate > 0 ? static_cast<std::int64_t>(1e9 / o.rate) : 0;
  long written = 0;
  long removed = 0;
  const auto remove_due = [&](std::int64_t until) {
    while (!due.empty() && due.front().at <= until) {
      storm.remove_entry(due.front().id);
      due.pop_front();
      ++removed;
    }
  };
  for (long i = 0; i < o.jobs && stopped == 0; ++i) {
    const long id = o.first_id + i;
    const std::string script = script_of(o, id);
    const std::vector<std::string> environment = environment_of(o, id);
    if (step > 0) {
      const std::int64_t at = start + i * step;
      while (!due.empty() && due.front().at <= at && stopped == 0) {
        wait_until(due.front().at);
        remove_due(now_ns(CLOCK_MONOTONIC));
      }
      wait_until(at);
    }
    const std::int64_t before = now_ns(CLOCK_MONOTONIC);
    storm.write_entry(id, script, environment);
    const std::int64_t after = now_ns(CLOCK_MONOTONIC);
    const std::int64_t closed = now_ns(CLOCK_REALTIME);
    took.push_back(after - before);
    ++written;
    if (o.lifetime_ms == 0 || (o.early_every > 0 && (i + 1) % o.early_every == 0)) {
      storm.remove_entry(id);
      ++removed;
    } else if (o.lifetime_ms > 0) {
      due.push_back({after + o.lifetime_ms * 1'000'000, id});
    }
    remove_due(now_ns(CLOCK_MONOTONIC));
    if (manifest != nullptr) {
      std::string bytes;
      for (const std::string& v : environment) bytes.append(v.c_str(), v.size() + 1);
      std::fprintf(manifest, "%ld %s %s %lld\n", id, hex_sha256(script).c_str(), hex_sha256(bytes).c_str(),
                   static_cast<long long>(closed));
    }
  }
  const std::int64_t end = now_ns(CLOCK_MONOTONIC);
  if (manifest != nullptr && std::fclose(manifest) != 0) fail("write " + o.manifest);
  while (!due.empty()) {
    if (stopped == 0) wait_until(due.front().at);
    remove_due(stopped != 0 ? INT64_MAX : now_ns(CLOCK_MONOTONIC));
  }

  std::sort(took.begin(), took.end());
  const auto at = [&](double share) {
    return took.empty() ? 0.0
                        : static_cast<double>(took[static_cast<std::size_t>(share * static_cast<double>(took.size() - 1))]) / 1e3;
  };
  const double seconds = static_cast<double>(end - start) / 1e9;
  rusage usage_{};
  ::getrusage(RUSAGE_SELF, &usage_);
  std::printf(
      "{\"jobs\": %ld, \"removed\": %ld, \"seconds\": %.3f, \"jobs_per_second\": %.0f, \"entry_us_p50\": %.1f, "
      "\"entry_us_p99\": %.1f, \"entry_us_max\": %.1f}\n",
      written, removed, seconds, seconds > 0 ? static_cast<double>(written) / seconds : 0.0, at(0.5), at(0.99), at(1.0));
  return 0;
}
