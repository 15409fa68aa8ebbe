#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/api/query.h"
#include "core/base/time.h"

namespace scriptorium {

// GPUs are expensive: an idle GPU hour counts as ten core hours.
inline constexpr std::uint64_t kCoreHoursOfGpuHour = 10;

// What runs had, and the part of it that they did not use. Whole seconds of a core, of a GPU.
struct RunSum {
  std::uint64_t jobs = 0;
  std::uint64_t core_seconds = 0;
  std::uint64_t unused_core_seconds = 0;
  std::uint64_t gpu_seconds = 0;
  std::uint64_t unused_gpu_seconds = 0;

  // Adds a run, or the part of it from `begin` to `end` where `of` is all. What was not measured
  // counts as used.
  void add(const JobRun& run, std::uint64_t begin = 0, std::uint64_t end = 1, std::uint64_t of = 1);
  RunSum& operator+=(const RunSum& other) noexcept;
  RunSum& operator-=(const RunSum& other) noexcept;  // modulo 2^64
  bool operator==(const RunSum&) const = default;
  double core_hours() const noexcept;  // with those of the GPUs
  double wasted_core_hours() const noexcept;
};

// In how many jobs each finding occurs.
using FindingCounts = std::map<std::string, std::uint64_t>;

// The same, with the findings of the runs.
struct RunTotals : RunSum {
  FindingCounts findings;

  void add(const JobRun& run, std::uint64_t begin = 0, std::uint64_t end = 1, std::uint64_t of = 1);
  RunTotals& operator+=(const RunTotals& other);
  RunTotals& operator-=(const RunTotals& other);  // a finding that occurs no more is left out
  bool operator==(const RunTotals&) const = default;
};

// What a run did not use, in seconds of a core; 0 where it was not measured.
std::uint64_t wasted_core_seconds(const JobRun& run) noexcept;
// Whether it is known what the run used of what it had.
bool is_measured(const JobRun& run) noexcept;

// What runs can be counted by.
enum class RunsBy : std::uint8_t { kUser, kAccount, kPartition, kProgram, kModule, kNode };
inline constexpr std::uint8_t kRunsByCount = 6;

// Calls use() with each name that the run counts for, and its part of the run, as RunSum::add()
// takes it. A run counts in full for each of its modules, by its share of the CPU time for a
// program, and by equal parts for its nodes. "(unknown)" or "(none)" where the run has no name; the
// name of a user who is not verified ends with kUnverifiedMark.
void for_each_share(RunsBy by, const JobRun& run,
                    const std::function<void(const std::string& name, std::uint64_t begin,
                                             std::uint64_t end, std::uint64_t of)>& use);
inline constexpr std::string_view kUnverifiedMark = " (unverified)";

// A part of what many runs had, for sums over them.
struct RunSumRow {
  // Of the measured runs that count for this name, in this part. Absent: of all runs that ended in
  // the quarter of an hour of `time`, those that were measured and the others apart.
  std::optional<std::string_view> name;
  Timestamp time;
  bool is_measured = true;
  const RunTotals& sum;  // valid during the call
};
// The rows of one run: one without a name and, if it was measured, one for each name.
void for_each_row(std::optional<RunsBy> by, const JobRun& run,
                  const std::function<void(const RunSumRow&)>& use);

}  // namespace scriptorium
