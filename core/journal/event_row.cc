#include "core/journal/event_row.h"

#include <algorithm>
#include <optional>

#include "core/base/number.h"
#include "core/base/sha256.h"
#include "core/base/text.h"

namespace scriptorium::journal {
namespace {

// Members of a locator end with NUL, which no text of an event contains. An optional member is
// empty if it is absent; otherwise it begins with '='.
void put(std::string& text, std::string_view member) { (text += member) += '\0'; }
void put_optional(std::string& text, const std::optional<std::string>& member) {
  if (member) text += '=';
  put(text, member ? std::string_view(*member) : std::string_view{});
}
bool take(std::string_view& text, std::string& member) {
  const auto end = text.find('\0');
  if (end == std::string_view::npos) return false;
  member = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}
bool take(std::string_view& text, std::optional<std::string>& member) {
  std::string value;
  if (!take(text, value)) return false;
  member.reset();
  if (value.empty()) return true;
  if (value.front() != '=') return false;
  member = value.substr(1);
  return true;
}

std::optional<std::string> without_nul(std::optional<std::string> text) {
  if (text) std::erase(*text, '\0');
  return text;
}

}  // namespace

std::string encode_meta(const Event& event) {
  return event_json(
      event, {.script_text = false, .environment = false, .exact_times = true, .indent = -1});
}

std::string content_key(const EventFile& file) {
  if (file.sha256.size() == 64) {
    if (auto key = hex_decode(file.sha256)) return *std::move(key);
  }
  return hex_decode(sha256_hex(file.bytes ? std::string_view(*file.bytes) : std::string_view{}))
      .value_or(std::string{});
}

bool belongs_in_pack(const EventFile& file) {
  return file.bytes && file.bytes->size() <= kLargestInPack;
}

std::string pack_bytes(const Event& event) {
  std::string bytes;
  for (const EventFile& file : event.files) {
    if (belongs_in_pack(file)) bytes += *file.bytes;
  }
  return bytes;
}

std::string encode_blobs(const std::vector<std::int64_t>& blobs) {
  std::string text;
  for (const std::int64_t blob : blobs) {
    if (!text.empty()) text += ',';
    text += std::to_string(blob);
  }
  return text;
}

std::vector<std::int64_t> decode_blobs(std::string_view text) {
  std::vector<std::int64_t> blobs;
  while (const auto blob = take_number<std::int64_t>(text)) {
    blobs.push_back(*blob);
    if (!text.empty()) text.remove_prefix(1);
  }
  return blobs;
}

std::string encode_locator(const Event& event) {
  std::string text;
  put(text, std::to_string(event.time.nanoseconds));
  put(text, event.cluster);
  put(text, event.scheduler);
  put(text, event.host);
  put_optional(text, without_nul(event.job.name));
  put_optional(text, without_nul(event.job.account));
  put_optional(
      text, without_nul(event.job.array ? std::optional(event.job.array->job_id) : std::nullopt));
  put_optional(text, without_nul(event.user.name));
  put_optional(text, without_nul(event.user.id));
  put(text, std::string_view(event.user.verified ? "1" : "0"));
  return text;
}

bool decode_locator(std::string_view text, Event& event) {
  std::string time, verified;
  std::optional<std::string> array;
  if (!take(text, time) || !take(text, event.cluster) || !take(text, event.scheduler) ||
      !take(text, event.host) || !take(text, event.job.name) || !take(text, event.job.account) ||
      !take(text, array) || !take(text, event.user.name) || !take(text, event.user.id) ||
      !take(text, verified)) {
    return false;
  }
  const auto nanoseconds = parse_number<std::int64_t>(time);
  if (!nanoseconds) return false;
  event.time = {*nanoseconds};
  if (array)
    event.job.array = JobArray{.job_id = *std::move(array), .task_id = {}, .task_spec = {}};
  event.user.verified = verified == "1";
  return true;
}

Event for_owner(const Event& event) {
  Event result;
  result.id = event.id;
  result.kind = event.kind;
  result.time = event.time;
  result.captured_at = event.captured_at;
  result.complete = event.complete;
  result.cluster = event.cluster;
  result.scheduler = event.scheduler;
  result.host = event.host;
  result.job.id = event.job.id;
  result.user = event.user;
  if (const EventFile* script = event.file("script")) {
    result.files.push_back(*script);
    if (script->size > kShortScript) result.files.back().bytes.reset();
  }
  return result;
}

std::string charged_to(const Event& event, SinkId target) {
  if (target != 0 && target != kNoSink) return "";
  return event.user.verified ? event.user.id.value_or("") : "";
}

Event with_resolution(const Event& original, const Event& resolved) {
  Event event = original;
  event.user = resolved.user;
  const auto take = [](auto& into, const auto& from) {
    if (from) into = from;
  };
  // The scheduler's answer contains the same secret as the text from the spool, and redaction
  // cannot recognize it any more: copies are only known during capture.
  const auto take_text = [&](std::string_view where, auto& into, const auto& from) {
    const bool was_redacted =
        std::any_of(original.redactions.begin(), original.redactions.end(),
                    [&](const Redaction& r) { return r.where == where && !r.kept; });
    if (!was_redacted) take(into, from);
  };
  take_text("job.name", event.job.name, resolved.job.name);
  take_text("job.account", event.job.account, resolved.job.account);
  take_text("job.work_dir", event.job.work_dir, resolved.job.work_dir);
  take(event.job.partition, resolved.job.partition);
  take(event.job.qos, resolved.job.qos);
  take(event.job.array, resolved.job.array);
  take(event.job.het, resolved.job.het);
  take(event.job.submitted_at, resolved.job.submitted_at);
  for (const Redaction& found : resolved.redactions) {
    const bool is_told = std::any_of(
        event.redactions.begin(), event.redactions.end(),
        [&](const Redaction& r) { return r.rule == found.rule && r.where == found.where; });
    if (!is_told) event.redactions.push_back(found);
  }
  for (const std::string& member : resolved.lossy) {
    if (std::find(event.lossy.begin(), event.lossy.end(), member) == event.lossy.end())
      event.lossy.push_back(member);
  }
  return event;
}

}  // namespace scriptorium::journal
