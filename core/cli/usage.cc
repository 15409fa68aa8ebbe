// `scriptorium usage --here`: a job's own report, measured from within it.
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/pause.h"
#include "core/base/stop_signal.h"
#include "core/base/text.h"
#include "core/base/thrown.h"
#include "core/base/time.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/report_text.h"
#include "core/cli/signal_stop.h"
#include "core/cli/usage_files.h"
#include "core/config/config.h"
#include "core/daemon/log.h"
#include "core/plugin/loader.h"

namespace scriptorium::cli {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

// Steps that end one after the other are each read; the report need not follow each of them.
constexpr auto kBetweenReports = 1s;
// For the last readings of the other nodes; the scheduler kills what remains some time later.
constexpr auto kOthersPatience = 3s;
constexpr auto kOthersPoll = 50ms;

// ---- what measures

struct Measurer {
  std::unique_ptr<FreeSource> source;
  std::unique_ptr<OwnJob> job;  // after its source, which it borrows
};

// The first plugin that measures the job of its process. kVanished: this is not in a job.
Result<Measurer> find_measurer(const Arguments& arguments, Logger& log) {
  Problems problems;  // a job needs no configuration, only the place of plugins may be in one
  PluginLoader loader(
      plugin_directories(load_config(arguments.config_file, problems).core.plugin_dirs));
  for (const PluginLoader::Listed& listed : loader.list()) {
    if (!listed.plugin || listed.plugin->descriptor->kind != PluginKind::kFreeSource) continue;
    const PluginContext context{
        .name = listed.name, .cluster = {}, .log = log, .clock = system_clock()};
    Table table;
    table.path = "source." + listed.name;
    auto source = create_free_source(*listed.plugin, table, context);
    if (!source) continue;
    auto job = (*source)->own_job();
    if (!job) return job.error();
    if (*job != nullptr) return Measurer{*std::move(source), *std::move(job)};
  }
  return Error{ErrorKind::kPermanent,
               "no plugin measures jobs; \"scriptorium plugins\" lists those that are installed"};
}

// ---- the report

struct Report {
  std::string text, json;
};

Report report_of(std::vector<Event> events, const OwnJob::Place& place, const Console& console) {
  std::vector<Json> all;
  for (Event& event : events) {
    if (event.host.empty()) event.host = place.node;
    event.captured_at = system_clock().now();
    make_text_utf8(event);
    all.push_back(Json::parse(event_json(event), nullptr, false));
  }
  JobReport job;
  Json json{{"event", nullptr}, {"nodes", Json::array()}};
  for (const Json& event : all) {
    const bool whole = event.value("kind", "") == "usage.job";
    if (whole) json["event"] = event;
    if (whole) job.event = &event;
    if (!whole) json["nodes"].push_back(event);
    if (!whole) job.nodes.push_back(&event);
  }
  return {screen_of(job, std::nullopt, console),
          json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"};
}

int print_once(OwnJob& job, Console& console) {
  const SignalStop signal(console.owns_process);
  if (auto read = job.step(true); !read) return fail(console, read.error());
  console.out << report_of(job.merge({}, true, signal.token()), job.place(), console).text;
  return kExitGood;
}

// ---- until the script ends

// The process that started this command. Its end is seen at once, or within a second where the
// kernel has no pidfd_open (before 5.3).
class Caller {
 public:
  Caller() : pid_(::getppid()), fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0))) {}

  int fd() const noexcept { return fd_.get(); }
  std::chrono::milliseconds poll_interval() const noexcept { return fd_ ? 60s : 1s; }
  bool has_ended() const noexcept {
    pollfd one{fd_.get(), POLLIN, 0};
    if (fd_) return ::poll(&one, 1, 0) == 1;
    return ::kill(pid_, 0) != 0 && errno == ESRCH;
  }

 private:
  pid_t pid_;
  UniqueFd fd_;
};

class JobWatch {
 public:
  JobWatch(OwnJob& job, const Caller& caller, Console& console)
      : job_(job),
        caller_(caller),
        console_(console),
        files_(".", job.place().job, job.place().node),
        signal_(console.owns_process) {}

  // The first reading. False: the job cannot be measured, which was said.
  bool begin() { return read(true); }

  // Until the caller ends, or a signal comes. The first report may wait for the scheduler's answer.
  void run() {
    const StopSignal stopped(signal_.token());
    write(true);
    const auto ends = [&] { return signal_.token().stop_requested() || caller_.has_ended(); };
    for (wait(stopped); !ends(); wait(stopped)) {
      is_unwritten_ = read(false) || is_unwritten_;
      if (is_unwritten_ && std::chrono::steady_clock::now() >= next_write_) write(true);
    }
    read(true);
    write(false);
    if (job_.place().merges) take_last_parts();
  }

 private:
  bool read(bool now) {
    const auto read = job_.step(now);
    if (!read) complain(read.error());
    return read && *read;
  }

  void wait(const StopSignal& stopped) const {
    auto until = job_.next_step();
    if (is_unwritten_) until = std::min(until, next_write_);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max<SteadyTime::duration>(until - std::chrono::steady_clock::now(), 0s));
    std::array<pollfd, 3> fds{
        {{stopped.fd(), POLLIN, 0}, {caller_.fd(), POLLIN, 0}, {job_.notify_fd(), POLLIN, 0}}};
    static_cast<void>(::poll(fds.data(), fds.size(),
                             static_cast<int>(std::min(left, caller_.poll_interval()).count())));
  }

  void write(bool running) {
    next_write_ = std::chrono::steady_clock::now() + kBetweenReports;
    is_unwritten_ = false;
    const auto written = job_.place().merges ? write_report(files_.read_parts().texts, running)
                                             : files_.write_part(job_.part(), !running);
    if (!written) complain(written.error());
  }

  Result<void> write_report(const std::vector<std::string>& parts, bool running) {
    const Console file{console_.in, console_.out, console_.err};
    const Report report =
        report_of(job_.merge(parts, running, signal_.token()), job_.place(), file);
    return files_.write_report(report.text, report.json);
  }

  // The job's other nodes end at the same moment.
  void take_last_parts() {
    const auto deadline = std::chrono::steady_clock::now() + kOthersPatience;
    UsageFiles::Parts parts = files_.read_parts();
    if (parts.texts.empty()) return;
    while (!parts.all_ended && std::chrono::steady_clock::now() < deadline) {
      pause_for({}, kOthersPoll);
      parts = files_.read_parts();
    }
    if (auto written = write_report(parts.texts, false); !written) complain(written.error());
    files_.remove_parts();
  }

  // Once: a job's output is not the place for a line at each reading.
  void complain(const Error& error) {
    if (std::exchange(has_complained_, true)) return;
    console_.err << "scriptorium: " << printable(error.message(), 1024) << "\n";
  }

  OwnJob& job_;
  const Caller& caller_;
  Console& console_;
  const UsageFiles files_;
  const SignalStop signal_;
  SteadyTime next_write_ = SteadyTime::min();
  bool is_unwritten_ = false;
  bool has_complained_ = false;
};

// Leaves the calling script: a child measures, and no `wait` of the script waits for it. In the
// child the result is the descriptor whose end lets the parent return, once the first reading was
// taken. In the parent it is nothing; also if no child could be made, which was said.
std::optional<UniqueFd> detach(Console& console) {
  std::array<int, 2> ends{-1, -1};
  const bool piped = ::pipe2(ends.data(), O_CLOEXEC) == 0;
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t child = piped ? ::fork() : -1;
  if (child < 0) {
    fail(console, system_error("measuring in the background", errno));
    return std::nullopt;
  }
  if (child > 0) {
    writing.reset();
    char none = 0;
    while (::read(reading.get(), &none, 1) < 0 && errno == EINTR) {
    }
    return std::nullopt;
  }
  // A reader of the script's output must not wait for this process.
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(null.get(), STDOUT_FILENO);
  return writing;
}

// The exit code is never a reason for the job to fail.
int measure_until_exit(OwnJob& job, const Caller& caller, Console& console) {
  if (!job.place().measures) return kExitGood;
  std::optional<UniqueFd> begun = UniqueFd();
  if (console.owns_process && !job.place().is_launched) begun = detach(console);
  if (!begun) return kExitGood;
  // `sbatch --signal` sends these to steps, whose programs they may end.
  std::signal(SIGUSR1, SIG_IGN);
  std::signal(SIGUSR2, SIG_IGN);
  JobWatch watch(job, caller, console);
  if (!watch.begin()) return kExitGood;
  begun->reset();
  watch.run();
  return kExitGood;
}

}  // namespace

int usage_command(const Arguments& arguments, Console& console) try {
  const Caller caller;
  const auto log = make_command_logger();
  const auto found = find_measurer(arguments, *log);
  if (!found) return fail(console, found.error());
  return arguments.until_exit ? measure_until_exit(*found->job, caller, console)
                              : print_once(*found->job, console);
} catch (...) {
  return fail(console, "the plugin throws (" + thrown_text() + "); report it to its author",
              arguments.until_exit ? kExitGood : kExitUnavailable);
}

}  // namespace scriptorium::cli
