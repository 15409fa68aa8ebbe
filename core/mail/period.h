#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/time.h"

namespace scriptorium::mail {

// A week (ISO 8601, from Monday on) or a month of the calendar, by the clock of a zone.
struct CalendarPeriod {
  enum class Kind { kWeek, kMonth } kind = Kind::kWeek;
  int year = 0;      // of a week: the one that has its Thursday
  int number = 0;    // of the week (1 to 53) or the month (1 to 12)
  Timestamp from;    // its first instant
  Timestamp until;   // the first instant after it
  Timestamp before;  // the first instant of the week or month before it

  std::string name() const;                 // "2026-W46", "2026-10"
  std::chrono::sys_days first_day() const;  // by the calendar, in no zone
};

// "week" and "month": the last one that was over at `now`; or one by its name(). Nothing for
// another text, and for a period that was not over at `now`.
std::optional<CalendarPeriod> read_period(std::string_view text, Timestamp now, UtcOffset zone);

}  // namespace scriptorium::mail
