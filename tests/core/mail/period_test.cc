#include "core/mail/period.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

namespace scriptorium::mail {
namespace {

Timestamp at(const std::string& text) { return *parse_rfc3339(text); }
std::string utc(Timestamp time) { return format_rfc3339(time, TimePrecision::kSeconds); }

// Central Europe: an hour ahead, and two in summer (2026: March 29 to October 25, at 01:00 UTC).
std::int64_t berlin(Timestamp time) {
  return time >= at("2026-03-29T01:00:00Z") && time < at("2026-10-25T01:00:00Z") ? 7200 : 3600;
}

TEST(Period, AWeekBeginsOnMondayByTheClockOfTheZone) {
  const auto week = read_period("2026-W46", at("2026-11-27T12:00:00Z"), berlin);
  ASSERT_TRUE(week);
  EXPECT_EQ(utc(week->from), "2026-11-08T23:00:00Z");
  EXPECT_EQ(utc(week->until), "2026-11-15T23:00:00Z");
  EXPECT_EQ(utc(week->before), "2026-11-01T23:00:00Z");
}

TEST(Period, TheLastOneThatIsOver) {
  struct Case {
    const char* now;
    const char* word;
    const char* name;
  };
  const std::vector<Case> cases{
      {"2026-11-15T22:59:59Z", "week", "2026-W45"},  // Sunday, 23:59:59
      {"2026-11-15T23:00:00Z", "week", "2026-W46"},  // Monday, 00:00
      {"2026-11-22T22:59:59Z", "week", "2026-W46"}, {"2026-10-31T22:59:59Z", "month", "2026-09"},
      {"2026-10-31T23:00:00Z", "month", "2026-10"}, {"2026-12-31T23:00:00Z", "month", "2026-12"},
      {"2027-01-04T12:00:00Z", "week", "2026-W53"},  // 2026 has 53 weeks
      {"2026-01-05T12:00:00Z", "week", "2026-W01"},  // from December 29 on
      {"2026-03-29T22:30:00Z", "week", "2026-W13"},  // 00:30 of Monday in summer's time
      {"2026-10-25T22:30:00Z", "week", "2026-W42"},  // 23:30 of Sunday in winter's time
  };
  for (const Case& c : cases) {
    const auto period = read_period(c.word, at(c.now), berlin);
    ASSERT_TRUE(period) << c.now;
    EXPECT_EQ(period->name(), c.name) << c.now;
    EXPECT_LE(period->until, at(c.now));
    const auto same = read_period(c.name, at(c.now), berlin);
    ASSERT_TRUE(same) << c.name;
    EXPECT_EQ(same->from, period->from);
    EXPECT_EQ(same->until, period->until);
  }
}

TEST(Period, TheWeekOfAChangeOfTheClockIsWhole) {
  const auto spring = read_period("2026-W13", at("2027-01-01T00:00:00Z"), berlin);
  const auto autumn = read_period("2026-W43", at("2027-01-01T00:00:00Z"), berlin);
  ASSERT_TRUE(spring && autumn);
  EXPECT_EQ((spring->until.nanoseconds - spring->from.nanoseconds) / kSecond, 7 * 86'400 - 3600);
  EXPECT_EQ((autumn->until.nanoseconds - autumn->from.nanoseconds) / kSecond, 7 * 86'400 + 3600);
}

TEST(Period, OneFollowsTheOther) {
  const Timestamp now = at("2031-01-01T00:00:00Z");
  for (const char* kind : {"W", ""}) {
    std::optional<CalendarPeriod> last;
    int periods = 0;
    for (int year = 2025; year < 2030; ++year) {
      for (int number = 1; number <= 53; ++number) {
        const std::string digits = (number < 10 ? "0" : "") + std::to_string(number);
        const auto period = read_period(std::to_string(year) + "-" + kind + digits, now, berlin);
        if (!period) continue;
        ++periods;
        if (last) {
          EXPECT_EQ(period->from, last->until);
          EXPECT_EQ(period->before, last->from);
        }
        last = period;
      }
    }
    EXPECT_EQ(periods, *kind == 'W' ? 52 * 5 + 1 : 60);
  }
}

TEST(Period, WhatIsNone) {
  const Timestamp now = at("2026-11-27T12:00:00Z");
  for (const char* text :
       {"",          "day",      "Week",     "2026",      "2026-W",  "2026-W0",  "2026-W00",
        "2026-W54",  "2025-W53", "2026-W6",  "2026-W046", "2026-13", "2026-00",  "2026-1",
        "2026-W46 ", "2026-11",  "2026-W48", "2027-W01",  "1969-01", "-026-W46", "2026-W-1"}) {
    EXPECT_FALSE(read_period(text, now, berlin)) << text;
  }
}

}  // namespace
}  // namespace scriptorium::mail
