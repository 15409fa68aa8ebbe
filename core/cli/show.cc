#include <algorithm>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/daemon/control.h"
#include "core/daemon/log.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;

// One place where a capture lies.
struct Place {
  std::string sink;  // "" = the journal
  StoredJob stored;
};

// One capture of the job: a job whose id was used again, or whose script grew, has several.
struct Found {
  Json event;  // schema 1; null if nobody kept it
  std::vector<Place> places;

  const StoredFile* file(std::string_view name) const {
    for (const Place& place : places) {
      for (const StoredFile& f : place.stored.files) {
        if (f.name == name && f.bytes != nullptr) return &f;
      }
    }
    return nullptr;
  }
};

const Json& member(const Json& object, const char* key) {
  static const Json none;
  return object.is_object() && object.contains(key) ? object.at(key) : none;
}
std::optional<std::string> string_of(const Json& value) {
  return value.is_string() ? std::optional<std::string>{value.get<std::string>()} : std::nullopt;
}
std::string time_of(const Found& found) { return string_of(member(found.event, "time")).value_or(""); }

// ---- look everywhere -----------------------------------------------------------------------------------------------

class Search {
 public:
  Search(const Setup& setup, std::string job, Console& console) : setup_(setup), job_(std::move(job)), console_(console) {}

  // Newest first.
  std::vector<Found> run(Logger& log) {
    ask_journal(log);
    for (const LoadedSink& sink : setup_.sinks) {
      progress("looking in sink " + sink.instance.name + " ...");
      ask_sink(sink, log);
    }
    progress("");
    std::vector<Found> result;
    for (auto& [id, found] : by_id_) result.push_back(std::move(found));
    std::sort(result.begin(), result.end(), [](const Found& a, const Found& b) { return time_of(a) > time_of(b); });
    return result;
  }
  // Of what could not be asked: the answer may not be all there is.
  bool anything_failed() const noexcept { return failed_; }

 private:
  void ask_journal(Logger& log) {
    const Json request{{"command", "find"}, {"job", job_}};
    const auto answer = control(setup_.config.core.state_dir, request.dump(-1, ' ', false, Json::error_handler_t::replace), log);
    if (!answer) return say("the journal was not asked: " + answer.error().message());
    const Json events = Json::parse(*answer, nullptr, false);
    if (!events.is_array()) return say("the journal's answer is not understood");
    for (const Json& event : events) {
      Found& found = by_id_[string_of(member(event, "id")).value_or("")];
      found.event = event;
      found.places.push_back({});
    }
  }

  void ask_sink(const LoadedSink& sink, Logger& log) try {
    const SinkContext context{
        .name = sink.instance.name, .cluster = setup_.config.core.cluster, .log = log, .clock = system_clock()};
    auto made = create_sink(sink.plugin, sink.instance.table, context);
    if (!made) return say(made.error().message());
    auto stored = (*made)->find(job_);
    if (!stored) return say("sink " + sink.instance.name + ": " + stored.error().message());
    for (StoredJob& job : *stored) add(sink.instance.name, std::move(job));
  } catch (const std::exception& e) {
    say("sink " + sink.instance.name + ": its plugin throws: " + printable(e.what()));
  }

  void add(const std::string& sink, StoredJob job) {
    Json event;
    for (const StoredFile& file : job.files) {
      if (file.name == "metadata" && file.bytes != nullptr) event = Json::parse(*file.bytes, nullptr, false);
    }
    if (!event.is_object()) event = nullptr;
    std::string key = job.event_id.empty() ? string_of(member(event, "id")).value_or("") : job.event_id;
    if (key.empty()) key = sink + ":" + job.location;
    Found& found = by_id_[key];
    if (found.event.is_null()) found.event = std::move(event);
    found.places.push_back({sink, std::move(job)});
  }

  void say(const std::string& text) {
    failed_ = true;
    progress("");
    console_.err << "scriptorium: " << text << "\n";
  }
  void progress(const std::string& text) {
    if (console_.out_is_terminal) console_.err << "\r\033[K" << text << std::flush;
  }

  const Setup& setup_;
  std::string job_;
  Console& console_;
  std::map<std::string, Found> by_id_;
  bool failed_ = false;
};

// ---- script and environment ----------------------------------------------------------------------------------------

std::optional<std::string> script_of(const Found& found) {
  if (const StoredFile* file = found.file("script")) return *file->bytes;
  const Json& script = member(found.event, "script");
  auto text = string_of(member(script, "text"));
  if (text && string_of(member(script, "encoding")).value_or("utf-8") == "base64") return base64_decode(*text);
  return text;
}

// NUL-ended strings as they were captured, or what a sink made of them.
std::optional<std::string> environment_of(const Found& found) {
  if (const StoredFile* file = found.file("environment")) return *file->bytes;
  const Json& variables = member(found.event, "environment");
  if (!variables.is_object()) return std::nullopt;
  std::string bytes;
  for (const auto& [name, value] : variables.items()) bytes += name + "=" + string_of(value).value_or("") + '\0';
  return bytes;
}

// One variable a line.
std::string environment_lines(std::string bytes) {
  std::replace(bytes.begin(), bytes.end(), '\0', '\n');
  return bytes;
}

// ---- for people ----------------------------------------------------------------------------------------------------

std::string owner_text(const Found& found, const Console& console) {
  const Json& user = member(found.event, "user");
  const auto name = string_of(member(user, "name"));
  const auto id = string_of(member(user, "id"));
  const Json& verified = member(user, "verified");
  const bool sure = verified.is_boolean() && verified.get<bool>();
  std::string text = name ? printable(*name) : id ? "uid " + printable(*id) : "unknown";
  if (name && id) text += " (uid " + printable(*id) + ")";
  const Json& group = member(user, "group");
  if (const auto group_name = string_of(member(group, "name"))) text += ", group " + printable(*group_name);
  if (!sure) text += console.yellow(" (unverified)");
  return text;
}

void line(std::string& text, const char* key, const std::optional<std::string>& value) {
  if (value) text += "  " + std::string{key} + std::string(12 - std::string_view{key}.size(), ' ') + *value + "\n";
}
std::optional<std::string> shown(const Json& value) {
  const auto text = string_of(value);
  return text ? std::optional<std::string>{printable(*text)} : std::nullopt;
}

std::string head_text(const Found& found, const std::string& job_id, const Console& console) {
  const Json& job = member(found.event, "job");
  std::string text = console.bold("job " + printable(string_of(member(job, "id")).value_or(job_id)));
  if (const auto name = shown(member(job, "name"))) text += "  " + *name;
  text += "\n";
  if (!found.event.is_null()) {
    line(text, "cluster", shown(member(found.event, "cluster")));
    line(text, "owner", owner_text(found, console));
    line(text, "account", shown(member(job, "account")));
    line(text, "partition", shown(member(job, "partition")));
    line(text, "taken", shown(member(found.event, "time")));
    line(text, "submitted", shown(member(job, "submitted_at")));
    auto captured = shown(member(found.event, "captured_at"));
    if (captured) captured = *captured + " by " + shown(member(found.event, "capture")).value_or("?");
    if (const Json& complete = member(found.event, "complete"); captured && complete.is_boolean() && !complete.get<bool>()) {
      captured = *captured + console.yellow(", incomplete");
    }
    line(text, "captured", captured);
    line(text, "event", shown(member(found.event, "id")));
  }
  for (const Place& place : found.places) {
    line(text, "lies in", place.sink.empty() ? "the journal" : place.sink + ": " + printable(place.stored.location, 4096));
    for (const StoredFile& file : place.stored.files) {
      if (file.location != place.stored.location) line(text, "", printable(file.location, 4096));
    }
  }
  return text;
}

std::string for_people(const Found& found, const Arguments& arguments, const Console& console) {
  std::string text = head_text(found, arguments.job, console);
  auto bytes = arguments.environment ? environment_of(found) : script_of(found);
  const std::string what = arguments.environment ? "environment" : "script";
  if (!bytes) return text + "\nno " + what + " was kept\n";
  if (arguments.environment) bytes = environment_lines(*std::move(bytes));
  text += "\n" + (console.out_is_terminal ? terminal_text(*bytes) : *bytes);
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

Json for_programs(const Found& found) {
  Json stored = Json::array();
  bool journal = false;
  for (const Place& place : found.places) {
    if (place.sink.empty()) {
      journal = true;
      continue;
    }
    Json files = Json::array();
    for (const StoredFile& file : place.stored.files) {
      files.push_back({{"name", file.name},
                       {"location", file.location},
                       {"size", file.bytes == nullptr ? Json{} : Json(file.bytes->size())}});
    }
    stored.push_back({{"sink", place.sink}, {"location", place.stored.location}, {"files", std::move(files)}});
  }
  return {{"event", found.event}, {"in_journal", journal}, {"stored", std::move(stored)}};
}

int print_raw(const Found& found, const Arguments& arguments, Console& console, std::size_t captures) {
  const auto bytes = arguments.environment ? environment_of(found) : script_of(found);
  if (!bytes)
    return fail(console, std::string{"no "} + (arguments.environment ? "environment" : "script") + " of this job was kept",
                kExitNoInput);
  if (captures > 1) {
    console.err << "scriptorium: there are " << captures << " captures of job " << printable(arguments.job)
                << "; this is the newest\n";
  }
  console.out << *bytes;
  return kExitGood;
}

}  // namespace

int show_command(const Arguments& arguments, Console& console) {
  const auto setup = load_or_say(arguments, console);
  if (!setup) return kExitConfig;
  const auto log = make_command_logger();
  Search search(*setup, arguments.job, console);
  auto found = search.run(*log);
  // What the job used is another question, and `report` answers it.
  const bool has_usage = std::erase_if(found, [](const Found& f) {
                           return string_of(member(f.event, "kind")).value_or("job.script") != "job.script";
                         }) > 0;
  if (found.empty() && has_usage) {
    return fail(console,
                "no script of job " + printable(arguments.job) + " was kept; \"scriptorium report " + printable(arguments.job) +
                    "\" tells what it used",
                kExitNoInput);
  }
  if (found.empty()) {
    return fail(console,
                "job " + printable(arguments.job) + " is neither in the journal nor in a sink" +
                    (search.anything_failed() ? " that could be asked" : ""),
                search.anything_failed() ? kExitUnavailable : kExitNoInput);
  }
  if (arguments.raw) return print_raw(found.front(), arguments, console, found.size());
  if (arguments.json) {
    Json all = Json::array();
    for (const Found& one : found) all.push_back(for_programs(one));
    console.out << all.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
    return kExitGood;
  }
  for (std::size_t i = 0; i < found.size(); ++i) console.out << (i == 0 ? "" : "\n") << for_people(found[i], arguments, console);
  return kExitGood;
}

}  // namespace scriptorium::cli
