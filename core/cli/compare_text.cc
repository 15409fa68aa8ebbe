#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/text.h"
#include "core/cli/compare.h"
#include "core/cli/fitted_table.h"
#include "core/cli/job_text.h"
#include "core/query/job_fields.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kContext = 3;
constexpr std::size_t kValueLimit = 400;

std::string line_text(std::string_view text) {
  std::string line = terminal_text(text);
  line.erase(std::remove(line.begin(), line.end(), '\n'), line.end());
  return line;
}

std::string removed(const std::string& text, const Console& console) {
  return console.red("- " + printable(text, kValueLimit)) + "\n";
}
std::string added(const std::string& text, const Console& console) {
  return console.green("+ " + printable(text, kValueLimit)) + "\n";
}

std::string list_text(std::string_view title, const query::ListChange& change,
                      const Console& console) {
  if (!change.any()) return {};
  std::string text = "\n" + console.bold(title) + "\n";
  for (const std::string& item : change.removed) text += "  " + removed(item, console);
  for (const std::string& item : change.added) text += "  " + added(item, console);
  return text;
}

std::string variable_text(const query::VariableChange& change, const Console& console) {
  if (!change.is_list) {
    std::string text;
    if (change.before) text += "  " + removed(change.name + "=" + *change.before, console);
    if (change.after) text += "  " + added(change.name + "=" + *change.after, console);
    return text;
  }
  std::string text = "  " + printable(change.name);
  if (change.removed.empty() && change.added.empty()) text += "  (only its order)";
  text += "\n";
  for (const std::string& item : change.removed) text += "    " + removed(item, console);
  for (const std::string& item : change.added) text += "    " + added(item, console);
  return text;
}

std::string environment_text(const Comparison& comparison, const Console& console) {
  if (!comparison.has_environments)
    return "\n" + console.bold("environment") + "\n  not stored of both jobs\n";
  if (comparison.environment.empty()) return {};
  std::string text = "\n" + console.bold("environment") + "\n";
  for (const query::VariableChange& change : comparison.environment)
    text += variable_text(change, console);
  return text;
}

std::string facts_text(std::string_view title, const std::vector<FactChange>& facts,
                       const JobRow& before, const JobRow& after, const Console& console) {
  if (facts.empty()) return {};
  FittedTable table({{.title = std::string(title)},
                     {.title = printable(before.id), .least = 12},
                     {.title = printable(after.id), .least = 12}});
  std::vector<FittedTable::Row> rows;
  for (const FactChange& fact : facts) {
    const Paint paint = fact.before == fact.after ? Paint::kNone : Paint::kWarning;
    rows.push_back({{{"  " + fact.name},
                     {fact.before.empty() ? "-" : fact.before},
                     {fact.after.empty() ? "-" : fact.after, paint}},
                    {}});
  }
  return "\n" + table.portion(rows, console);
}

std::string script_text_of(const Comparison& comparison, const Console& console) {
  if (!comparison.has_scripts) return "the script is not stored of both jobs\n";
  if (!comparison.script_differs()) return "the scripts are equal\n";
  return unified_text(comparison.script, console);
}

Json change_json(const query::VariableChange& change) {
  Json json{{"name", to_utf8_lossy(change.name)}};
  if (change.before) json["before"] = to_utf8_lossy(*change.before);
  if (change.after) json["after"] = to_utf8_lossy(*change.after);
  if (change.is_list) {
    json["removed"] = change.removed;
    json["added"] = change.added;
  }
  return json;
}

Json list_json(const query::ListChange& change) {
  return {{"removed", change.removed}, {"added", change.added}};
}

Json facts_json(const std::vector<FactChange>& facts) {
  Json json = Json::object();
  for (const FactChange& fact : facts)
    json[fact.name] = {{"before", fact.before}, {"after", fact.after}};
  return json;
}

Json script_json(const Comparison& comparison) {
  if (!comparison.has_scripts) return nullptr;
  const query::DiffCount count = query::count_edits(comparison.script);
  Json edits = Json::array();
  for (const query::LineEdit& edit : comparison.script) {
    if (edit.kind == query::EditKind::kSame) continue;
    const bool gone = edit.kind == query::EditKind::kRemoved;
    edits.push_back({{"kind", gone ? "removed" : "added"},
                     {"line", gone ? edit.old_number : edit.new_number},
                     {"text", to_utf8_lossy(edit.text)}});
  }
  return {{"removed", count.removed}, {"added", count.added}, {"edits", std::move(edits)}};
}

}  // namespace

std::string unified_text(const std::vector<query::LineEdit>& edits, const Console& console) {
  std::string text;
  for (const query::Hunk& hunk : query::hunks_of(edits, kContext)) {
    text += (console.colour ? "\033[36m" + query::hunk_head(hunk) + "\033[0m"
                            : query::hunk_head(hunk)) +
            "\n";
    for (const query::LineEdit& edit : hunk.edits) {
      const std::string line = static_cast<char>(edit.kind) + line_text(edit.text);
      text += (edit.kind == query::EditKind::kRemoved ? console.red(line)
               : edit.kind == query::EditKind::kAdded ? console.green(line)
                                                      : line) +
              "\n";
    }
  }
  return text;
}

std::string comparison_text(const Comparison& comparison, const JobRow& before, const JobRow& after,
                            const ComparedParts& parts, const Console& console) {
  std::string text = console.bold("--- " + job_line(before)) + "\n" +
                     console.bold("+++ " + job_line(after)) + "\n";
  if (parts.script) text += script_text_of(comparison, console);
  if (parts.facts) {
    text += list_text("modules", comparison.modules, console);
    text += list_text("directives", comparison.directives, console);
    text += facts_text("REQUEST", comparison.request, before, after, console);
  }
  if (parts.environment) text += environment_text(comparison, console);
  if (parts.facts) text += facts_text("OUTCOME", comparison.outcome, before, after, console);
  return text;
}

Json comparison_json(const Comparison& comparison, const JobRow& before, const JobRow& after,
                     const ComparedParts& parts) {
  Json json{{"before", query::job_json(before)}, {"after", query::job_json(after)}};
  if (parts.script) json["script"] = script_json(comparison);
  if (parts.environment) {
    Json changes = Json::array();
    for (const query::VariableChange& change : comparison.environment)
      changes.push_back(change_json(change));
    json["environment"] = comparison.has_environments ? std::move(changes) : Json();
  }
  if (parts.facts) {
    json["modules"] = list_json(comparison.modules);
    json["directives"] = list_json(comparison.directives);
    json["request"] = facts_json(comparison.request);
    json["outcome"] = facts_json(comparison.outcome);
  }
  return json;
}

}  // namespace scriptorium::cli
