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

// The seconds that a zone is ahead of UTC at that time. A function of no state, so that a test can
// pass a zone of its own.
using UtcOffset = std::int64_t (*)(Timestamp time);
inline constexpr UtcOffset kUtc = [](Timestamp) { return std::int64_t{0}; };
// The reader's zone: TZ, or else /etc/localtime; UTC if that names no zone. Threads: any.
std::int64_t local_offset(Timestamp time);

// What a clock of that zone shows, in seconds since its 1970-01-01T00:00:00, as an instant. A time
// that is shown twice is the first of the two; one that is skipped is as long after the skip began.
Timestamp from_clock(std::int64_t clock_seconds, UtcOffset zone);

// For people, in the reader's zone. Threads: any.
std::string local_text(Timestamp time);  // "2026-11-21 02:26:22"
std::string local_zone(Timestamp time);  // "CET"; "UTC", "UTC+05:45" for a zone without a name

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
