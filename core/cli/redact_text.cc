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

// In order and without overlap.
std::vector<TextRange> merged(std::vector<TextRange> ranges) {
  std::ranges::sort(ranges, {}, &TextRange::begin);
  std::vector<TextRange> result;
  for (const TextRange& range : ranges) {
    if (!result.empty() && range.begin < result.back().end) {
      result.back().end = std::max(result.back().end, range.end);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

TextRange line_around(std::string_view text, std::size_t at) {
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

MaskedText::MaskedText(std::string_view text, const std::vector<redact::Finding>& findings)
    : text_(text) {
  std::vector<TextRange> ranges;
  ranges.reserve(findings.size());
  for (const redact::Finding& f : findings) {
    ranges.push_back({f.begin, f.end});
    const std::string_view secret = text.substr(f.begin, f.end - f.begin);
    if (secret.size() < kShortestCopy || copied_.size() == kMostCopied) continue;
    copied_.push_back(secret);
    longest_ = std::max(longest_, secret.size());
  }
  found_ = merged(std::move(ranges));
}

std::vector<TextRange> MaskedText::secrets_in(TextRange part) const {
  std::vector<TextRange> ranges;
  const auto first = std::ranges::upper_bound(found_, part.begin, {}, &TextRange::end);
  for (auto f = first; f != found_.end() && f->begin < part.end; ++f) ranges.push_back(*f);
  // One that begins before the part may reach into it.
  const std::size_t begin = part.begin - std::min(part.begin, longest_);
  const std::string_view near = text_.substr(begin, part.end + longest_ - begin);
  for (const std::string_view secret : copied_) {
    for (std::size_t at = near.find(secret); at != std::string_view::npos;
         at = near.find(secret, at + secret.size()))
      ranges.push_back({begin + at, begin + at + secret.size()});
  }
  return merged(std::move(ranges));
}

std::string MaskedText::line_of(const redact::Finding& found, const Console& console,
                                bool whole) const {
  const TextRange line = whole ? TextRange{0, text_.size()} : line_around(text_, found.begin);
  TextRange window{line.begin, std::min(line.end, found.end + kShownAfter)};
  if (found.begin - line.begin > kShownBefore) window.begin = found.begin - kShownBefore;
  const std::vector<TextRange> secrets = secrets_in(window);
  std::string result = window.begin > line.begin ? "..." : "";
  std::size_t at = window.begin;
  for (const TextRange& secret : secrets) {
    if (secret.end <= at) continue;
    if (secret.begin >= window.end) break;
    if (secret.begin > at) result += printable(text_.substr(at, secret.begin - at), kMostShown);
    // Where the window begins within a secret, its two next characters would not be its first.
    const bool from_its_beginning = secret.begin >= at;
    result += console.red(from_its_beginning
                              ? masked_secret(text_.substr(secret.begin, secret.end - secret.begin))
                              : "****");
    at = secret.end;
  }
  if (at < window.end) result += printable(text_.substr(at, window.end - at), kMostShown);
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
