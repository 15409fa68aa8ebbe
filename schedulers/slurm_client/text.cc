#include "schedulers/slurm_client/text.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium::slurm_client {

std::string squeue_format(std::span<const std::string_view> fields, std::string_view end) {
  std::string format;
  for (const std::string_view field : fields) {
    // What follows the colon is a width if it begins with a digit, and the text between columns if
    // not; without one each column would be cut at 20 characters.
    format.append(format.empty() ? "" : ",").append(field).append(":").append(end);
  }
  return format;
}

Error odd_answer(std::string_view command) {
  return {ErrorKind::kTransient,
          std::string(command) + ": a row is not as Slurm writes it; the whole answer is refused"};
}

std::optional<Timestamp> read_epoch(std::string_view text) noexcept {
  const auto seconds = parse_number<std::uint64_t>(text);
  if (!seconds || *seconds == 0 || *seconds > std::numeric_limits<std::int64_t>::max() / kSecond)
    return std::nullopt;
  return Timestamp{static_cast<std::int64_t>(*seconds) * kSecond};
}

std::optional<double> read_duration(std::string_view text) noexcept {
  double days = 0;
  if (const auto dash = text.find('-'); dash != std::string_view::npos) {
    const auto whole = parse_number<std::uint64_t>(text.substr(0, dash));
    constexpr std::uint64_t kMostDays = 1'000'000'000;  // NO_VAL64 seconds are more
    if (!whole || *whole > kMostDays) return std::nullopt;
    days = static_cast<double>(*whole);
    text.remove_prefix(dash + 1);
  }
  double fraction = 0;
  if (const auto dot = text.find('.'); dot != std::string_view::npos) {
    const std::string_view digits = text.substr(dot + 1);
    const auto value = parse_number<std::uint64_t>(digits);
    if (!value) return std::nullopt;
    fraction = static_cast<double>(*value) / std::pow(10.0, static_cast<double>(digits.size()));
    text = text.substr(0, dot);
  }
  double seconds = 0;
  for (int parts = 0;; ++parts) {
    const auto colon = text.find(':');
    const auto part = parse_number<std::uint64_t>(text.substr(0, colon));
    if (!part || parts > 2) return std::nullopt;
    seconds = seconds * 60 + static_cast<double>(*part);
    if (colon == std::string_view::npos)
      return parts == 0 ? std::nullopt : std::optional(days * 86400 + seconds + fraction);
    text.remove_prefix(colon + 1);
  }
}

std::optional<std::uint64_t> read_size(std::string_view text) noexcept {
  const auto value = take_number<double>(text);
  if (!value || !(*value >= 0)) return std::nullopt;
  constexpr std::string_view kUnits = "KMGTP";
  double factor = 1;
  if (!text.empty()) {
    const auto place = kUnits.find(text[0]);
    if (place == std::string_view::npos || text.size() > 1) return std::nullopt;
    factor = std::pow(1024.0, static_cast<double>(place + 1));
  }
  if (*value * factor > 9e18) return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(*value * factor));
}

std::optional<std::string_view> tres(std::string_view list, std::string_view name) noexcept {
  while (!list.empty()) {
    const std::string_view item = take_until(list, ',');
    if (item.size() > name.size() && item.starts_with(name) && item[name.size()] == '=')
      return item.substr(name.size() + 1);
  }
  return std::nullopt;
}

std::optional<std::uint32_t> read_count(std::string_view text) noexcept {
  constexpr std::uint32_t kInfinite = 0xfffffffd;  // and NO_VAL, one more
  const auto value = parse_number<std::uint32_t>(text);
  return value && *value < kInfinite ? value : std::nullopt;
}

namespace {

constexpr std::size_t kMostHosts = 65536;

// Adds every name that `text`, such as "n[01-03,7]-ib", means, with `prefix` before it.
bool expand_hosts(const std::string& prefix, std::string_view text,
                  std::vector<std::string>& into) {
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos) {
    into.push_back(prefix + std::string(text));
    return into.size() <= kMostHosts;
  }
  const std::size_t close = text.find(']', open);
  if (close == std::string_view::npos) return false;
  const std::string stem = prefix + std::string(text.substr(0, open));
  const std::string_view rest = text.substr(close + 1);
  for (std::string_view ranges = text.substr(open + 1, close - open - 1); !ranges.empty();) {
    const std::string_view range = take_until(ranges, ',');
    const std::string_view low = range.substr(0, range.find('-'));
    const auto first = parse_number<std::uint32_t>(low);
    const auto last = parse_number<std::uint32_t>(
        low.size() == range.size() ? low : range.substr(low.size() + 1));
    if (!first || !last || *last < *first || *last - *first > kMostHosts) return false;
    for (std::uint32_t number = *first; number <= *last; ++number) {
      std::string digits = std::to_string(number);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      if (!expand_hosts(stem + digits, rest, into)) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<std::string> read_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  while (!list.empty()) {
    std::size_t end = 0;
    for (bool inside = false; end < list.size() && (inside || list[end] != ','); ++end)
      inside = list[end] == '[' || (inside && list[end] != ']');
    // "None assigned" and "(null)" are no names.
    const std::string_view item = list.substr(0, end);
    if (end == 0 || item.find_first_of(" (") != std::string_view::npos ||
        !expand_hosts("", item, hosts))
      return {};
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return hosts;
}

std::optional<std::string> optional_text(std::string_view text) {
  if (text.empty() || text == "(null)") return std::nullopt;
  return std::string(text);
}

}  // namespace scriptorium::slurm_client
