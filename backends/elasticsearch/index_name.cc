#include "backends/elasticsearch/index_name.h"

#include <algorithm>
#include <array>

namespace scriptorium::elasticsearch {
namespace {

constexpr std::array<std::string_view, 7> kFields = {"family", "kind",  "cluster", "scheduler",
                                                     "year",   "month", "day"};
// The servers take 255 bytes: four fields that may be long, each at most once, the date and the
// fixed text stay below.
constexpr std::size_t kLongestValue = 40;
constexpr std::size_t kLongestText = 80;

bool allowed(char c) noexcept {
  // Narrower than the servers' rule, which also takes most of Unicode: ASCII is the same in every
  // tool and URL.
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' ||
         c == '+';
}

std::string fit(std::string_view value) {
  std::string result;
  for (char c : value.substr(0, kLongestValue)) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    result += allowed(c) ? c : '_';
  }
  return result.empty() ? "_" : result;
}

}  // namespace

std::string_view family_of(std::string_view kind) noexcept {
  return kind.substr(0, kind.find('.'));
}

Result<IndexName> IndexName::parse(std::string_view text) {
  const auto refuse = [](std::string why) {
    return Error{ErrorKind::kInvalidConfig, std::move(why)};
  };
  IndexName result;
  std::size_t fixed = 0;
  while (!text.empty()) {
    const std::size_t open = text.find_first_of("{}");
    if (open != 0) {
      const std::string_view part = text.substr(0, open);
      const auto bad = std::ranges::find_if_not(part, allowed);
      if (bad != part.end())
        return refuse("an index name cannot hold '" + std::string(1, *bad) + "'");
      result.parts_.push_back({.field = {}, .text = std::string(part)});
      fixed += part.size();
      if (open == std::string_view::npos) break;
      text.remove_prefix(open);
    }
    const std::size_t close = text.find('}');
    if (text.front() == '}' || close == std::string_view::npos)
      return refuse("'{' and '}' do not match");
    const std::string_view field = text.substr(1, close - 1);
    if (std::ranges::find(kFields, field) == kFields.end())
      return refuse("unknown field {" + std::string(field) + "}");
    if (std::ranges::find(result.parts_, field, &Part::field) != result.parts_.end()) {
      return refuse("{" + std::string(field) + "} stands there twice");
    }
    result.parts_.push_back({.field = std::string(field), .text = {}});
    text.remove_prefix(close + 1);
  }
  if (result.parts_.empty()) return refuse("empty");
  const Part& first = result.parts_.front();
  // What a field brings in may begin with anything, so the name has to begin with fixed text.
  if (!first.field.empty()) return refuse("begins with a field");
  if (first.text.find_first_of("-_+.") == 0)
    return refuse("an index name cannot begin with '-', '_', '+' or '.'");
  if (fixed > kLongestText)
    return refuse("more than " + std::to_string(kLongestText) + " bytes of fixed text");
  return result;
}

std::string IndexName::of(const Event& event) const {
  const CivilDate date = civil_date(event.time);
  std::string name;
  for (const Part& part : parts_) {
    if (part.field.empty()) {
      name += part.text;
    } else if (part.field == "family") {
      name += fit(family_of(event.kind));
    } else if (part.field == "kind") {
      name += fit(event.kind);
    } else if (part.field == "cluster") {
      name += fit(event.cluster);
    } else if (part.field == "scheduler") {
      name += fit(event.scheduler);
    } else if (part.field == "year") {
      name += date.year;
    } else if (part.field == "month") {
      name += date.month;
    } else {
      name += date.day;
    }
  }
  return name;
}

std::string IndexName::pattern(std::string_view family) const {
  std::string result;
  for (const Part& part : parts_) {
    if (part.field.empty()) {
      // ".": between year and month. A pattern that ends in one star takes other dates too.
      if (part.text == "." && result.ends_with('*')) continue;
      result += part.text;
    } else if (part.field == "family" && !family.empty()) {
      result += fit(family);
    } else if (part.field == "kind" && !family.empty()) {
      result += fit(family) + ".*";
    } else if (!result.ends_with('*')) {
      result += '*';
    }
  }
  return result;
}

std::string IndexName::template_name(std::string_view family) const {
  constexpr std::string_view kBetween = "-._";
  std::string result;
  for (const char c : pattern(family)) {
    const bool twice = !result.empty() && kBetween.find(c) != std::string_view::npos &&
                       kBetween.find(result.back()) != std::string_view::npos;
    if (c != '*' && !twice) result += c;
  }
  while (!result.empty() && kBetween.find(result.back()) != std::string_view::npos)
    result.pop_back();
  return result;
}

bool IndexName::has_family() const noexcept {
  return std::ranges::any_of(
      parts_, [](const Part& p) { return p.field == "family" || p.field == "kind"; });
}

bool IndexName::has_date() const noexcept {
  return std::ranges::any_of(parts_, [](const Part& p) {
    return p.field == "year" || p.field == "month" || p.field == "day";
  });
}

}  // namespace scriptorium::elasticsearch
