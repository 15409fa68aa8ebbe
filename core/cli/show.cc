#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/number.h"
#include "core/base/text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/secret_text.h"
#include "core/daemon/control.h"
#include "core/daemon/log.h"
#include "core/daemon/status_answer.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium::cli {
namespace {

using status_answer::Json;
using status_answer::member;

// One place where a capture is stored.
struct Place {
  std::string sink;  // "" = the journal
  StoredJob stored;
};

// One capture of the job. A job whose id was reused, or whose script grew, has several.
struct Found {
  Json event;  // schema 1; null if no place kept it
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

std::optional<std::string> string_of(const Json& value) {
  return value.is_string() ? std::optional<std::string>{value.get<std::string>()} : std::nullopt;
}
std::string time_of(const Found& found) {
  return string_of(member(found.event, "time")).value_or("");
}

// ---- search

class Search {
 public:
  Search(const Setup& setup, std::string job, Console& console)
      : setup_(setup), wanted_(std::move(job)), job_(wanted_), console_(console) {}

  // Newest first.
  std::vector<Found> run(Logger& log) {
    search(job_, log);
    return result();
  }

  // Like run(), but if the job has no script of its own, also searches the ids that the sources
  // suggest: a task's script is its array's.
  std::vector<Found> run_also_kept_under(Logger& log) {
    auto found = run(log);
    if (std::any_of(found.begin(), found.end(), is_script)) return found;
    for (const std::string& id : other_ids(log)) {
      by_id_.clear();
      search(id, log);
      auto others = result();
      std::erase_if(others, [&](const Found& f) { return !is_script(f) || !belongs(f); });
      if (!others.empty()) return others;
    }
    return found;
  }

  // The number of components of a heterogeneous job, given one of them: their ids follow the
  // leader's. 0: unknown.
  std::size_t count_components(const std::string& leader, Logger& log) {
    const auto number = parse_number<std::uint64_t>(leader);
    if (!number) return 0;
    constexpr std::size_t kMost = 32;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    std::size_t count = 0;
    for (; count < kMost && std::chrono::steady_clock::now() < deadline; ++count) {
      by_id_.clear();
      search(std::to_string(*number + count), log);
      const auto all = result();
      if (std::none_of(all.begin(), all.end(), [&](const Found& f) {
            return string_of(member(member(member(f.event, "job"), "het"), "job_id")) == leader;
          }))
        break;
    }
    return count;
  }

  void search(const std::string& job, Logger& log) {
    job_ = job;
    ask_journal(log);
    for (const LoadedSink& sink : setup_.sinks) {
      progress("looking in sink " + sink.instance.name + " ...");
      ask_sink(sink, log);
    }
    progress("");
  }
  // `report` shows usage records.
  static bool is_script(const Found& found) {
    return string_of(member(found.event, "kind")).value_or("job.script") == "job.script";
  }
  void failed() noexcept { failed_ = true; }

  std::vector<Found> result() {
    std::vector<Found> result;
    for (auto& [id, found] : by_id_) result.push_back(std::move(found));
    std::sort(result.begin(), result.end(),
              [](const Found& a, const Found& b) { return time_of(a) > time_of(b); });
    return result;
  }
  // True if a place could not be searched, so the result may be incomplete.
  bool anything_failed() const noexcept { return failed_; }

 private:
  // If the caller's id was "10+1", the entry under 11 must be that component, not a later job with
  // that number.
  bool belongs(const Found& found) const {
    const auto plus = wanted_.find('+');
    if (plus == std::string::npos) return true;
    const Json& het = member(member(found.event, "job"), "het");
    return string_of(member(het, "job_id")).value_or(wanted_.substr(0, plus)) ==
           wanted_.substr(0, plus);
  }

  std::vector<std::string> other_ids(Logger& log) {
    std::vector<std::string> ids;
    for (const LoadedSource& source : setup_.sources) {
      if (source.plugin.descriptor->kind != PluginKind::kSpoolAdapter) continue;
      const PluginContext context{.name = source.instance.name,
                                  .cluster = setup_.config.core.cluster,
                                  .log = log,
                                  .clock = system_clock()};
      auto adapter = create_spool_adapter(source.plugin, source.instance.table, context);
      if (!adapter) continue;  // `check` reports this
      std::vector<std::string> kept;
      if (const auto thrown = call_plugin([&] {
            kept = (*adapter)->kept_under(
                wanted_, {}, std::chrono::steady_clock::now() + std::chrono::seconds{10});
          }))
        say("source " + source.instance.name + ": its plugin throws: " + *thrown);
      for (std::string& id : kept) {
        if (id != wanted_ && std::find(ids.begin(), ids.end(), id) == ids.end())
          ids.push_back(std::move(id));
      }
    }
    return ids;
  }

  void ask_journal(Logger& log) {
    const Json request{{"command", "find"}, {"job", job_}};
    const auto answer = control(setup_.config.core.state_dir,
                                request.dump(-1, ' ', false, Json::error_handler_t::replace), log);
    if (!answer) return say("the journal could not be asked: " + answer.error().message());
    const Json events = Json::parse(*answer, nullptr, false);
    if (!events.is_array()) return say("the journal's answer is not understood");
    for (const Json& event : events) {
      Found& found = by_id_[string_of(member(event, "id")).value_or("")];
      found.event = event;
      found.places.push_back({});
    }
  }

  void ask_sink(const LoadedSink& sink, Logger& log) {
    const PluginContext context{.name = sink.instance.name,
                                .cluster = setup_.config.core.cluster,
                                .log = log,
                                .clock = system_clock()};
    auto made = create_sink(sink.plugin, sink.instance.table, context);
    if (!made) return say(made.error().message());
    auto stored =
        call_plugin("its plugin", ErrorKind::kPermanent, [&] { return (*made)->find(job_); });
    if (!stored) return say("sink " + sink.instance.name + ": " + stored.error().message());
    for (StoredJob& job : *stored) add(sink.instance.name, std::move(job));
  }

  // The event of a sink with the option `parts` lacks what another sink's may have.
  static void complete(Json& event, Json other) {
    const auto is_partial = [](const Json& json) { return json.contains("parts"); };
    if (event.is_null() || (is_partial(event) && !is_partial(other))) return event.swap(other);
    if (!is_partial(event)) return;
    for (const char* name : {"environment", "environment_size", "environment_format"}) {
      if (other.contains(name)) event[name] = other[name];
    }
    const Json& script = member(other, "script");
    if (member(script, "sha256").is_string()) event["script"] = script;
    for (const char* name : {"parts", "files"}) {
      for (const Json& item : member(other, name)) event[name].push_back(item);
    }
  }

  void add(const std::string& sink, StoredJob job) {
    Json event;
    for (const StoredFile& file : job.files) {
      if (file.name == "metadata" && file.bytes != nullptr)
        event = Json::parse(*file.bytes, nullptr, false);
    }
    if (!event.is_object()) event = nullptr;
    std::string key =
        job.event_id.empty() ? string_of(member(event, "id")).value_or("") : job.event_id;
    if (key.empty()) key = sink + ":" + job.location;
    Found& found = by_id_[key];
    if (!event.is_null()) complete(found.event, std::move(event));
    found.places.push_back({sink, std::move(job)});
  }

  // Loaded once, for any number of ids.
  void say(const std::string& text) {
    failed_ = true;
    if (!said_.insert(text).second) return;
    progress("");
    console_.err << "scriptorium: " << text << "\n";
  }
  void progress(const std::string& text) {
    if (console_.out_is_terminal) console_.err << "\r\033[K" << text << std::flush;
  }

  const Setup& setup_;
  const std::string wanted_;  // by the caller
  std::string job_;           // the id of the current search
  std::set<std::string> said_;
  Console& console_;
  std::map<std::string, Found> by_id_;
  bool failed_ = false;
};

// ---- script and environment

std::optional<std::string> script_of(const Found& found) {
  if (const StoredFile* file = found.file("script")) return *file->bytes;
  const Json& script = member(found.event, "script");
  auto text = string_of(member(script, "text"));
  if (text && string_of(member(script, "encoding")).value_or("utf-8") == "base64")
    return base64_decode(*text);
  return text;
}

// NUL-ended strings as captured, or a sink's conversion of them.
std::optional<std::string> environment_of(const Found& found) {
  if (const StoredFile* file = found.file("environment")) return *file->bytes;
  const Json& variables = member(found.event, "environment");
  if (!variables.is_object()) return std::nullopt;
  std::string bytes;
  for (const auto& [name, value] : variables.items())
    bytes += name + "=" + string_of(value).value_or("") + '\0';
  return bytes;
}

// One variable per line: a newline within a value is shown as "\\n", so that it cannot look like
// another variable. An environment that is not NUL-ended strings is shown as text.
std::string environment_lines(std::string_view bytes) {
  if (bytes.find('\0') == std::string_view::npos) return terminal_text(bytes);
  std::string lines;
  while (!bytes.empty()) {
    const std::string_view variable = bytes.substr(0, bytes.find('\0'));
    lines += printable(variable, 4 * variable.size() + 16) + "\n";
    bytes.remove_prefix(std::min(bytes.size(), variable.size() + 1));
  }
  return lines;
}

// ---- for people

std::string owner_text(const Found& found, const Console& console) {
  const Json& user = member(found.event, "user");
  const auto name = string_of(member(user, "name"));
  const auto id = string_of(member(user, "id"));
  const Json& verified = member(user, "verified");
  const bool sure = verified.is_boolean() && verified.get<bool>();
  std::string text = name ? printable(*name) : id ? "uid " + printable(*id) : "unknown";
  if (name && id) text += " (uid " + printable(*id) + ")";
  const Json& group = member(user, "group");
  if (const auto group_name = string_of(member(group, "name")))
    text += ", group " + printable(*group_name);
  if (!sure) {
    const auto why = string_of(member(user, "unverified_reason"));
    text += console.yellow(why ? " (unverified: " + printable(*why) + ")" : " (unverified)");
  }
  return text;
}

void line(std::string& text, const char* key, const std::optional<std::string>& value) {
  if (value)
    text += "  " + std::string{key} + std::string(12 - std::string_view{key}.size(), ' ') + *value +
            "\n";
}
std::optional<std::string> shown(const Json& value) {
  const auto text = string_of(value);
  return text ? std::optional<std::string>{printable(*text)} : std::nullopt;
}

// Other meanings of the id: "component 2 of 3 of 10 (10+1)", "array 8 0-9%2".
std::optional<std::string> part_text(const Found& found, std::size_t components) {
  const Json& job = member(found.event, "job");
  if (const Json& het = member(job, "het"); het.is_object()) {
    const std::string leader = printable(string_of(member(het, "job_id")).value_or("?"));
    const Json& component = member(het, "component");
    if (!component.is_number_unsigned()) return "component of " + leader;
    const auto number = component.get<std::uint64_t>();
    return "component " + std::to_string(number + 1) +
           (components > number ? " of " + std::to_string(components) : "") + " of " + leader +
           " (" + leader + "+" + std::to_string(number) + ")";
  }
  if (const Json& array = member(job, "array"); array.is_object()) {
    const auto tasks = string_of(member(array, "task_spec"));
    return "array" + (tasks ? " " + printable(*tasks) : std::string{}) +
           ": one script for all its tasks";
  }
  return std::nullopt;
}

std::string head_text(const Found& found, const std::string& job_id, const Console& console,
                      std::size_t components) {
  const Json& job = member(found.event, "job");
  std::string text =
      console.bold("job " + printable(string_of(member(job, "id")).value_or(job_id)));
  if (const auto name = shown(member(job, "name"))) text += "  " + *name;
  text += "\n";
  if (!found.event.is_null()) {
    line(text, "part", part_text(found, components));
    line(text, "cluster", shown(member(found.event, "cluster")));
    line(text, "owner", owner_text(found, console));
    line(text, "account", shown(member(job, "account")));
    line(text, "partition", shown(member(job, "partition")));
    line(text, "taken", shown(member(found.event, "time")));
    line(text, "submitted", shown(member(job, "submitted_at")));
    auto captured = shown(member(found.event, "captured_at"));
    if (captured)
      captured = *captured + " by " + shown(member(found.event, "capture")).value_or("?");
    if (const Json& complete = member(found.event, "complete");
        captured && complete.is_boolean() && !complete.get<bool>()) {
      captured = *captured + console.yellow(", incomplete");
    }
    line(text, "captured", captured);
    line(text, "event", shown(member(found.event, "id")));
  }
  for (const Place& place : found.places) {
    line(text, "lies in",
         place.sink.empty() ? "the journal"
                            : place.sink + ": " + printable(place.stored.location, 4096));
    for (const StoredFile& file : place.stored.files) {
      if (file.location != place.stored.location) line(text, "", printable(file.location, 4096));
    }
  }
  return text;
}

std::string for_people(const Found& found, const Arguments& arguments, const Console& console,
                       std::size_t components) {
  std::string text = head_text(found, arguments.job, console, components);
  text += secret_text(found.event, arguments.config_file, redact::Reader::kAnybody, console);
  const auto bytes = arguments.environment ? environment_of(found) : script_of(found);
  const std::string what = arguments.environment ? "environment" : "script";
  if (!bytes) return text + "\nno " + what + " was kept\n";
  // Escapes in a pipe too, because it may lead to a terminal (`show 4711 | less -R`). --raw gives
  // the exact bytes.
  text += "\n" + (arguments.environment ? environment_lines(*bytes) : terminal_text(*bytes));
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
    stored.push_back(
        {{"sink", place.sink}, {"location", place.stored.location}, {"files", std::move(files)}});
  }
  return {{"event", found.event}, {"in_journal", journal}, {"stored", std::move(stored)}};
}

int print_raw(const Found& found, const Arguments& arguments, Console& console,
              std::size_t captures) {
  const auto bytes = arguments.environment ? environment_of(found) : script_of(found);
  if (!bytes)
    return fail(console,
                std::string{"no "} + (arguments.environment ? "environment" : "script") +
                    " of this job was kept",
                kExitNoInput);
  if (captures > 1) {
    console.err << "scriptorium: there are " << captures << " captures of job "
                << printable(arguments.job) << "; this is the newest\n";
  }
  if (!console.out_is_terminal) {
    console.out << *bytes;
    return kExitGood;
  }
  const std::string shown = terminal_text(*bytes);
  console.out << shown;
  if (shown != *bytes)
    console.err << "scriptorium: characters that a terminal would act on are shown escaped; write "
                   "to a file or a pipe to get the "
                   "bytes as they are\n";
  return kExitGood;
}

}  // namespace

int show_command(const Arguments& arguments, Console& console) {
  int code = kExitGood;
  if (!become_daemon_user_or_say(arguments, console, code)) return code;
  Problems problems;
  const Setup setup = load_setup(arguments.config_file, problems);
  // A user without access to a plugin's secret or folder may still read his own files, so every
  // place that can be searched is searched.
  if (!problems.empty() && setup.sinks.empty()) {
    print_problems(problems, console);
    return kExitConfig;
  }
  const auto log = make_command_logger();
  Search search(setup, arguments.job, console);
  if (print_problems(problems, console)) search.failed();
  auto found = search.run_also_kept_under(*log);
  const bool has_usage =
      std::erase_if(found, [](const Found& f) { return !Search::is_script(f); }) > 0;
  if (found.empty() && has_usage) {
    return fail(console,
                "no script of job " + printable(arguments.job) +
                    " was kept; \"scriptorium report " + printable(arguments.job) +
                    "\" shows what it used",
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
    console.out << printable_json(all.dump(2, ' ', false, Json::error_handler_t::replace)) << "\n";
    return kExitGood;
  }
  std::map<std::string, std::size_t> components;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto leader = string_of(member(member(member(found[i].event, "job"), "het"), "job_id"));
    if (leader && !components.contains(*leader))
      components[*leader] = search.count_components(*leader, *log);
    console.out << (i == 0 ? "" : "\n")
                << for_people(found[i], arguments, console, leader ? components[*leader] : 0);
  }
  return kExitGood;
}

}  // namespace scriptorium::cli
