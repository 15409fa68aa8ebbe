#include "core/daemon/daemon.h"

#include <malloc.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#ifdef SCRIPTORIUM_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#include "core/base/fault_point.h"
#include "core/base/text.h"
#include "core/daemon/control.h"
#include "core/daemon/control_server.h"
#include "core/daemon/log.h"
#include "core/daemon/metrics_server.h"
#include "core/daemon/pipeline.h"
#include "core/daemon/privileges.h"
#include "core/daemon/setup.h"
#include "core/daemon/state_lock.h"
#include "core/delivery/archives.h"
#include "core/delivery/filler.h"
#include "core/delivery/releaser.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr milliseconds kTick{1000};
constexpr milliseconds kDrainTick{20};

void notify_systemd([[maybe_unused]] const char* state) {
#ifdef SCRIPTORIUM_HAVE_SYSTEMD
  ::sd_notify(0, state);
#endif
}

std::uint64_t watchdog_microseconds() {
#ifdef SCRIPTORIUM_HAVE_SYSTEMD
  std::uint64_t period = 0;
  if (::sd_watchdog_enabled(0, &period) > 0) return period;
#endif
  return 0;
}

std::string host_name(const std::string& configured) {
  if (!configured.empty()) return configured;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

int exit_code_of(const Error& error) { return scriptorium::exit_code_of(error.kind()); }

class Daemon {
 public:
  Daemon(const RunOptions& options, int signals, Privileges privileges)
      : options_(options), signals_(signals), privileges_(std::move(privileges)) {}

  int run();

 private:
  enum class Signal { kNone, kStop, kReload };

  Result<void> start();
  void watch_forever();
  int deliver_once();
  int stop();
  void reload();
  Result<void> switch_to(Setup setup);
  Result<void> retire_sinks(const Setup& setup);
  Result<void> check_directories(const std::vector<const SinkRun*>& sinks) const;
  std::string fill(const Json& request);
  std::string owners(bool ask) const;
  Signal wait_signal(milliseconds most);
  void tick();
  void show_progress() const;
  std::string answer(const std::string& request);
  std::string status() const;
  void report(const Problems& problems);

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
  // Guards the two lists against the control thread while a reload exchanges them.
  mutable std::mutex parts_mutex_;
  std::vector<std::unique_ptr<SourceRun>> sources_;
  std::vector<std::unique_ptr<SinkRun>> sinks_;
  std::vector<std::unique_ptr<SinkRun>>
      hanging_sinks_;          // replaced, but a thread of theirs is still in a call
  bool sources_hang_ = false;  // the same of a source
  LastReload last_reload_;
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
    const int code = exit_code_of(started.error());
    for (const auto& sink : sinks_) sink->stop(clock_.steady() + milliseconds{1000});
    return code;
  }
  if (options_.once) return deliver_once();
  watch_forever();
  const int code = stop();
  return opener_died_ ? EX_SOFTWARE : code;
}

Result<void> Daemon::start() {
  const CoreConfig& core = setup_.config.core;
  auto lock = lock_state_dir(core.state_dir);
  if (!lock) return lock.error();
  lock_ = *std::move(lock);
  FAULT_POINT("daemon.locked");
  if (!privileges_.unfiltered_because.empty()) {
    log_->warning("SYSTEM_CALLS_UNFILTERED",
                  "this kernel supports no system call filter; an attacker who controls the daemon "
                  "could have files of others "
                  "reported to it",
                  {{"reason", privileges_.unfiltered_because}});
  }

  auto journal = Journal::open({.directory = core.state_dir,
                                .max_bytes = static_cast<std::uint64_t>(core.journal_max_bytes),
                                .user_share_percent = core.user_share_percent},
                               *log_, clock_);
  if (!journal) return journal.error();
  journal_ = *std::move(journal);
  auto crashes = CrashRecord::open(core.state_dir, *log_, clock_, [this](const std::string& id) {
    return id.starts_with(CrashRecord::kEntryMark) || journal_->event(id).has_value();
  });
  Result<void> watched = crashes ? (*crashes)->watch_signals() : Result<void>(crashes.error());
  if (crashes) crashes_ = *std::move(crashes);
  if (!watched) {
    log_->warning("CRASH_RECORD_FAILED",
                  "what is handed to plugins cannot be recorded; delivery continues, but an event "
                  "that crashes the daemon is not found",
                  {{"reason", watched.error().message()}});
  }
  runtime_.emplace(Runtime{*journal_, *log_, clock_, core.cluster, host_name(core.host),
                           options_.once, privileges_.opener.get(), crashes_.get(), &archives_});

  // Sinks first: an event that is captured finds all its sinks known. What can be read is known
  // before a sink needs it.
  std::vector<const SinkRun*> all;
  for (const LoadedSink& loaded : setup_.sinks) {
    auto sink = SinkRun::make(loaded, *runtime_);
    if (!sink) return sink.error();
    archives_.put((*sink)->name(), (*sink)->sink());
    all.push_back(sink->get());
    sinks_.push_back(*std::move(sink));
  }
  if (auto apart = check_directories(all); !apart) return apart;
  journal_->set_archive([this](const Event& locator) { return archives_.fetch(locator); });
  for (const auto& sink : sinks_) {
    if (auto started = sink->start(); !started) return started;
  }
  if (auto retired = retire_sinks(setup_); !retired) return retired;
  const auto limit = static_cast<std::uint64_t>(core.journal_max_bytes);
  releaser_.emplace(*journal_, archives_, *log_, limit);
  releaser_->start();
  filler_.emplace(*journal_, archives_, *log_, limit);
  if (!options_.once) filler_->start_thread();
  for (const LoadedSource& loaded : setup_.sources) {
    auto source = SourceRun::make(loaded, *runtime_);
    if (!source) return source.error();
    sources_.push_back(*std::move(source));
  }
  if (options_.once) return {};
  auto metrics = MetricsServer::open(
      {.socket =
           core.metrics_socket.empty() ? core.state_dir + "/metrics.sock" : core.metrics_socket,
       .listen = parse_loopback_address(core.metrics_listen),
       .textfile = core.metrics_textfile},
      [this] { return status(); }, *log_);
  if (!metrics) return metrics.error();
  metrics_ = *std::move(metrics);
  // After it, so that who gets an answer here can connect there.
  auto control = ControlServer::start(
      core.state_dir, [this](const std::string& request) { return answer(request); }, *log_);
  if (!control) return control.error();
  control_ = *std::move(control);
  for (const auto& source : sources_) source->start();
  metrics_->start();
  log_->info("STARTED", "captures and delivers",
             {{"version", SCRIPTORIUM_VERSION},
              {"cluster", core.cluster},
              {"sources", sources_.size()},
              {"sinks", sinks_.size()},
              {"user", privileges_.user},
              {"separated", privileges_.separated ? "yes" : "no"}});
  notify_systemd("READY=1");
  return {};
}

// Sinks that are not configured get nothing that comes from now on.
Result<void> Daemon::retire_sinks(const Setup& setup) {
  std::vector<std::string> configured;
  for (const LoadedSink& sink : setup.sinks) configured.push_back(sink.instance.name);
  archives_.keep_only(configured);
  if (auto retired = journal_->retire_other_sinks(std::move(configured)); !retired) return retired;
  for (const Journal::SinkState& sink : journal_->usage().sinks) {
    if (sink.registered || sink.waiting + sink.dead == 0) continue;
    log_->warning("SINK_UNKNOWN",
                  "events wait for a sink that is not configured; it gets nothing new, and they "
                  "are kept until it is configured "
                  "again or forgotten",
                  {{"sink", sink.name},
                   {"waiting", sink.waiting},
                   {"dead", sink.dead},
                   {"command", "scriptorium sinks forget " + printable(sink.name)}});
  }
  return {};
}

Result<void> Daemon::check_directories(const std::vector<const SinkRun*>& sinks) const {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_sink;
  for (const SinkRun* sink : sinks) {
    std::vector<std::string> directories;
    if (auto thrown = call_plugin([&] { directories = sink->sink()->directories(); }))
      return Error{ErrorKind::kInvalidConfig,
                   "sink." + sink->name() + ": the plugin threw: " + *thrown};
    by_sink.emplace_back(sink->name(), std::move(directories));
  }
  const auto shared = shared_directories(by_sink);
  if (shared.empty()) return {};
  return Error{ErrorKind::kInvalidConfig, shared.front()};
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
    // What it holds is safe only in the hands of the next start.
    if (journal_->damaged()) return;
  }
}

Daemon::Signal Daemon::wait_signal(milliseconds most) {
  if (crashes_ != nullptr) crashes_->tick();
  std::array<pollfd, 2> fds{
      {{signals_, POLLIN, 0},
       {privileges_.opener != nullptr && !opener_died_ ? privileges_.opener->pidfd() : -1, POLLIN,
        0}}};
  if (::poll(fds.data(), fds.size(), static_cast<int>(most.count())) <= 0) return Signal::kNone;
  if (fds[1].revents != 0) {
    opener_died_ = true;
    log_->error("OPENER_DIED",
                "the process that opens the spool for the daemon has ended; the daemon ends as "
                "well, so that both are started again "
                "and look at the whole spool",
                {{"pid", privileges_.opener->pid()}});
    return Signal::kStop;
  }
  signalfd_siginfo info{};
  if (::read(signals_, &info, sizeof info) != static_cast<ssize_t>(sizeof info))
    return Signal::kNone;
  return info.ssi_signo == SIGHUP ? Signal::kReload : Signal::kStop;
}

void Daemon::tick() {
  const Journal::Usage usage = journal_->usage();
  // Notifications that ran over meanwhile are made good by looking.
  if (!usage.full && journal_was_full_) {
    for (const auto& source : sources_) source->rescan();
  }
  journal_was_full_ = usage.full;
  const std::uint64_t watchdog = watchdog_microseconds();
  if (watchdog > 0 && clock_.steady() >= next_watchdog_) {
    // The status asks every part that could hang on a lock; a part that does not answer keeps us
    // from saying we live.
    static_cast<void>(status());
    notify_systemd("WATCHDOG=1");
    next_watchdog_ = clock_.steady() + std::chrono::microseconds(watchdog / 3);
  }
}

int Daemon::deliver_once() {
  bool interrupted = false;
  std::atomic<std::size_t> half_written = 0;
  std::atomic<std::size_t> scanning = sources_.size();
  {
    std::vector<std::jthread> scans;
    for (const auto& source : sources_) {
      scans.emplace_back([&, run = source.get()](const std::stop_token& stop) {
        half_written += run->run_once(stop);
        --scanning;
      });
    }
    while (scanning > 0) {
      show_progress();
      if (wait_signal(kDrainTick) != Signal::kStop) continue;
      interrupted = true;
      for (std::jthread& scan : scans) scan.request_stop();
    }
  }
  journal_->flush(clock_.steady() + std::chrono::minutes{5});
  // Sinks that make no progress for this long will not soon.
  const auto patience = std::chrono::seconds(setup_.config.core.shutdown_seconds);
  std::uint64_t progress = 0;
  SteadyTime last_progress = clock_.steady();
  bool settled = false;
  while (!interrupted) {
    settled = std::none_of(sources_.begin(), sources_.end(),
                           [](const auto& s) { return s->owners_pending(); }) &&
              std::all_of(sinks_.begin(), sinks_.end(), [](const auto& s) { return s->idle(); });
    if (settled) break;
    std::uint64_t now = 0;
    for (const auto& sink : sinks_)
      now += sink->dispatcher_status().acknowledged + sink->dispatcher_status().rejected;
    const bool owners = std::any_of(sources_.begin(), sources_.end(),
                                    [](const auto& s) { return s->owners_pending(); });
    if (now != progress || owners) {
      progress = now;
      last_progress = clock_.steady();
    }
    show_progress();
    if (clock_.steady() - last_progress >= patience || journal_->damaged()) break;
    if (wait_signal(kDrainTick) == Signal::kStop) {
      interrupted = true;
      break;
    }
  }
  if (options_.progress) std::fprintf(stderr, "\n");
  std::uint64_t captured = 0;
  for (const auto& source : sources_) captured += source->captured();
  const Journal::Usage usage = journal_->usage();
  for (const Journal::SinkState& sink : usage.sinks) {
    if (sink.registered && sink.waiting > 0) {
      const auto run = std::find_if(sinks_.begin(), sinks_.end(),
                                    [&](const auto& s) { return s->name() == sink.name; });
      const auto reason =
          run != sinks_.end() ? (*run)->dispatcher_status().last_error : std::nullopt;
      log_->error("NOT_SETTLED",
                  "events could not be delivered; they wait in the journal for the next run",
                  {{"sink", sink.name},
                   {"waiting", sink.waiting},
                   {"reason", reason.value_or("no time was left")}});
    }
    if (sink.registered && sink.dead > 0) {
      log_->warning("DEAD_LETTERS",
                    "some events stand as dead letters; `scriptorium deadletters list` shows why",
                    {{"sink", sink.name}, {"dead", sink.dead}});
    }
  }
  if (half_written > 0) {
    log_->warning("HALF_WRITTEN", "some entries are still being written; run again to capture them",
                  {{"entries", half_written.load()}});
  }
  log_->info("ONCE_DONE", "captured all that the spools hold",
             {{"captured", captured}, {"settled", settled ? "yes" : "no"}});
  const int code = stop();
  if (code != 0) return code;
  if (opener_died_) return EX_SOFTWARE;
  if (interrupted) return EX_TEMPFAIL;
  return settled && half_written == 0 ? 0 : EX_UNAVAILABLE;
}

void Daemon::show_progress() const {
  if (!options_.progress) return;
  std::uint64_t captured = 0;
  std::uint64_t delivered = 0;
  for (const auto& source : sources_) captured += source->captured();
  for (const auto& sink : sinks_) delivered += sink->dispatcher_status().acknowledged;
  std::fprintf(stderr, "\rcaptured %llu, delivered %llu ",
               static_cast<unsigned long long>(captured),
               static_cast<unsigned long long>(delivered));
}

int Daemon::stop() {
  notify_systemd("STOPPING=1");
  const SteadyTime deadline =
      clock_.steady() + std::chrono::seconds(setup_.config.core.shutdown_seconds);
  bool hangs = sources_hang_;
  for (const auto& source : sources_) {
    if (!source->stop(deadline)) hangs = true;
  }
  journal_->flush(deadline);
  FAULT_POINT("daemon.drain");
  // What is there is delivered, as long as the destinations take it; the rest stays in the journal.
  // Without an opener the jobs of each moment may be lost, so the rest waits in the journal for the
  // next start.
  const bool damaged = journal_->damaged();
  while (!options_.once && !opener_died_ && !damaged && clock_.steady() < deadline &&
         !std::all_of(sinks_.begin(), sinks_.end(), [](const auto& s) { return s->at_rest(); })) {
    if (wait_signal(kDrainTick) == Signal::kStop) break;
  }
  hangs = hangs || !hanging_sinks_.empty();
  const SteadyTime readers_deadline = std::max(deadline, clock_.steady() + milliseconds{500});
  if (filler_ && !filler_->stop(readers_deadline)) hangs = true;
  if (releaser_ && !releaser_->stop(readers_deadline)) hangs = true;
  for (const auto& sink : sinks_) {
    if (!sink->stop(std::max(deadline, clock_.steady() + milliseconds{500}))) hangs = true;
  }
  const bool flushed = journal_->flush(clock_.steady() + std::chrono::seconds{5});
  if (!flushed && !damaged)
    log_->error("JOURNAL_NOT_WRITTEN",
                "the journal could not be written before the end; what was not durable is captured "
                "again from the spool",
                {});
  log_->info("STOPPED", "ends", {});
  metrics_.reset();
  control_.reset();
  if (crashes_ != nullptr) crashes_->close();
  const int code = damaged ? EX_IOERR : opener_died_ ? EX_SOFTWARE : 0;
  if (hangs) ::_exit(code);  // its thread still runs in the plugin's code
  sources_.clear();
  sinks_.clear();
  filler_.reset();
  releaser_.reset();
  journal_.reset();
  return code;
}

void Daemon::reload() {
  notify_systemd("RELOADING=1");
  Problems problems;
  Setup fresh = load_setup(options_.config_file, problems);
  FAULT_POINT("daemon.reload");
  Result<void> changed;
  if (problems.empty()) {
    changed = switch_to(std::move(fresh));
  } else {
    report(problems);
    changed = Error{ErrorKind::kInvalidConfig, problems.list().front().text()};
  }
  if (changed) {
    log_->info("RELOADED", "the new configuration is in force", {});
  } else {
    log_->error("RELOAD_REFUSED", "the new configuration is not good; the old one stays in force",
                {{"reason", changed.error().message()}});
  }
  const std::string when = format_rfc3339(clock_.now(), TimePrecision::kSeconds);
  const std::lock_guard lock(parts_mutex_);
  last_reload_ = {when, changed ? "" : changed.error().message()};
  notify_systemd("READY=1");
}

void Daemon::report(const Problems& problems) {
  for (const Problem& problem : problems.list()) log_->error("CONFIG_PROBLEM", problem.text(), {});
}

// Changes what has changed and leaves the rest running. Everything new is made before anything old
// is touched.
Result<void> Daemon::switch_to(Setup setup) {
  const CoreConfig& now = setup_.config.core;
  const CoreConfig& then = setup.config.core;
  for (const auto& [key, changed] :
       {std::pair{"cluster", now.cluster != then.cluster},
        std::pair{"state_dir", now.state_dir != then.state_dir},
        std::pair{"host", now.host != then.host}, std::pair{"user", now.user != then.user},
        std::pair{"journal_max_bytes", now.journal_max_bytes != then.journal_max_bytes},
        std::pair{"user_share_percent", now.user_share_percent != then.user_share_percent},
        std::pair{"metrics_listen", now.metrics_listen != then.metrics_listen},
        std::pair{"metrics_socket", now.metrics_socket != then.metrics_socket},
        std::pair{"metrics_textfile", now.metrics_textfile != then.metrics_textfile}}) {
    if (changed)
      return Error{ErrorKind::kInvalidConfig,
                   std::string(key) + " cannot change while the daemon runs; restart it"};
  }
  std::vector<std::unique_ptr<SinkRun>> new_sinks;
  std::vector<std::unique_ptr<SourceRun>> new_sources;
  std::vector<std::string> kept;
  for (const LoadedSink& loaded : setup.sinks) {
    const std::string wanted = fingerprint(loaded.instance.table, loaded.plugin.file, *runtime_);
    const auto old = std::find_if(sinks_.begin(), sinks_.end(), [&](const auto& s) {
      return s->name() == loaded.instance.name && s->fingerprint() == wanted;
    });
    if (old != sinks_.end()) {
      kept.push_back("sink." + loaded.instance.name);
      continue;
    }
    auto sink = SinkRun::make(loaded, *runtime_);
    if (!sink) return sink.error();
    new_sinks.push_back(*std::move(sink));
  }
  for (const LoadedSource& loaded : setup.sources) {
    const std::string wanted = fingerprint(loaded.instance.table, loaded.plugin.file, *runtime_);
    const auto old = std::find_if(sources_.begin(), sources_.end(), [&](const auto& s) {
      return s->name() == loaded.instance.name && s->fingerprint() == wanted;
    });
    if (old != sources_.end()) {
      kept.push_back("source." + loaded.instance.name);
      continue;
    }
    auto source = SourceRun::make(loaded, *runtime_);
    if (!source) return source.error();
    new_sources.push_back(*std::move(source));
  }

  std::vector<const SinkRun*> all;
  for (const auto& sink : new_sinks) all.push_back(sink.get());
  for (const auto& sink : sinks_) {
    if (std::find(kept.begin(), kept.end(), "sink." + sink->name()) != kept.end())
      all.push_back(sink.get());
  }
  if (auto apart = check_directories(all); !apart) return apart;

  const auto is_kept = [&](const std::string& name) {
    return std::find(kept.begin(), kept.end(), name) != kept.end();
  };
  const auto take_out = [&](auto& parts, const char* prefix) {
    std::remove_reference_t<decltype(parts)> out;
    const std::lock_guard lock(parts_mutex_);
    for (auto it = parts.begin(); it != parts.end();) {
      if (is_kept(prefix + (*it)->name())) {
        ++it;
        continue;
      }
      out.push_back(std::move(*it));
      it = parts.erase(it);
    }
    return out;
  };
  // A changed sink rests for a moment, its events wait in the journal. A changed spool source
  // overlaps with its successor, so that nothing is missed between them; what both see is one
  // event. A changed free source ends before its successor begins.
  std::string refused;
  for (auto& old : take_out(sinks_, "sink.")) {
    if (old->stop(clock_.steady() + std::chrono::seconds(now.shutdown_seconds))) continue;
    hanging_sinks_.push_back(std::move(old));
  }
  for (const auto& sink : new_sinks) archives_.put(sink->name(), sink->sink());
  for (auto& sink : new_sinks) {
    if (auto started = sink->start(); !started) {
      refused = started.error().message();
      continue;
    }
    const std::lock_guard lock(parts_mutex_);
    sinks_.push_back(std::move(sink));
  }
  auto old_sources = take_out(sources_, "source.");
  for (auto& old : old_sources) {
    if (!old->may_overlap())
      sources_hang_ =
          !old->stop(clock_.steady() + std::chrono::seconds(now.shutdown_seconds)) || sources_hang_;
  }
  for (auto& source : new_sources) {
    source->start();
    const std::lock_guard lock(parts_mutex_);
    sources_.push_back(std::move(source));
  }
  for (auto& old : old_sources) {
    if (!old->stop(clock_.steady() + std::chrono::seconds(now.shutdown_seconds)))
      sources_hang_ = true;
  }
  // A sink that did not start is configured all the same: its events wait for it.
  if (auto retired = retire_sinks(setup); !retired && refused.empty())
    refused = retired.error().message();
  for (const auto& sink : sinks_) sink->wake();
  for (const auto& source : sources_) source->rescan();
  setup_ = std::move(setup);
  if (!refused.empty())
    return Error{ErrorKind::kInvalidConfig,
                 "a changed sink does not start: " + refused + "; its events wait in the journal"};
  return {};
}

std::string Daemon::status() const {
  const double uptime = std::chrono::duration<double>(clock_.steady() - begun_).count();
  const std::lock_guard lock(parts_mutex_);
  return render_status(*journal_, sources_, sinks_, uptime, last_reload_,
                       privileges_json(privileges_));
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

// `ask`: they ask now, and "round" says which of their rounds that is.
std::string Daemon::owners(bool ask) const {
  Json list = Json::array();
  const std::lock_guard lock(parts_mutex_);
  for (const auto& source : sources_) {
    OwnerRetry* const retry = source->owner_retry();
    if (retry == nullptr) continue;
    const std::uint64_t round = ask ? retry->ask_now() : 0;
    Json one = {{"source", source->name()}};
    one.update(Json::parse(owner_retry_json(*retry)));
    if (ask) one["round"] = round;
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
  {
    const std::lock_guard lock(parts_mutex_);
    const bool known =
        std::any_of(sinks_.begin(), sinks_.end(), [&](const auto& s) { return s->name() == sink; });
    if (!known)
      return refuse("there is no sink " + printable(sink) + " in the daemon's configuration");
  }
  auto begun = filler_->begin(sink, request.value("from", ""), *since);
  if (!begun) return refuse(begun.error().message());
  return R"({"ok":true,"result":)" + fill_json(*begun) + "}";
}

}  // namespace

int run_daemon(const RunOptions& options) {
  // Nothing that we make is for others; sinks set the modes and ACLs of what they make themselves.
  ::umask(0077);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // What a large script took goes back when it is done with. glibc by itself raises the threshold
  // with each large block that is freed, up to 32 MiB, and then keeps them, in an arena for each
  // thread.
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
  // Before a plugin is loaded, a thread started or a byte of a spool read. What is wrong with the
  // configuration is said later, by who can also ask the plugins.
  Problems problems;
  const CoreConfig core = load_config(options.config_file, problems).core;
  auto privileges = separate_privileges(
      core, options.config_file, problems.empty() ? PrivilegesFor::kRun : PrivilegesFor::kRefusal);
  if (!privileges) {
    const auto log = make_stderr_logger(parse_log_level(core.log_level));
    log->error("START_REFUSED", privileges.error().message(), {});
    return exit_code_of(privileges.error());
  }
  const UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  return Daemon(options, signals.get(), *std::move(privileges)).run();
}

}  // namespace scriptorium
