#include "checkpoint/service.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "checkpoint/image.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"
#include "core/base/thrown.h"
#include "core/daemon/process.h"

namespace scriptorium::checkpoint {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr std::ptrdiff_t kMostWaitingOfOneUser = 1000;
// A report is written at once, so it is not larger than a pipe's atomic write.
constexpr std::size_t kMostReport = 2048;
// The engine keeps to the time limit. Hashing and the file system may need as long again; a process
// that exceeds even this hangs.
constexpr int kPatienceFactor = 2;
constexpr seconds kPatience{60};
constexpr milliseconds kRetryPace{1000};

constexpr const char* kWithdrawn = "withdrawn";
// What a report is of.
constexpr const char* kDone = "done";
constexpr const char* kNotDone = "not_done";
constexpr const char* kEnded = "ended";

const char* word_of(Action action) { return action == Action::kResume ? "resume" : "checkpoint"; }

// A line of fields, each ended by a tab: SCHEDULER USER DURATION_MS, and then
// "done" BYTES PROCESSES ENGINE_MS HASH_MS ROOT TRIES SHA256, "not_done" REASON DETAIL, or
// "ended" ROOT EXIT_CODE.
std::string report_text(const WorkReport& report) {
  std::string text;
  const auto add = [&text](const auto&... fields) { ((text += fields, text += '\t'), ...); };
  const auto number = [](auto value) { return std::to_string(value); };
  add(report.scheduler, report.user, number(report.duration_ms));
  if (!report.outcome) {
    add(kNotDone, report.outcome.error().reason, printable(report.outcome.error().detail, 500));
  } else if (const Done& done = *report.outcome; report.exit_code) {
    add(kEnded, number(done.root), number(*report.exit_code));
  } else {
    add(kDone, number(done.bytes), number(done.processes), number(done.engine_ms),
        number(done.hash_ms), number(done.root), number(done.tries), done.manifest_sha256);
  }
  return text.substr(0, kMostReport - 1) + "\n";
}

template <typename Number>
Number take_number(std::string_view& rest) {
  return parse_number<Number>(take_until(rest, '\t')).value_or(0);
}

constexpr int kReportFd = 3;
constexpr int kBegunFd = 4;
// In the child: nothing of the service's is left but standard error, the report and the request's
// file. False: it has none.
bool leave_service(int report, int begun) {
  ::setsid();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // Copies first: either may have the other's number.
  report = ::fcntl(report, F_DUPFD_CLOEXEC, kBegunFd + 1);
  begun = ::fcntl(begun, F_DUPFD_CLOEXEC, kBegunFd + 1);
  ::dup3(report, kReportFd, O_CLOEXEC);
  const bool has_begun = begun >= 0 && ::dup3(begun, kBegunFd, O_CLOEXEC) >= 0;
#ifdef SYS_close_range
  ::syscall(SYS_close_range, has_begun ? kBegunFd + 1U : kBegunFd + 0U, ~0U, 0U);
#endif
  return has_begun;
}

}  // namespace

Service::Service(Config config, std::string engine_version, Engine& engine, Spool spool,
                 std::optional<RecordFolder> records, Logger& log)
    : config_(std::move(config)),
      engine_version_(std::move(engine_version)),
      engine_(engine),
      spool_(std::move(spool)),
      records_(std::move(records)),
      log_(log),
      queue_(config_.requests_per_minute, kMostWaitingOfOneUser) {}

std::vector<const Request*> Service::requests(bool with_resumed) const {
  std::vector<const Request*> result;
  for (const Worker& worker : workers_) {
    if (!worker.has_reported || (with_resumed && worker.request.action == Action::kResume))
      result.push_back(&worker.request);
  }
  return result;
}

void Service::accept(const SpoolRequest& taken) {
  const auto refuse = [&](const std::string& why) {
    log_.warning("CHECKPOINT_REQUEST_REFUSED", "a request was removed without being served",
                 {{"file", printable(taken.file, 80)}, {"uid", taken.stat.owner}, {"reason", why}});
    spool_.remove(taken.kept);
  };
  if (!taken.problem.empty()) return refuse(taken.problem);
  // Nothing is restored as root, so nothing of root's is saved.
  if (taken.stat.owner == 0) return refuse("it is root's");
  auto body = parse_request_body(taken.name.action, taken.text);
  if (!body) return refuse(body.error().message());
  Request request{.kept = taken.kept,
                  .action = taken.name.action,
                  .owner = {taken.name.job, taken.stat.owner, {}},
                  .body = *std::move(body),
                  .written_ns = taken.stat.mtime_ns};
  if (taken.is_begun) return interrupt(request);
  if (queue_.is_full(taken.stat.owner)) return refuse("too many requests of this user");
  const auto unneeded = queue_.add(std::move(request), requests(true));
  if (unneeded) spool_.remove(unneeded->kept);
}

void Service::interrupt(const Request& request) {
  log_.warning("CHECKPOINT_INTERRUPTED", "the process of a request was ended before its result",
               {{"request", word_of(request.action)}, {"job", request.owner.job}});
  interrupted_.push_back(request);
}

void Service::start_due(SteadyTime now) {
  if (now < no_start_before_) return;
  for (; !interrupted_.empty(); interrupted_.pop_back()) {
    if (!start(interrupted_.back(), true, now)) return;
  }
  while (static_cast<std::int64_t>(requests(false).size()) < config_.dumps_at_a_time) {
    const auto most_of_one_user = std::max<std::int64_t>(1, config_.dumps_at_a_time - 1);
    auto request = queue_.next(requests(false), most_of_one_user, now);
    if (!request) return;
    if (!start(*request, false, now)) return queue_.put_back(*std::move(request));
  }
}

bool Service::start(const Request& request, bool cleans_up, SteadyTime now) {
  std::array<int, 2> ends{-1, -1};
  const bool has_pipe = ::pipe2(ends.data(), O_CLOEXEC) == 0;
  const UniqueFd write_end(ends[1]);
  UniqueFd report(ends[0]);
  const pid_t pid = has_pipe ? ::fork() : -1;
  if (pid < 0) {
    log_.error("CHECKPOINT_NOT_STARTED", "no process can be had for a request; it waits",
               {{"job", request.owner.job}, {"reason", system_error("fork", errno).message()}});
    no_start_before_ = now + kRetryPace;
    return false;
  }
  if (pid == 0) {
    // From here on no later start of the service begins it a second time.
    const UniqueFd begun = spool_.begin(request.kept);
    const bool is_ours = cleans_up || request.kept.empty() || begun;
    const bool has_begun = leave_service(write_end.get(), begun.get());
    const Report write_report = [has_begun](const WorkReport& report) {
      if (has_begun) Spool::mark_done(kBegunFd);
      const std::string text = report_text(report);
      static_cast<void>(::write(kReportFd, text.data(), text.size()));
    };
    try {
      if (!is_ours) {
        write_report(not_done({kWithdrawn, {}}));
      } else if (cleans_up) {
        clean_up(request, write_report);
      } else {
        serve(request, config_, engine_version_, engine_, write_report);
      }
    } catch (...) {
      write_report(not_done({"engine", thrown_text()}));
    }
    ::_exit(0);
  }
  ::fcntl(report.get(), F_SETFL, O_NONBLOCK);
  const seconds limit = seconds(config_.time_limit_seconds) * kPatienceFactor + kPatience;
  workers_.push_back({.request = request,
                      .pid = pid,
                      .report = std::move(report),
                      .deadline = now + limit,
                      .has_reported = false,
                      .cleans_up = cleans_up});
  return true;
}

void Service::read_reports(Worker& worker) {
  std::string text(2 * kMostReport, '\0');
  const ssize_t got = ::read(worker.report.get(), text.data(), text.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) {
    if (!worker.has_reported) spool_.remove(worker.request.kept);
    text.resize(static_cast<std::size_t>(got));
    for (std::string_view rest = text; !rest.empty();) read_report(worker, take_until(rest, '\n'));
    return;
  }
  ::kill(worker.pid, SIGKILL);  // it closes the pipe when it ends, and only then
  ::waitpid(worker.pid, nullptr, 0);
  worker.pid = 0;
  if (worker.has_reported || worker.cleans_up) return;
  interrupt(worker.request);
}

void Service::read_report(Worker& worker, std::string_view text) {
  worker.has_reported = true;
  const bool resumes = worker.request.action == Action::kResume;
  Record record;
  record.scheduler = take_until(text, '\t');
  record.user = take_until(text, '\t');
  record.duration_ms = take_number<std::int64_t>(text);
  const std::string_view what = take_until(text, '\t');
  Logger::Fields fields{{"request", word_of(worker.request.action)},
                        {"job", worker.request.owner.job},
                        {"uid", worker.request.owner.uid}};
  if (what == kEnded) {
    record.action = "ended";
    record.duration_ms.reset();
    record.root_pid = take_number<pid_t>(text);
    record.exit_code = take_number<int>(text);
  } else if (what == kDone) {
    record.action = resumes ? "restarted" : "made";
    record.image_bytes = take_number<std::uint64_t>(text);
    record.processes = take_number<std::uint64_t>(text);
    const auto engine_ms = take_number<std::int64_t>(text);
    const auto hash_ms = take_number<std::int64_t>(text);
    record.root_pid = take_number<pid_t>(text);
    record.tries = take_number<std::int64_t>(text);
    record.manifest_sha256 = take_until(text, '\t');
    record.image_path = worker.request.body.directory + "/" + kImage;
    if (!resumes) record.frozen_ms = engine_ms;
    if (!resumes) record.runs_on = worker.request.body.runs_on;
    fields.insert(fields.end(), {{"bytes", record.image_bytes},
                                 {"processes", record.processes},
                                 {"engine_ms", engine_ms},
                                 {"hash_ms", hash_ms}});
    log_.info("CHECKPOINT_DONE", "a request was served", fields);
    if (record.root_pid == 0) return;  // nothing had to be done
  } else if (record.reason = take_until(text, '\t'); record.reason == kWithdrawn) {
    log_.info("CHECKPOINT_WITHDRAWN", "a request was removed from the spool before its turn",
              fields);
    return;
  } else {
    record.action = resumes ? "restart_failed" : "failed";
    record.root_pid = worker.request.body.pid;
    fields.emplace_back("reason", printable(record.reason, 40));
    fields.emplace_back("detail", printable(take_until(text, '\t'), 500));
    log_.info("CHECKPOINT_NOT_DONE", "a request was not served; its directory says why", fields);
  }
  record.job = worker.request.owner.job;
  record.uid = worker.request.owner.uid;
  write_record(std::move(record));
}

void Service::write_record(Record record) {
  // What one user asks for another's job is not a fact about that job.
  if (!records_ || record.scheduler.empty()) return;
  record.time = system_clock().now();
  record.node = process::host_name();
  record.engine = engine_.name();
  record.engine_version = engine_version_;
  if (const auto written = records_->write(record); !written) {
    log_.warning("CHECKPOINT_RECORD_DROPPED",
                 "no record could be kept of a request; its job is not affected",
                 {{"job", record.job},
                  {"uid", record.uid},
                  {"reason", written.error().message()},
                  {"dropped", ++records_dropped_}});
  }
}

void Service::end_late(SteadyTime now) {
  for (const Worker& worker : workers_) {
    if (!worker.has_reported && now >= worker.deadline) ::kill(worker.pid, SIGKILL);
  }
}

int Service::poll_timeout_ms(SteadyTime now) const {
  SteadyTime next = spool_.next_take();
  for (const Worker& worker : workers_) {
    if (!worker.has_reported) next = std::min(next, std::max(worker.deadline, now + kRetryPace));
  }
  if (!queue_.is_empty() || !interrupted_.empty()) next = std::min(next, now + kRetryPace);
  if (next == SteadyTime::max()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(next - now);
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

void Service::run(int signals) {
  while (true) {
    const SteadyTime now = steady_clock::now();
    for (const SpoolRequest& request : spool_.take(now)) accept(request);
    start_due(now);
    std::vector<pollfd> fds{{signals, POLLIN, 0}, {spool_.notify_fd(), POLLIN, 0}};
    for (const Worker& worker : workers_) fds.push_back({worker.report.get(), POLLIN, 0});
    if (::poll(fds.data(), fds.size(), poll_timeout_ms(now)) < 0) continue;
    signalfd_siginfo signal{};
    if (::read(signals, &signal, sizeof signal) == sizeof signal && signal.ssi_signo != SIGHUP)
      return;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      if (fds[i + 2].revents != 0) read_reports(workers_[i]);
    }
    std::erase_if(workers_, [](const Worker& worker) { return worker.pid == 0; });
    end_late(steady_clock::now());
  }
}

}  // namespace scriptorium::checkpoint
