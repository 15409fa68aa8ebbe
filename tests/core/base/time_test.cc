#include "core/base/time.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace scriptorium
