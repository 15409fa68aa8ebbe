#include "core/base/time.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/zone.h"

namespace scriptorium {
namespace {

TEST(TimeTest, FormatsInUtcAndCutsDigits) {
  const Timestamp time{1795224382'364'999'999};
  EXPECT_EQ(format_rfc3339(time, TimePrecision::kSeconds), "2026-11-21T01:26:22Z");
  EXPECT_EQ(format_rfc3339(time, TimePrecision::kMilliseconds), "2026-11-21T01:26:22.364Z");
  EXPECT_EQ(format_rfc3339(time, TimePrecision::kNanoseconds), "2026-11-21T01:26:22.364999999Z");
  EXPECT_EQ(format_rfc3339({-1}, TimePrecision::kNanoseconds), "1969-12-31T23:59:59.999999999Z");
}

TEST(TimeTest, ReadsBackWhatItWroteIncludingTheYear2038) {
  for (const std::int64_t seconds :
       {std::int64_t{0}, std::int64_t{951782400}, std::int64_t{2147483648},
        std::int64_t{4102444800}, std::int64_t{-86401}}) {
    const Timestamp time{seconds * 1'000'000'000 + 123'456'789};
    EXPECT_EQ(parse_rfc3339(format_rfc3339(time, TimePrecision::kNanoseconds)), time);
  }
}

TEST(TimeTest, RefusesWhatIsNotSuchATime) {
  for (const char* text : {"", "2026-11-21", "2026-11-21T01:26:22", "2026-11-21T01:26:22+01:00",
                           "2026-13-21T01:26:22Z", "2026-02-30T01:26:22Z", "2026-11-21T24:26:22Z",
                           "2026-11-21T01:26:22.Z", "2026-11-21T01:26:22.1234567890Z",
                           "9999-11-21T01:26:22Z", "2026-11-2xT01:26:22Z"}) {
    EXPECT_EQ(parse_rfc3339(text), std::nullopt) << text;
  }
}

TEST(TimeTest, CivilDateIsThatOfUtc) {
  const CivilDate date = civil_date({1795224382'000'000'000});
  EXPECT_EQ(date.year + date.month + date.day, "20261121");
}

// ---- the reader's zone

std::string shown(const char* rfc3339) {
  const Timestamp time = parse_rfc3339(rfc3339).value();
  return local_text(time) + " " + local_zone(time);
}

// What a clock shows as "2026-10-25T02:30:00", as an instant.
std::string instant(std::string clock) {
  const std::int64_t seconds = parse_rfc3339(clock + "Z").value().nanoseconds / kSecond;
  return format_rfc3339(from_clock(seconds, local_offset), TimePrecision::kSeconds);
}

TEST(LocalTimeTest, IsThatOfTheZoneOverBothChangesOfTheClock) {
  for (const char* zone : {test::kBerlin, "Europe/Berlin"}) {
    const test::Zone berlin(zone);
    if (local_offset({}) == 0) continue;  // this machine has no zone files
    EXPECT_EQ(shown("2026-03-29T00:59:59Z"), "2026-03-29 01:59:59 CET");
    EXPECT_EQ(shown("2026-03-29T01:00:00Z"), "2026-03-29 03:00:00 CEST");
    EXPECT_EQ(shown("2026-10-25T00:59:59.999Z"), "2026-10-25 02:59:59 CEST");
    EXPECT_EQ(shown("2026-10-25T01:00:00Z"), "2026-10-25 02:00:00 CET");
    EXPECT_EQ(shown("1969-12-31T23:59:59.5Z"), "1970-01-01 00:59:59 CET");
  }
}

TEST(LocalTimeTest, AClockIsReadInTheZoneOverBothChanges) {
  const test::Zone berlin(test::kBerlin);
  EXPECT_EQ(instant("2026-03-29T01:59:59"), "2026-03-29T00:59:59Z");
  EXPECT_EQ(instant("2026-03-29T02:30:00"), "2026-03-29T01:30:00Z") << "skipped: 03:30 CEST";
  EXPECT_EQ(instant("2026-03-29T03:00:00"), "2026-03-29T01:00:00Z");
  EXPECT_EQ(instant("2026-10-25T01:59:59"), "2026-10-24T23:59:59Z");
  EXPECT_EQ(instant("2026-10-25T02:30:00"), "2026-10-25T00:30:00Z") << "shown twice: the first";
  EXPECT_EQ(instant("2026-10-25T03:00:00"), "2026-10-25T02:00:00Z");
  EXPECT_EQ(instant("2026-07-01T00:00:00"), "2026-06-30T22:00:00Z");
}

TEST(LocalTimeTest, WestOfGreenwichAClockIsReadTheSameWay) {
  const test::Zone york("EST5EDT,M3.2.0,M11.1.0");
  EXPECT_EQ(instant("2026-03-08T02:30:00"), "2026-03-08T07:30:00Z") << "skipped: 03:30 EDT";
  EXPECT_EQ(instant("2026-11-01T01:30:00"), "2026-11-01T05:30:00Z") << "shown twice: the first";
  EXPECT_EQ(shown("2026-11-01T05:30:00Z"), "2026-11-01 01:30:00 EDT");
}

TEST(LocalTimeTest, IsUtcWhereTheZoneIsOrIsNotValid) {
  for (const char* zone : {"UTC", "", "No/Such_Zone", ":/etc/passwd", "GMT0"}) {
    const test::Zone utc(zone);
    EXPECT_EQ(shown("2026-07-01T12:00:00Z"), "2026-07-01 12:00:00 UTC") << zone;
    EXPECT_EQ(instant("2026-07-01T12:00:00"), "2026-07-01T12:00:00Z") << zone;
  }
}

TEST(LocalTimeTest, AZoneWithoutANameIsItsOffset) {
  const test::Zone kathmandu("<+0545>-5:45");
  EXPECT_EQ(shown("2026-07-01T12:00:00Z"), "2026-07-01 17:45:00 UTC+05:45");
}

}  // namespace
}  // namespace scriptorium
