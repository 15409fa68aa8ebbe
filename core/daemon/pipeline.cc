#include "core/daemon/pipeline.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "core/api/kit/secret_file.h"
#include "core/base/file.h"
#include "core/base/guarded.h"
#include "core/base/pause.h"
#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/base/thread_name.h"
#include "core/base/thrown.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kOncePatience{2000};

void add_text(std::string& out, const Value& value);

// Tells apart what stands in a file at two times; "" if the value names none.
std::string state_of_file(const Value& value) {
  const auto* name = std::get_if<std::string>(&value.data);
  if (name == nullptr) return {};
  return version_of_files({name, 1});
}

void add_text(std::string& out, const Table& table) {
  out += '{';
  for (const TableEntry& entry : table.entries) {
    out.append(entry.key).append("=");
    add_text(out, entry.value);
    // A password or certificate that was exchanged is a change too, although its name stayed.
    if (entry.key.ends_with("_file")) out += state_of_file(entry.value);
    out += ';';
  }
  out += '}';
}

void add_text(std::string& out, const Value& value) {
  if (const auto* b = std::get_if<bool>(&value.data)) {
    out += *b ? "true" : "false";
  } else if (const auto* i = std::get_if<std::int64_t>(&value.data)) {
    out += std::to_string(*i);
  } else if (const auto* d = std::get_if<double>(&value.data)) {
    out += std::to_string(*d) + "d";
  } else if (const auto* s = std::get_if<std::string>(&value.data)) {
    out += std::to_string(s->size()) + ":" + *s;
  } else if (const auto* list = std::get_if<std::vector<Value>>(&value.data)) {
    out += '[';
    for (const Value& item : *list) {
      add_text(out, item);
      out += ',';
    }
    out += ']';
  } else if (const auto* table = std::get_if<Table>(&value.data)) {
    add_text(out, *table);
  }
}

template <typename Map>
Json counts(const Map& map) {
  Json json = Json::object();
  for (const auto& [key, count] : map) json[key] = count;
  return json;
}

// What a source or sink says of itself in `status`.
template <typename Plugin>
std::string own_status(const Plugin& plugin) {
  std::string status;
  if (const auto thrown = call_plugin([&] { status = plugin.status_json(); }))
    return Json{{"error", *thrown}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  return status;
}

template <typename T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json optional_time(const std::optional<Timestamp>& time) {
  return time ? Json(format_rfc3339(*time, TimePrecision::kMilliseconds)) : Json(nullptr);
}

Json gaps_json(const GapStatus& gaps) {
  return {{"suspected", gaps.suspected},
          {"confirmed", gaps.confirmed},
          {"waiting", gaps.waiting},
          {"ranges", gaps.ranges},
          {"confirmed_ranges", gaps.confirmed_ranges},
          {"not_in_ranges", gaps.forgotten},
          {"explained",
           {{"job without a script", gaps.without_script},
            {"part of another job", gaps.part_of_another}}},
          {"appeared_late", gaps.late},
          {"count_changes", gaps.count_changes},
          {"highest", optional_json(gaps.highest)},
          {"queries", gaps.queries},
          {"last_error", optional_json(gaps.last_error)}};
}

// {"count", "sum", "buckets": [{"le", "count"}]}, each bucket with all that is below its bound, as
// Prometheus counts.
Json histogram_json(const Histogram& histogram) {
  Json buckets = Json::array();
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < Histogram::kBounds.size(); ++i) {
    below += histogram.in_bucket(i);
    buckets.push_back({{"le", Histogram::kBounds[i]}, {"count", below}});
  }
  return {{"count", histogram.count()}, {"sum", histogram.sum()}, {"buckets", std::move(buckets)}};
}

// So that an entry on which the adapter crashes is found, and passed over, as an event is on which
// a sink does.
void parse_noted(CrashRecord& crashes, const std::string& who, const SpoolEntry& entry,
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

double thousandths(double value) { return std::round(value * 1000) / 1000; }

}  // namespace

std::string fingerprint(const Table& table, const std::string& plugin_file,
                        const Runtime& runtime) {
  std::string text = plugin_file + "|" + runtime.cluster + "|" + runtime.host + "|";
  add_text(text, table);
  return text;
}

// ---- free sources
// ------------------------------------------------------------------------------------------------

class SourceRun::FreeRun final : public EventWriter {
 public:
  FreeRun(std::string name, std::unique_ptr<FreeSource> source, const Runtime& runtime)
      : name_(std::move(name)), source_(std::move(source)), runtime_(runtime) {}
  ~FreeRun() override { stop(); }

  void start() {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  void stop() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }

  Result<void> run_once(const std::stop_token& stop) { return call(stop, true); }

  Result<void> write(std::vector<Event> events, std::optional<std::string> position) override {
    std::vector<std::shared_ptr<const Event>> shared;
    shared.reserve(events.size());
    for (Event& event : events) {
      if (event.cluster.empty()) event.cluster = runtime_.cluster;
      if (event.host.empty()) event.host = runtime_.host;
      if (event.captured_at.nanoseconds == 0) event.captured_at = runtime_.clock.now();
      make_text_utf8(event);
      shared.push_back(std::make_shared<const Event>(std::move(event)));
    }
    const std::uint64_t count = shared.size();
    auto written =
        runtime_.journal.append_all(name_, std::move(shared), std::move(position), stop_);
    if (written) captured_ += count;
    return written;
  }
  std::optional<std::string> position() const override { return runtime_.journal.position(name_); }

  Json status() const {
    Json json = {{"captured", captured_.load()},
                 {"last_error", optional_json(error_.with([](const auto& e) { return e; }))}};
    const std::string own = own_status(*source_);
    if (!own.empty()) json["plugin_status"] = Json::parse(own, nullptr, false);
    return json;
  }
  std::uint64_t captured() const { return captured_; }

 private:
  void run(const std::stop_token& stop) noexcept {
    name_thread("source", name_);
    auto delay = std::chrono::milliseconds{500};
    while (!stop.stop_requested()) {
      auto ended = call(stop, false);
      if (stop.stop_requested()) return;
      if (!ended) {
        error_.with([&](auto& e) { e = printable(ended.error().message()); });
        runtime_.log.warning("SOURCE_FAILED", "a source ended with an error and is started again",
                             {{"source", name_}, {"reason", ended.error().message()}});
      }
      pause_until(stop, runtime_.clock.steady() + delay);
      delay = std::min(delay * 2, std::chrono::milliseconds{60'000});
    }
  }

  Result<void> call(const std::stop_token& stop, bool once) {
    stop_ = stop;
    return call_plugin("the plugin", ErrorKind::kPermanent,
                       [&] { return source_->run(*this, stop, once); });
  }

  const std::string name_;
  const std::unique_ptr<FreeSource> source_;
  const Runtime& runtime_;
  std::stop_token stop_;
  std::atomic<std::uint64_t> captured_ = 0;
  Guarded<std::optional<std::string>> error_;
  std::jthread thread_;
};

// ---- sources
// -----------------------------------------------------------------------------------------------------

SourceRun::SourceRun(std::string name, std::string fingerprint, std::string plugin)
    : name_(std::move(name)), fingerprint_(std::move(fingerprint)), plugin_(std::move(plugin)) {}
SourceRun::~SourceRun() { stop(std::chrono::steady_clock::now() + std::chrono::seconds{5}); }

Result<std::unique_ptr<SourceRun>> SourceRun::make(const LoadedSource& source,
                                                   const Runtime& runtime) try {
  const std::string& name = source.instance.name;
  const PluginContext context{name, runtime.cluster, runtime.log, runtime.clock};
  std::unique_ptr<SourceRun> run(new SourceRun(
      name, scriptorium::fingerprint(source.instance.table, source.plugin.file, runtime),
      source.plugin.descriptor->name));
  run->journal_ = &runtime.journal;
  if (source.plugin.descriptor->kind == PluginKind::kFreeSource) {
    auto made = create_free_source(source.plugin, source.instance.table, context);
    if (!made) return made.error();
    run->free_ = std::make_unique<FreeRun>(name, *std::move(made), runtime);
    return run;
  }
  auto adapter = create_spool_adapter(source.plugin, source.instance.table, context);
  if (!adapter) return adapter.error();
  run->adapter_ = *std::move(adapter);

  const SourceConfig& common = source.instance.common;
  auto opened =
      open_spool(runtime.opener, run->adapter_->spool_root(),
                 runtime.once ? Notifications{false, false} : SpoolCapture::wanted(common));
  if (!opened) {
    // What is invalid has its remedy in its own words.
    const bool says_why = opened.error().kind() == ErrorKind::kInvalidConfig;
    return Error{ErrorKind::kInvalidConfig,
                 "source." + name + ": spool " + opened.error().message() +
                     (says_why ? "" : "; is the path right, and may this user enter it?")};
  }
  if (common.capture == "fanotify" && !opened->fanotify_problem.empty()) {
    return Error{
        ErrorKind::kInvalidConfig,
        "source." + name + ": capture = \"fanotify\" is not possible: " + opened->fanotify_problem};
  }
  if (common.capture == "inotify" && !opened->inotify_problem.empty()) {
    return Error{
        ErrorKind::kInvalidConfig,
        "source." + name + ": capture = \"inotify\" is not possible: " + opened->inotify_problem};
  }
  if (auto names = opened->access->list("")) {
    std::vector<std::string> list;
    for (SpoolName& n : *names) list.push_back(std::move(n.name));
    if (auto fits = run->adapter_->check_root(list); !fits)
      return fits.error().with_context("source." + name);
  } else if (opened->access->fanotify_fd() < 0) {
    return Error{ErrorKind::kInvalidConfig,
                 "source." + name + ": the spool cannot be listed: " + names.error().message()};
  }
  std::unique_ptr<OwnerResolver> resolver = run->adapter_->make_resolver();
  SpoolCapture::Options options{name,
                                common,
                                {runtime.cluster, run->adapter_->scheduler(), runtime.host},
                                resolver != nullptr};
  if (runtime.crashes != nullptr) {
    options.around_parse = [crashes = runtime.crashes, who = "source." + name](
                               const SpoolEntry& entry, const auto& parse) {
      parse_noted(*crashes, who, entry, parse);
    };
  }
  run->capture_ =
      std::make_unique<SpoolCapture>(std::move(options), *run->adapter_, *std::move(opened),
                                     runtime.journal, runtime.log, runtime.clock);
  if (resolver != nullptr) {
    auto later = runtime.once || runtime.archives == nullptr
                     ? nullptr
                     : run->adapter_->make_late_owner_resolver();
    if (later != nullptr) {
      run->retry_ = std::make_unique<OwnerRetry>(name, std::move(later), runtime.journal,
                                                 *runtime.archives, runtime.log, runtime.clock);
    }
    OwnerStage::Options stage{name, std::chrono::seconds(common.resolve_timeout_seconds),
                              [capture = run->capture_.get()](const CaptureMark& mark) {
                                return capture->unchanged(mark);
                              },
                              [retry = run->retry_.get()] {
                                if (retry != nullptr) retry->ask_now();
                              }};
    run->owners_ = std::make_unique<OwnerStage>(std::move(stage), std::move(resolver),
                                                runtime.journal, runtime.log, runtime.clock);
  }
  return run;
} catch (...) {
  // check_root() and make_resolver() are a plugin's: on a reload its exception must not end the
  // daemon.
  return Error{ErrorKind::kInvalidConfig,
               "source." + source.instance.name + ": the plugin threw: " + thrown_text()};
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
  return owners_ != nullptr && journal_->unresolved_count(name_) > 0;
}
void SourceRun::rescan() {
  if (capture_ != nullptr) capture_->rescan();
}

std::uint64_t SourceRun::captured() const {
  return capture_ != nullptr ? capture_->status().captured : free_->captured();
}

std::string SourceRun::status_json() const {
  Json json = {{"plugin", plugin_}};
  if (free_ != nullptr) {
    json.update(free_->status());
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const CaptureStatus s = capture_->status();
  json["capture"] = s.capture_method;
  json["why_not_better"] = s.why_not_better.empty() ? Json(nullptr) : Json(s.why_not_better);
  json["spool_there"] = s.spool_there;
  json["captured"] = s.captured;
  json["captured_by"] = counts(s.by_method);
  json["incomplete"] = s.incomplete;
  json["malformed"] = s.malformed;
  json["superseding"] = s.superseding;
  json["missed"] = counts(s.missed);
  if (!json["missed"].contains("vanished")) json["missed"]["vanished"] = 0;
  json["ignored"] = counts(s.ignored);
  json["duplicates"] = s.duplicates;
  json["overflows"] = s.overflows;
  json["scans"] = s.scans;
  json["pending"] = s.pending;
  json["pending_bytes"] = s.pending_bytes;
  json["waiting_for_room"] = s.waiting_for_room;
  json["lag_seconds"] = s.lag_seconds ? Json(thousandths(*s.lag_seconds)) : Json(nullptr);
  json["close_to_durable_seconds"] = histogram_json(s.close_to_durable);
  if (owners_ != nullptr) {
    const OwnerStage::Status o = owners_->status();
    json["owners"] = {
        {"verified", o.verified},
        {"unverified", counts(o.unverified)},
        {"waiting", journal_->unresolved_count(name_)},
        {"queries", o.queries},
        {"failed_queries", o.failed_queries},
        {"last_error", optional_json(o.last_error)},
        {"last_hour", {{"decided", o.last_hour.decided}, {"unverified", o.last_hour.unverified}}}};
    if (retry_ != nullptr) json["owners"]["later"] = Json::parse(owner_retry_json(*retry_));
    if (!o.load.questions.empty()) {
      json["owners"]["scheduler_load"] = {{"share", std::round(o.load.share * 1e5) / 1e5},
                                          {"questions", counts(o.load.questions)}};
    }
  }
  json["gaps"] = s.gaps ? gaps_json(*s.gaps) : Json(nullptr);
  json["last_error"] = optional_json(s.last_error);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// ---- sinks
// -------------------------------------------------------------------------------------------------------

SinkRun::SinkRun(const LoadedSink& sink, std::string fingerprint, const Runtime& runtime)
    : name_(sink.instance.name),
      fingerprint_(std::move(fingerprint)),
      plugin_(sink.plugin.descriptor->name),
      config_(sink.instance.common),
      runtime_(runtime) {}
SinkRun::~SinkRun() = default;

Result<std::unique_ptr<SinkRun>> SinkRun::make(const LoadedSink& sink, const Runtime& runtime) {
  const PluginContext context{sink.instance.name, runtime.cluster, runtime.log, runtime.clock};
  auto made = create_sink(sink.plugin, sink.instance.table, context);
  if (!made) return made.error();
  std::unique_ptr<SinkRun> run(new SinkRun(
      sink, scriptorium::fingerprint(sink.instance.table, sink.plugin.file, runtime), runtime));
  run->sink_ = *std::move(made);
  return run;
}

Result<void> SinkRun::start() {
  const auto started =
      call_plugin("the plugin", ErrorKind::kTransient, [&] { return sink_->start(); });
  if (!started) {
    if (started.error().kind() == ErrorKind::kInvalidConfig)
      return started.error().with_context("sink." + name_);
    runtime_.log.warning("SINK_NOT_READY",
                         "a destination is not ready; its events wait in the journal until it is",
                         {{"sink", name_}, {"reason", started.error().message()}});
  }
  auto id = runtime_.journal.register_sink(name_, config_.kinds);
  if (!id) return id.error().with_context("sink." + name_);
  std::random_device seed;
  dispatcher_ = std::make_unique<Dispatcher>(
      name_, config_, *sink_, runtime_.journal, *id, runtime_.log, runtime_.clock,
      (std::uint64_t{seed()} << 32) | seed(), runtime_.crashes);
  dispatcher_->start();
  return {};
}

bool SinkRun::stop(SteadyTime deadline) {
  return dispatcher_ == nullptr || dispatcher_->stop(deadline);
}
bool SinkRun::idle() const { return dispatcher_ == nullptr || dispatcher_->idle(); }
bool SinkRun::at_rest() const {
  return idle() ||
         (dispatcher_->status().next_attempt_in_ms && dispatcher_->status().in_flight == 0);
}
void SinkRun::wake() {
  if (dispatcher_ != nullptr) dispatcher_->wake();
}
Dispatcher::Status SinkRun::dispatcher_status() const {
  return dispatcher_ != nullptr ? dispatcher_->status() : Dispatcher::Status{};
}

std::string SinkRun::status_json(const Journal::SinkState& state) const {
  const Dispatcher::Status s = dispatcher_status();
  Json json = {{"plugin", plugin_},
               {"acknowledged", s.acknowledged},
               {"acknowledged_total", state.acknowledged},
               {"attempts", s.attempts},
               {"in_flight", s.in_flight},
               {"retries", counts(s.retries)},
               {"dead", state.dead},
               {"waiting", state.waiting},
               {"waiting_bytes", state.waiting_bytes},
               {"parked", state.parked},
               {"refill_from_archive", state.in_archive}};
  json["oldest_waiting_seconds"] =
      state.oldest_waiting
          ? Json(thousandths(static_cast<double>(runtime_.clock.now().nanoseconds -
                                                 state.oldest_waiting->nanoseconds) /
                             1e9))
          : Json(nullptr);
  json["captured_to_acknowledged_seconds"] = histogram_json(s.latency);
  json["next_attempt_in_ms"] = optional_json(s.next_attempt_in_ms);
  json["last_error"] = optional_json(s.last_error);
  json["last_success"] = optional_time(s.last_success ? s.last_success : state.last_success);
  const std::string own = own_status(*sink_);
  if (!own.empty()) json["plugin_status"] = Json::parse(own, nullptr, false);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string owner_retry_json(const OwnerRetry& retry) {
  const OwnerRetry::Status s = retry.status();
  return Json{{"waiting", s.waiting},
              {"asked", s.asked},
              {"verified", s.verified},
              {"rounds_done", s.rounds_done},
              {"last_error", s.last_error.empty() ? Json(nullptr) : Json(s.last_error)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string fill_json(const Journal::Fill& fill) {
  static constexpr const char* kStates[] = {"counting", "filling", "done"};
  return Json{{"sink", fill.sink},
              {"archive", fill.archive},
              {"since", fill.since.nanoseconds > 0
                            ? Json(format_rfc3339(fill.since, TimePrecision::kSeconds))
                            : Json(nullptr)},
              {"state", kStates[std::clamp(static_cast<int>(fill.state), 0, 2)]},
              {"total", fill.total},
              {"sent", fill.sent},
              {"present", fill.present},
              {"not_understood", fill.skipped}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::string> shared_directories(
    const std::vector<std::pair<std::string, std::vector<std::string>>>& by_sink) {
  struct Place {
    std::string sink;
    std::string path;  // ends with '/'
  };
  std::vector<Place> places;
  std::vector<std::string> found;
  for (const auto& [sink, directories] : by_sink) {
    for (const std::string& directory : directories) {
      std::error_code error;
      std::string path = std::filesystem::weakly_canonical(directory, error).string();
      if (error) path = directory;
      if (!path.ends_with('/')) path += '/';
      for (const Place& other : places) {
        if (other.sink == sink) continue;
        if (path == other.path) {
          found.push_back("[sink." + other.sink + "] and [sink." + sink + "] both write into " +
                          directory + "; give each a directory of its own");
        } else if (path.starts_with(other.path) || other.path.starts_with(path)) {
          const bool inner = path.starts_with(other.path);
          found.push_back("[sink." + (inner ? sink : other.sink) +
                          "] writes into a directory within that of [sink." +
                          (inner ? other.sink : sink) + "]: " + (inner ? path : other.path) +
                          "; give each a directory of its own");
        }
      }
      places.push_back({sink, std::move(path)});
    }
  }
  return found;
}

namespace {

void add_over_share(Json& journal, const Journal::Usage& usage) {
  std::uint64_t waiting = 0;
  Json list = Json::array();
  for (const Journal::OverShare& user : usage.over_share) {
    waiting += user.waiting;
    list.push_back({{"user", user.user.empty() ? Json(nullptr) : Json(printable(user.user, 64))},
                    {"user_id", user.user_id.empty() ? Json(nullptr) : Json(user.user_id)},
                    {"bytes", user.bytes},
                    {"waiting", user.waiting},
                    {"waiting_bytes", user.waiting_bytes}});
  }
  journal["user_share_bytes"] = usage.user_share_bytes;
  journal["over_share"] = std::move(list);
  journal["over_share_waiting"] = waiting;
}

}  // namespace

std::string render_status(const Journal& journal,
                          const std::vector<std::unique_ptr<SourceRun>>& sources,
                          const std::vector<std::unique_ptr<SinkRun>>& sinks, double uptime_seconds,
                          const LastReload& reload, const std::string& privileges_json) {
  const Journal::Usage usage = journal.usage();
  std::string last_reload = reload.when;
  if (!last_reload.empty())
    last_reload += reload.refused.empty() ? " ok" : " refused: " + reload.refused;
  Json json = {{"version", SCRIPTORIUM_VERSION},
               {"uptime_seconds", thousandths(uptime_seconds)},
               {"last_reload", last_reload.empty() ? Json(nullptr) : Json(last_reload)},
               {"reload_refused", reload.refused.empty() ? Json(nullptr) : Json(reload.refused)},
               {"privileges", Json::parse(privileges_json)}};
  json["sources"] = Json::object();
  for (const auto& source : sources)
    json["sources"][source->name()] = Json::parse(source->status_json());
  json["journal"] = {
      {"events", usage.events},
      {"bytes", usage.bytes},
      {"wal_bytes", usage.wal_bytes},
      {"limit_bytes", usage.limit_bytes},
      {"full", usage.full},
      {"last_error", usage.last_error.empty() ? Json(nullptr) : Json(usage.last_error)}};
  add_over_share(json["journal"], usage);
  json["sinks"] = Json::object();
  for (const Journal::SinkState& state : usage.sinks) {
    const auto run = std::find_if(sinks.begin(), sinks.end(),
                                  [&](const auto& s) { return s->name() == state.name; });
    if (run != sinks.end()) {
      json["sinks"][state.name] = Json::parse((*run)->status_json(state));
    } else {
      json["sinks"][state.name] = {{"plugin", nullptr},
                                   {"configured", false},
                                   {"waiting", state.waiting},
                                   {"waiting_bytes", state.waiting_bytes},
                                   {"refill_from_archive", state.in_archive},
                                   {"acknowledged_total", state.acknowledged},
                                   {"dead", state.dead}};
    }
  }
  for (const Journal::Fill& fill : journal.fills()) {
    if (json["sinks"].contains(fill.sink))
      json["sinks"][fill.sink]["fill"] = Json::parse(fill_json(fill));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace scriptorium
