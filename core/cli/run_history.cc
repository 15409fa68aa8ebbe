#include "core/cli/run_history.h"

#include "core/cli/job_record.h"

namespace scriptorium::cli {

RunEdit run_edit(const JobRow& before, const JobRow& after) {
  RunEdit edit;
  edit.known = before.script_sha256 && before.script_sha256 == after.script_sha256;
  edit.modules = query::list_diff(before.modules, after.modules);
  return edit;
}

RunEdit run_edit(const Searchable::Record& before, const Searchable::Record& after) {
  RunEdit edit = run_edit(before.job, after.job);
  const auto old_script = script_text(before);
  const auto new_script = script_text(after);
  if (edit.known || !old_script || !new_script) return edit;
  edit.known = true;
  const auto edits = query::line_diff(*old_script, *new_script);
  edit.lines = query::count_edits(edits);
  if (edit.lines.added + edit.lines.removed > kMostShownEdits) return edit;
  for (const query::LineEdit& line : edits) {
    if (line.kind != query::EditKind::kSame)
      edit.changed.push_back(static_cast<char>(line.kind) + std::string(line.text));
  }
  return edit;
}

std::string edit_text(const RunEdit& edit) {
  std::string text;
  if (!edit.known) {
    text = "?";
  } else if (edit.lines.any()) {
    text = "+" + std::to_string(edit.lines.added) + " -" + std::to_string(edit.lines.removed);
  }
  if (edit.modules.any()) text += text.empty() ? "modules" : ", modules";
  return text.empty() ? "none" : text;
}

}  // namespace scriptorium::cli
