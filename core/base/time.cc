#include "core/base/time.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "core/base/ascii.h"

namespace scriptorium {
namespace {

struct Civil {
  int year, month, day, hour, minute, second;
  std::int64_t nanos;
};

Civil split(Timestamp time) {
  std::int64_t seconds = time.nanoseconds / kSecond;
  std::int64_t nanos = time.nanoseconds % kSecond;
  if (nanos < 0) {
    nanos += kSecond;
    --seconds;
  }
  const auto days = std::chrono::floor<std::chrono::days>(
      std::chrono::sys_seconds{std::chrono::seconds{seconds}});
  const std::chrono::year_month_day date{days};
  const auto in_day = static_cast<int>(
      seconds - std::chrono::duration_cast<std::chrono::seconds>(days.time_since_epoch()).count());
  return {static_cast<int>(date.year()),
          static_cast<int>(static_cast<unsigned>(date.month())),
          static_cast<int>(static_cast<unsigned>(date.day())),
          in_day / 3600,
          in_day / 60 % 60,
          in_day % 60,
          nanos};
}

std::tm local_parts(Timestamp time) {
  const std::time_t seconds = time.nanoseconds / kSecond - (time.nanoseconds % kSecond < 0 ? 1 : 0);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  return parts;
}

std::string strftime_text(const char* format, const std::tm& parts) {
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
}

class SystemClock final : public Clock {
 public:
  Timestamp now() const override {
    return {std::chrono::duration_cast<std::chrono::nanoseconds>(
                std::chrono::system_clock::now().time_since_epoch())
                .count()};
  }
  SteadyTime steady() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

// Not snprintf(): it takes six times as long, and every event has several times.
std::string format_rfc3339(Timestamp time, TimePrecision precision) {
  const Civil c = split(time);
  std::string text;
  text.reserve(30);
  const auto add = [&text](auto number, std::size_t digits) {
    text.resize(text.size() + digits, '0');
    for (auto to = text.rbegin(); digits > 0; --digits, ++to, number /= 10)
      *to = static_cast<char>('0' + number % 10);
  };
  add(c.year, 4);
  for (const auto& [before, number] :
       {std::pair('-', c.month), {'-', c.day}, {'T', c.hour}, {':', c.minute}, {':', c.second}}) {
    text += before;
    add(number, 2);
  }
  if (const auto digits = static_cast<std::size_t>(precision); digits > 0) {
    text += '.';
    add(c.nanos, 9);
    text.resize(text.size() - (9 - digits));
  }
  text += 'Z';
  return text;
}

std::optional<Timestamp> parse_rfc3339(std::string_view text) {
  const auto number = [&](std::size_t at, std::size_t digits) -> std::optional<int> {
    int value = 0;
    for (std::size_t i = at; i < at + digits; ++i) {
      if (text[i] < '0' || text[i] > '9') return std::nullopt;
      value = value * 10 + (text[i] - '0');
    }
    return value;
  };
  if (text.size() < 20 || text.back() != 'Z' || text[4] != '-' || text[7] != '-' ||
      text[10] != 'T' || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const auto year = number(0, 4), month = number(5, 2), day = number(8, 2);
  const auto hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (!year || !month || !day || !hour || !minute || !second || *hour > 23 || *minute > 59 ||
      *second > 59)
    return std::nullopt;
  std::int64_t nanos = 0;
  if (text.size() > 20) {
    const std::string_view fraction = text.substr(20, text.size() - 21);
    if (text[19] != '.' || fraction.empty() || fraction.size() > 9) return std::nullopt;
    for (std::size_t i = 0; i < 9; ++i) {
      int digit = 0;
      if (i < fraction.size()) {
        if (fraction[i] < '0' || fraction[i] > '9') return std::nullopt;
        digit = fraction[i] - '0';
      }
      nanos = nanos * 10 + digit;
    }
  }
  const std::chrono::year_month_day date{std::chrono::year{*year},
                                         std::chrono::month{static_cast<unsigned>(*month)},
                                         std::chrono::day{static_cast<unsigned>(*day)}};
  if (!date.ok()) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days{date}.time_since_epoch().count();
  // 32-bit years outside 1678..2262 do not fit into 64-bit nanoseconds.
  if (days < -106'000 || days > 106'000) return std::nullopt;
  return Timestamp{((days * 24 + *hour) * 60 + *minute) * 60 * kSecond + *second * kSecond + nanos};
}

CivilDate civil_date(Timestamp time) {
  const std::string text = format_rfc3339(time, TimePrecision::kSeconds);
  const auto first = text.find('-', 1);
  return {text.substr(0, first), text.substr(first + 1, 2), text.substr(first + 4, 2)};
}

std::int64_t local_offset(Timestamp time) { return local_parts(time).tm_gmtoff; }

Timestamp from_clock(std::int64_t clock_seconds, UtcOffset zone) {
  constexpr std::int64_t kDay = 86400;
  const std::int64_t before = zone({(clock_seconds - kDay) * kSecond});
  const std::int64_t after = zone({(clock_seconds + kDay) * kSecond});
  for (const std::int64_t offset : {std::max(before, after), std::min(before, after)}) {
    const Timestamp time{(clock_seconds - offset) * kSecond};
    if (zone(time) == offset) return time;
  }
  return {(clock_seconds - before) * kSecond};
}

std::string local_text(Timestamp time) {
  return strftime_text("%Y-%m-%d %H:%M:%S", local_parts(time));
}

std::string local_zone(Timestamp time) {
  const std::tm parts = local_parts(time);
  if (parts.tm_gmtoff == 0) return "UTC";  // also where TZ is not valid, whatever it says
  std::string name = strftime_text("%Z", parts);
  if (std::all_of(name.begin(), name.end(), is_letter)) return name;
  const std::string offset = strftime_text("%z", parts);
  return "UTC" + offset.substr(0, 3) + ":" + offset.substr(3);
}

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace scriptorium
