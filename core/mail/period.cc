#include "core/mail/period.h"

#include <array>
#include <chrono>
#include <cstdio>

#include "core/base/number.h"
#include "core/query/calendar.h"

namespace scriptorium::mail {
namespace {

using query::begin_of;
using query::CalendarUnit;
using std::chrono::days;
using std::chrono::sys_days;
using std::chrono::year_month;
using std::chrono::year_month_day;

CalendarPeriod week_from(sys_days monday, UtcOffset zone) {
  CalendarPeriod week{.kind = CalendarPeriod::Kind::kWeek,
                      .from = begin_of(monday, zone),
                      .until = begin_of(monday + days(7), zone),
                      .before = begin_of(monday - days(7), zone)};
  const sys_days thursday = monday + days(3);
  const auto year = year_month_day(thursday).year();
  week.year = static_cast<int>(year);
  week.number =
      static_cast<int>((thursday - sys_days(year / std::chrono::January / 1)).count() / 7) + 1;
  return week;
}

CalendarPeriod month_of(year_month month, UtcOffset zone) {
  const auto begin = [&](int months) {
    return begin_of(sys_days((month + std::chrono::months(months)) / 1), zone);
  };
  return {.kind = CalendarPeriod::Kind::kMonth,
          .year = static_cast<int>(month.year()),
          .number = static_cast<int>(static_cast<unsigned>(month.month())),
          .from = begin(0),
          .until = begin(1),
          .before = begin(-1)};
}

std::optional<CalendarPeriod> by_name(std::string_view text, UtcOffset zone) {
  if (text.size() < 7 || text[4] != '-') return std::nullopt;
  const auto year = parse_number<int>(text.substr(0, 4));
  const bool is_week = text[5] == 'W';
  const auto number = parse_number<unsigned>(text.substr(is_week ? 6 : 5));
  if (!year || !number || *year < 1970 || *number < 1 || *number > (is_week ? 53 : 12))
    return std::nullopt;
  const sys_days first =
      CalendarPeriod{.kind = is_week ? CalendarPeriod::Kind::kWeek : CalendarPeriod::Kind::kMonth,
                     .year = *year,
                     .number = static_cast<int>(*number)}
          .first_day();
  const year_month_day date(first);
  CalendarPeriod period =
      is_week ? week_from(first, zone) : month_of(date.year() / date.month(), zone);
  if (period.name() != text) return std::nullopt;  // week 53 of a year with 52
  return period;
}

}  // namespace

std::string CalendarPeriod::name() const {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), kind == Kind::kWeek ? "%04d-W%02d" : "%04d-%02d", year,
                number);
  return text.data();
}

sys_days CalendarPeriod::first_day() const {
  const std::chrono::year of{year};
  if (kind == Kind::kMonth) return sys_days(of / number / 1);
  // The week that has January 4 is the first.
  return query::first_day(CalendarUnit::kWeek, sys_days(of / 1 / 4)) + days(7 * (number - 1));
}

std::optional<CalendarPeriod> read_period(std::string_view text, Timestamp now, UtcOffset zone) {
  const sys_days day = query::day_of(now, zone);
  const year_month_day date(day);
  std::optional<CalendarPeriod> period;
  if (text == "week") {
    period = week_from(query::first_day(CalendarUnit::kWeek, day) - days(7), zone);
  } else if (text == "month") {
    period = month_of(date.year() / date.month() - std::chrono::months(1), zone);
  } else {
    period = by_name(text, zone);
  }
  return period && period->until <= now ? period : std::nullopt;
}

}  // namespace scriptorium::mail
