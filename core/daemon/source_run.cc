#include "core/daemon/source_run.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "core/base/sha256.h"
#include "core/base/thrown.h"
#include "core/daemon/reload.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

constexpr std::chrono::milliseconds kOncePatience{2000};

// Records that the adapter is parsing an entry. If the entry crashes the adapter, the next start
// finds it and skips it, like an event that crashes a sink.
void parse_on_record(CrashRecord& crashes, const std::string& who, const SpoolEntry& entry,
                     const std::function<void()>& parse) {
  std::string identity = entry.key;
  for (const SpoolFile& file : entry.files) {
    identity.append("\n").append(file.name).append(" ").append(std::to_string(file.stat.mtime_ns));
    identity.append(" ").append(std::to_string(file.stat.size));
  }
  const std::string id = std::string(CrashRecord::kEntryMark) + sha256_hex(identity);
  const CrashRecord::Verdict verdict = crashes.verdict(who, id);
  if (verdict == CrashRecord::Verdict::kGuilty) return;
  {
    const auto in_hand = crashes.hand_over(who, {&id, 1}, false, std::stop_token{});
    const CrashRecord::Inside inside(in_hand);
    parse();
  }
  if (verdict == CrashRecord::Verdict::kSuspect) crashes.settled(who, id);
}

}  // namespace

SourceRun::SourceRun(const LoadedSource& source, const Runtime& runtime)
    : name_(source.instance.name),
      version_(version_of(source, runtime)),
      plugin_(source.plugin.descriptor->name),
      common_(source.instance.common),
      runtime_(runtime),
      redactor_(source.redactor) {}

std::string SourceRun::version_of(const LoadedSource& source, const Runtime& runtime) {
  return fingerprint(source.instance.table, source.plugin.file, runtime.cluster, runtime.host) +
         "|" + source.redaction;
}

SourceRun::~SourceRun() { stop(std::chrono::steady_clock::now() + std::chrono::seconds{5}); }

Result<std::unique_ptr<SourceRun>> SourceRun::make(const LoadedSource& source,
                                                   const Runtime& runtime,
                                                   const SourceRun* running) try {
  if (source.redactor == nullptr)
    return Error{ErrorKind::kInvalidConfig, "source." + source.instance.name + ": no rules"};
  std::unique_ptr<SourceRun> run(new SourceRun(source, runtime));
  const PluginContext context{.name = run->name_,
                              .cluster = runtime.cluster,
                              .log = runtime.log,
                              .clock = runtime.clock,
                              .executables = runtime.executables};
  if (source.plugin.descriptor->kind == PluginKind::kFreeSource) {
    auto made = create_free_source(source.plugin, source.instance.table, context);
    if (!made) return made.error();
    run->free_ = std::make_unique<FreeRun>(run->name_, *std::move(made), source.redactor, runtime);
    return run;
  }
  auto adapter = create_spool_adapter(source.plugin, source.instance.table, context);
  if (!adapter) return adapter.error();
  run->adapter_ = *std::move(adapter);
  if (auto made = run->make_spool_source(running); !made) return made.error();
  return run;
} catch (...) {
  // check_root() and make_resolver() are plugin code; their exception must not end the daemon at a
  // reload.
  return Error{ErrorKind::kInvalidConfig,
               "source." + source.instance.name + ": the plugin threw: " + thrown_text()};
}

Result<void> SourceRun::make_spool_source(const SourceRun* running) {
  if (auto resolver = adapter_->make_resolver()) make_owner_stage(std::move(resolver));
  if (!runtime_.once && runtime_.sinks) {
    coordinators_ = std::make_unique<CoordinatorWatch>(
        name_, runtime_.cluster, *adapter_, runtime_.sinks, runtime_.log, runtime_.clock);
  }
  if (running != nullptr && captures_as(*running)) {
    change_.emplace(Change{capture_options(), adapter_->make_number_resolver()});
    return {};
  }
  auto opened = open_spool_of_adapter();
  if (!opened) return opened.error();
  capture_ = std::make_unique<SpoolCapture>(capture_options(), *adapter_, *std::move(opened),
                                            runtime_.journal, runtime_.log, runtime_.clock);
  return {};
}

bool SourceRun::captures_as(const SourceRun& other) const {
  return adapter_ != nullptr && other.adapter_ != nullptr && plugin_ == other.plugin_ &&
         adapter_->spool_root() == other.adapter_->spool_root() &&
         common_.capture == other.common_.capture;
}

// Opens the spool with the notifications that the configuration asks for, and lets the adapter
// check it.
Result<OpenedAccess> SourceRun::open_spool_of_adapter() const {
  const auto refuse = [&](const std::string& why) {
    return Error{ErrorKind::kInvalidConfig, "source." + name_ + ": " + why};
  };
  auto opened =
      open_spool(runtime_.opener, adapter_->spool_root(),
                 runtime_.once ? Notifications{false, false} : SpoolCapture::wanted(common_));
  if (!opened) {
    // An error of the configuration already names the remedy.
    const bool says_remedy = opened.error().kind() == ErrorKind::kInvalidConfig;
    return refuse("spool " + opened.error().message() +
                  (says_remedy ? "" : "; is the path right, and may this user enter it?"));
  }
  if (common_.capture == "fanotify" && !opened->fanotify_problem.empty())
    return refuse("capture = \"fanotify\" is not possible: " + opened->fanotify_problem);
  if (common_.capture == "inotify" && !opened->inotify_problem.empty())
    return refuse("capture = \"inotify\" is not possible: " + opened->inotify_problem);
  if (auto listed = opened->access->list("")) {
    std::vector<std::string> names;
    for (SpoolName& name : *listed) names.push_back(std::move(name.name));
    if (auto fits = adapter_->check_root(names); !fits)
      return fits.error().with_context("source." + name_);
  } else if (opened->access->fanotify_fd() < 0) {
    return refuse("the spool cannot be listed: " + listed.error().message());
  }
  return opened;
}

SpoolCapture::Options SourceRun::capture_options() const {
  SpoolCapture::Options options{
      name_, common_, {runtime_.cluster, adapter_->scheduler(), runtime_.host}, owners_ != nullptr};
  options.redactor = redactor_;
  if (runtime_.crashes != nullptr) {
    options.around_parse = [crashes = runtime_.crashes, who = "source." + name_](
                               const SpoolEntry& entry, const auto& parse) {
      parse_on_record(*crashes, who, entry, parse);
    };
  }
  return options;
}

void SourceRun::make_owner_stage(std::unique_ptr<OwnerResolver> resolver) {
  const bool asks_later = !runtime_.once && runtime_.archives != nullptr;
  auto later = asks_later ? adapter_->make_late_owner_resolver() : nullptr;
  if (later != nullptr) {
    retry_ = std::make_unique<OwnerRetry>(name_, std::move(later), redactor_, runtime_.journal,
                                          *runtime_.archives, runtime_.log, runtime_.clock);
  }
  OwnerStage::Options options{name_, std::chrono::seconds(common_.resolve_timeout_seconds),
                              [this](const CaptureMark& mark) { return capture_->unchanged(mark); },
                              [retry = retry_.get()] {
                                if (retry != nullptr) retry->ask_now();
                              },
                              redactor_};
  owners_ = std::make_unique<OwnerStage>(std::move(options), std::move(resolver), runtime_.journal,
                                         runtime_.log, runtime_.clock);
}

void SourceRun::make_way(const SourceRun& successor) {
  if (free_ != nullptr) free_->stop();
  if (owners_ != nullptr) owners_->stop();
  if (capture_ == nullptr) return;
  successor.change_ ? capture_->pause() : capture_->stop();
}

void SourceRun::take_over(SourceRun& predecessor) {
  if (change_) {
    capture_ = std::move(predecessor.capture_);
    capture_->change(std::move(change_->options), *adapter_, std::move(change_->numbers));
    change_.reset();
  }
  if (free_ != nullptr && predecessor.free_ != nullptr) free_->continue_from(*predecessor.free_);
  if (owners_ != nullptr && predecessor.owners_ != nullptr)
    owners_->continue_from(*predecessor.owners_);
  if (retry_ != nullptr && predecessor.retry_ != nullptr)
    retry_->continue_from(*predecessor.retry_);
}

void SourceRun::start() {
  if (coordinators_ != nullptr) coordinators_->start();
  if (retry_ != nullptr) retry_->start();
  if (owners_ != nullptr) owners_->start();
  if (capture_ != nullptr) capture_->start();
  if (free_ != nullptr) free_->start();
}

bool SourceRun::stop(SteadyTime deadline) {
  if (capture_ != nullptr) capture_->stop();
  if (free_ != nullptr) free_->stop();
  if (owners_ != nullptr) owners_->stop();
  bool stopped = true;
  // A thread that hangs still uses what it belongs to.
  const auto stop_or_leave = [&](auto& part) {
    if (part == nullptr || part->stop(deadline)) return;
    [[maybe_unused]] const auto* const left = part.release();
    stopped = false;
  };
  stop_or_leave(retry_);
  stop_or_leave(coordinators_);
  return stopped;
}

std::size_t SourceRun::run_once(const std::stop_token& stop) {
  if (owners_ != nullptr) owners_->start();
  if (capture_ != nullptr) return capture_->run_once(kOncePatience, stop);
  return free_->run_once(stop) ? 0 : 1;
}

bool SourceRun::owners_pending() const {
  return owners_ != nullptr && runtime_.journal.unresolved_count(name_) > 0;
}

void SourceRun::rescan() {
  if (coordinators_ != nullptr) coordinators_->ask_now();
  if (capture_ != nullptr) capture_->rescan();
}

std::uint64_t SourceRun::captured() const {
  return capture_ != nullptr ? capture_->status().captured : free_->captured();
}

void SourceRun::forget_those_found_later(LastHour::Counts& counts) const {
  if (counts.unverified == 0) return;
  const Timestamp hour_ago{
      (runtime_.clock.now().nanoseconds - std::chrono::nanoseconds(std::chrono::hours{1}).count())};
  counts.unverified =
      std::min(counts.unverified, runtime_.journal.unverified_count(name_, hour_ago));
}

SourceStatus SourceRun::status() const {
  if (free_ != nullptr) return {name_, plugin_, free_->status()};
  SpoolSourceStatus spool{.capture = capture_->status(), .owners = {}};
  if (owners_ != nullptr) {
    spool.owners = {.status = owners_->status(),
                    .waiting = runtime_.journal.unresolved_count(name_),
                    .later = {}};
    if (retry_ != nullptr) {
      spool.owners->later = retry_->status();
      forget_those_found_later(spool.owners->status.last_hour);
    }
  }
  return {name_, plugin_, std::move(spool)};
}

}  // namespace scriptorium
