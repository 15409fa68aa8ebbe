#include "core/daemon/engine.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/base/fault_point.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/daemon/control.h"
#include "core/daemon/process.h"
#include "core/daemon/reload.h"
#include "core/daemon/state_dir.h"
#include "core/redact/stored_event.h"

namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kRefusedStopTime{1000};
constexpr milliseconds kLeastReaderStopTime{500};
constexpr seconds kLastFlush{5};

// The rules for what an archive holds: those of a source of the event's scheduler, the strictest if
// there are several, and without such a source the top-level mode. Null if they keep everything.
Filler::Rules archive_rules(const Setup& setup) {
  std::map<std::string, std::shared_ptr<const redact::Redactor>> of_scheduler;
  for (const LoadedSource& source : setup.sources) {
    auto& redactor = of_scheduler[source.plugin.descriptor->name];
    if (redactor == nullptr || source.redactor->mode() > redactor->mode())
      redactor = source.redactor;
  }
  const auto others = std::make_shared<const redact::Redactor>(
      setup.rules, redact::parse_mode(setup.config.core.redact).value_or(redact::Mode::kDefault),
      EnvironmentRule{});
  if (others->keeps_everything() && std::ranges::all_of(of_scheduler, [](const auto& item) {
        return item.second->keeps_everything();
      }))
    return nullptr;
  return [of_scheduler = std::move(of_scheduler),
          others](const Event& event) -> Result<std::shared_ptr<const Event>> {
    const auto found = of_scheduler.find(event.scheduler);
    auto redacted =
        redact::redact_stored(*(found == of_scheduler.end() ? others : found->second), event);
    if (!redacted) return redacted.error();
    return std::move(redacted->event);
  };
}

}  // namespace

Engine::Engine(Setup setup, const Privileges& privileges, Logger& log, const Clock& clock,
               bool once)
    : setup_(std::move(setup)), privileges_(privileges), log_(log), clock_(clock), once_(once) {
  note_mail_status_file();
}

// ---- start

Result<void> Engine::start() {
  auto lock = lock_state_dir(core().state_dir);
  if (!lock) return lock.error();
  lock_ = *std::move(lock);
  FAULT_POINT("daemon.locked");
  if (!privileges_.unfiltered_because.empty()) {
    log_.warning("SYSTEM_CALLS_UNFILTERED",
                 "this kernel supports no system call filter; an attacker who controls the daemon "
                 "could have files of others reported to it",
                 {{"reason", privileges_.unfiltered_because}});
  }
  if (auto opened = open_journal(); !opened) return opened;
  open_crash_record();
  runtime_.emplace(Runtime{*journal_, log_, clock_, core().cluster,
                           core().host.empty() ? process::host_name() : core().host, once_,
                           privileges_.opener.get(), privileges_.executables.get(), crashes_.get(),
                           &archives_, &claims_, [this] { return pipeline_->all_sinks(); }});
  pipeline_.emplace(*runtime_, archives_);

  if (auto made = pipeline_->make_sinks(setup_.sinks); !made) return made;
  journal_->set_archive([this](const Event& locator) { return archives_.fetch(locator); });
  if (auto started = pipeline_->start_sinks(); !started) return started;
  if (once_) {
    const SteadyTime last = clock_.steady() + seconds(core().shutdown_seconds);
    for (const auto& sink : pipeline_->sinks()) {
      if (auto started = sink->await_start(last); !started) return started;
    }
  }
  if (auto retired = pipeline_->retire_other_sinks(setup_.sinks); !retired) return retired;
  const auto limit = static_cast<std::uint64_t>(core().journal_max_bytes);
  releaser_.emplace(*journal_, archives_, log_, limit);
  releaser_->start();
  filler_.emplace(*journal_, archives_, log_, limit);
  filler_->set_rules(archive_rules(setup_));
  if (!once_) filler_->start_thread();
  return pipeline_->make_sources(setup_.sources);
}

Result<void> Engine::open_journal() {
  auto journal = Journal::open({.directory = core().state_dir,
                                .max_bytes = static_cast<std::uint64_t>(core().journal_max_bytes),
                                .user_share_percent = core().user_share_percent},
                               log_, clock_);
  if (!journal) return journal.error();
  journal_ = *std::move(journal);
  return {};
}

void Engine::open_crash_record() {
  // There is no archive yet, so the bytes of some events that the journal holds cannot be read.
  const auto is_needed = [this](const std::string& id) {
    if (id.starts_with(CrashRecord::kEntryMark)) return true;
    const auto event = journal_->event(id);
    return event || event.error().kind() != ErrorKind::kVanished;
  };
  auto crashes = CrashRecord::open(core().state_dir, log_, clock_, is_needed);
  const Result<void> watched =
      crashes ? (*crashes)->watch_signals() : Result<void>(crashes.error());
  if (crashes) crashes_ = *std::move(crashes);
  if (watched) return;
  log_.warning("CRASH_RECORD_FAILED",
               "what is handed to plugins cannot be recorded; delivery continues, but an event "
               "that crashes the daemon is not found",
               {{"reason", watched.error().message()}});
}

// ---- stop

bool Engine::refuse() {
  return !pipeline_ || pipeline_->stop_sinks(clock_.steady() + kRefusedStopTime);
}

bool Engine::stop_sources(SteadyTime deadline) {
  const bool stopped = pipeline_->stop_sources(deadline);
  journal_->flush(deadline);
  return stopped;
}

bool Engine::stop_delivery(SteadyTime deadline) {
  const SteadyTime readers_deadline = std::max(deadline, clock_.steady() + kLeastReaderStopTime);
  bool stopped = filler_->stop(readers_deadline);
  stopped = releaser_->stop(readers_deadline) && stopped;
  stopped = pipeline_->stop_sinks(deadline) && stopped;
  if (!journal_->flush(clock_.steady() + kLastFlush) && !journal_->damaged()) {
    log_.error("JOURNAL_NOT_WRITTEN",
               "the journal could not be written before the end; entries that were not durable "
               "are captured again from the spool",
               {});
  }
  return stopped;
}

// ---- reload

Result<void> Engine::switch_to(Setup setup) {
  if (const auto key = changed_fixed_key(core(), setup.config.core)) {
    return Error{ErrorKind::kInvalidConfig,
                 *key + " cannot change while the daemon runs; restart it"};
  }
  auto switched = pipeline_->switch_to(setup, seconds(core().shutdown_seconds));
  if (!switched) return switched;
  setup_ = std::move(setup);
  note_mail_status_file();
  filler_->set_rules(archive_rules(setup_));
  return {};
}

void Engine::note_mail_status_file() {
  const std::optional<MailConfig>& mail = setup_.config.report.mail;
  mail_status_file_.with([&](std::string& file) { file = mail ? mail->status_file() : ""; });
}

void Engine::note_reload(const Result<void>& ended) {
  last_reload_.with([&](LastReload& last) {
    last = {format_rfc3339(clock_.now(), TimePrecision::kSeconds),
            ended ? "" : ended.error().message()};
  });
}

// ---- requests, from the threads of the two servers

std::string Engine::status() const {
  DaemonStatus status;
  status.now = clock_.now();
  status.steady_now = clock_.steady();
  status.uptime_seconds = std::chrono::duration<double>(clock_.steady() - begun_).count();
  status.last_reload = last_reload_.with([](const LastReload& last) { return last; });
  status.privileges_json = privileges_json(privileges_);
  status.journal = journal_->usage();
  status.fills = journal_->fills();
  pipeline_->add_to(status);
  const std::string mail_file =
      mail_status_file_.with([](const std::string& file) { return file; });
  if (!mail_file.empty()) status.mail_json = read_file(mail_file).value_or("");
  return status_json(status);
}

std::string Engine::answer(const std::string& request) {
  const Json json = Json::parse(request, nullptr, false);
  const std::string command = json.is_object() ? json.value("command", "") : "";
  const auto accept = [](const std::string& result) {
    return R"({"ok":true,"result":)" + result + "}";
  };
  if (command == "status") return accept(status());
  if (command == "ping") return accept(Json{{"pid", ::getpid()}}.dump());
  if (command == "sinks.fill") {
    const auto fill = begin_fill(json.value("sink", ""), json.value("from", ""),
                                 json.value("since", "1970-01-01T00:00:00Z"));
    if (!fill) return Json{{"ok", false}, {"error", fill.error().message()}}.dump();
    return accept(fill_json(*fill));
  }
  if (command == "owners.retry" || command == "owners.status")
    return accept(pipeline_->owners_json(command == "owners.retry"));
  return answer_from_journal(*journal_, request);
}

Result<Journal::Fill> Engine::begin_fill(const std::string& sink, const std::string& from,
                                         const std::string& since) {
  const auto time = parse_rfc3339(since);
  if (!time) return Error{ErrorKind::kPermanent, "\"since\" is not a time"};
  if (pipeline_->has_sink(sink)) return filler_->begin(sink, from, *time);
  return Error{ErrorKind::kPermanent,
               "there is no sink " + printable(sink) + " in the daemon's configuration"};
}

}  // namespace scriptorium
