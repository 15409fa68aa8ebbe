#include "core/query/calendar.h"

namespace scriptorium::query {

using std::chrono::days;
using std::chrono::seconds;
using std::chrono::sys_days;
using std::chrono::year_month_day;

sys_days day_of(Timestamp time, UtcOffset zone) {
  const auto instant =
      std::chrono::sys_time<std::chrono::nanoseconds>(std::chrono::nanoseconds(time.nanoseconds));
  return std::chrono::floor<days>(std::chrono::floor<seconds>(instant) + seconds(zone(time)));
}

Timestamp begin_of(sys_days day, UtcOffset zone) {
  return from_clock(seconds(day.time_since_epoch()).count(), zone);
}

sys_days first_day(CalendarUnit unit, sys_days day) {
  const year_month_day date(day);
  switch (unit) {
    case CalendarUnit::kDay: break;
    case CalendarUnit::kWeek: return day - days(std::chrono::weekday(day).iso_encoding() - 1);
    case CalendarUnit::kMonth: return date.year() / date.month() / 1;
    case CalendarUnit::kYear: return date.year() / std::chrono::January / 1;
  }
  return day;
}

sys_days next_first_day(CalendarUnit unit, sys_days day) {
  constexpr days kLongest[] = {days(1), days(7), days(31), days(366)};  // in the order of the units
  return first_day(unit, first_day(unit, day) + kLongest[static_cast<std::size_t>(unit)]);
}

std::string calendar_text(CalendarUnit unit, sys_days day) {
  const Timestamp begin{std::chrono::nanoseconds(day.time_since_epoch()).count()};
  const std::string text = format_rfc3339(begin, TimePrecision::kSeconds);
  switch (unit) {
    case CalendarUnit::kMonth: return text.substr(0, text.find('T') - 3);
    case CalendarUnit::kYear: return text.substr(0, text.find('T') - 6);
    default: return text.substr(0, text.find('T'));
  }
}

}  // namespace scriptorium::query
