#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/base/time.h"

// Days, weeks and months by the clock of a zone. Pure.
namespace scriptorium::query {

// A week begins on Monday, as in ISO 8601.
enum class CalendarUnit : std::uint8_t { kDay, kWeek, kMonth, kYear };

// The day that a clock of that zone shows.
std::chrono::sys_days day_of(Timestamp time, UtcOffset zone);
// The first instant of a day by the zone's clock.
Timestamp begin_of(std::chrono::sys_days day, UtcOffset zone);

// The first day of the week, month or year that has this day, and that of the next one.
std::chrono::sys_days first_day(CalendarUnit unit, std::chrono::sys_days day);
std::chrono::sys_days next_first_day(CalendarUnit unit, std::chrono::sys_days day);

// "2026-11-23", of a month "2026-11", of a year "2026".
std::string calendar_text(CalendarUnit unit, std::chrono::sys_days day);

}  // namespace scriptorium::query
