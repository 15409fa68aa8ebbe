#include "core/daemon/source_run.h"

#include <chrono>
#include <functional>
#include <utility>

#include "core/base/sha256.h"
#include "core/base/thrown.h"
#include "core/daemon/fingerprint.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

constexpr std::chrono::milliseconds kOncePatience{2000};

// Records the parse of an entry as in the adapter's hands. An entry that crashes the adapter is
// then found and passed over, as an event is that crashes a sink.
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

PluginContext context_of(const std::string& name, const Runtime& runtime) {
  return {name, runtime.cluster, runtime.log, runtime.clock};
}

}  // namespace

SourceRun::SourceRun(const LoadedSource& source, const Runtime& runtime)
    : name_(source.instance.name),
      fingerprint_(scriptorium::fingerprint(source.instance.table, source.plugin.file,
                                            runtime.cluster, runtime.host)),
      plugin_(source.plugin.descriptor->name),
      journal_(runtime.journal) {}
SourceRun::~SourceRun() { stop(std::chrono::steady_clock::now() + std::chrono::seconds{5}); }

Result<std::unique_ptr<SourceRun>> SourceRun::make(const LoadedSource& source,
                                                   const Runtime& runtime) try {
  std::unique_ptr<SourceRun> run(new SourceRun(source, runtime));
  if (source.plugin.descriptor->kind == PluginKind::kFreeSource) {
    auto made =
        create_free_source(source.plugin, source.instance.table, context_of(run->name_, runtime));
    if (!made) return made.error();
    run->free_ = std::make_unique<FreeRun>(run->name_, *std::move(made), runtime);
    return run;
  }
  if (auto made = run->make_spool_source(source, runtime); !made) return made.error();
  return run;
} catch (...) {
  // check_root() and make_resolver() are the plugin's; at a reload their exception must not end the
  // daemon.
  return Error{ErrorKind::kInvalidConfig,
               "source." + source.instance.name + ": the plugin threw: " + thrown_text()};
}

Result<void> SourceRun::make_spool_source(const LoadedSource& source, const Runtime& runtime) {
  auto adapter =
      create_spool_adapter(source.plugin, source.instance.table, context_of(name_, runtime));
  if (!adapter) return adapter.error();
  adapter_ = *std::move(adapter);
  const SourceConfig& common = source.instance.common;
  auto opened = open_spool_of(common, runtime);
  if (!opened) return opened.error();
  std::unique_ptr<OwnerResolver> resolver = adapter_->make_resolver();
  make_capture(common, *std::move(opened), resolver != nullptr, runtime);
  if (resolver != nullptr) make_owner_stage(common, std::move(resolver), runtime);
  return {};
}

// The spool, with the notifications that the configuration asks for; the adapter accepts it.
Result<OpenedAccess> SourceRun::open_spool_of(const SourceConfig& common,
                                              const Runtime& runtime) const {
  const auto refuse = [&](const std::string& why) {
    return Error{ErrorKind::kInvalidConfig, "source." + name_ + ": " + why};
  };
  auto opened =
      open_spool(runtime.opener, adapter_->spool_root(),
                 runtime.once ? Notifications{false, false} : SpoolCapture::wanted(common));
  if (!opened) {
    // An error of the configuration says itself what to do.
    const bool says_remedy = opened.error().kind() == ErrorKind::kInvalidConfig;
    return refuse("spool " + opened.error().message() +
                  (says_remedy ? "" : "; is the path right, and may this user enter it?"));
  }
  if (common.capture == "fanotify" && !opened->fanotify_problem.empty())
    return refuse("capture = \"fanotify\" is not possible: " + opened->fanotify_problem);
  if (common.capture == "inotify" && !opened->inotify_problem.empty())
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

void SourceRun::make_capture(const SourceConfig& common, OpenedAccess opened, bool resolve_first,
                             const Runtime& runtime) {
  SpoolCapture::Options options{
      name_, common, {runtime.cluster, adapter_->scheduler(), runtime.host}, resolve_first};
  if (runtime.crashes != nullptr) {
    options.around_parse = [crashes = runtime.crashes, who = "source." + name_](
                               const SpoolEntry& entry, const auto& parse) {
      parse_on_record(*crashes, who, entry, parse);
    };
  }
  capture_ = std::make_unique<SpoolCapture>(std::move(options), *adapter_, std::move(opened),
                                            runtime.journal, runtime.log, runtime.clock);
}

void SourceRun::make_owner_stage(const SourceConfig& common,
                                 std::unique_ptr<OwnerResolver> resolver, const Runtime& runtime) {
  const bool asks_later = !runtime.once && runtime.archives != nullptr;
  auto later = asks_later ? adapter_->make_late_owner_resolver() : nullptr;
  if (later != nullptr) {
    retry_ = std::make_unique<OwnerRetry>(name_, std::move(later), runtime.journal,
                                          *runtime.archives, runtime.log, runtime.clock);
  }
  OwnerStage::Options options{
      name_, std::chrono::seconds(common.resolve_timeout_seconds),
      [capture = capture_.get()](const CaptureMark& mark) { return capture->unchanged(mark); },
      [retry = retry_.get()] {
        if (retry != nullptr) retry->ask_now();
      }};
  owners_ = std::make_unique<OwnerStage>(std::move(options), std::move(resolver), runtime.journal,
                                         runtime.log, runtime.clock);
}

void SourceRun::start() {
  if (retry_ != nullptr) retry_->start();
  if (owners_ != nullptr) owners_->start();
  if (capture_ != nullptr) capture_->start();
  if (free_ != nullptr) free_->start();
}

bool SourceRun::stop(SteadyTime deadline) {
  if (capture_ != nullptr) capture_->stop();
  if (free_ != nullptr) free_->stop();
  if (owners_ != nullptr) owners_->stop();
  if (retry_ == nullptr || retry_->stop(deadline)) return true;
  [[maybe_unused]] const OwnerRetry* const left = retry_.release();  // its thread still uses it
  return false;
}

std::size_t SourceRun::run_once(const std::stop_token& stop) {
  if (owners_ != nullptr) owners_->start();
  if (capture_ != nullptr) return capture_->run_once(kOncePatience, stop);
  return free_->run_once(stop) ? 0 : 1;
}

bool SourceRun::owners_pending() const {
  return owners_ != nullptr && journal_.unresolved_count(name_) > 0;
}

void SourceRun::rescan() {
  if (capture_ != nullptr) capture_->rescan();
}

std::uint64_t SourceRun::captured() const {
  return capture_ != nullptr ? capture_->status().captured : free_->captured();
}

SourceStatus SourceRun::status() const {
  if (free_ != nullptr) return {name_, plugin_, free_->status()};
  SpoolSourceStatus spool{.capture = capture_->status(), .owners = {}};
  if (owners_ != nullptr) {
    spool.owners = {
        .status = owners_->status(), .waiting = journal_.unresolved_count(name_), .later = {}};
    if (retry_ != nullptr) spool.owners->later = retry_->status();
  }
  return {name_, plugin_, std::move(spool)};
}

}  // namespace scriptorium
