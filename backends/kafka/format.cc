#include "backends/kafka/format.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/api/kit/text_variables.h"
#include "core/base/ascii.h"
#include "core/base/text.h"

namespace scriptorium::kafka {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEventSchema = "scriptorium.event/1";
constexpr const char* kEventSchemaUri =
    "https://scriptorium.invalid/schema/event-1.schema.json";  // its "$id"
// The most that surrounds a message and a header (record format 2: lengths and differences, each
// a varint).
constexpr std::size_t kMessageFrame = 48;
constexpr std::size_t kHeaderFrame = 10;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}
std::string quote(std::string_view text) { return dump(Json(std::string(text))); }

// Digits as serde's chrono writes them: 0, 3, 6 or 9.
TimePrecision shortest_precision(Timestamp time) {
  if (time.nanoseconds % kSecond == 0) return TimePrecision::kSeconds;
  if (time.nanoseconds % 1'000'000 == 0) return TimePrecision::kMilliseconds;
  return time.nanoseconds % 1000 == 0 ? TimePrecision::kMicroseconds : TimePrecision::kNanoseconds;
}

std::string text_of(const EventFile& file) {
  return file.bytes == nullptr ? std::string{} : to_utf8_lossy(*file.bytes);
}

bool knows_variables(const Event& event) {
  const EventFile* file = event.file("environment");
  return file != nullptr && file->bytes != nullptr &&
         event.environment_format == EnvironmentFormat::kNulEnded;
}

bool is_record(const EventFile& file) {
  return file.name != "script" && file.name != "environment";
}

std::string sarchive_environment(const Event& event) {
  Json::object_t members;
  Json::object_t::Container& list = members;  // its own operator[] looks through all that are there
  if (knows_variables(event)) {
    const TextVariables variables = text_variables(*event.file("environment")->bytes);
    for (const Variable& v : variables.list)
      list.emplace_back(std::string(v.name), std::string(v.value));
    return dump(Json(std::move(members)));
  }
  // A scheduler that keeps records of a job instead of its environment (TORQUE's .JB and .TA): by
  // file name, as there.
  for (const EventFile& f : event.files) {
    if (is_record(f) && f.bytes != nullptr) list.emplace_back(f.name, text_of(f));
  }
  return list.empty() ? "null" : dump(Json(std::move(members)));
}

// Records that belong into the message, but that the archive that the event comes from does not
// keep. "record,other"; "" = none.
std::string sarchive_lacks(const Event& event) {
  std::string names;
  if (knows_variables(event)) return names;
  for (const EventFile& f : event.files) {
    if (is_record(f) && f.bytes == nullptr) names += (names.empty() ? "" : ",") + f.name;
  }
  return names;
}

std::string sarchive_value(const Event& event) {
  const EventFile* script = event.file("script");
  return R"({"id":)" + quote(to_utf8_lossy(event.job.id)) + R"(,"timestamp":")" +
         format_rfc3339(event.captured_at, shortest_precision(event.captured_at)) +
         R"(","cluster":)" + quote(event.cluster) + R"(,"script":)" +
         quote(script == nullptr ? std::string{} : text_of(*script)) + R"(,"environment":)" +
         sarchive_environment(event) + "}";
}

// A segment of a URI's path.
std::string percent_encoded(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~') {
      result += c;
    } else {
      result += '%';
      result += kHex[byte >> 4U];
      result += kHex[byte & 15U];
    }
  }
  return result;
}

// The attributes of CloudEvents 1.0, in the order of its specification.
std::vector<Header> cloud_attributes(const Event& event, const std::optional<std::string>& key) {
  std::vector<Header> list = {
      {"specversion", "1.0"},
      {"id", event.id},
      {"source", "/cluster/" + percent_encoded(event.cluster) + "/" +
                     percent_encoded(event.scheduler) + "/" + percent_encoded(event.host)},
      {"type", "scriptorium." + event.kind + ".v1"},
      {"time", format_rfc3339(event.time, TimePrecision::kMilliseconds)},
  };
  if (!event.job.id.empty()) list.emplace_back("subject", to_utf8_lossy(event.job.id));
  list.emplace_back("dataschema", kEventSchemaUri);
  if (key && !key->empty()) list.emplace_back("partitionkey", *key);
  return list;
}

std::string field_value(const Event& event, std::string_view field) {
  if (field == "cluster") return event.cluster;
  if (field == "scheduler") return event.scheduler;
  if (field == "kind") return event.kind;
  if (field == "job_id") return event.job.id;
  if (field == "event_id") return event.id;
  if (field == "host") return event.host;
  const CivilDate date = civil_date(event.time);
  if (field == "year") return date.year;
  if (field == "month") return date.month;
  return date.day;
}

void replace_bytes(Event& event, std::string_view name, std::string bytes) {
  const auto found = std::ranges::find(event.files, name, &EventFile::name);
  if (found != event.files.end())
    found->bytes = make_bytes(std::move(bytes));  // size and sha256 stay those of the whole
}

// How many bytes a character's beginning takes in JSON.
std::size_t escaped_size(char c) {
  switch (c) {
    case '"':
    case '\\':
    case '\b':
    case '\f':
    case '\n':
    case '\r':
    case '\t': return 2;
    default: return static_cast<unsigned char>(c) < 0x20 ? 6 : 1;
  }
}

// The longest beginning that ends between two characters and takes at most `budget` bytes in JSON.
std::string_view fitting_prefix(std::string_view text, std::size_t budget) {
  std::size_t used = 0;
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    used += escaped_size(text[i]);
    if (used > budget) break;
    const bool next_begins =
        i + 1 == text.size() || (static_cast<unsigned char>(text[i + 1]) & 0xC0U) != 0x80U;
    if (next_begins) end = i + 1;
  }
  return text.substr(0, end);
}

// The variables without the largest, in their order, so that they take at most `budget` bytes in
// JSON.
std::string fitting_variables(std::string_view environment, std::size_t budget) {
  struct Entry {
    std::string_view text;
    std::size_t size = 0;
    bool keep = true;
  };
  std::vector<Entry> entries;
  std::size_t sum = 0;
  for (const Variable& v : split_environment(environment)) {
    std::size_t size = 6;  // quotes, colon, comma
    for (const std::string_view part : {v.name, v.value}) {
      // U+FFFD for what is not UTF-8: three bytes for one.
      for (const char c : part) size += static_cast<unsigned char>(c) < 0x80 ? escaped_size(c) : 3;
    }
    const auto at = static_cast<std::size_t>(v.name.data() - environment.data());
    const std::size_t length =
        v.value.data() == nullptr ? v.name.size() : v.name.size() + 1 + v.value.size();
    entries.push_back({environment.substr(at, length), size});
    sum += size;
  }
  std::vector<std::size_t> by_size(entries.size());
  for (std::size_t i = 0; i < by_size.size(); ++i) by_size[i] = i;
  std::ranges::sort(by_size, [&](std::size_t a, std::size_t b) {
    return entries[a].size != entries[b].size ? entries[a].size > entries[b].size : a < b;
  });
  for (const std::size_t i : by_size) {
    if (sum <= budget) break;
    entries[i].keep = false;
    sum -= entries[i].size;
  }
  std::string kept;
  for (const Entry& entry : entries) {
    if (entry.keep) kept.append(entry.text).append(1, '\0');
  }
  return kept;
}

}  // namespace

std::size_t Message::size() const noexcept {
  std::size_t sum = kMessageFrame + value.size() + (key ? key->size() : 0);
  for (const auto& [name, text] : headers) sum += kHeaderFrame + name.size() + text.size();
  return sum;
}

std::string Formatter::topic(const std::string& cluster, const std::string& kind,
                             const std::string& scheduler) const {
  std::string name = config_.topic_template.expand([&](std::string_view field) -> std::string {
    std::string value = field == "cluster" ? cluster : field == "kind" ? kind : scheduler;
    for (char& c : value) {
      if (!is_topic_character(c)) c = '_';
    }
    return value;
  });
  if (name.size() > kTopicLimit) name.resize(kTopicLimit);
  return name;
}

std::string Formatter::event_value(const Event& event, Cut cut) const {
  std::string text = event_json(event);
  if (!cut.script && !cut.environment) return text;
  Json json = Json::parse(text);
  if (cut.script) {
    json["script"]["truncated"] = true;
    if (!config_.location_template.empty()) {
      json["script"]["location"] = to_utf8_lossy(config_.location_template.expand(
          [&](std::string_view field) { return field_value(event, field); }));
    }
  }
  if (cut.environment) json["environment_truncated"] = true;
  return dump(json);
}

std::vector<Header> Formatter::headers(const Event& event,
                                       const std::optional<std::string>& key) const {
  std::vector<Header> list;
  const bool cloud = config_.format == Format::kCloudEvents;
  const bool structured = cloud && config_.cloudevents_mode == CloudEventsMode::kStructured;
  if (config_.headers || cloud) {
    list.emplace_back("content-type",
                      structured ? "application/cloudevents+json" : "application/json");
  }
  if (config_.headers) {
    if (config_.format != Format::kSarchive && !structured)
      list.emplace_back("schema", kEventSchema);
    list.emplace_back("event-id", event.id);
  }
  if (cloud && !structured) {
    for (auto& [name, value] : cloud_attributes(event, key))
      list.emplace_back("ce_" + name, std::move(value));
  }
  return list;
}

bool Formatter::has_a_message(const Event& event) const {
  if (config_.format != Format::kSarchive || !event.replaces) return true;
  const EventFile* script = event.file("script");
  return script == nullptr || script->bytes != nullptr;
}

Message Formatter::render(const Event& event) const { return render(event, {}); }

Message Formatter::render(const Event& event, Cut cut) const {
  Message message;
  message.topic = topic(event);
  if (!config_.key_template.empty()) {
    message.key = config_.key_template.expand(
        [&](std::string_view field) { return field_value(event, field); });
  }
  message.headers = headers(event, message.key);
  switch (config_.format) {
    case Format::kSarchive: message.value = sarchive_value(event); break;
    case Format::kCloudEvents:
      if (config_.cloudevents_mode == CloudEventsMode::kStructured) {
        message.value = "{";
        for (const auto& [name, value] : cloud_attributes(event, message.key)) {
          message.value += "\"" + name + "\":" + quote(value) + ",";
        }
        message.value +=
            R"("datacontenttype":"application/json","data":)" + event_value(event, cut) + "}";
        break;
      }
      [[fallthrough]];
    case Format::kEvent: message.value = event_value(event, cut); break;
  }
  if (cut.script || cut.environment) {
    message.truncated = cut.script && cut.environment ? "script,environment"
                        : cut.script                  ? "script"
                                                      : "environment";
  }
  if (config_.format == Format::kSarchive) {
    const std::string lacks = sarchive_lacks(event);
    message.truncated += (message.truncated.empty() || lacks.empty() ? "" : ",") + lacks;
  }
  if (!message.truncated.empty()) message.headers.emplace_back("truncated", message.truncated);
  // librdkafka takes 0 for now, and no negative time.
  message.timestamp_ms = std::max<std::int64_t>(event.time.nanoseconds / 1'000'000, 0);
  return message;
}

std::optional<Message> Formatter::render_cut(const Event& event, std::size_t limit) const {
  Event part = event;
  const EventFile* script = event.file("script");
  const EventFile* environment = event.file("environment");
  const Bytes script_bytes = script == nullptr ? nullptr : script->bytes;
  const Bytes environment_bytes =
      environment == nullptr || event.environment_format != EnvironmentFormat::kNulEnded
          ? nullptr
          : environment->bytes;
  const Cut all{.script = script_bytes != nullptr, .environment = environment_bytes != nullptr};
  Cut cut{.script = all.script, .environment = false};

  if (all.script) replace_bytes(part, "script", {});
  std::size_t bare = render(part, cut).size();
  if (bare > limit) {
    if (!all.environment) return std::nullopt;
    cut.environment = true;
    replace_bytes(part, "environment", {});
    bare = render(part, cut).size();
    if (bare > limit) return std::nullopt;
    // The other half is for the script.
    replace_bytes(part, "environment", fitting_variables(*environment_bytes, (limit - bare) / 2));
    bare = render(part, cut).size();
  }
  if (!all.script) return cut.environment ? std::optional(render(part, cut)) : std::nullopt;

  // A script that is not UTF-8 goes as base64, or with U+FFFD in it; so the length is tried, and
  // halved if need be.
  for (std::size_t budget = limit - std::min(bare, limit);; budget /= 2) {
    const bool utf8 = is_utf8(*script_bytes);
    const std::string_view begin = utf8 ? fitting_prefix(*script_bytes, budget)
                                        : std::string_view(*script_bytes).substr(0, budget / 4 * 3);
    cut.script = begin.size() < script_bytes->size();
    replace_bytes(part, "script", std::string(begin));
    if (!cut.script && !cut.environment) return std::nullopt;  // it was never too large
    Message message = render(part, cut);
    if (message.size() <= limit) return message;
    if (budget == 0) return std::nullopt;
  }
}

}  // namespace scriptorium::kafka
