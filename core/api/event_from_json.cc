#include <simdjson.h>
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/api/event.h"
#include "core/base/text.h"

// Parses JSON of schema 1 into an event. The journal and the file sink's archive store events this
// way, apart from their files. It is part of the plugin interface because the file sink reads its
// records with it.
//
// A sink that is behind reads every event through here. simdjson parses the metadata of a typical
// event in 0.5 µs, nlohmann/json in 18 µs. Only members without a field in Event are read with
// nlohmann/json, because it also writes extra_json.
namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::string_view kSchema = "scriptorium.event/1";
constexpr std::size_t kLargestKept = 64U
                                     << 10;  // bytes of JSON that a thread's parser keeps room for

// Members with a field in Event. All others go into extra_json.
constexpr std::string_view kMembers[] = {"schema",
                                         "id",
                                         "kind",
                                         "time",
                                         "captured_at",
                                         "capture",
                                         "complete",
                                         "cluster",
                                         "scheduler",
                                         "host",
                                         "job",
                                         "user",
                                         "script",
                                         "environment",
                                         "files",
                                         "parts",
                                         "redactions",
                                         "problems",
                                         "lossy",
                                         "supersedes",
                                         "replaces",
                                         "environment_size",
                                         "environment_format"};
constexpr std::string_view kHostMembers[] = {"name"};
constexpr std::string_view kJobMembers[] = {
    "id", "name", "array", "het", "account", "partition", "qos", "submitted_at", "work_dir"};
constexpr std::string_view kUserMembers[] = {"name", "id", "group", "verified",
                                             "unverified_reason"};
constexpr std::string_view kScriptMembers[] = {"text",        "encoding",   "size",    "sha256",
                                               "interpreter", "directives", "modules", "software"};
using Members = std::span<const std::string_view>;
// The objects into which extra_json is merged.
constexpr std::pair<const char*, Members> kObjects[] = {{"host", kHostMembers},
                                                        {"job", kJobMembers},
                                                        {"user", kUserMembers},
                                                        {"script", kScriptMembers}};

bool contains(Members members, std::string_view name) {
  return std::find(members.begin(), members.end(), name) != members.end();
}

// These read a required member and throw simdjson_error if it is missing or has another type. For
// an optional member, call find() first.
std::optional<element> find(object json, std::string_view name) {
  element found;
  if (json.at_key(name).get(found) != simdjson::SUCCESS) return std::nullopt;
  return found;
}

std::string to_text(element value) { return std::string(value.get_string().value()); }
std::string text(object json, std::string_view name) { return to_text(json.at_key(name).value()); }
std::uint64_t number(object json, std::string_view name) {
  return json.at_key(name).get_uint64().value();
}
bool boolean(object json, std::string_view name) { return json.at_key(name).get_bool().value(); }

std::uint32_t to_small_number(element value) {
  const std::uint64_t number = value.get_uint64().value();
  if (number > std::numeric_limits<std::uint32_t>::max())
    throw std::invalid_argument("number is too large");
  return static_cast<std::uint32_t>(number);
}

Timestamp to_time(element value) {
  const auto time = parse_rfc3339(value.get_string().value());
  if (!time) throw std::invalid_argument("not a time");
  return *time;
}

std::optional<std::string> optional_text(object json, std::string_view name) {
  const auto found = find(json, name);
  if (!found || found->is_null()) return std::nullopt;
  return to_text(*found);
}

// Calls `read` with each item of a list, which may be missing.
template <typename Read>
void each(object json, std::string_view name, Read read) {
  if (const auto found = find(json, name)) {
    const simdjson::dom::array items = found->get_array().value();
    for (const element item : items) read(item);
  }
}
template <typename Read>
void each_object(object json, std::string_view name, Read read) {
  each(json, name, [&](element item) { read(object(item.get_object().value())); });
}

std::vector<std::string> texts(object json, std::string_view name) {
  std::vector<std::string> list;
  each(json, name, [&](element item) { list.push_back(to_text(item)); });
  return list;
}
std::vector<std::uint32_t> small_numbers(object json, std::string_view name) {
  std::vector<std::uint32_t> list;
  each(json, name, [&](element item) { list.push_back(to_small_number(item)); });
  return list;
}

Job read_job(object json) {
  Job job;
  job.id = text(json, "id");
  job.name = optional_text(json, "name");
  if (const auto found = find(json, "array")) {
    const object array = found->get_object().value();
    job.array = JobArray{text(array, "job_id"), optional_text(array, "task_id"),
                         optional_text(array, "task_spec")};
  }
  if (const auto found = find(json, "het")) {
    const object het = found->get_object().value();
    job.het = HetJob{.job_id = text(het, "job_id"), .synthetic = boolean(het, "synthetic")};
    if (const auto component = find(het, "component"))
      job.het->component = to_small_number(*component);
  }
  job.account = optional_text(json, "account");
  job.partition = optional_text(json, "partition");
  job.qos = optional_text(json, "qos");
  if (const auto submitted_at = find(json, "submitted_at"))
    job.submitted_at = to_time(*submitted_at);
  job.work_dir = optional_text(json, "work_dir");
  return job;
}

User read_user(object json) {
  User user;
  user.name = optional_text(json, "name");
  user.id = optional_text(json, "id");
  if (const auto found = find(json, "group")) {
    const object group = found->get_object().value();
    user.group_name = optional_text(group, "name");
    user.group_id = optional_text(group, "id");
  }
  user.verified = boolean(json, "verified");
  user.unverified_reason = optional_text(json, "unverified_reason");
  return user;
}

Event read_event(object json) {
  if (json.at_key("schema").get_string().value() != kSchema)
    throw std::invalid_argument("another schema");
  Event event;
  event.id = text(json, "id");
  event.kind = text(json, "kind");
  event.time = to_time(json.at_key("time").value());
  event.captured_at = to_time(json.at_key("captured_at").value());
  event.capture = text(json, "capture");
  event.complete = boolean(json, "complete");
  event.cluster = text(json, "cluster");
  event.scheduler = text(json, "scheduler");
  event.host = text(json.at_key("host").get_object().value(), "name");
  event.job = read_job(json.at_key("job").get_object().value());
  event.user = read_user(json.at_key("user").get_object().value());
  if (const auto script = find(json, "script")) {
    const object info = script->get_object().value();
    event.script = ScriptInfo{.interpreter = optional_text(info, "interpreter"),
                              .directives = texts(info, "directives"),
                              .modules = texts(info, "modules"),
                              .software = {}};
    each_object(info, "software", [&](object used) {
      event.script->software.push_back({text(used, "kind"), text(used, "name")});
    });
  }
  each_object(json, "files", [&](object file) {
    event.files.push_back(
        {text(file, "name"), number(file, "size"), text(file, "sha256"), nullptr});
  });
  if (find(json, "environment_size")) {
    event.environment_format =
        find(json, "environment_format") ? EnvironmentFormat::kRaw : EnvironmentFormat::kNulEnded;
  }
  event.parts = texts(json, "parts");
  each_object(json, "redactions", [&](object redaction) {
    event.redactions.push_back({.rule = text(redaction, "rule"),
                                .where = text(redaction, "where"),
                                .count = number(redaction, "count"),
                                .kept = find(redaction, "kept") && boolean(redaction, "kept"),
                                .lines = small_numbers(redaction, "lines"),
                                .names = texts(redaction, "names")});
  });
  event.problems = texts(json, "problems");
  event.supersedes = optional_text(json, "supersedes");
  event.replaces = optional_text(json, "replaces");
  event.lossy = texts(json, "lossy");
  return event;
}

bool has_other_members(object json, Members members) {
  return std::any_of(json.begin(), json.end(),
                     [&](const auto& member) { return !contains(members, member.key); });
}

bool has_extra(object json) {
  if (has_other_members(json, kMembers)) return true;
  return std::any_of(std::begin(kObjects), std::end(kObjects), [&](const auto& nested) {
    const auto found = find(json, nested.first);
    return found && has_other_members(found->get_object().value(), nested.second);
  });
}

// Members without a field in Event, as JSON text.
std::string read_extra(std::string_view text) {
  const Json json = Json::parse(text);
  Json extra = Json::object();
  for (const auto& [key, value] : json.items()) {
    if (!contains(kMembers, key)) extra[key] = value;
  }
  for (const auto& [object, members] : kObjects) {
    const auto found = json.find(object);
    if (found == json.end()) continue;
    for (const auto& [key, value] : found->items()) {
      if (!contains(members, key)) extra[object][key] = value;
    }
  }
  return extra.dump();
}

}  // namespace

Result<Event> event_from_json(std::string_view json) try {
  // The parser's buffers are reused, except large ones: a thread keeps what a typical event needs.
  thread_local simdjson::dom::parser parser;
  if (parser.capacity() > kLargestKept) parser = simdjson::dom::parser();
  const object root = parser.parse(json.data(), json.size()).get_object().value();
  Event event = read_event(root);
  if (has_extra(root)) event.extra_json = read_extra(json);
  return event;
} catch (const std::exception&) {
  // what() may quote the input, which may hold a script.
  return Error{ErrorKind::kCorrupt,
               "event metadata: not JSON, or a member is missing or of another type"};
}

}  // namespace scriptorium
