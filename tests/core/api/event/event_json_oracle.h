#pragma once

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
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
    if (!event_.redactions.empty()) {
      for (const Redaction& r : event_.redactions) {
        json["redactions"].push_back({{"rule", text("redactions", r.rule)},
                                      {"where", text("redactions", r.where)},
                                      {"count", r.count}});
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
        {"script", {"text", "encoding", "size", "sha256", "interpreter", "directives", "modules"}}};
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

}  // namespace scriptorium::test
