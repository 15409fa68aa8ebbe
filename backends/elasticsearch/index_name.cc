#include "backends/elasticsearch/index_name.h"

#include <algorithm>
#include <array>

#include "core/base/ascii.h"

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
  return is_lower(c) || is_digit(c) || c == '-' || c == '_' || c == '.' || c == '+';
}

std::string fit(std::string_view value) {
  std::string result;
  for (const char c : to_lower(value.substr(0, kLongestValue))) result += allowed(c) ? c : '_';
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
  auto parsed = TextTemplate::parse(text, kFields);
  if (!parsed) return parsed.error();
  if (parsed->empty()) return refuse("empty");
  const std::string fixed = parsed->fixed_text();
  if (const auto bad = std::ranges::find_if_not(fixed, allowed); bad != fixed.end())
    return refuse("an index name cannot hold '" + std::string(1, *bad) + "'");
  for (const std::string_view field : kFields) {
    if (parsed->count(field) > 1) return refuse("{" + std::string(field) + "} appears twice");
  }
  const TextTemplate::Part& first = parsed->parts().front();
  // What a field brings in may begin with anything, so the name has to begin with fixed text.
  if (first.is_field()) return refuse("begins with a field");
  if (first.text.find_first_of("-_+.") == 0)
    return refuse("an index name cannot begin with '-', '_', '+' or '.'");
  if (fixed.size() > kLongestText)
    return refuse("more than " + std::to_string(kLongestText) + " bytes of fixed text");
  IndexName result;
  result.template_ = *std::move(parsed);
  return result;
}

std::string IndexName::of(const Event& event) const {
  const CivilDate date = civil_date(event.time);
  return template_.expand([&](std::string_view field) {
    if (field == "family") return fit(family_of(event.kind));
    if (field == "kind") return fit(event.kind);
    if (field == "cluster") return fit(event.cluster);
    if (field == "scheduler") return fit(event.scheduler);
    if (field == "year") return date.year;
    return field == "month" ? date.month : date.day;
  });
}

std::string IndexName::pattern(std::string_view family) const {
  std::string result;
  for (const TextTemplate::Part& part : template_.parts()) {
    if (!part.is_field()) {
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
  return template_.uses("family") || template_.uses("kind");
}

bool IndexName::has_date() const noexcept {
  return template_.uses("year") || template_.uses("month") || template_.uses("day");
}

}  // namespace scriptorium::elasticsearch
