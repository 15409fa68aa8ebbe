#include "core/redact/part.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <tuple>

#include "core/base/ascii.h"
#include "core/base/text.h"
#include "core/redact/placeholder.h"
#include "core/redact/redactor.h"

namespace scriptorium::redact {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kShortestCopy = 8;  // a shorter secret is found where its rule finds it
constexpr std::size_t kLongestName = 128;

bool is_word(char c) { return is_alphanumeric(c) || c == '_'; }

// "us-east-1", "auth1.lab.org": names that people make of words and numbers.
bool is_made_of_words(std::string_view text) {
  if (const std::size_t dot = text.rfind('.'); dot != std::string_view::npos) {
    const std::string_view last = text.substr(dot + 1);
    if (!last.empty() && std::all_of(last.begin(), last.end(), is_lower)) return true;
  }
  constexpr std::string_view kSeparators = "-._:@";
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, text.find_first_of(kSeparators));
    const bool is_plain = std::all_of(piece.begin(), piece.end(), is_lower) ||
                          std::all_of(piece.begin(), piece.end(), is_digit);
    if (!is_plain) return false;
    text.remove_prefix(std::min(piece.size() + 1, text.size()));
  }
  return true;
}

// Whether a secret is told from ordinary words, numbers, names and paths, so that its copies may be
// removed wherever they stand. What was removed for its name alone need not be a secret at all.
bool is_distinct(std::string_view secret, bool by_name_alone) {
  if (secret.size() < kShortestCopy || secret.find_first_of("/~.$<") == 0) return false;
  if (secret.find_first_of(" \t\n\0"sv) != std::string_view::npos) return false;
  const bool has_letter = std::any_of(secret.begin(), secret.end(), is_letter);
  const bool has_other = !std::all_of(secret.begin(), secret.end(), is_lower);
  const bool is_path =
      secret.find("=/") != std::string_view::npos || secret.find(":/") != std::string_view::npos;
  if (!has_letter || !has_other || is_path) return false;
  return !by_name_alone ||
         (std::any_of(secret.begin(), secret.end(), is_digit) && !is_made_of_words(secret));
}

bool ends_assignment(char c) { return c == ',' || c == '\n' || c == '<' || c == '>' || c == '\0'; }

}  // namespace

void Part::find(const RuleSet& rules, Mode mode) {
  switch (kind_) {
    case Kind::kScript: find_in(rules, mode, Place::kScript, 0, text_.size()); break;
    case Kind::kVariables: find_in_variables(rules, mode); break;
    case Kind::kAssignments:
      find_in(rules, mode, Place::kText, 0, text_.size());
      find_assignments(rules, mode);
      break;
    case Kind::kText: find_in(rules, mode, Place::kText, 0, text_.size()); break;
  }
  put_in_order();
}

void Part::find_in(const RuleSet& rules, Mode mode, Place place, std::size_t begin,
                   std::size_t end) {
  for (const Finding& found : rules.find(mode, place, text_.substr(begin, end - begin)))
    spans_.push_back({.begin = begin + found.begin,
                      .end = begin + found.end,
                      .rule = found.rule,
                      .kept = found.kept});
}

void Part::add_denied(const RuleSet& rules, Mode mode, std::size_t begin, std::size_t end) {
  const Rule* const rule = rules.rule(kNameRule);
  if (rule == nullptr || is_placeholder(text_.substr(begin, end - begin))) return;
  spans_.push_back({.begin = begin,
                    .end = end,
                    .rule = rule,
                    .kept = mode == Mode::kFlag || rule->action == Action::kFlag});
}

void Part::find_in_variables(const RuleSet& rules, Mode mode) {
  for (std::size_t at = 0; at < text_.size();) {
    const std::size_t end = std::min(text_.find('\0', at), text_.size());
    const std::size_t equals = end > at ? text_.substr(0, end).find('=', at + 1) : end;
    const bool has_value = equals < end;
    const std::size_t value = has_value ? equals + 1 : at;
    const std::size_t before = spans_.size();
    if (has_value &&
        rules.is_denied(text_.substr(at, equals - at), text_.substr(value, end - value))) {
      add_denied(rules, mode, value, end);
    } else {
      find_in(rules, mode, Place::kValue, value, end);
    }
    const bool drops =
        std::any_of(spans_.begin() + static_cast<std::ptrdiff_t>(before), spans_.end(),
                    [](const Span& s) { return !s.kept && s.rule->action == Action::kDrop; });
    if (drops && has_value) drop_variable(before, at, std::min(end + 1, text_.size()));
    at = end + 1;
  }
}

// Instead of the spans from `first` on: the variable with its name.
void Part::drop_variable(std::size_t first, std::size_t begin, std::size_t end) {
  const auto drops = [](const Span& s) { return !s.kept && s.rule->action == Action::kDrop; };
  const auto from = spans_.begin() + static_cast<std::ptrdiff_t>(first);
  const Rule* const rule = std::find_if(from, spans_.end(), drops)->rule;
  spans_.resize(first);
  spans_.push_back({.begin = begin, .end = end, .rule = rule, .cut = true});
}

void Part::find_assignments(const RuleSet& rules, Mode mode) {
  for (std::size_t at = text_.find('='); at != std::string_view::npos; at = text_.find('=', at)) {
    std::size_t name = at;
    while (name > 0 && is_word(text_[name - 1])) --name;
    std::size_t end = ++at;
    const std::string_view denied = text_.substr(name, at - 1 - name);
    if (denied.empty() || !rules.is_denied(denied)) continue;
    while (end < text_.size() && !ends_assignment(text_[end])) ++end;
    if (!rules.is_denied(denied, text_.substr(at, end - at))) continue;
    add_denied(rules, mode, at, end);
    at = end;
  }
}

void Part::find_copies(const std::vector<std::string_view>& secrets, const Rule& rule) {
  const std::size_t before = spans_.size();
  for (const std::string_view secret : secrets) {
    for (std::size_t at = text_.find(secret); at != std::string_view::npos;) {
      const std::size_t end = at + secret.size();
      const bool begins = at == 0 || !is_word(text_[at - 1]) || !is_word(secret.front());
      const bool ends = end == text_.size() || !is_word(text_[end]) || !is_word(secret.back());
      if (begins && ends) spans_.push_back({.begin = at, .end = end, .rule = &rule});
      at = text_.find(secret, end);
    }
  }
  if (spans_.size() != before) put_in_order();
}

// In order and without overlap. Where two overlap, the first one's rule names both, and what is a
// copy as well is named by its own rule; what one of them removes is removed.
void Part::put_in_order() {
  const auto place_of = [&](const Span& span) {
    return std::tuple(span.begin, span.rule->name == kCopyRule, text_.size() - span.end);
  };
  std::sort(spans_.begin(), spans_.end(),
            [&](const Span& a, const Span& b) { return place_of(a) < place_of(b); });
  std::vector<Span> merged;
  for (const Span& span : spans_) {
    if (merged.empty() || span.begin >= merged.back().end) {
      merged.push_back(span);
      continue;
    }
    Span& last = merged.back();
    if (last.kept && !span.kept) last.rule = span.rule;
    last.end = std::max(last.end, span.end);
    last.kept = last.kept && span.kept;
    last.cut = last.cut || span.cut;
  }
  spans_ = std::move(merged);
}

void Part::list_secrets(std::vector<std::string_view>& into) const {
  for (const Span& span : spans_) {
    if (span.kept || span.cut) continue;
    const std::string_view secret = text_.substr(span.begin, span.end - span.begin);
    if (is_distinct(secret, span.rule->name == kNameRule)) into.push_back(secret);
  }
}

void Part::finish(std::vector<Redaction>& into) {
  if (spans_.empty()) return;
  report(into);
  if (std::any_of(spans_.begin(), spans_.end(), [](const Span& s) { return !s.kept; }))
    put_(edited());
}

std::string Part::edited() const {
  std::string result;
  result.reserve(text_.size() + 64);
  std::size_t copied = 0;
  for (const Span& span : spans_) {
    if (span.kept) continue;
    result.append(text_, copied, span.begin - copied);
    if (!span.cut) result += replacement_of(*span.rule);
    copied = span.end;
  }
  return result.append(text_, copied);
}

// One pass over the text, however many spans it has.
void Part::report(std::vector<Redaction>& into) const {
  std::size_t seen = 0;
  std::uint32_t line = 1;
  std::size_t variable = 0;  // where the variable at `seen` begins
  for (const Span& span : spans_) {
    for (; seen < span.begin; ++seen) {
      if (text_[seen] == '\n') ++line;
      if (text_[seen] == '\0') variable = seen + 1;
    }
    Redaction found{.rule = span.rule->name, .where = where_, .count = 1, .kept = span.kept};
    if (kind_ == Kind::kScript) found.lines = {line};
    if (kind_ == Kind::kVariables) {
      const std::string_view start = text_.substr(variable, kLongestName);
      found.names = {to_utf8_lossy(start.substr(0, start.find('=', 1)))};
    }
    merge(into, {found});
  }
}

}  // namespace scriptorium::redact
