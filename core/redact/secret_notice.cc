#include "core/redact/secret_notice.h"

#include <algorithm>
#include <string_view>

namespace scriptorium::redact {
namespace {

// "3", "3 and 12", "3, 12 and 40", and "3, ..., 80 and more" for a list that was cut.
std::string listed(std::vector<std::string> items) {
  if (items.size() >= kMostRedactionPlaces) items.emplace_back("more");
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

std::string lines_text(const std::vector<std::uint32_t>& lines) {
  if (lines.empty()) return {};
  std::vector<std::string> numbers;
  numbers.reserve(lines.size());
  for (const std::uint32_t line : lines) numbers.push_back(std::to_string(line));
  return (lines.size() == 1 ? " in line " : " in lines ") + listed(std::move(numbers));
}

std::string variables_text(const std::vector<std::string>& names) {
  return (names.size() == 1 ? "variable " : "variables ") + listed(names);
}

// Behind "Your " or "The ".
std::string place_text(const Redaction& found) {
  if (found.where == "script") return "job script";
  if (found.where == "environment")
    return "job's " + (found.names.empty() ? "environment" : variables_text(found.names));
  if (found.where == "job.name") return "job's name";
  if (found.where == "job.account") return "job's account";
  if (found.where == "job.work_dir") return "job's working directory";
  if (found.where == "script.directives") return "job's directives";
  if (found.where == "script.software") return "job's software";
  return "job's " + found.where;
}

std::string about_text(const Redaction& found, const RuleSet* rules) {
  const Rule* rule = rules == nullptr ? nullptr : rules->rule(found.rule);
  return rule == nullptr || rule->about.empty() ? "a secret (rule " + found.rule + ")"
                                                : rule->about;
}

// Texts that core takes from the script hold only what was found there already.
bool is_taken_from_script(const Redaction& found) {
  return found.where.starts_with("script.") || found.where == "problems";
}

bool is_told(const Redaction& found, bool script_is_told) {
  if (found.rule == "environment" || found.rule == "environment.unparsable") return false;
  return !(script_is_told && is_taken_from_script(found));
}

std::string fate_text(const std::string& subject, bool one, bool kept) {
  if (kept) return subject + (one ? " IS in the archive." : " ARE in the archive.");
  return subject + (one ? " was not archived." : " were not archived.");
}

// Variables that are redacted for their names alone. They need not hold a secret.
std::string named_text(const Redaction& found) {
  const bool one = found.count == 1;
  std::string text = found.names.empty() ? "job has variables with names of secrets"
                     : one               ? place_text(found) + " has the name of a secret"
                                         : place_text(found) + " have names of secrets";
  return text + ". " + fate_text(one ? "Its value" : "Their values", one, found.kept);
}

std::string found_text(const Redaction& found, const RuleSet* rules) {
  const bool one = found.count == 1;
  return place_text(found) + " held what looks like " + about_text(found, rules) +
         (one ? "" : ", " + std::to_string(found.count) + " times") + lines_text(found.lines) +
         ". " + fate_text(one ? "It" : "They", one, found.kept);
}

}  // namespace

std::vector<std::string> secret_notice(const std::vector<Redaction>& redactions,
                                       const RuleSet* rules, Reader reader) {
  const bool script_is_told =
      std::ranges::any_of(redactions, [](const Redaction& r) { return r.where == "script"; });
  const std::string whose = reader == Reader::kOwner ? "Your " : "The ";
  std::vector<std::string> notice;
  bool any_kept = false;
  for (const Redaction& found : redactions) {
    if (!is_told(found, script_is_told)) continue;
    notice.push_back(whose +
                     (found.rule == kNameRule ? named_text(found) : found_text(found, rules)));
    any_kept = any_kept || found.kept;
  }
  if (!notice.empty()) {
    notice.emplace_back(any_kept ? "Revoke what is secret: whoever may read the archive can read "
                                   "it."
                                 : "Revoke what is secret: the scheduler's own copies of the job "
                                   "still hold it.");
  }
  return notice;
}

}  // namespace scriptorium::redact
