#include "core/daemon/status_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/text.h"

namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename Map>
Json counts(const Map& map) {
  Json json = Json::object();
  for (const auto& [key, count] : map) json[key] = count;
  return json;
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

double thousandths(double value) { return std::round(value * 1000) / 1000; }

// {"count", "sum", "buckets": [{"le", "count"}]}. As in Prometheus, each bucket counts everything
// below its bound.
Json histogram_json(const Histogram& histogram) {
  Json buckets = Json::array();
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < Histogram::kBounds.size(); ++i) {
    below += histogram.in_bucket(i);
    buckets.push_back({{"le", Histogram::kBounds[i]}, {"count", below}});
  }
  return {{"count", histogram.count()}, {"sum", histogram.sum()}, {"buckets", std::move(buckets)}};
}

void add_plugin_status(Json& json, const PluginStatus& own) {
  if (own.thrown) {
    json["plugin_status"] = {{"error", *own.thrown}};
  } else if (!own.json.empty()) {
    json["plugin_status"] = Json::parse(own.json, nullptr, false);
  }
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
          {"highest", or_null(gaps.highest)},
          {"queries", gaps.queries},
          {"last_error", or_null(gaps.last_error)}};
}

Json retry_json(const OwnerRetry::Status& status) {
  return {{"waiting", status.waiting},
          {"asked", status.asked},
          {"verified", status.verified},
          {"rounds_done", status.rounds_done},
          {"last_error", or_null(status.last_error)}};
}

Json owners_json(const SpoolSourceStatus::Owners& owners) {
  const OwnerStage::Status& o = owners.status;
  Json json = {
      {"verified", o.verified},
      {"unverified", counts(o.unverified)},
      {"waiting", owners.waiting},
      {"queries", o.queries},
      {"failed_queries", o.failed_queries},
      {"last_error", or_null(o.last_error)},
      {"last_hour", {{"decided", o.last_hour.decided}, {"unverified", o.last_hour.unverified}}}};
  if (owners.later) json["later"] = retry_json(*owners.later);
  if (!o.load.questions.empty()) {
    json["scheduler_load"] = {{"share", std::round(o.load.share * 1e5) / 1e5},
                              {"questions", counts(o.load.questions)}};
  }
  return json;
}

void add_source(Json& json, const SpoolSourceStatus& source) {
  const CaptureStatus& s = source.capture;
  json["capture"] = s.capture_method;
  json["why_not_better"] = or_null(s.why_not_better);
  json["spool_there"] = s.spool_there;
  json["captured"] = s.captured;
  json["captured_by"] = counts(s.by_method);
  json["redactions"] = counts(s.redactions);
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
  if (source.owners) json["owners"] = owners_json(*source.owners);
  json["gaps"] = s.gaps ? gaps_json(*s.gaps) : Json(nullptr);
  json["last_error"] = or_null(s.last_error);
}

void add_source(Json& json, const FreeSourceStatus& source) {
  json["captured"] = source.captured;
  json["redactions"] = counts(source.redactions);
  json["last_error"] = or_null(source.last_error);
  add_plugin_status(json, source.own);
}

Json source_json(const SourceStatus& source) {
  Json json = {{"plugin", source.plugin}};
  std::visit([&](const auto& kind) { add_source(json, kind); }, source.kind);
  return json;
}

// A sink of this run.
Json running_sink_json(const SinkStatus& sink, const Journal::SinkState& state,
                       const DaemonStatus& status) {
  const Dispatcher::Status& s = sink.dispatcher;
  const auto seconds_since = [&](Timestamp time) {
    return thousandths(static_cast<double>(status.now.nanoseconds - time.nanoseconds) / 1e9);
  };
  Json call;
  if (sink.call_under_way) {
    const std::chrono::duration<double> time = status.steady_now - sink.call_under_way->since;
    call = {{"name", sink.call_under_way->name}, {"seconds", thousandths(time.count())}};
  }
  const auto last_success = s.last_success ? s.last_success : state.last_success;
  Json json = {{"plugin", sink.plugin},
               {"ready", s.ready},
               {"not_ready", or_null(s.not_ready)},
               {"call_under_way", std::move(call)},
               {"acknowledged", s.acknowledged},
               {"acknowledged_total", state.acknowledged},
               {"attempts", s.attempts},
               {"in_flight", s.in_flight},
               {"retries", counts(s.retries)},
               {"dead", state.dead},
               {"waiting", state.waiting},
               {"waiting_bytes", state.waiting_bytes},
               {"parked", state.parked},
               {"refill_from_archive", state.in_archive},
               {"oldest_waiting_seconds",
                state.oldest_waiting ? Json(seconds_since(*state.oldest_waiting)) : Json(nullptr)},
               {"captured_to_acknowledged_seconds", histogram_json(s.latency)},
               {"next_attempt_in_ms", or_null(s.next_attempt_in_ms)},
               {"last_error", or_null(s.last_error)},
               {"last_success",
                last_success ? Json(format_rfc3339(*last_success, TimePrecision::kMilliseconds))
                             : Json(nullptr)}};
  add_plugin_status(json, sink.own);
  return json;
}

// A sink that only the journal knows.
Json unconfigured_sink_json(const Journal::SinkState& state) {
  return {{"plugin", nullptr},
          {"configured", false},
          {"waiting", state.waiting},
          {"waiting_bytes", state.waiting_bytes},
          {"refill_from_archive", state.in_archive},
          {"acknowledged_total", state.acknowledged},
          {"dead", state.dead}};
}

Json fill_object(const Journal::Fill& fill) {
  static constexpr const char* kStates[] = {"counting", "filling", "done", "stopped"};
  return {{"sink", fill.sink},
          {"archive", fill.archive},
          {"since", fill.since.nanoseconds > 0
                        ? Json(format_rfc3339(fill.since, TimePrecision::kSeconds))
                        : Json(nullptr)},
          {"state", kStates[std::clamp(static_cast<int>(fill.state), 0, 3)]},
          {"total", fill.total},
          {"sent", fill.sent},
          {"present", fill.present},
          {"not_understood", fill.skipped}};
}

Json sinks_json(const DaemonStatus& status) {
  Json json = Json::object();
  for (const Journal::SinkState& state : status.journal.sinks) {
    const auto sink = std::find_if(status.sinks.begin(), status.sinks.end(),
                                   [&](const auto& s) { return s.name == state.name; });
    json[state.name] = sink != status.sinks.end() ? running_sink_json(*sink, state, status)
                                                  : unconfigured_sink_json(state);
  }
  for (const Journal::Fill& fill : status.fills) {
    if (json.contains(fill.sink)) json[fill.sink]["fill"] = fill_object(fill);
  }
  return json;
}

Json journal_json(const Journal::Usage& usage) {
  std::uint64_t over_share_waiting = 0;
  Json over_share = Json::array();
  for (const Journal::OverShare& user : usage.over_share) {
    over_share_waiting += user.waiting;
    over_share.push_back(
        {{"user", user.user.empty() ? Json(nullptr) : Json(printable(user.user, 64))},
         {"user_id", or_null(user.user_id)},
         {"bytes", user.bytes},
         {"waiting", user.waiting},
         {"waiting_bytes", user.waiting_bytes}});
  }
  return {{"events", usage.events},
          {"bytes", usage.bytes},
          {"wal_bytes", usage.wal_bytes},
          {"limit_bytes", usage.limit_bytes},
          {"full", usage.full},
          {"last_error", or_null(usage.last_error)},
          {"user_share_bytes", usage.user_share_bytes},
          {"over_share", std::move(over_share)},
          {"over_share_waiting", over_share_waiting}};
}

}  // namespace

std::string status_json(const DaemonStatus& status) {
  const LastReload& reload = status.last_reload;
  std::string last_reload = reload.when;
  if (!last_reload.empty())
    last_reload += reload.refused.empty() ? " ok" : " refused: " + reload.refused;
  Json sources = Json::object();
  for (const SourceStatus& source : status.sources) sources[source.name] = source_json(source);
  const Json mail = Json::parse(status.mail_json, nullptr, false);
  return text_of({{"version", SCRIPTORIUM_VERSION},
                  {"uptime_seconds", thousandths(status.uptime_seconds)},
                  {"last_reload", or_null(last_reload)},
                  {"reload_refused", or_null(reload.refused)},
                  {"privileges", Json::parse(status.privileges_json)},
                  {"sources", std::move(sources)},
                  {"journal", journal_json(status.journal)},
                  {"sinks", sinks_json(status)},
                  {"mail", mail.is_object() ? mail : Json(nullptr)}});
}

std::string owner_retry_json(const OwnerRetry::Status& status) {
  return text_of(retry_json(status));
}

std::string fill_json(const Journal::Fill& fill) { return text_of(fill_object(fill)); }

}  // namespace scriptorium
