// spool-storm: writes job entries into a folder with exactly the system calls that slurmctld makes,
// at a chosen rate, and removes each after a chosen lifetime. For system tests and benchmarks;
// `--help` lists the options.
//
// The manifest has one line a job, written once the job's script was closed:
//     ID SHA256(script without its final NUL) SHA256(environment without its count)
//     TIME-OF-CLOSE-IN-NS
// so that a test can compare an archive with what was there, byte for byte.
//
// What slurmctld does (seen by strace of 22.05): mkdir hash.D (EEXIST is usual), mkdir job.N 0700,
// creat environment 0600, write the count, one write a variable, close, creat script 0700, one
// write of all bytes and a final NUL, close. No temporary name, no rename, no fsync. At the purge:
// unlink environment, unlink script, rmdir.
//
// On request it does what slurmctld does not, but a spool may show: scripts that are finished late
// or closed several times, entries that come through another mount of the spool, and other programs
// that write on the same file system.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
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
  long slow_every = 0;
  long slow_ms = 100;
  long reopen_every = 0;
  std::string second_path;  // the same spool by another mount
  long second_every = 2;
  bool group_readable = false;
  std::string noise;
  long noise_writers = 2;
  long noise_rate = 2000;  // files a second, of each writer

  mode_t directory_mode() const { return group_readable ? 0750 : 0700; }
  mode_t environment_mode() const { return group_readable ? 0640 : 0600; }
  mode_t script_mode() const { return group_readable ? 0750 : 0700; }
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "spool-storm: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

[[noreturn]] void usage(int status) {
  std::fprintf(
      status == 0 ? stdout : stderr,
      "usage: spool-storm SPOOL [--jobs N] [--first-id N] [--rate JOBS_PER_SECOND] [--lifetime-ms "
      "MS]\n"
      "                   [--early-every K] [--script-bytes N] [--variables N] [--distinct K] "
      "[--manifest FILE]\n"
      "                   [--slow-every K] [--slow-ms MS] [--reopen-every K] [--second-path DIR] "
      "[--second-every K]\n"
      "                   [--group-readable 1] [--noise DIR] [--noise-writers N] [--noise-rate "
      "FILES_PER_SECOND]\n"
      "  --rate 0          as fast as it goes (the default)\n"
      "  --lifetime-ms     remove each entry so long after it was written; 0 = at once, -1 = never "
      "(the default)\n"
      "  --early-every K   every Kth entry is removed at once\n"
      "  --distinct K      only K different scripts; 0 = each its own (the default)\n"
      "  --slow-every K    every Kth script is half written, and finished --slow-ms (100) later\n"
      "  --reopen-every K  every Kth script is written in three pieces, closed after each\n"
      "  --second-path DIR every --second-every'th (2) entry is written through DIR, another mount "
      "of SPOOL\n"
      "  --group-readable 1  modes 0750 and 0640, which slurmctld never uses, for readers in the "
      "spool's group\n"
      "  --noise DIR       meanwhile other threads write there: half of them as a log does, half "
      "as a compiler\n"
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
    else if (a == "--slow-every")
      o.slow_every = std::atol(value);
    else if (a == "--slow-ms")
      o.slow_ms = std::atol(value);
    else if (a == "--reopen-every")
      o.reopen_every = std::atol(value);
    else if (a == "--second-path")
      o.second_path = value;
    else if (a == "--second-every")
      o.second_every = std::max(1L, std::atol(value));
    else if (a == "--group-readable")
      o.group_readable = std::atol(value) != 0;
    else if (a == "--noise")
      o.noise = value;
    else if (a == "--noise-writers")
      o.noise_writers = std::atol(value);
    else if (a == "--noise-rate")
      o.noise_rate = std::max(1L, std::atol(value));
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
  std::string text =
      "#!/bin/bash\n#SBATCH --time=00:10:00\n#SBATCH --ntasks=8\nmodule load GROMACS/2023.1\n# "
      "script " +
      std::to_string(content) + "\nsrun gmx mdrun -deffnm run-" + std::to_string(content) + "\n";
  // Filled with varied text, so that compression has something to do.
  std::uint64_t x = 0x9E3779B97F4A7C15ULL * static_cast<std::uint64_t>(content + 1);
  while (static_cast<long>(text.size()) < o.script_bytes) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    text += "echo step " + std::to_string(x % 100000) + " of input file /scratch/project/data-" +
            std::to_string(x % 977) + ".dat\n";
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
                                "PADDING=a=b=c=="};
  for (long i = static_cast<long>(list.size()); i < o.variables; ++i) {
    list.push_back("VARIABLE_" + std::to_string(i) + "=/opt/software/library/" +
                   std::to_string(i * 37 % 101) + "/lib64:/usr/lib");
  }
  list.resize(static_cast<std::size_t>(std::max(0L, o.variables)));
  return list;
}

// A script of which only a part is there yet.
struct Unfinished {
  std::int64_t at = 0;
  long id = 0;
  int fd = -1;
  std::string name;
  std::string rest;  // with the final NUL
  std::string script_sha256;
  std::string environment_sha256;
};

struct Storm {
  const Options& o;

  std::string spool_of(long id) const {
    return !o.second_path.empty() && id % o.second_every == 0 ? o.second_path : o.spool;
  }
  std::string directory(long id) const {
    return spool_of(id) + "/hash." + std::to_string(id % 10) + "/job." + std::to_string(id);
  }

  static int create(const std::string& name, mode_t mode) {
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0) fail("creat " + name);
    return fd;
  }

  // All of an entry but its script.
  std::string begin_entry(long id, const std::vector<std::string>& environment) const {
    const std::string dir = directory(id);
    const std::string hash = dir.substr(0, dir.rfind('/'));
    ::mkdir(hash.c_str(), o.directory_mode());
    if (::mkdir(dir.c_str(), o.directory_mode()) != 0) {
      // hash.D was taken away between the two calls, as some tests do on purpose.
      if (errno != ENOENT) fail("mkdir " + dir);
      ::mkdir(hash.c_str(), o.directory_mode());
      if (::mkdir(dir.c_str(), o.directory_mode()) != 0) fail("mkdir " + dir);
    }
    const std::string name = dir + "/environment";
    const int fd = create(name, o.environment_mode());
    const auto count = static_cast<std::uint32_t>(environment.size());
    write_all(fd, {reinterpret_cast<const char*>(&count), sizeof count}, name);
    for (const std::string& v : environment) write_all(fd, {v.c_str(), v.size() + 1}, name);
    ::close(fd);
    return dir + "/script";
  }

  void write_entry(long id, const std::string& script, const std::vector<std::string>& environment,
                   bool reopen) const {
    const std::string name = begin_entry(id, environment);
    const std::string_view bytes(script.c_str(), script.size() + 1);
    int fd = create(name, o.script_mode());
    std::size_t done = 0;
    for (const std::size_t part : {bytes.size() / 3, bytes.size() / 2}) {
      if (!reopen) break;
      write_all(fd, bytes.substr(done, part - done), name);
      done = part;
      ::close(fd);
      fd = ::open(name.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
      if (fd < 0) fail("open " + name);
    }
    write_all(fd, bytes.substr(done), name);
    ::close(fd);
  }

  Unfinished write_half(long id, const std::string& script,
                        const std::vector<std::string>& environment) const {
    Unfinished entry{.id = id, .name = begin_entry(id, environment)};
    const std::string_view bytes(script.c_str(), script.size() + 1);
    entry.fd = create(entry.name, o.script_mode());
    write_all(entry.fd, bytes.substr(0, bytes.size() / 2), entry.name);
    entry.rest = bytes.substr(bytes.size() / 2);
    return entry;
  }

  static void finish(const Unfinished& entry) {
    write_all(entry.fd, entry.rest, entry.name);
    ::close(entry.fd);
  }

  void remove_entry(long id) const {
    const std::string dir = directory(id);
    ::unlink((dir + "/environment").c_str());
    ::unlink((dir + "/script").c_str());
    ::rmdir(dir.c_str());
  }
};

std::string hex_sha256(std::string_view bytes) { return scriptorium::sha256_hex(bytes); }

// Another program's writes: lines to a log that is opened for each, or small files that are renamed
// and removed.
void make_noise(const std::stop_token& stop, const Options& o, long number,
                std::atomic<long>& files) noexcept {
  const std::string base = o.noise + "/" + std::to_string(number);
  const std::string text(number % 2 == 0 ? 120 : 8192, 'n');
  const std::int64_t step = 1'000'000'000 / o.noise_rate;
  const std::int64_t start = now_ns(CLOCK_MONOTONIC);
  for (long i = 0; !stop.stop_requested(); ++i) {
    wait_until(start + i * step);
    const bool log = number % 2 == 0;
    const std::string name = log ? base + ".log" : base + "-" + std::to_string(i % 50) + ".o.tmp";
    const int fd =
        ::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (log ? O_APPEND : O_TRUNC), 0644);
    if (fd < 0) fail("open " + name);
    write_all(fd, text, name);
    ::close(fd);
    if (!log) {
      const std::string object = name.substr(0, name.size() - 4);
      ::rename(name.c_str(), object.c_str());
      if (i % 2 == 1) ::unlink(object.c_str());
    }
    ++files;
  }
}

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
  std::deque<Unfinished> unfinished;
  const auto note = [&](long id, const std::string& script_sha256,
                        const std::string& environment_sha256, std::int64_t closed) {
    if (manifest == nullptr) return;
    std::fprintf(manifest, "%ld %s %s %lld\n", id, script_sha256.c_str(),
                 environment_sha256.c_str(), static_cast<long long>(closed));
  };
  const auto was_written = [&](long id, bool early) {
    ++written;
    if (o.lifetime_ms == 0 || early) {
      storm.remove_entry(id);
      ++removed;
    } else if (o.lifetime_ms > 0) {
      due.push_back({now_ns(CLOCK_MONOTONIC) + o.lifetime_ms * 1'000'000, id});
    }
  };
  const auto next_due = [&] {
    std::int64_t at = INT64_MAX;
    if (!due.empty()) at = due.front().at;
    if (!unfinished.empty()) at = std::min(at, unfinished.front().at);
    return at;
  };
  const auto do_due = [&](std::int64_t until) {
    while (!unfinished.empty() && unfinished.front().at <= until) {
      const Unfinished entry = std::move(unfinished.front());
      unfinished.pop_front();
      Storm::finish(entry);
      note(entry.id, entry.script_sha256, entry.environment_sha256, now_ns(CLOCK_REALTIME));
      was_written(entry.id, false);
    }
    while (!due.empty() && due.front().at <= until) {
      storm.remove_entry(due.front().id);
      due.pop_front();
      ++removed;
    }
  };
  std::atomic<long> noise_files = 0;
  std::vector<std::jthread> noise;
  for (long i = 0; i < o.noise_writers && !o.noise.empty(); ++i)
    noise.emplace_back(
        [&, i](const std::stop_token& stop) { make_noise(stop, o, i, noise_files); });

  const auto every = [](long k, long i) { return k > 0 && (i + 1) % k == 0; };
  for (long i = 0; i < o.jobs && stopped == 0; ++i) {
    const long id = o.first_id + i;
    const std::string script = script_of(o, id);
    const std::vector<std::string> environment = environment_of(o, id);
    std::string script_sha256;
    std::string environment_sha256;
    if (manifest != nullptr) {
      std::string bytes;
      for (const std::string& v : environment) bytes.append(v.c_str(), v.size() + 1);
      script_sha256 = hex_sha256(script);
      environment_sha256 = hex_sha256(bytes);
    }
    if (step > 0) {
      const std::int64_t at = start + i * step;
      while (next_due() <= at && stopped == 0) {
        wait_until(next_due());
        do_due(now_ns(CLOCK_MONOTONIC));
      }
      wait_until(at);
    }
    if (every(o.slow_every, i)) {
      Unfinished entry = storm.write_half(id, script, environment);
      entry.at = now_ns(CLOCK_MONOTONIC) + o.slow_ms * 1'000'000;
      entry.script_sha256 = std::move(script_sha256);
      entry.environment_sha256 = std::move(environment_sha256);
      unfinished.push_back(std::move(entry));
    } else {
      const std::int64_t before = now_ns(CLOCK_MONOTONIC);
      storm.write_entry(id, script, environment, every(o.reopen_every, i));
      const std::int64_t closed = now_ns(CLOCK_REALTIME);
      took.push_back(now_ns(CLOCK_MONOTONIC) - before);
      was_written(id, every(o.early_every, i));
      note(id, script_sha256, environment_sha256, closed);
    }
    do_due(now_ns(CLOCK_MONOTONIC));
  }
  const std::int64_t end = now_ns(CLOCK_MONOTONIC);
  while (next_due() != INT64_MAX) {
    if (stopped == 0) wait_until(next_due());
    do_due(stopped != 0 ? INT64_MAX : now_ns(CLOCK_MONOTONIC));
  }
  for (std::jthread& writer : noise) writer.request_stop();
  noise.clear();
  if (manifest != nullptr && std::fclose(manifest) != 0) fail("write " + o.manifest);

  std::sort(took.begin(), took.end());
  const auto at = [&](double share) {
    return took.empty()
               ? 0.0
               : static_cast<double>(
                     took[static_cast<std::size_t>(share * static_cast<double>(took.size() - 1))]) /
                     1e3;
  };
  const double seconds = static_cast<double>(end - start) / 1e9;
  std::printf(
      "{\"jobs\": %ld, \"removed\": %ld, \"seconds\": %.3f, \"jobs_per_second\": %.0f, "
      "\"entry_us_p50\": %.1f, "
      "\"entry_us_p99\": %.1f, \"entry_us_max\": %.1f, \"noise_files\": %ld}\n",
      written, removed, seconds, seconds > 0 ? static_cast<double>(written) / seconds : 0.0,
      at(0.5), at(0.99), at(1.0), noise_files.load());
  return 0;
}
