#include "core/journal/sink_row.h"

#include <algorithm>
#include <charconv>

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
  const auto number = [&](std::uint64_t& value) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  };
  while (!text.empty()) {
    Absence& absence = absences.emplace_back();
    number(absence.after);
    if (text.starts_with('-')) text.remove_prefix(1);
    number(absence.upto);  // remains kOpen if there is none
    const auto next = text.find(' ');
    text = next == std::string_view::npos ? std::string_view{} : text.substr(next + 1);
  }
  return absences;
}

std::string join_kinds(const std::vector<std::string>& kinds) {
  std::string text;
  for (const std::string& kind : kinds) text.append(text.empty() ? "" : "\n").append(kind);
  return text;
}

std::vector<std::string> split_kinds(std::string_view kinds) {
  std::vector<std::string> list;
  while (!kinds.empty()) {
    const auto end = kinds.find('\n');
    list.emplace_back(kinds.substr(0, end));
    kinds = end == std::string_view::npos ? std::string_view{} : kinds.substr(end + 1);
  }
  return list;
}

}  // namespace scriptorium::journal
