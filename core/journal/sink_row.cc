#include "core/journal/sink_row.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::journal {

bool SinkRow::wants(std::string_view kind, std::uint64_t seq, SinkId target) const {
  if (target != 0) return target == id;
  for (const Absence& absence : absences) {
    if (seq > absence.after && seq <= absence.upto) return false;
  }
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& p) { return p == kind || glob_match(p, kind); });
}

bool SinkRow::is_pending(const EventSummary& event) const {
  return event.seq > cursor && wants(event.kind, event.seq, event.target) &&
         !ahead.contains(event.seq);
}

std::string encode_absences(const std::vector<Absence>& absences) {
  std::string text;
  for (const Absence& absence : absences) {
    if (!text.empty()) text += ' ';
    text += std::to_string(absence.after) + '-';
    if (absence.upto != Absence::kOpen) text += std::to_string(absence.upto);
  }
  return text;
}

std::vector<Absence> decode_absences(std::string_view text) {
  std::vector<Absence> absences;
  while (!text.empty()) {
    Absence& absence = absences.emplace_back();
    absence.after = take_number<std::uint64_t>(text).value_or(0);
    if (text.starts_with('-')) text.remove_prefix(1);
    absence.upto = take_number<std::uint64_t>(text).value_or(Absence::kOpen);
    text.remove_prefix(std::min(text.size(), text.find(' ')));
    if (!text.empty()) text.remove_prefix(1);
  }
  return absences;
}

std::string join_kinds(const std::vector<std::string>& kinds) {
  std::string text;
  for (const std::string& kind : kinds) text.append(text.empty() ? "" : "\n").append(kind);
  return text;
}

std::vector<std::string> split_kinds(const std::string& kinds) {
  std::vector<std::string> list;
  std::istringstream lines(kinds);
  for (std::string kind; std::getline(lines, kind);) list.push_back(std::move(kind));
  return list;
}

}  // namespace scriptorium::journal
