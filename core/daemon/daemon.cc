#include "core/daemon/daemon.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>

#include "core/base/fault_point.h"
#include "core/daemon/control.h"
#include "core/daemon/engine.h"
#include "core/daemon/log.h"
#include "core/daemon/metrics_server.h"
#include "core/daemon/once.h"
#include "core/daemon/process.h"
#include "core/plugin/call_within.h"

namespace scriptorium {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTick{1000};
constexpr seconds kDrainPatience{5};  // without an event that a sink settles
constexpr milliseconds kDrainTick{20};
constexpr seconds kStopMargin{30};  // for all of a stop that shutdown_seconds does not bound

class Daemon {
 public:
  Daemon(const RunOptions& options, int signals, Privileges privileges)
      : options_(options), signals_(signals), privileges_(std::move(privileges)) {}

  int run();

 private:
  enum class Signal { kNone, kStop, kReload };

  Result<void> start_servers();
  void watch_forever();
  int deliver_once();
  int stop();
  void drain(SteadyTime deadline);
  void reload();
  Signal wait_signal(milliseconds most);
  void tick();
  seconds stop_time() const { return seconds(engine_->core().shutdown_seconds); }

  const RunOptions options_;
  const int signals_;
  const Privileges privileges_;  // before everything that reaches a spool
  bool opener_died_ = false;
  bool executable_reader_died_ = false;
  const Clock& clock_ = system_clock();
  std::unique_ptr<Logger> log_;
  std::optional<Engine> engine_;
  bool journal_was_full_ = false;
  SteadyTime next_watchdog_;
  std::unique_ptr<Listener> control_;
  std::unique_ptr<MetricsServer> metrics_;
};

int Daemon::run() {
  Problems problems;
  Setup setup = load_setup(options_.config_file, problems);
  load_rules(options_.config_file, setup, problems);
  log_ = make_stderr_logger(parse_log_level(setup.config.core.log_level));
  if (!problems.empty()) {
    for (const Problem& problem : problems.list())
      std::fprintf(stderr, "%s\n", problem.text().c_str());
    return EX_CONFIG;
  }
  engine_.emplace(std::move(setup), privileges_, *log_, clock_, options_.once);
  auto started = engine_->start();
  if (started && !options_.once) started = start_servers();
  if (!started) {
    log_->error("START_REFUSED", started.error().message(), {});
    const int code = exit_code_of(started.error().kind());
    if (!engine_->refuse() || call_hung()) ::_exit(code);
    return code;
  }
  if (options_.once) return deliver_once();
  watch_forever();
  const int code = stop();
  return opener_died_ ? EX_SOFTWARE : code;
}

Result<void> Daemon::start_servers() {
  const CoreConfig& core = engine_->core();
  auto metrics = MetricsServer::open(
      {.socket =
           core.metrics_socket.empty() ? core.state_dir + "/metrics.sock" : core.metrics_socket,
       .listen = parse_loopback_address(core.metrics_listen),
       .textfile = core.metrics_textfile},
      [this] { return engine_->status(); }, *log_);
  if (!metrics) return metrics.error();
  metrics_ = *std::move(metrics);
  // After the metrics, so that a client that gets an answer here can connect there.
  auto control = serve_control(
      core.state_dir, [this](const std::string& request) { return engine_->answer(request); },
      *log_);
  if (!control) return control.error();
  control_ = *std::move(control);
  Pipeline& pipeline = engine_->pipeline();
  pipeline.start_sources();
  metrics_->start();
  log_->info("STARTED", "captures and delivers",
             {{"version", SCRIPTORIUM_VERSION},
              {"cluster", core.cluster},
              {"sources", pipeline.sources().size()},
              {"sinks", pipeline.sinks().size()},
              {"user", privileges_.user},
              {"separated", privileges_.separated ? "yes" : "no"}});
  process::notify("READY=1");
  return {};
}

void Daemon::watch_forever() {
  next_watchdog_ = clock_.steady();
  for (;;) {
    switch (wait_signal(kTick)) {
      case Signal::kStop: return;
      case Signal::kReload: reload(); break;
      case Signal::kNone: break;
    }
    tick();
    // Only the next start can save what a damaged journal holds.
    if (engine_->journal().damaged()) return;
  }
}

Daemon::Signal Daemon::wait_signal(milliseconds most) {
  if (CrashRecord* const crashes = engine_->crashes()) crashes->tick();
  const bool has_opener = privileges_.opener != nullptr && !opener_died_;
  const ExecutableReader* const reader =
      executable_reader_died_ ? nullptr : privileges_.executables.get();
  std::array<pollfd, 3> fds{{{signals_, POLLIN, 0},
                             {has_opener ? privileges_.opener->pidfd() : -1, POLLIN, 0},
                             {reader != nullptr ? reader->process().pidfd() : -1, POLLIN, 0}}};
  if (::poll(fds.data(), fds.size(), static_cast<int>(most.count())) <= 0) return Signal::kNone;
  if (fds[1].revents != 0) {
    opener_died_ = true;
    log_->error("OPENER_DIED",
                "the process that opens the spool for the daemon has ended; the daemon ends as "
                "well, so that both are started again and scan the whole spool",
                {{"pid", privileges_.opener->pid()}});
    return Signal::kStop;
  }
  if (fds[2].revents != 0) {
    executable_reader_died_ = true;
    log_->warning("EXECUTABLE_READER_DIED",
                  "the process that reads the executables of jobs has ended, so paths and build "
                  "ids of programs are missing until the daemon is restarted",
                  {{"pid", reader->process().pid()}});
  }
  if (fds[0].revents == 0) return Signal::kNone;
  signalfd_siginfo info{};
  if (::read(signals_, &info, sizeof info) != static_cast<ssize_t>(sizeof info))
    return Signal::kNone;
  return info.ssi_signo == SIGHUP ? Signal::kReload : Signal::kStop;
}

void Daemon::tick() {
  const bool full = engine_->journal().usage().full;
  // Notifications may have overflowed while the journal was full.
  if (!full && journal_was_full_) {
    for (const auto& source : engine_->pipeline().sources()) source->rescan();
  }
  journal_was_full_ = full;
  const auto watchdog = process::watchdog_period();
  if (watchdog.count() > 0 && clock_.steady() >= next_watchdog_) {
    // The status asks every part that could hang on a lock. If one does not answer, systemd gets no
    // notification and restarts the daemon.
    static_cast<void>(engine_->status());
    process::notify("WATCHDOG=1");
    next_watchdog_ = clock_.steady() + watchdog / 3;
  }
}

int Daemon::deliver_once() {
  const OnceResult result = run_once(
      {.patience = stop_time(),
       .show_progress = options_.progress,
       .stop_signal = [this](milliseconds most) { return wait_signal(most) == Signal::kStop; }},
      engine_->runtime(), engine_->pipeline());
  const int code = stop();
  if (code != 0) return code;
  if (opener_died_) return EX_SOFTWARE;
  if (result.interrupted) return EX_TEMPFAIL;
  return result.settled && result.half_written == 0 ? 0 : EX_UNAVAILABLE;
}

int Daemon::stop() {
  const microseconds most = stop_time() + kStopMargin;
  process::notify(("STOPPING=1\nEXTEND_TIMEOUT_USEC=" + std::to_string(most.count())).c_str());
  const SteadyTime deadline = clock_.steady() + stop_time();
  bool stopped = engine_->stop_sources(deadline);
  FAULT_POINT("daemon.drain");
  const bool damaged = engine_->journal().damaged();
  if (!damaged) drain(deadline);
  stopped = engine_->stop_delivery(deadline) && stopped;
  log_->info("STOPPED", "ends", {});
  metrics_.reset();
  control_.reset();
  if (CrashRecord* const crashes = engine_->crashes()) crashes->close();
  const int code = damaged ? EX_IOERR : opener_died_ ? EX_SOFTWARE : 0;
  if (!stopped || call_hung()) ::_exit(code);  // a thread still runs in a plugin's code
  engine_.reset();
  return code;
}

// Delivers what is there, as long as the destinations take it; the rest stays in the journal. A
// sink that has events in hand and settles none may have lost its destination without knowing.
// Without an opener every moment may lose jobs, so the next start must come at once.
void Daemon::drain(SteadyTime deadline) {
  if (options_.once || opener_died_) return;
  std::uint64_t settled = engine_->pipeline().settled_events();
  SteadyTime last = std::min(deadline, clock_.steady() + kDrainPatience);
  while (clock_.steady() < last && !engine_->pipeline().sinks_at_rest()) {
    if (wait_signal(kDrainTick) == Signal::kStop) return;
    const std::uint64_t now_settled = engine_->pipeline().settled_events();
    if (now_settled == settled) continue;
    settled = now_settled;
    last = std::min(deadline, clock_.steady() + kDrainPatience);
  }
}

void Daemon::reload() {
  process::notify("RELOADING=1");
  Problems problems;
  Setup fresh = load_setup(options_.config_file, problems);
  load_rules(options_.config_file, fresh, problems);
  FAULT_POINT("daemon.reload");
  for (const Problem& problem : problems.list()) log_->error("CONFIG_PROBLEM", problem.text(), {});
  const Result<void> changed =
      problems.empty() ? engine_->switch_to(std::move(fresh))
                       : Error{ErrorKind::kInvalidConfig, problems.list().front().text()};
  if (changed) {
    log_->info("RELOADED", "the new configuration is in force", {});
  } else {
    log_->error("RELOAD_REFUSED",
                "the new configuration cannot be used; the old one stays in force",
                {{"reason", changed.error().message()}});
  }
  engine_->note_reload(changed);
  process::notify("READY=1");
}

}  // namespace

int run_daemon(const RunOptions& options) {
  process::prepare();
  // Before a plugin is loaded, a thread started or a byte of a spool read. Problems of the
  // configuration are reported later, together with those that the plugins find.
  Problems problems;
  const Config config = load_config(options.config_file, problems);
  auto privileges =
      separate_privileges(config, options.config_file,
                          problems.empty() ? PrivilegesFor::kRun : PrivilegesFor::kRefusal);
  if (!privileges) {
    const auto log = make_stderr_logger(parse_log_level(config.core.log_level));
    log->error("START_REFUSED", privileges.error().message(), {});
    return exit_code_of(privileges.error().kind());
  }
  const UniqueFd signals = process::open_signals();
  return Daemon(options, signals.get(), *std::move(privileges)).run();
}

}  // namespace scriptorium
