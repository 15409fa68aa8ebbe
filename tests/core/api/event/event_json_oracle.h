#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/api/event.h"
#include "core/base/text.h"

// event_json() as it was first written, with a tree of nlohmann/json. The one in core/api writes
// text directly and is many times faster; this one is easier to believe. Both must give the same
// bytes for every event.
namespace scriptorium::test {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "scriptorium.event/1";

inline void note_lossy(std::vector<std::string>& list, const char* where) {
  if (std::find(list.begin(), list.end(), where) == list.end()) list.emplace_back(where);
}

class OracleWriter {
 public:
  OracleWriter(const Event& event, const JsonOptions& options)
      : event_(event), options_(options), lossy_(event.lossy) {}

  std::string write() {
    Json json = Json::object();
    json["schema"] = kSchema;
    json["id"] = event_.id;
    json["kind"] = event_.kind;
    json["time"] = time(event_.time, TimePrecision::kMilliseconds);
    json["captured_at"] = time(event_.captured_at, TimePrecision::kMicroseconds);
    json["capture"] = event_.capture;
    json["complete"] = event_.complete;
    json["cluster"] = text("cluster", event_.cluster);
    json["scheduler"] = text("scheduler", event_.scheduler);
    json["host"]["name"] = text("host.name", event_.host);
    json["job"] = job();
    json["user"] = user();
    if (event_.script) json["script"] = script();
    environment(json);
    if (!event_.files.empty()) json["files"] = files();
    for (const std::string& part : event_.parts) json["parts"].push_back(text("parts", part));
    if (!event_.redactions.empty()) {
      for (const Redaction& r : event_.redactions) {
        json["redactions"].push_back({{"rule", text("redactions", r.rule)},
                                      {"where", text("redactions", r.where)},
                                      {"count", r.count}});
        Json& added = json["redactions"].back();
        if (r.kept) added["kept"] = true;
        if (!r.lines.empty()) added["lines"] = r.lines;
        for (const std::string& name : r.names) added["names"].push_back(text("redactions", name));
      }
    }
    for (const std::string& problem : event_.problems)
      json["problems"].push_back(text("problems", problem));
    if (event_.supersedes) json["supersedes"] = *event_.supersedes;
    if (event_.replaces) json["replaces"] = *event_.replaces;
    if (!event_.extra_json.empty()) {
      const Json extra = Json::parse(event_.extra_json, nullptr, false);
      if (extra.is_object()) merge(json, extra);
    }
    if (!lossy_.empty()) json["lossy"] = lossy_;
    return json.dump(options_.indent, ' ', false, Json::error_handler_t::replace);
  }

 private:
  // A member that is there stays as it is. The four objects take what schema 1 has no member for.
  static void merge(Json& json, const Json& extra) {
    static const std::map<std::string, std::set<std::string>> kObjects = {
        {"host", {"name"}},
        {"job",
         {"id", "name", "array", "het", "account", "partition", "qos", "submitted_at", "work_dir"}},
        {"user", {"name", "id", "group", "verified", "unverified_reason"}},
        {"script",
         {"text", "encoding", "size", "sha256", "interpreter", "directives", "modules",
          "software"}}};
    for (const auto& [key, value] : extra.items()) {
      const auto there = json.find(key);
      if (there == json.end()) {
        json[key] = value;
      } else if (const auto known = kObjects.find(key);
                 known != kObjects.end() && value.is_object()) {
        for (const auto& [name, part] : value.items()) {
          if (!known->second.contains(name)) (*there)[name] = part;
        }
      }
    }
  }

  std::string time(Timestamp at, TimePrecision precision) const {
    return format_rfc3339(at, options_.exact_times ? TimePrecision::kNanoseconds : precision);
  }

  std::string text(const char* where, std::string_view bytes) {
    if (is_utf8(bytes)) return std::string(bytes);
    note_lossy(lossy_, where);
    return to_utf8_lossy(bytes);
  }

  void add(Json& json, const char* key, const char* where,
           const std::optional<std::string>& value) {
    if (value) json[key] = text(where, *value);
  }

  Json job() {
    const Job& job = event_.job;
    Json json = Json::object();
    json["id"] = text("job.id", job.id);
    add(json, "name", "job.name", job.name);
    if (job.array) {
      json["array"]["job_id"] = text("job.array", job.array->job_id);
      add(json["array"], "task_id", "job.array", job.array->task_id);
      add(json["array"], "task_spec", "job.array", job.array->task_spec);
    }
    if (job.het) {
      json["het"]["job_id"] = text("job.het", job.het->job_id);
      if (job.het->component) json["het"]["component"] = *job.het->component;
      json["het"]["synthetic"] = job.het->synthetic;
    }
    add(json, "account", "job.account", job.account);
    add(json, "partition", "job.partition", job.partition);
    add(json, "qos", "job.qos", job.qos);
    if (job.submitted_at) json["submitted_at"] = time(*job.submitted_at, TimePrecision::kSeconds);
    add(json, "work_dir", "job.work_dir", job.work_dir);
    return json;
  }

  Json user() {
    const User& user = event_.user;
    Json json = Json::object();
    add(json, "name", "user.name", user.name);
    add(json, "id", "user.id", user.id);
    if (user.group_name || user.group_id) {
      add(json["group"], "name", "user.group.name", user.group_name);
      add(json["group"], "id", "user.group.id", user.group_id);
    }
    json["verified"] = user.verified;
    if (!user.verified)
      add(json, "unverified_reason", "user.unverified_reason", user.unverified_reason);
    return json;
  }

  Json script() {
    Json json = Json::object();
    const EventFile* file = event_.file("script");
    if (file != nullptr) {
      if (options_.script_text && file->bytes != nullptr) {
        const bool utf8 = is_utf8(*file->bytes);
        json["text"] = utf8 ? *file->bytes : base64_encode(*file->bytes);
        json["encoding"] = utf8 ? "utf-8" : "base64";
      }
      json["size"] = file->size;
      json["sha256"] = file->sha256;
    }
    add(json, "interpreter", "script.interpreter", event_.script->interpreter);
    if (!event_.script->directives.empty())
      json["directives"] = list("script.directives", event_.script->directives);
    if (!event_.script->modules.empty())
      json["modules"] = list("script.modules", event_.script->modules);
    for (const Software& used : event_.script->software) {
      Json item;
      item["kind"] = to_utf8_lossy(used.kind);
      item["name"] = text("script.software", used.name);
      json["software"].push_back(item);
    }
    return json;
  }

  Json list(const char* where, const std::vector<std::string>& items) {
    Json json = Json::array();
    for (const std::string& item : items) json.push_back(text(where, item));
    return json;
  }

  void environment(Json& json) {
    const EventFile* file = event_.file("environment");
    if (file == nullptr) return;
    if (options_.environment && file->bytes != nullptr &&
        event_.environment_format == EnvironmentFormat::kNulEnded) {
      // The last one of equal names counts, as in a shell that imports them one after the other;
      // its place is the first's.
      Json variables = Json::object();
      std::unordered_map<std::string, std::size_t> seen;
      // ordered_map's own operator[] compares with every member: quadratic in hostile environments.
      Json::object_t::Container& members = variables.get_ref<Json::object_t&>();
      for (const Variable& v : split_environment(*file->bytes)) {
        std::string name = text("environment", v.name);
        std::string value = text("environment", v.value);
        const auto [place, fresh] = seen.try_emplace(name, members.size());
        if (fresh) {
          members.emplace_back(std::move(name), std::move(value));
        } else {
          members[place->second].second = std::move(value);
        }
      }
      json["environment"] = std::move(variables);
    }
    if (event_.environment_format == EnvironmentFormat::kRaw) json["environment_format"] = "raw";
    json["environment_size"] = file->size;
  }

  Json files() {
    Json json = Json::array();
    for (const EventFile& f : event_.files)
      json.push_back({{"name", text("files", f.name)}, {"size", f.size}, {"sha256", f.sha256}});
    return json;
  }

  const Event& event_;
  const JsonOptions& options_;
  std::vector<std::string> lossy_;
};

inline std::string oracle_event_json(const Event& event, const JsonOptions& options = {}) {
  return OracleWriter(event, options).write();
}

// event_from_json() with a tree, for the same reason. Nothing: it is not metadata of an event.
//
inline constexpr std::string_view kKnown[] = {"schema",
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

// The same for the objects into which extra_json is merged.
struct KnownMembers {
  std::string_view object;
  std::vector<std::string_view> members;
};
inline const std::vector<KnownMembers>& known_members() {
  static const std::vector<KnownMembers> kList = {
      {"host", {"name"}},
      {"job",
       {"id", "name", "array", "het", "account", "partition", "qos", "submitted_at", "work_dir"}},
      {"user", {"name", "id", "group", "verified", "unverified_reason"}},
      {"script",
       {"text", "encoding", "size", "sha256", "interpreter", "directives", "modules", "software"}}};
  return kList;
}

inline std::optional<std::string> optional_text(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  return found->get<std::string>();
}

inline Timestamp required_time(const Json& json, const char* key) {
  const auto time = parse_rfc3339(json.at(key).get_ref<const std::string&>());
  if (!time) throw std::invalid_argument(std::string(key) + " is not a time");
  return *time;
}

inline std::uint64_t required_number(const Json& json, const char* key) {
  const Json& number = json.at(key);
  if (!number.is_number_integer() || (!number.is_number_unsigned() && number < 0))
    throw std::invalid_argument(std::string(key) + " is not a number from 0");
  return number.get<std::uint64_t>();
}

inline std::uint32_t small_number(const Json& number) {
  if (!number.is_number_unsigned() ||
      number.get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max())
    throw std::invalid_argument("not a number of 32 bits");
  return number.get<std::uint32_t>();
}

inline Redaction oracle_redaction(const Json& json) {
  Redaction redaction{.rule = json.at("rule").get<std::string>(),
                      .where = json.at("where").get<std::string>(),
                      .count = required_number(json, "count")};
  if (json.contains("kept")) redaction.kept = json.at("kept").get<bool>();
  if (json.contains("lines")) {
    for (const Json& line : json.at("lines").get<std::vector<Json>>())
      redaction.lines.push_back(small_number(line));
  }
  if (json.contains("names")) redaction.names = json.at("names").get<std::vector<std::string>>();
  return redaction;
}

inline Event oracle_read(const Json& json) {
  if (json.at("schema").get<std::string>() != kSchema)
    throw std::invalid_argument("schema is not scriptorium.event/1");
  Event event;
  event.id = json.at("id").get<std::string>();
  event.kind = json.at("kind").get<std::string>();
  event.time = required_time(json, "time");
  event.captured_at = required_time(json, "captured_at");
  event.capture = json.at("capture").get<std::string>();
  event.complete = json.at("complete").get<bool>();
  event.cluster = json.at("cluster").get<std::string>();
  event.scheduler = json.at("scheduler").get<std::string>();
  event.host = json.at("host").at("name").get<std::string>();
  const Json& job = json.at("job");
  event.job.id = job.at("id").get<std::string>();
  event.job.name = optional_text(job, "name");
  if (const auto array = job.find("array"); array != job.end()) {
    event.job.array =
        JobArray{array->at("job_id").get<std::string>(), optional_text(*array, "task_id"),
                 optional_text(*array, "task_spec")};
  }
  if (const auto het = job.find("het"); het != job.end()) {
    event.job.het = HetJob{.job_id = het->at("job_id").get<std::string>(),
                           .synthetic = het->at("synthetic").get<bool>()};
    if (const auto component = het->find("component"); component != het->end())
      event.job.het->component = static_cast<std::uint32_t>(required_number(*het, "component"));
  }
  event.job.account = optional_text(job, "account");
  event.job.partition = optional_text(job, "partition");
  event.job.qos = optional_text(job, "qos");
  if (job.contains("submitted_at")) event.job.submitted_at = required_time(job, "submitted_at");
  event.job.work_dir = optional_text(job, "work_dir");
  const Json& user = json.at("user");
  event.user.name = optional_text(user, "name");
  event.user.id = optional_text(user, "id");
  if (const auto group = user.find("group"); group != user.end()) {
    event.user.group_name = optional_text(*group, "name");
    event.user.group_id = optional_text(*group, "id");
  }
  event.user.verified = user.at("verified").get<bool>();
  event.user.unverified_reason = optional_text(user, "unverified_reason");
  if (const auto script = json.find("script"); script != json.end()) {
    ScriptInfo& info = event.script.emplace();
    info.interpreter = optional_text(*script, "interpreter");
    if (script->contains("directives"))
      info.directives = script->at("directives").get<std::vector<std::string>>();
    if (script->contains("modules"))
      info.modules = script->at("modules").get<std::vector<std::string>>();
    if (script->contains("software")) {
      for (const Json& item : script->at("software"))
        info.software.push_back(
            {item.at("kind").get<std::string>(), item.at("name").get<std::string>()});
    }
  }
  if (json.contains("files")) {
    for (const Json& f : json.at("files")) {
      event.files.push_back({f.at("name").get<std::string>(), required_number(f, "size"),
                             f.at("sha256").get<std::string>(), nullptr});
    }
  }
  if (json.contains("environment_size")) {
    event.environment_format = json.contains("environment_format") ? EnvironmentFormat::kRaw
                                                                   : EnvironmentFormat::kNulEnded;
  }
  if (json.contains("parts")) event.parts = json.at("parts").get<std::vector<std::string>>();
  if (json.contains("redactions")) {
    for (const Json& r : json.at("redactions")) {
      event.redactions.push_back(oracle_redaction(r));
    }
  }
  if (json.contains("problems"))
    event.problems = json.at("problems").get<std::vector<std::string>>();
  event.supersedes = optional_text(json, "supersedes");
  event.replaces = optional_text(json, "replaces");
  if (json.contains("lossy")) event.lossy = json.at("lossy").get<std::vector<std::string>>();
  Json extra = Json::object();
  for (const auto& [key, value] : json.items()) {
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown))
      extra[key] = value;
  }
  for (const auto& [object, members] : known_members()) {
    const auto found = json.find(object);
    if (found == json.end()) continue;
    for (const auto& [key, value] : found->items()) {
      if (std::find(members.begin(), members.end(), key) == members.end())
        extra[std::string(object)][key] = value;
    }
  }
  if (!extra.empty()) event.extra_json = extra.dump();
  return event;
}

inline std::optional<Event> oracle_event_from_json(std::string_view json) try {
  return oracle_read(Json::parse(json));
} catch (const std::exception&) {
  return std::nullopt;
}

}  // namespace scriptorium::test
