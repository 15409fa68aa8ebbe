#include "core/page/compare_page.h"

#include <string_view>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "core/page/job_page.h"
#include "core/page/shown.h"
#include "core/query/compare.h"
#include "core/query/job_text.h"

namespace scriptorium::page {
namespace {

using List = kainjow::mustache::list;

constexpr std::size_t kContext = 3;  // lines around a change
constexpr std::size_t kMostLineBytes = 2'000;
constexpr std::size_t kMostLines = 5'000;

// Lines with a sign in front, for <pre>.
class DiffText {
 public:
  void head(const std::string& text) { add("hunk", text); }
  void line(query::EditKind kind, std::string_view text) {
    add(kind == query::EditKind::kRemoved ? "removed"
        : kind == query::EditKind::kAdded ? "added"
                                          : "same",
        text, static_cast<char>(kind));
  }
  void change(const query::ListChange& change) {
    for (const std::string& item : change.removed) line(query::EditKind::kRemoved, item);
    for (const std::string& item : change.added) line(query::EditKind::kAdded, item);
  }
  // A part of the page; nothing is shown for a part without lines.
  void put_into(List& list, const char* title) {
    if (lines_ == 0) return;
    if (lines_ > kMostLines)
      html_.text += "<span class=hunk>" +
                    words("lines_more", {std::to_string(lines_ - kMostLines)}) + "</span>\n";
    Values values;
    values.set("title", words(title));
    set_html(values, html_);
    list.push_back(std::move(values));
  }

 private:
  void add(const char* type, std::string_view text, char sign = '\0') {
    if (++lines_ > kMostLines) return;
    html_.text += std::string("<span class=") + type + ">";
    if (sign != '\0') html_.text += sign;
    html_.text += shown_line(text.substr(0, kMostLineBytes), {}).text;
    if (text.size() > kMostLineBytes) html_.text += "...";
    html_.text += "</span>\n";
  }

  Html html_;
  std::size_t lines_ = 0;
};

using FactsOf = std::vector<query::Fact> (*)(const JobRow& job);

// A row for each fact that is known of a job, or that differs.
enum class Rows : std::uint8_t { kKnown, kDiffering };
List fact_rows(const std::vector<Searchable::Record>& jobs, FactsOf facts_of, Rows which) {
  std::vector<std::vector<query::Fact>> columns;
  for (const Searchable::Record& record : jobs) columns.push_back(facts_of(record.job));
  List rows;
  for (std::size_t i = 0; i < columns.front().size(); ++i) {
    const std::string& first = columns.front()[i].value;
    List cells;
    bool is_shown = false;
    for (const auto& facts : columns) {
      const std::string& value = facts[i].value;
      is_shown = is_shown || (which == Rows::kKnown ? !value.empty() : value != first);
      cells.push_back({"text", value});
    }
    if (!is_shown) continue;
    Values row;
    row.set("what", std::string(columns.front()[i].name));
    row.set("cells", cells);
    rows.push_back(std::move(row));
  }
  return rows;
}

List heads_of(const std::vector<Searchable::Record>& jobs, const std::string& root) {
  List heads;
  for (const Searchable::Record& record : jobs) {
    Values head;
    head.set("href", root + job_path(record.job));
    head.set("id", printable(record.job.id));
    head.set("time", query::local_time(record.job.time));
    heads.push_back(std::move(head));
  }
  return heads;
}

void add_script(List& parts, const query::Comparison& comparison) {
  DiffText diff;
  for (const query::Hunk& hunk : query::hunks_of(comparison.script, kContext)) {
    diff.head(query::hunk_head(hunk));
    for (const query::LineEdit& edit : hunk.edits) diff.line(edit.kind, edit.text);
  }
  diff.put_into(parts, "script");
}

void add_environment(List& parts, const query::Comparison& comparison) {
  DiffText diff;
  for (const query::VariableChange& change : comparison.environment) {
    if (change.is_list) {
      diff.head(change.removed.empty() && change.added.empty() ? words("only_order", {change.name})
                                                               : change.name);
      diff.change({change.removed, change.added});
      continue;
    }
    if (change.before) diff.line(query::EditKind::kRemoved, change.name + "=" + *change.before);
    if (change.after) diff.line(query::EditKind::kAdded, change.name + "=" + *change.after);
  }
  diff.put_into(parts, "environment");
}

void add_list(List& parts, const char* title, const query::ListChange& change) {
  DiffText diff;
  diff.change(change);
  diff.put_into(parts, title);
}

// The title, notes and texts of what changed from one job to another.
void add_differences(Values& values, const Searchable::Record& before,
                     const Searchable::Record& after) {
  const query::Comparison comparison = query::compare(before, after);
  const std::string name = query::shown(after.job.name);
  const std::string from = printable(before.job.id);
  const std::string to = printable(after.job.id);
  values.set("title", name.empty() ? words("compare_title", {from, to})
                                   : words("compare_name_title", {name, from, to}));
  List notes;
  if (!comparison.has_scripts) {
    notes.push_back({"text", words("no_scripts")});
  } else if (!comparison.script_differs()) {
    notes.push_back({"text", words("same_scripts")});
  }
  if (!comparison.has_environments) notes.push_back({"text", words("no_environments")});
  values.set("notes", notes);
  List parts;
  add_list(parts, "directives", comparison.directives);
  add_list(parts, "modules", comparison.modules);
  add_script(parts, comparison);
  add_environment(parts, comparison);
  values.set("parts", parts);
}

// A link to what changed from each job to the next.
List pairs_of(const std::vector<Searchable::Record>& jobs, const std::string& root) {
  List pairs;
  for (std::size_t i = 1; i < jobs.size(); ++i) {
    const JobRow& before = jobs[i - 1].job;
    const JobRow& after = jobs[i].job;
    Values pair;
    pair.set("href", root + compare_path({&before, &after}));
    pair.set("text", words("compare_pair", {printable(before.id), printable(after.id)}));
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace

Values compare_values(const std::vector<Searchable::Record>& jobs, const std::string& root) {
  Values values;
  values.set("jobs", heads_of(jobs, root));
  values.set("outcome", fact_rows(jobs, &query::outcome_facts, Rows::kKnown));
  set_list(values, "request", fact_rows(jobs, &query::request_facts, Rows::kDiffering));
  if (jobs.size() == 2) {
    add_differences(values, jobs.front(), jobs.back());
  } else {
    values.set("title", words("compare_many_title", {std::to_string(jobs.size())}));
    set_list(values, "pairs", pairs_of(jobs, root));
  }
  return values;
}

}  // namespace scriptorium::page
