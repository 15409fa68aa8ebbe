#include "core/cli/redact_text.h"

#include <algorithm>
#include <cstddef>

#include "core/base/text.h"

namespace scriptorium::cli {
namespace {

constexpr std::size_t kShowsBeginningFrom = 12;
constexpr std::size_t kShownBeginning = 2;
constexpr std::size_t kShownBefore = 80;
constexpr std::size_t kShownAfter = 40;
constexpr std::size_t kMostCopied = 50;  // secrets whose copies are looked for
constexpr std::size_t kShortestCopy = 4;
constexpr std::size_t kMostShown = 4096;

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// What must not be shown between `begin` and `end`, in order and without overlap.
std::vector<Range> secret_ranges(std::string_view text, const std::vector<redact::Finding>& all,
                                 Range line) {
  std::vector<Range> ranges;
  std::size_t copied = 0;
  for (const redact::Finding& f : all) {
    if (f.begin < line.end && f.end > line.begin) ranges.push_back({f.begin, f.end});
    const std::string_view secret = text.substr(f.begin, f.end - f.begin);
    if (secret.size() < kShortestCopy || ++copied > kMostCopied) continue;
    for (std::size_t at = text.find(secret, line.begin); at < line.end;
         at = text.find(secret, at + secret.size()))
      ranges.push_back({at, at + secret.size()});
  }
  std::ranges::sort(ranges, {}, &Range::begin);
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (!merged.empty() && range.begin < merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

Range line_around(std::string_view text, std::size_t at) {
  const std::size_t before = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  return {before == std::string_view::npos ? 0 : before + 1,
          std::min(text.find('\n', at), text.size())};
}

}  // namespace

std::string masked_secret(std::string_view secret) {
  std::string shown;
  if (secret.size() >= kShowsBeginningFrom) shown = printable(secret.substr(0, kShownBeginning));
  return shown + "****";
}

std::string masked_line(std::string_view text, const std::vector<redact::Finding>& all,
                        const redact::Finding& found, const Console& console, bool whole) {
  const Range line = whole ? Range{0, text.size()} : line_around(text, found.begin);
  const std::vector<Range> secrets = secret_ranges(text, all, line);
  Range window{line.begin, std::min(line.end, found.end + kShownAfter)};
  if (found.begin - line.begin > kShownBefore) window.begin = found.begin - kShownBefore;
  std::string result = window.begin > line.begin ? "..." : "";
  std::size_t at = window.begin;
  for (const Range& secret : secrets) {
    if (secret.end <= at) continue;
    if (secret.begin >= window.end) break;
    if (secret.begin > at) result += printable(text.substr(at, secret.begin - at), kMostShown);
    // Where the window begins within a secret, its two next characters would not be its first.
    const bool from_its_beginning = secret.begin >= at;
    result += console.red(from_its_beginning
                              ? masked_secret(text.substr(secret.begin, secret.end - secret.begin))
                              : "****");
    at = secret.end;
  }
  if (at < window.end) result += printable(text.substr(at, window.end - at), kMostShown);
  if (std::max(at, window.end) < line.end) result += "...";
  return result;
}

std::string masked_text(std::string_view text, const redact::RuleSet& rules) {
  std::string result;
  std::size_t at = 0;
  for (const redact::Finding& f : rules.find(redact::Mode::kStrict, redact::Place::kText, text)) {
    result.append(text, at, f.begin - at) += masked_secret(text.substr(f.begin, f.end - f.begin));
    at = f.end;
  }
  return result.append(text, at);
}

}  // namespace scriptorium::cli
