#include "core/query/values.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace scriptorium::query {
namespace {

// Saturday 2026-11-21 15:30:00 UTC.
constexpr Moment kMoment{.now = {1'795'275'000 * kSecond}};

std::string shown(const std::optional<Period>& period) {
  if (!period) return "none";
  const auto text = [](std::int64_t at) {
    return format_rfc3339(
        {at}, at % kSecond == 0 ? TimePrecision::kSeconds : TimePrecision::kNanoseconds);
  };
  return text(period->from) + " " + text(period->to) + (period->age ? " age" : "");
}

TEST(QueryValuesTest, ReadsSizesInPowersOf1024) {
  const std::vector<std::pair<std::string, std::optional<std::int64_t>>> cases{
      {"1024", 1024},
      {"1K", 1024},
      {"64G", std::int64_t{64} << 30},
      {"64GB", std::int64_t{64} << 30},
      {"64gib", std::int64_t{64} << 30},
      {"1.5M", 3 << 19},
      {"2T", std::int64_t{2} << 40},
      {"7b", 7},
      {"-1", -1},
      {"9007199254740993", 9007199254740993},  // no double holds it
      {"", std::nullopt},
      {"G", std::nullopt},
      {"64X", std::nullopt},
      {"64GG", std::nullopt},
      {"7bb", std::nullopt},
      {"1e3", std::nullopt},
      {"1.2.3", std::nullopt},
      {".5G", std::nullopt},
      {"99999999999999999999", std::nullopt},
      {"9999999999P", std::nullopt},
  };
  for (const auto& [text, bytes] : cases) EXPECT_EQ(read_size(text), bytes) << text;
}

TEST(QueryValuesTest, ReadsDurationsAsSlurmAndPeopleWriteThem) {
  const std::vector<std::pair<std::string, std::optional<std::int64_t>>> cases{
      {"90s", 90},
      {"10m", 600},
      {"10min", 600},
      {"2h", 7200},
      {"2hours", 7200},
      {"1h30m", 5400},
      {"1.5h", 5400},
      {"2d", 172'800},
      {"1w", 604'800},
      {"01:30:00", 5400},
      {"10:00", 600},
      {"1-00:00:00", 86'400},
      {"1-12", 129'600},
      {"1-12:30", 131'400},
      {"0", 0},
      {"-1s", -1},
      {"90", std::nullopt},
      {"", std::nullopt},
      {"s", std::nullopt},
      {"1y", std::nullopt},
      {"1:2:3:4", std::nullopt},
      {"1-", std::nullopt},
      {"1-2-3", std::nullopt},
      {"1:-2", std::nullopt},
      {"99999999999999999w", std::nullopt},
      {"9999999999999:00", std::nullopt},
  };
  for (const auto& [text, seconds] : cases) EXPECT_EQ(read_duration(text), seconds) << text;
}

TEST(QueryValuesTest, ReadsWholePercent) {
  EXPECT_EQ(read_percent("30%"), 30);
  EXPECT_EQ(read_percent("30"), std::nullopt);
  EXPECT_EQ(read_percent("%"), std::nullopt);
  EXPECT_EQ(read_percent("12.5%"), std::nullopt);
}

TEST(QueryValuesTest, ReadsATimeAsAllThatItNames) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"2026", "2026-01-01T00:00:00Z 2026-12-31T23:59:59.999999999Z"},
      {"2026-11", "2026-11-01T00:00:00Z 2026-11-30T23:59:59.999999999Z"},
      {"2026-12", "2026-12-01T00:00:00Z 2026-12-31T23:59:59.999999999Z"},
      {"2024-02-29", "2024-02-29T00:00:00Z 2024-02-29T23:59:59.999999999Z"},
      {"2026-11-14T08", "2026-11-14T08:00:00Z 2026-11-14T08:59:59.999999999Z"},
      {"2026-11-14T08:05", "2026-11-14T08:05:00Z 2026-11-14T08:05:59.999999999Z"},
      {"2026-11-14 08:05", "2026-11-14T08:05:00Z 2026-11-14T08:05:59.999999999Z"},
      {"2026-11-14T08:05:09", "2026-11-14T08:05:09Z 2026-11-14T08:05:09.999999999Z"},
      {"2026-11-14T08:05:09.25Z", "2026-11-14T08:05:09.250000000Z 2026-11-14T08:05:09.259999999Z"},
      {"2026-11-14T08:05:09.123456789Z",
       "2026-11-14T08:05:09.123456789Z 2026-11-14T08:05:09.123456789Z"},
      {"2026-11-14T08:05+01:00", "2026-11-14T07:05:00Z 2026-11-14T07:05:59.999999999Z"},
      {"2026-11-14T08:05-0530", "2026-11-14T13:35:00Z 2026-11-14T13:35:59.999999999Z"},
      {"today", "2026-11-21T00:00:00Z 2026-11-21T23:59:59.999999999Z"},
      {"Yesterday", "2026-11-20T00:00:00Z 2026-11-20T23:59:59.999999999Z"},
      {"now", "2026-11-21T15:30:00Z 2026-11-21T15:30:00Z"},
      {"7d", "2026-11-14T15:30:00Z 2026-11-14T15:30:00Z age"},
      {"2w", "2026-11-07T15:30:00Z 2026-11-07T15:30:00Z age"},
      {"12h", "2026-11-21T03:30:00Z 2026-11-21T03:30:00Z age"},
      {"1d12h", "2026-11-20T03:30:00Z 2026-11-20T03:30:00Z age"},
      {"3mo", "2026-08-21T15:30:00Z 2026-08-21T15:30:00Z age"},
      {"1y", "2025-11-21T15:30:00Z 2025-11-21T15:30:00Z age"},
      {"9999w", "1970-01-01T00:00:00Z 1970-01-01T00:00:00Z age"},
      {"1969", "1969-01-01T00:00:00Z 1969-12-31T23:59:59.999999999Z"},
  };
  for (const auto& [text, period] : cases)
    EXPECT_EQ(shown(read_time(text, kMoment)), period) << text;
}

TEST(QueryValuesTest, RefusesWhatIsNoTime) {
  for (const char* text : {"",
                           "2026-",
                           "2026-13",
                           "2026-00",
                           "2026-02-30",
                           "2026-11-14T",
                           "2026-11-14T24",
                           "2026-11-14T08:60",
                           "2026-11-14T08:05:",
                           "2026-11-14T08:05:09.",
                           "2026-11-14T08:05+",
                           "2026-11-14T08:05+99:00",
                           "2026-11-14x",
                           "20261114",
                           "1899",
                           "2262",
                           "99999",
                           "7",
                           "d",
                           "soon",
                           "7x",
                           "-7d",
                           "2026-11-1",
                           "2026-11-14T8:00"})
    EXPECT_EQ(shown(read_time(text, kMoment)), "none") << text;
}

// Summer time until 2026-10-25T01:00:00Z.
std::int64_t berlin_in_2026(Timestamp time) {
  return time.nanoseconds < 1'792'890'000 * kSecond ? 7200 : 3600;
}

TEST(QueryValuesTest, BeginsADayWhereThePersonIs) {
  const Moment berlin{.now = {1'795'303'800 * kSecond}, .zone = berlin_in_2026};  // 23:30 UTC
  EXPECT_EQ(shown(read_time("today", berlin)),
            "2026-11-21T23:00:00Z 2026-11-22T22:59:59.999999999Z");
  EXPECT_EQ(shown(read_time("2026-11-14T08:00", berlin)),
            "2026-11-14T07:00:00Z 2026-11-14T07:00:59.999999999Z");
  EXPECT_EQ(shown(read_time("2026-11-14T08:00Z", berlin)),
            "2026-11-14T08:00:00Z 2026-11-14T08:00:59.999999999Z");
  EXPECT_EQ(shown(read_time("2026-07-01", berlin)),
            "2026-06-30T22:00:00Z 2026-07-01T21:59:59.999999999Z")
      << "in winter of a day in summer";
  EXPECT_EQ(shown(read_time("2026-10-25", berlin)),
            "2026-10-24T22:00:00Z 2026-10-25T22:59:59.999999999Z")
      << "a day of 25 hours";
}

TEST(QueryValuesTest, ShortensAnAgeInMonthsToTheLastDayOfAMonth) {
  const Moment moment{.now = {1'774'872'000 * kSecond}};  // 2026-03-30 12:00
  EXPECT_EQ(shown(read_time("1mo", moment)), "2026-02-28T12:00:00Z 2026-02-28T12:00:00Z age");
}

}  // namespace
}  // namespace scriptorium::query
