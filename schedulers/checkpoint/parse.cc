#include "schedulers/checkpoint/parse.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/base/ascii.h"
#include "core/base/sha256.h"
#include "core/base/time.h"

namespace scriptorium::checkpoint_records {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::array kActions = {"made", "failed", "restarted", "restart_failed", "ended"};
constexpr std::array kTexts = {"engine", "engine_version", "image_path"};
constexpr std::array kCounts = {"root_pid", "processes", "image_bytes", "tries"};
constexpr std::array kSeconds = {"duration_seconds", "frozen_seconds"};
constexpr int kMostExitCode = 255;
constexpr std::size_t kMostReason = 40;
constexpr std::size_t kMostJobId = 40;
constexpr std::size_t kSha256Digits = 64;

Error wrong(const std::string& what) {
  return Error{ErrorKind::kPermanent, what + " is missing or not as it must be"};
}

// "" = it is missing or not a text.
std::string text_at(const Json& json, const char* name) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= kMostReason &&
         std::ranges::all_of(text, [](char c) { return is_lower(c) || c == '_'; });
}

// "4711", "4711_5"
bool is_job_id(std::string_view text) {
  if (text.size() > kMostJobId) return false;
  std::string_view rest = text;
  const std::string_view first = take_until(rest, '_');
  return is_all_digits(first) && (first.size() == text.size() || is_all_digits(rest));
}

bool is_sha256(std::string_view text) {
  return text.size() == kSha256Digits &&
         std::ranges::all_of(text, [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

bool is_exit_code(const Json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= kMostExitCode;
}

// The members that docs/schema/job-checkpoint-1.schema.json has, each of its type.
Result<Json> checkpoint_of(const Json& json) {
  if (!json.is_object()) return wrong("checkpoint");
  Json known;
  const auto take = [&](const char* name, const auto& is_good) {
    const auto found = json.find(name);
    if (found == json.end()) return true;
    known[name] = *found;
    return static_cast<bool>(is_good(*found));
  };
  const std::string action = text_at(json, "action");
  if (std::ranges::find(kActions, action) == kActions.end()) return wrong("checkpoint.action");
  known["action"] = action;
  const auto is_text = [](const Json& v) {
    return v.is_string() && !v.get_ref<const std::string&>().empty();
  };
  const auto is_count = [](const Json& v) {
    return v.is_number_unsigned() && v.get<std::uint64_t>() > 0;
  };
  const auto is_seconds = [](const Json& v) { return v.is_number() && v.get<double>() >= 0; };
  for (const char* name : kTexts) {
    if (!take(name, is_text)) return wrong(name);
  }
  for (const char* name : kCounts) {
    if (!take(name, is_count)) return wrong(name);
  }
  for (const char* name : kSeconds) {
    if (!take(name, is_seconds)) return wrong(name);
  }
  if (!take("manifest_sha256",
            [](const Json& v) { return v.is_string() && is_sha256(v.get<std::string>()); }))
    return wrong("manifest_sha256");
  if (!take("runs_on", [&](const Json& v) { return v.is_boolean() && action == "made"; }))
    return wrong("runs_on");
  const bool has_reason = action == "failed" || action == "restart_failed";
  if (!take("reason",
            [](const Json& v) { return v.is_string() && is_word(v.get<std::string>()); }) ||
      known.contains("reason") != has_reason)
    return wrong("reason");
  if (!take("exit_code", is_exit_code) || known.contains("exit_code") != (action == "ended"))
    return wrong("exit_code");
  return known;
}

// What both kinds of records have; neither whose it is, nor when and where, nor the id.
Result<Event> event_of(const Json& json, const std::string& cluster) {
  const auto format = json.is_object() ? json.find("format") : json.end();
  if (format == json.end() || *format != kFormat) return wrong("format");
  Event event;
  event.kind = "job.checkpoint";
  event.capture = "checkpoint";
  event.cluster = cluster;
  event.scheduler = text_at(json, "scheduler");
  if (!is_word(event.scheduler)) return wrong("scheduler");
  event.job.id = text_at(json, "job");
  if (!is_job_id(event.job.id)) return wrong("job");
  const auto checkpoint = json.find("checkpoint");
  auto known = checkpoint_of(checkpoint == json.end() ? Json{} : *checkpoint);
  if (!known) return known.error();
  event.extra_json = Json{{"checkpoint", *std::move(known)}}.dump();
  return event;
}

Result<Event> event_of_service(const Json& json, std::string_view text,
                               const std::string& cluster) {
  auto event = event_of(json, cluster);
  if (!event) return event;
  const auto time = parse_rfc3339(text_at(json, "time"));
  if (!time) return wrong("time");
  event->time = *time;
  event->host = text_at(json, "node");
  if (event->host.empty()) return wrong("node");
  const auto user = json.find("user");
  const std::string name = user == json.end() ? std::string{} : text_at(*user, "name");
  const std::string id = user == json.end() ? std::string{} : text_at(*user, "id");
  if (name.empty() || !is_all_digits(id)) return wrong("user");
  // The service had both from the kernel: of the request's file, and of the job's control group.
  event->user = {.name = name, .id = id, .group_name = {}, .group_id = {}, .verified = true};
  event->id = event_id({cluster, event->scheduler, event->kind, event->job.id, sha256_hex(text)});
  return event;
}

Result<Event> event_of_user(const Json& json, std::string_view text, const std::string& cluster,
                            const FileFacts& file) {
  auto event = event_of(json, cluster);
  if (!event) return event;
  event->time = file.changed;
  const std::string uid = std::to_string(file.uid);
  event->user = {.name = file.user,
                 .id = uid,
                 .group_name = {},
                 .group_id = {},
                 .verified = false,
                 .unverified_reason = "a program of this user wrote it"};
  event->id = event_id(
      {cluster, event->scheduler, event->kind, event->job.id, "uid " + uid, sha256_hex(text)});
  return event;
}

}  // namespace

Result<Event> parse_record(std::string_view text, const std::string& cluster) try {
  if (text.size() > kMostRecordBytes) return wrong("its end");
  return event_of_service(Json::parse(text), text, cluster);
} catch (const Json::exception& e) {
  return Error{ErrorKind::kPermanent, e.what()};
}

Result<Event> parse_user_record(std::string_view text, const std::string& cluster,
                                const FileFacts& file) try {
  if (text.size() > kMostRecordBytes) return wrong("its end");
  return event_of_user(Json::parse(text), text, cluster, file);
} catch (const Json::exception& e) {
  return Error{ErrorKind::kPermanent, e.what()};
}

}  // namespace scriptorium::checkpoint_records
