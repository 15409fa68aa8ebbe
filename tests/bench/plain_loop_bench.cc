// The references that the bench holds the daemon against: what the same work costs without any of
// its promises.
//   plain_loop_bench SPOOL --jobs N [--write none|each|batch --archive DIR] [--patience-seconds S]
//
// One thread reads fanotify's events, reads each closed file of the spool, and closes it: nothing
// else. Where files are to be written, a second thread gets the bytes and writes three files a job
// (script, environment, metadata) under temporary names, syncs, renames and syncs again, with plain
// system calls:
//   each    open, write, fsync, close, rename for each file, and one fsync of the directory for
//   each batch batch   open, write, close for each file, one syncfs, renames, one syncfs: as the
//   file sink does on a local disk
// Batches are cut as the file sink's are by default: 500 jobs or 50 ms. Ends when N jobs were seen
// and written, or when nothing was seen for S seconds. Prints one line of JSON with the CPU time of
// each thread.
#include <fcntl.h>
#include <poll.h>
#include <sys/fanotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/base/guarded.h"

namespace {

using scriptorium::Guarded;
using scriptorium::UniqueFd;

enum class Write { kNone, kEach, kBatch };

struct Options {
  std::string spool;
  std::string archive;
  long jobs = 0;
  int patience_seconds = 10;
  Write write = Write::kNone;
};

struct Job {
  std::string id;
  std::string script;
  std::string environment;
};

struct Queue {
  std::vector<Job> jobs;
  bool ended = false;
};

struct Cost {
  double user = 0, system = 0;
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "plain_loop_bench: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

[[noreturn]] void print_usage() {
  std::fprintf(stderr,
               "usage: plain_loop_bench SPOOL --jobs N [--write none|each|batch --archive DIR] "
               "[--patience-seconds S]\n");
  std::exit(64);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view a = argv[i];
    if (!a.starts_with("--")) {
      o.spool = a;
      continue;
    }
    if (i + 1 == argc) print_usage();
    const std::string_view value = argv[++i];
    if (a == "--jobs") {
      o.jobs = std::atol(argv[i]);
    } else if (a == "--archive") {
      o.archive = value;
    } else if (a == "--patience-seconds") {
      o.patience_seconds = std::atoi(argv[i]);
    } else if (a == "--write" && value == "none") {
      o.write = Write::kNone;
    } else if (a == "--write" && value == "each") {
      o.write = Write::kEach;
    } else if (a == "--write" && value == "batch") {
      o.write = Write::kBatch;
    } else {
      print_usage();
    }
  }
  if (o.spool.empty() || o.jobs <= 0 || (o.write != Write::kNone && o.archive.empty()))
    print_usage();
  return o;
}

double wall_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Of the calling thread. RUSAGE_THREAD splits by tick; its sum is exact.
Cost thread_cost() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return {seconds(usage.ru_utime), seconds(usage.ru_stime)};
}

std::string read_all(int fd) {
  std::string bytes;
  struct stat st{};
  if (::fstat(fd, &st) == 0) bytes.resize(static_cast<std::size_t>(st.st_size));
  std::size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = ::pread(fd, bytes.data() + got, bytes.size() - got, static_cast<off_t>(got));
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  bytes.resize(got);
  return bytes;
}

class Capture {
 public:
  Capture(const Options& options, Guarded<Queue>& queue) : options_(options), queue_(queue) {
    std::array<char, PATH_MAX> real{};
    if (::realpath(options.spool.c_str(), real.data()) == nullptr) fail(options.spool);
    root_ = std::string(real.data()) + "/";
    fd_.reset(::fanotify_init(FAN_CLASS_NOTIF | FAN_UNLIMITED_QUEUE | FAN_CLOEXEC | FAN_NONBLOCK,
                              O_RDONLY | O_LARGEFILE | O_CLOEXEC | O_NONBLOCK));
    if (!fd_) fail("fanotify_init (needs CAP_SYS_ADMIN)");
    if (::fanotify_mark(fd_.get(), FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_CLOSE_WRITE, AT_FDCWD,
                        root_.c_str()) != 0)
      fail("fanotify_mark");
  }

  void run() {
    const Cost before = thread_cost();
    while (seen_ < options_.jobs) {
      pollfd waiting{fd_.get(), POLLIN, 0};
      if (::poll(&waiting, 1, options_.patience_seconds * 1000) == 0) break;
      const ssize_t n = ::read(fd_.get(), buffer_.data(), buffer_.size());
      if (n <= 0) continue;
      auto length = static_cast<std::size_t>(n);
      for (const auto* event = reinterpret_cast<const fanotify_event_metadata*>(buffer_.data());
           FAN_EVENT_OK(event, length); event = FAN_EVENT_NEXT(event, length)) {
        if (event->fd < 0) continue;
        const UniqueFd file(event->fd);
        if (event->pid != own_pid_) on_file(file.get());
      }
    }
    const Cost after = thread_cost();
    cost = {after.user - before.user, after.system - before.system};
    queue_.with_notify([](Queue& q) { q.ended = true; });
  }

  long seen() const { return seen_; }
  Cost cost;

 private:
  void on_file(int fd) {
    std::array<char, 32> link{};
    std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
    const ssize_t n = ::readlink(link.data(), path_.data(), path_.size());
    if (n <= 0) return;
    std::string_view path(path_.data(), static_cast<std::size_t>(n));
    if (path.ends_with(" (deleted)")) path.remove_suffix(10);
    if (!path.starts_with(root_)) return;
    const auto name_at = path.rfind('/');
    const std::string_view name = path.substr(name_at + 1);
    const std::string_view directory = path.substr(0, name_at);
    if (name == "environment") {
      std::string bytes = read_all(fd);
      if (options_.write != Write::kNone) environments_[std::string(directory)] = std::move(bytes);
    } else if (name == "script") {
      std::string bytes = read_all(fd);
      ++seen_;
      if (options_.write == Write::kNone) return;
      Job job{.id = std::string(directory.substr(directory.rfind('.') + 1)),
              .script = std::move(bytes),
              .environment = {}};
      if (const auto found = environments_.find(std::string(directory));
          found != environments_.end()) {
        job.environment = std::move(found->second);
        environments_.erase(found);
      }
      queue_.with_notify([&](Queue& q) { q.jobs.push_back(std::move(job)); });
    }
  }

  const Options& options_;
  Guarded<Queue>& queue_;
  std::string root_;
  UniqueFd fd_;
  const pid_t own_pid_ = ::getpid();
  long seen_ = 0;
  std::unordered_map<std::string, std::string> environments_;
  alignas(
      fanotify_event_metadata) std::array<char, 170 * sizeof(fanotify_event_metadata)> buffer_{};
  std::array<char, PATH_MAX> path_{};
};

class Archive {
 public:
  Archive(const Options& options, Guarded<Queue>& queue) : options_(options), queue_(queue) {}

  void run() {
    if (::mkdir(options_.archive.c_str(), 0750) != 0 && errno != EEXIST)
      fail("mkdir " + options_.archive);
    directory_.reset(::open(options_.archive.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory_) fail("open " + options_.archive);
    const std::stop_token never;
    const Cost before = thread_cost();
    for (;;) {
      queue_.wait(never, [](const Queue& q) { return q.ended || !q.jobs.empty(); });
      const auto full_at = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
      queue_.wait_until(never, full_at,
                        [](const Queue& q) { return q.ended || q.jobs.size() >= 500; });
      std::vector<Job> batch;
      const bool last = queue_.with([&](Queue& q) {
        const auto take = static_cast<std::ptrdiff_t>(std::min<std::size_t>(q.jobs.size(), 500));
        batch.assign(std::make_move_iterator(q.jobs.begin()),
                     std::make_move_iterator(q.jobs.begin() + take));
        q.jobs.erase(q.jobs.begin(), q.jobs.begin() + take);
        return q.ended && q.jobs.empty();
      });
      write(batch);
      if (last) break;
    }
    const Cost after = thread_cost();
    cost = {after.user - before.user, after.system - before.system};
  }

  Cost cost;
  long written = 0;
  long batches = 0;
  unsigned long long bytes = 0;

 private:
  void write(const std::vector<Job>& batch) {
    if (batch.empty()) return;
    std::vector<std::pair<std::string, std::string>> renames;
    for (const Job& job : batch) {
      const std::string_view script(job.script.data(),
                                    job.script.empty() ? 0 : job.script.size() - 1);
      const std::string_view environment =
          std::string_view(job.environment)
              .substr(std::min<std::size_t>(4, job.environment.size()));
      write_file(job.id + ".sh", script, renames);
      write_file(job.id + ".env", environment, renames);
      write_file(job.id + ".json", metadata(job), renames);
    }
    if (options_.write == Write::kBatch && ::syncfs(directory_.get()) != 0) fail("syncfs");
    for (const auto& [from, to] : renames) rename(from, to);
    if (options_.write == Write::kBatch ? ::syncfs(directory_.get()) != 0
                                        : ::fsync(directory_.get()) != 0)
      fail("sync");
    written += static_cast<long>(batch.size());
    ++batches;
  }

  void rename(const std::string& from, const std::string& to) const {
    if (::renameat(directory_.get(), from.c_str(), directory_.get(), to.c_str()) != 0)
      fail("rename " + from);
  }

  void write_file(const std::string& name, std::string_view content,
                  std::vector<std::pair<std::string, std::string>>& renames) {
    std::string temporary = "." + name + ".tmp";
    const UniqueFd fd(::openat(directory_.get(), temporary.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
    if (!fd) fail("create " + temporary);
    bytes += content.size();
    while (!content.empty()) {
      const ssize_t n = ::write(fd.get(), content.data(), content.size());
      if (n < 0) fail("write " + temporary);
      content.remove_prefix(static_cast<std::size_t>(n));
    }
    if (options_.write == Write::kBatch)
      return renames.emplace_back(std::move(temporary), name), void();
    if (::fsync(fd.get()) != 0) fail("fsync");
    rename(temporary, name);
  }

  // As much JSON as the file sink writes for such a job.
  static std::string metadata(const Job& job) {
    return "{\"id\": \"" + job.id + "\", \"fill\": \"" + std::string(1100, 'x') + "\"}\n";
  }

  const Options& options_;
  Guarded<Queue>& queue_;
  UniqueFd directory_;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  Guarded<Queue> queue;
  Capture capture(options, queue);
  Archive archive(options, queue);
  std::printf("ready\n");
  std::fflush(stdout);
  const double start = wall_seconds();
  {
    std::jthread writer;
    if (options.write != Write::kNone) writer = std::jthread([&] { archive.run(); });
    const std::jthread reader([&] { capture.run(); });
  }
  const double jobs = static_cast<double>(std::max(1L, capture.seen()));
  const auto us = [&](double seconds) { return seconds / jobs * 1e6; };
  std::printf(
      "{\"captured\": %ld, \"written\": %ld, \"seconds\": %.3f, \"capture_user_us\": %.1f, "
      "\"capture_system_us\": %.1f, "
      "\"write_user_us\": %.1f, \"write_system_us\": %.1f, \"batches\": %ld, \"bytes\": %llu}\n",
      capture.seen(), archive.written, wall_seconds() - start, us(capture.cost.user),
      us(capture.cost.system), us(archive.cost.user), us(archive.cost.system), archive.batches,
      archive.bytes);
  return 0;
}
