#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/time.h"

// Numbers and times as people write them. Everything here is pure.
namespace scriptorium::query {

// "64G", "1.5 GiB" without the blank, "1024": bytes, in powers of 1024.
std::optional<std::int64_t> read_size(std::string_view text);

// "90s", "10m", "1h30m", "2d", "01:30:00", "10:00" (minutes and seconds), "1-00:00:00", "0":
// seconds. Any other number needs a unit, since Slurm takes it for minutes and others for seconds.
std::optional<std::int64_t> read_duration(std::string_view text);

// "16", "-1".
std::optional<std::int64_t> read_count(std::string_view text);

// "80%", whole.
std::optional<std::int64_t> read_percent(std::string_view text);

// What "now" is for a person, and where days begin.
struct Moment {
  Timestamp now;
  UtcOffset zone = kUtc;
};

// The time that a text names, both ends included: "2026-11" is a month.
struct Period {
  std::int64_t from = 0;  // nanoseconds since 1970, UTC
  std::int64_t to = 0;
  bool age = false;  // "7d": the instant so long ago
};
// "2026", "2026-11", "2026-11-14", "2026-11-14T08", "...T08:00", "...T08:00:30.25", each with a
// zone ("Z", "+01:00") or without; "today", "yesterday", "now"; "90s", "12h", "7d", "2w", "3mo",
// "1y". Only the years 1900 to 2261.
std::optional<Period> read_time(std::string_view text, const Moment& moment);

}  // namespace scriptorium::query
