#include "core/query/values.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>

#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium::query {
namespace {

constexpr std::int64_t kDay = 86'400;
constexpr double kMost = 9e18;  // below the largest std::int64_t

struct Unit {
  std::string_view word;
  std::int64_t factor = 1;
};
constexpr std::array<Unit, 9> kDurationUnits{{{"s", 1},
                                              {"sec", 1},
                                              {"m", 60},
                                              {"min", 60},
                                              {"h", 3600},
                                              {"hour", 3600},
                                              {"d", kDay},
                                              {"day", kDay},
                                              {"w", 7 * kDay}}};

// Digits, also with a fraction. A whole number keeps all its digits, which a double may not.
struct Decimal {
  std::optional<std::int64_t> whole;
  double value = 0;
};

std::optional<Decimal> take_decimal(std::string_view& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  if (end == 0 || !is_digit(text.front())) return std::nullopt;
  const std::string_view digits = text.substr(0, end);
  const auto value = parse_number<double>(digits);
  if (!value) return std::nullopt;
  text.remove_prefix(end);
  return Decimal{parse_number<std::int64_t>(digits), *value};
}

std::optional<std::int64_t> scaled(const Decimal& number, std::int64_t factor) {
  std::int64_t product = 0;
  if (number.whole) {
    if (__builtin_mul_overflow(*number.whole, factor, &product)) return std::nullopt;
    return product;
  }
  const double value = number.value * static_cast<double>(factor);
  if (!std::isfinite(value) || value > kMost) return std::nullopt;
  return static_cast<std::int64_t>(std::llround(value));
}

std::string_view take_letters(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_letter);
  const std::string_view letters = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(letters.size());
  return letters;
}

// One or more numbers with units, "1h30m".
std::optional<std::int64_t> read_units(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::int64_t sum = 0;
  while (!text.empty()) {
    const auto number = take_decimal(text);
    if (!number) return std::nullopt;
    const std::string word = to_lower(take_letters(text));
    const auto unit =
        std::find_if(kDurationUnits.begin(), kDurationUnits.end(), [&](const Unit& u) {
          return word == u.word || (u.word.size() > 1 && word == std::string(u.word) + "s");
        });
    if (unit == kDurationUnits.end()) return std::nullopt;
    const auto part = scaled(*number, unit->factor);
    if (!part || __builtin_add_overflow(sum, *part, &sum)) return std::nullopt;
  }
  return sum;
}

// "01:30:00", "10:00", "1-00:00:00", "1-12".
std::optional<std::int64_t> read_clock(std::string_view text) {
  std::int64_t days = 0;
  const bool has_days = text.find('-') != std::string_view::npos;
  if (has_days) {
    const auto number = parse_number<std::int64_t>(take_until(text, '-'));
    if (!number || *number < 0 || *number > 1'000'000) return std::nullopt;
    days = *number;
  }
  std::array<std::int64_t, 3> parts{};
  std::size_t count = 0;
  for (;;) {
    const std::size_t colon = text.find(':');
    const std::string_view digits = text.substr(0, colon);
    const auto number = parse_number<std::int64_t>(digits);
    if (count == parts.size() || !is_all_digits(digits) || !number || *number > 1'000'000)
      return std::nullopt;
    parts.at(count++) = *number;
    if (colon == std::string_view::npos) break;
    text.remove_prefix(colon + 1);
  }
  if (!has_days && count == 1) return std::nullopt;
  // With days the first is hours; without, the last is seconds.
  const bool hours_first = has_days || count == 3;
  const std::int64_t first = parts[0] * (hours_first ? 3600 : 60);
  const std::int64_t second = parts[1] * (hours_first ? 60 : 1);
  return days * kDay + first + second + parts[2];
}

// ---- times

using Days = std::chrono::sys_days;

std::int64_t start_of_day(std::chrono::year_month_day date) {
  return std::chrono::duration_cast<std::chrono::seconds>(Days(date).time_since_epoch()).count();
}

std::chrono::year_month_day local_date(const Moment& moment) {
  const std::int64_t seconds = moment.now.nanoseconds / kSecond + moment.zone(moment.now);
  return std::chrono::floor<std::chrono::days>(
      std::chrono::sys_seconds(std::chrono::seconds(seconds)));
}

// Exactly `digits` digits.
std::optional<int> take_digits(std::string_view& text, std::size_t digits) {
  const std::string_view taken = text.substr(0, digits);
  if (taken.size() != digits || !is_all_digits(taken)) return std::nullopt;
  text.remove_prefix(digits);
  return parse_number<int>(taken);
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

// "Z", "+01:00", "-0530". All of `text`.
std::optional<std::int64_t> read_zone(std::string_view text) {
  if (text == "Z" || text == "z") return 0;
  const std::int64_t sign = text.front() == '-' ? -1 : 1;
  if (!take(text, '+') && !take(text, '-')) return std::nullopt;
  const auto hours = take_digits(text, 2);
  if (!text.empty()) take(text, ':');
  const auto minutes = text.empty() ? std::optional(0) : take_digits(text, 2);
  if (!hours || !minutes || *hours > 18 || *minutes > 59 || !text.empty()) return std::nullopt;
  return sign * (*hours * 3600 + *minutes * 60);
}

Period period_of(std::int64_t from, std::int64_t length) {
  return {.from = from, .to = from + length - 1};
}

// Whole days, of which the clock may change one: both are what a clock of the person shows.
Period days_between(std::int64_t begin, std::int64_t end, const Moment& moment) {
  return {.from = from_clock(begin, moment.zone).nanoseconds,
          .to = from_clock(end, moment.zone).nanoseconds - 1};
}

// The clock of a day and what follows it.
std::optional<Period> read_clock_of(std::int64_t day, std::string_view text, const Moment& moment) {
  const auto hour = take_digits(text, 2);
  if (!hour || *hour > 23) return std::nullopt;
  std::int64_t second = day + std::int64_t{*hour} * 3600;
  std::int64_t length = 3600 * kSecond;
  std::int64_t fraction = 0;
  if (take(text, ':')) {
    const auto minute = take_digits(text, 2);
    if (!minute || *minute > 59) return std::nullopt;
    second += std::int64_t{*minute} * 60;
    length = 60 * kSecond;
    if (take(text, ':')) {
      const auto sec = take_digits(text, 2);
      if (!sec || *sec > 60) return std::nullopt;
      second += *sec;
      length = kSecond;
      if (take(text, '.')) {
        int digits = 0;
        for (; !text.empty() && is_digit(text.front()) && digits < 9; ++digits) {
          length /= 10;
          fraction += (text.front() - '0') * length;
          text.remove_prefix(1);
        }
        if (digits == 0) return std::nullopt;
      }
    }
  }
  if (text.empty())
    return period_of(from_clock(second, moment.zone).nanoseconds + fraction, length);
  const auto zone = read_zone(text);
  if (!zone) return std::nullopt;
  return period_of((second - *zone) * kSecond + fraction, length);
}

std::optional<Period> read_date(std::string_view text, const Moment& moment) {
  namespace chrono = std::chrono;
  const auto year_number = take_digits(text, 4);
  if (!year_number || *year_number < 1900 || *year_number > 2261) return std::nullopt;
  const chrono::year year(*year_number);
  const auto whole = [&](chrono::year_month_day first, chrono::year_month_day next) {
    return days_between(start_of_day(first), start_of_day(next), moment);
  };
  if (text.empty()) return whole(year / 1 / 1, (year + chrono::years(1)) / 1 / 1);
  if (!take(text, '-')) return std::nullopt;
  const auto month_number = take_digits(text, 2);
  if (!month_number || *month_number < 1 || *month_number > 12) return std::nullopt;
  const auto month = year / *month_number;
  if (text.empty()) return whole(month / 1, (month + chrono::months(1)) / 1);
  if (!take(text, '-')) return std::nullopt;
  const auto day_number = take_digits(text, 2);
  if (!day_number) return std::nullopt;
  const chrono::year_month_day date = month / *day_number;
  if (!date.ok()) return std::nullopt;
  if (text.empty()) return whole(date, Days(date) + chrono::days(1));
  if (!take(text, 'T') && !take(text, 't') && !take(text, ' ')) return std::nullopt;
  return read_clock_of(start_of_day(date), text, moment);
}

Period instant(std::int64_t nanoseconds, bool age) {
  return {.from = nanoseconds, .to = nanoseconds, .age = age};
}

// "3mo", "1y": as the calendar has it.
std::optional<Period> read_calendar_age(std::string_view text, const Moment& moment) {
  namespace chrono = std::chrono;
  const auto number = take_number<std::int64_t>(text);
  if (!number || *number < 0 || *number > 12'000) return std::nullopt;
  const bool years = text == "y";
  if (!years && text != "mo") return std::nullopt;
  const auto today = local_date(moment);
  const chrono::months months(static_cast<int>(years ? *number * 12 : *number));
  auto date = today.year() / today.month() - months;
  if (date.year() < chrono::year(1970)) return instant(0, true);
  auto then = date / today.day();
  if (!then.ok()) then = date / chrono::last;
  const std::int64_t days = (Days(today) - Days(then)).count();
  return instant(moment.now.nanoseconds - days * kDay * kSecond, true);
}

}  // namespace

std::optional<std::int64_t> read_size(std::string_view text) {
  const bool negative = take(text, '-');
  const auto number = take_decimal(text);
  if (!number) return std::nullopt;
  std::int64_t factor = 1;
  if (!text.empty()) {
    const std::size_t power = std::string_view("bkmgtp").find(to_lower(text.front()));
    if (power == std::string_view::npos) return std::nullopt;
    for (std::size_t i = 0; i < power; ++i) factor *= 1024;
    const std::string rest = to_lower(text.substr(1));
    if (!rest.empty() && (power == 0 || (rest != "b" && rest != "ib"))) return std::nullopt;
  }
  const auto size = scaled(*number, factor);
  return size && negative ? std::optional(-*size) : size;
}

std::optional<std::int64_t> read_duration(std::string_view text) {
  const bool negative = take(text, '-');
  if (text == "0") return 0;
  const auto seconds =
      text.find_first_of(":-") == std::string_view::npos ? read_units(text) : read_clock(text);
  return seconds && negative ? std::optional(-*seconds) : seconds;
}

std::optional<std::int64_t> read_count(std::string_view text) {
  return parse_number<std::int64_t>(text);
}

std::optional<std::int64_t> read_percent(std::string_view text) {
  if (text.empty() || text.back() != '%') return std::nullopt;
  return parse_number<std::int64_t>(text.substr(0, text.size() - 1));
}

std::optional<Period> read_time(std::string_view text, const Moment& moment) {
  const std::string word = to_lower(text);
  if (word == "now") return instant(moment.now.nanoseconds, false);
  if (word == "today" || word == "yesterday") {
    const std::int64_t start = start_of_day(local_date(moment)) - (word == "yesterday" ? kDay : 0);
    return days_between(start, start + kDay, moment);
  }
  if (const auto date = read_date(text, moment)) return date;
  if (const auto calendar = read_calendar_age(word, moment)) return calendar;
  const auto age = read_units(text);
  if (!age) return std::nullopt;
  const std::int64_t most = std::max<std::int64_t>(moment.now.nanoseconds / kSecond, 0);
  return instant(moment.now.nanoseconds - std::min(*age, most) * kSecond, true);
}

}  // namespace scriptorium::query
