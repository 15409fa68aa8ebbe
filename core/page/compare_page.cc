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
      html_.text +=
          "<span class=hunk>" + std::to_string(lines_ - kMostLines) + " lines more</span>\n";
    Values values;
    values.set("title", title);
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

List fact_rows(const std::vector<query::FactChange>& facts) {
  List rows;
  for (const query::FactChange& fact : facts) {
    Values row;
    row.set("what", fact.name);
    row.set("old", fact.before);
    row.set("new", fact.after);
    rows.push_back(std::move(row));
  }
  return rows;
}

Values head_of(const JobRow& job, const std::string& root) {
  Values values;
  values.set("href", root + job_path(job));
  values.set("id", printable(job.id));
  values.set("time", query::local_time(job.time));
  return values;
}

void add_script(List& parts, const query::Comparison& comparison) {
  DiffText diff;
  for (const query::Hunk& hunk : query::hunks_of(comparison.script, kContext)) {
    diff.head(query::hunk_head(hunk));
    for (const query::LineEdit& edit : hunk.edits) diff.line(edit.kind, edit.text);
  }
  diff.put_into(parts, "Script");
}

void add_environment(List& parts, const query::Comparison& comparison) {
  DiffText diff;
  for (const query::VariableChange& change : comparison.environment) {
    if (change.is_list) {
      diff.head(change.name +
                (change.removed.empty() && change.added.empty() ? " (only its order)" : ""));
      diff.change({change.removed, change.added});
      continue;
    }
    if (change.before) diff.line(query::EditKind::kRemoved, change.name + "=" + *change.before);
    if (change.after) diff.line(query::EditKind::kAdded, change.name + "=" + *change.after);
  }
  diff.put_into(parts, "Environment");
}

void add_list(List& parts, const char* title, const query::ListChange& change) {
  DiffText diff;
  diff.change(change);
  diff.put_into(parts, title);
}

}  // namespace

Values compare_values(const Searchable::Record& before, const Searchable::Record& after,
                      const std::string& root) {
  const query::Comparison comparison = query::compare(before, after);
  Values values;
  const std::string name = query::shown(after.job.name);
  values.set("title", (name.empty() ? "From job " : name + ": from job ") +
                          printable(before.job.id) + " to job " + printable(after.job.id));
  values.set("old", head_of(before.job, root));
  values.set("new", head_of(after.job, root));
  values.set("outcome", fact_rows(comparison.outcome));
  const List request = fact_rows(comparison.request);
  values.set("has_request", !request.empty());
  values.set("request", request);
  List notes;
  if (!comparison.has_scripts) {
    notes.push_back({"text", "The script is not stored of both jobs."});
  } else if (!comparison.script_differs()) {
    notes.push_back({"text", "The scripts are equal."});
  }
  if (!comparison.has_environments)
    notes.push_back({"text", "The environment is not stored of both jobs."});
  values.set("notes", notes);
  List parts;
  add_list(parts, "Directives", comparison.directives);
  add_list(parts, "Modules", comparison.modules);
  add_script(parts, comparison);
  add_environment(parts, comparison);
  values.set("parts", parts);
  return values;
}

}  // namespace scriptorium::page
