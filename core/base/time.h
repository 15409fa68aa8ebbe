#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace scriptorium {

// A point in civil time: nanoseconds since 1970-01-01T00:00:00Z, leap seconds not counted.
struct Timestamp {
  std::int64_t nanoseconds = 0;

  auto operator<=>(const Timestamp&) const = default;
};
// A second in nanoseconds, for Timestamp's arithmetic.
inline constexpr std::int64_t kSecond = 1'000'000'000;

enum class TimePrecision { kSeconds = 0, kMilliseconds = 3, kMicroseconds = 6, kNanoseconds = 9 };

// RFC 3339 in UTC, "2026-11-21T01:26:22.364Z"; digits beyond the precision are truncated.
std::string format_rfc3339(Timestamp time, TimePrecision precision);

// Reads what format_rfc3339() writes ("Z" only, 0 to 9 fractional digits); nothing for any other
// text.
std::optional<Timestamp> parse_rfc3339(std::string_view text);

// The civil date of a time in UTC, each part as digits: "2026", "11", "21".
struct CivilDate {
  std::string year;
  std::string month;
  std::string day;
};
CivilDate civil_date(Timestamp time);

using SteadyTime = std::chrono::steady_clock::time_point;

// A class takes its time from a Clock, so that a test can set it. Threads: any.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Timestamp now() const = 0;      // civil time; may jump; for recorded times
  virtual SteadyTime steady() const = 0;  // monotonic; for delays and deadlines
};

// The machine's clock. It is never destroyed.
const Clock& system_clock();

}  // namespace scriptorium
