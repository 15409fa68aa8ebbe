#include "core/daemon/daemon.h"

#include <malloc.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/base/fault_point.h"
#include "core/base/text.h"
#include "core/daemon/control.h"
#include "core/daemon/control_server.h"
#include "core/daemon/log.h"
#include "core/daemon/metrics_server.h"
#include "core/daemon/once.h"
#include "core/daemon/pipeline.h"
#include "core/daemon/privileges.h"
#include "core/daemon/reload.h"
#include "core/daemon/service_manager.h"
#include "core/daemon/setup.h"
#include "core/daemon/state_lock.h"
#include "core/daemon/status_json.h"
#include "core/delivery/archives.h"
#include "core/delivery/filler.h"
#include "core/delivery/releaser.h"

namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTick{1000};
constexpr milliseconds kDrainTick{20};
constexpr milliseconds kRefusedStopTime{1000};
constexpr milliseconds kLeastReaderStopTime{500};
constexpr seconds kLastFlush{5};

std::string host_name(const std::string& configured) {
  if (!configured.empty()) return configured;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

class Daemon {
 public:
  Daemon(const RunOptions& options, int signals, Privileges privileges)
      : options_(options), signals_(signals), privileges_(std::move(privileges)) {}

  int run();

 private:
  enum class Signal { kNone, kStop, kReload };

  Result<void> start();
  Result<void> open_journal();
  void open_crash_record();
  Result<void> start_servers();
  void watch_forever();
  int deliver_once();
  int stop();
  void drain(SteadyTime deadline);
  void reload();
  Result<void> switch_to(Setup setup);
  Signal wait_signal(milliseconds most);
  void tick();
  std::string status() const;
  std::string answer(const std::string& request);
  std::string fill(const Json& request);
  std::string owners(bool ask) const;

  const RunOptions options_;
  const int signals_;
  const Privileges privileges_;  // before everything that reaches a spool
  bool opener_died_ = false;
  const Clock& clock_ = system_clock();
  const SteadyTime begun_ = clock_.steady();
  std::unique_ptr<Logger> log_;
  Setup setup_;
  UniqueFd lock_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<CrashRecord> crashes_;  // null: none can be kept
  std::optional<Runtime> runtime_;
  Archives archives_;  // the journal asks it
  std::optional<Releaser> releaser_;
  std::optional<Filler> filler_;
  std::optional<Pipeline> pipeline_;
  Guarded<LastReload> last_reload_;
  bool journal_was_full_ = false;
  SteadyTime next_watchdog_;
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<MetricsServer> metrics_;
};

int Daemon::run() {
  Problems problems;
  setup_ = load_setup(options_.config_file, problems);
  log_ = make_stderr_logger(parse_log_level(setup_.config.core.log_level));
  if (!problems.empty()) {
    for (const Problem& problem : problems.list())
      std::fprintf(stderr, "%s\n", problem.text().c_str());
    return EX_CONFIG;
  }
  if (auto started = start(); !started) {
    log_->error("START_REFUSED", started.error().message(), {});
    if (pipeline_) pipeline_->stop_sinks(clock_.steady() + kRefusedStopTime);
    return exit_code_of(started.error().kind());
  }
  if (options_.once) return deliver_once();
  watch_forever();
  const int code = stop();
  return opener_died_ ? EX_SOFTWARE : code;
}

// ---- start

Result<void> Daemon::start() {
  auto lock = lock_state_dir(setup_.config.core.state_dir);
  if (!lock) return lock.error();
  lock_ = *std::move(lock);
  FAULT_POINT("daemon.locked");
  if (!privileges_.unfiltered_because.empty()) {
    log_->warning("SYSTEM_CALLS_UNFILTERED",
                  "this kernel supports no system call filter; an attacker who controls the daemon "
                  "could have files of others reported to it",
                  {{"reason", privileges_.unfiltered_because}});
  }
  if (auto opened = open_journal(); !opened) return opened;
  open_crash_record();
  const CoreConfig& core = setup_.config.core;
  runtime_.emplace(Runtime{*journal_, *log_, clock_, core.cluster, host_name(core.host),
                           options_.once, privileges_.opener.get(), crashes_.get(), &archives_});
  pipeline_.emplace(*runtime_, archives_);

  if (auto made = pipeline_->make_sinks(setup_.sinks); !made) return made;
  journal_->set_archive([this](const Event& locator) { return archives_.fetch(locator); });
  if (auto started = pipeline_->start_sinks(); !started) return started;
  if (auto retired = pipeline_->retire_other_sinks(setup_.sinks); !retired) return retired;
  const auto limit = static_cast<std::uint64_t>(core.journal_max_bytes);
  releaser_.emplace(*journal_, archives_, *log_, limit);
  releaser_->start();
  filler_.emplace(*journal_, archives_, *log_, limit);
  if (!options_.once) filler_->start_thread();
  if (auto made = pipeline_->make_sources(setup_.sources); !made) return made;
  return options_.once ? Result<void>{} : start_servers();
}

Result<void> Daemon::open_journal() {
  const CoreConfig& core = setup_.config.core;
  auto journal = Journal::open({.directory = core.state_dir,
                                .max_bytes = static_cast<std::uint64_t>(core.journal_max_bytes),
                                .user_share_percent = core.user_share_percent},
                               *log_, clock_);
  if (!journal) return journal.error();
  journal_ = *std::move(journal);
  return {};
}

void Daemon::open_crash_record() {
  const auto is_needed = [this](const std::string& id) {
    return id.starts_with(CrashRecord::kEntryMark) || journal_->event(id).has_value();
  };
  auto crashes = CrashRecord::open(setup_.config.core.state_dir, *log_, clock_, is_needed);
  const Result<void> watched =
      crashes ? (*crashes)->watch_signals() : Result<void>(crashes.error());
  if (crashes) crashes_ = *std::move(crashes);
  if (watched) return;
  log_->warning("CRASH_RECORD_FAILED",
                "what is handed to plugins cannot be recorded; delivery continues, but an event "
                "that crashes the daemon is not found",
                {{"reason", watched.error().message()}});
}

Result<void> Daemon::start_servers() {
  const CoreConfig& core = setup_.config.core;
  auto metrics = MetricsServer::open(
      {.socket =
           core.metrics_socket.empty() ? core.state_dir + "/metrics.sock" : core.metrics_socket,
       .listen = parse_loopback_address(core.metrics_listen),
       .textfile = core.metrics_textfile},
      [this] { return status(); }, *log_);
  if (!metrics) return metrics.error();
  metrics_ = *std::move(metrics);
  // After the metrics, so that a client that gets an answer here can connect there.
  auto control = ControlServer::start(
      core.state_dir, [this](const std::string& request) { return answer(request); }, *log_);
  if (!control) return control.error();
  control_ = *std::move(control);
  pipeline_->start_sources();
  metrics_->start();
  log_->info("STARTED", "captures and delivers",
             {{"version", SCRIPTORIUM_VERSION},
              {"cluster", core.cluster},
              {"sources", pipeline_->sources().size()},
              {"sinks", pipeline_->sinks().size()},
              {"user", privileges_.user},
              {"separated", privileges_.separated ? "yes" : "no"}});
  service_manager::notify("READY=1");
  return {};
}

// ---- run

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
    if (journal_->damaged()) return;
  }
}

Daemon::Signal Daemon::wait_signal(milliseconds most) {
  if (crashes_ != nullptr) crashes_->tick();
  const bool has_opener = privileges_.opener != nullptr && !opener_died_;
  std::array<pollfd, 2> fds{
      {{signals_, POLLIN, 0}, {has_opener ? privileges_.opener->pidfd() : -1, POLLIN, 0}}};
  if (::poll(fds.data(), fds.size(), static_cast<int>(most.count())) <= 0) return Signal::kNone;
  if (fds[1].revents != 0) {
    opener_died_ = true;
    log_->error("OPENER_DIED",
                "the process that opens the spool for the daemon has ended; the daemon ends as "
                "well, so that both are started again and look at the whole spool",
                {{"pid", privileges_.opener->pid()}});
    return Signal::kStop;
  }
  signalfd_siginfo info{};
  if (::read(signals_, &info, sizeof info) != static_cast<ssize_t>(sizeof info))
    return Signal::kNone;
  return info.ssi_signo == SIGHUP ? Signal::kReload : Signal::kStop;
}

void Daemon::tick() {
  const bool full = journal_->usage().full;
  // Notifications may have overflowed while the journal was full.
  if (!full && journal_was_full_) {
    for (const auto& source : pipeline_->sources()) source->rescan();
  }
  journal_was_full_ = full;
  const auto watchdog = service_manager::watchdog_period();
  if (watchdog.count() > 0 && clock_.steady() >= next_watchdog_) {
    // The status asks every part that could hang on a lock. If one does not answer, systemd hears
    // nothing.
    static_cast<void>(status());
    service_manager::notify("WATCHDOG=1");
    next_watchdog_ = clock_.steady() + watchdog / 3;
  }
}

int Daemon::deliver_once() {
  Once once(
      {.patience = seconds(setup_.config.core.shutdown_seconds),
       .show_progress = options_.progress,
       .stop_signal = [this](milliseconds most) { return wait_signal(most) == Signal::kStop; }},
      *runtime_, *pipeline_);
  const Once::Result result = once.run();
  const int code = stop();
  if (code != 0) return code;
  if (opener_died_) return EX_SOFTWARE;
  if (result.interrupted) return EX_TEMPFAIL;
  return result.settled && result.half_written == 0 ? 0 : EX_UNAVAILABLE;
}

// ---- stop

int Daemon::stop() {
  service_manager::notify("STOPPING=1");
  const SteadyTime deadline = clock_.steady() + seconds(setup_.config.core.shutdown_seconds);
  bool hangs = !pipeline_->stop_sources(deadline);
  journal_->flush(deadline);
  FAULT_POINT("daemon.drain");
  const bool damaged = journal_->damaged();
  if (!damaged) drain(deadline);
  const SteadyTime readers_deadline = std::max(deadline, clock_.steady() + kLeastReaderStopTime);
  if (filler_ && !filler_->stop(readers_deadline)) hangs = true;
  if (releaser_ && !releaser_->stop(readers_deadline)) hangs = true;
  if (!pipeline_->stop_sinks(deadline)) hangs = true;
  const bool flushed = journal_->flush(clock_.steady() + kLastFlush);
  if (!flushed && !damaged) {
    log_->error("JOURNAL_NOT_WRITTEN",
                "the journal could not be written before the end; what was not durable is captured "
                "again from the spool",
                {});
  }
  log_->info("STOPPED", "ends", {});
  metrics_.reset();
  control_.reset();
  if (crashes_ != nullptr) crashes_->close();
  const int code = damaged ? EX_IOERR : opener_died_ ? EX_SOFTWARE : 0;
  if (hangs) ::_exit(code);  // a thread still runs in a plugin's code
  pipeline_->clear();
  filler_.reset();
  releaser_.reset();
  journal_.reset();
  return code;
}

// Delivers what is there, as long as the destinations take it; the rest stays in the journal.
// Without an opener every moment may lose jobs, so the next start must come at once.
void Daemon::drain(SteadyTime deadline) {
  if (options_.once || opener_died_) return;
  while (clock_.steady() < deadline && !pipeline_->sinks_at_rest()) {
    if (wait_signal(kDrainTick) == Signal::kStop) return;
  }
}

// ---- reload

void Daemon::reload() {
  service_manager::notify("RELOADING=1");
  Problems problems;
  Setup fresh = load_setup(options_.config_file, problems);
  FAULT_POINT("daemon.reload");
  for (const Problem& problem : problems.list()) log_->error("CONFIG_PROBLEM", problem.text(), {});
  const Result<void> changed =
      problems.empty() ? switch_to(std::move(fresh))
                       : Error{ErrorKind::kInvalidConfig, problems.list().front().text()};
  if (changed) {
    log_->info("RELOADED", "the new configuration is in force", {});
  } else {
    log_->error("RELOAD_REFUSED", "the new configuration is not good; the old one stays in force",
                {{"reason", changed.error().message()}});
  }
  last_reload_.with([&](LastReload& last) {
    last = {format_rfc3339(clock_.now(), TimePrecision::kSeconds),
            changed ? "" : changed.error().message()};
  });
  service_manager::notify("READY=1");
}

Result<void> Daemon::switch_to(Setup setup) {
  const CoreConfig& core = setup_.config.core;
  if (const auto key = changed_fixed_key(core, setup.config.core)) {
    return Error{ErrorKind::kInvalidConfig,
                 *key + " cannot change while the daemon runs; restart it"};
  }
  const auto switched = pipeline_->switch_to(setup, seconds(core.shutdown_seconds));
  if (switched.in_force) setup_ = std::move(setup);
  if (switched.error) return *switched.error;
  return {};
}

// ---- requests, from the threads of the two servers

std::string Daemon::status() const {
  DaemonStatus status;
  status.now = clock_.now();
  status.uptime_seconds = std::chrono::duration<double>(clock_.steady() - begun_).count();
  status.last_reload = last_reload_.with([](const LastReload& last) { return last; });
  status.privileges_json = privileges_json(privileges_);
  status.journal = journal_->usage();
  status.fills = journal_->fills();
  pipeline_->add_to(status);
  return status_json(status);
}

std::string Daemon::answer(const std::string& request) {
  const Json json = Json::parse(request, nullptr, false);
  const std::string command = json.is_object() ? json.value("command", "") : "";
  if (command == "status") return R"({"ok":true,"result":)" + status() + "}";
  if (command == "ping") return Json{{"ok", true}, {"result", {{"pid", ::getpid()}}}}.dump();
  if (command == "sinks.fill") return fill(json);
  if (command == "owners.retry" || command == "owners.status")
    return owners(command == "owners.retry");
  return answer_from_journal(*journal_, request);
}

std::string Daemon::owners(bool ask) const {
  Json list = Json::array();
  for (const Pipeline::Retry& retry : pipeline_->retry_owners(ask)) {
    Json one = {{"source", retry.source}};
    one.update(Json::parse(owner_retry_json(retry.status)));
    if (retry.round) one["round"] = *retry.round;
    list.push_back(std::move(one));
  }
  return Json{{"ok", true}, {"result", std::move(list)}}.dump();
}

std::string Daemon::fill(const Json& request) {
  const auto refuse = [](const std::string& why) {
    return Json{{"ok", false}, {"error", why}}.dump();
  };
  const std::string sink = request.value("sink", "");
  const auto since = parse_rfc3339(request.value("since", "1970-01-01T00:00:00Z"));
  if (!since) return refuse("\"since\" is not a time");
  if (!pipeline_->has_sink(sink))
    return refuse("there is no sink " + printable(sink) + " in the daemon's configuration");
  auto begun = filler_->begin(sink, request.value("from", ""), *since);
  if (!begun) return refuse(begun.error().message());
  return R"({"ok":true,"result":)" + fill_json(*begun) + "}";
}

}  // namespace

int run_daemon(const RunOptions& options) {
  // Nothing that we make is for others; sinks set modes and ACLs of their own.
  ::umask(0077);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // The memory of a large script goes back to the kernel. By default glibc raises the threshold
  // with each large block that is freed, up to 32 MiB, and then keeps such blocks, in an arena for
  // each thread (mallopt(3)).
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
  // Before a plugin is loaded, a thread started or a byte of a spool read. Problems of the
  // configuration are reported later, together with those that the plugins find.
  Problems problems;
  const CoreConfig core = load_config(options.config_file, problems).core;
  auto privileges = separate_privileges(
      core, options.config_file, problems.empty() ? PrivilegesFor::kRun : PrivilegesFor::kRefusal);
  if (!privileges) {
    const auto log = make_stderr_logger(parse_log_level(core.log_level));
    log->error("START_REFUSED", privileges.error().message(), {});
    return exit_code_of(privileges.error().kind());
  }
  const UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  return Daemon(options, signals.get(), *std::move(privileges)).run();
}

}  // namespace scriptorium
