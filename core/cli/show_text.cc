#include "core/cli/show_text.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/cli/secret_text.h"
#include "core/daemon/status_answer.h"
#include "core/query/answer_json.h"
#include "core/query/job_fields.h"

namespace scriptorium::cli {
namespace {

using status_answer::member;

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

std::string owner_text(const StoredCapture& found, const Console& console) {
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

void add_fact(std::string& text, const char* key, const std::optional<std::string>& value) {
  if (value)
    text += "  " + std::string{key} + std::string(12 - std::string_view{key}.size(), ' ') + *value +
            "\n";
}
std::optional<std::string> shown_text(const Json& value) {
  const auto text = string_of(value);
  return text ? std::optional<std::string>{printable(*text)} : std::nullopt;
}

// Other meanings of the id: "component 2 of 3 of 10 (10+1)", "array 8 0-9%2".
std::optional<std::string> part_text(const StoredCapture& found, std::size_t components) {
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

// Of a job that is a command instead of a script.
std::optional<std::string> command_text(const StoredCapture& found) {
  const Json& details = member(found.event, "details");
  auto command = shown_text(member(details, "command"));
  if (!command) return std::nullopt;
  if (const auto arguments = shown_text(member(details, "arguments"))) *command += " " + *arguments;
  return command;
}

std::string capture_text(const StoredCapture& found, const Console& console,
                         std::size_t components) {
  const Json& job = member(found.event, "job");
  std::string text = console.bold("job " + printable(string_of(member(job, "id")).value_or("?")));
  if (const auto name = shown_text(member(job, "name"))) text += "  " + *name;
  text += "\n";
  if (!found.event.is_null()) {
    add_fact(text, "part", part_text(found, components));
    add_fact(text, "cluster", shown_text(member(found.event, "cluster")));
    add_fact(text, "owner", owner_text(found, console));
    add_fact(text, "account", shown_text(member(job, "account")));
    add_fact(text, "command", command_text(found));
    add_fact(text, "partition", shown_text(member(job, "partition")));
    add_fact(text, "taken", shown_text(member(found.event, "time")));
    add_fact(text, "submitted", shown_text(member(job, "submitted_at")));
    auto captured = shown_text(member(found.event, "captured_at"));
    if (captured)
      captured = *captured + " by " + shown_text(member(found.event, "capture")).value_or("?");
    if (const Json& complete = member(found.event, "complete");
        captured && complete.is_boolean() && !complete.get<bool>()) {
      captured = *captured + console.yellow(", incomplete");
    }
    add_fact(text, "captured", captured);
    add_fact(text, "event", shown_text(member(found.event, "id")));
  }
  for (const Place& place : found.places) {
    add_fact(text, "lies in",
             place.sink.empty() ? "the journal"
                                : place.sink + ": " + printable(place.stored.location, 4096));
    for (const StoredFile& file : place.stored.files) {
      if (file.location != place.stored.location)
        add_fact(text, "", printable(file.location, 4096));
    }
  }
  return text;
}

}  // namespace

std::string show_text(const StoredCapture& found, const Searchable::Record* record,
                      const Arguments& arguments, const Console& console, std::size_t components) {
  std::string text = capture_text(found, console, components);
  if (record != nullptr) text += use_text(*record, console);
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

Json show_json(const StoredCapture& found, const Searchable::Record* record) {
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
  Json json{{"event", found.event}, {"in_journal", journal}, {"stored", std::move(stored)}};
  if (record == nullptr) return json;
  json["job"] = query::job_json(record->job);
  json["later"] = query::later_json(*record);
  if (Json chain = query::checkpoint_json(*record, system_clock().now()); !chain.is_null())
    json[query::kCheckpoint] = std::move(chain);
  return json;
}

}  // namespace scriptorium::cli
