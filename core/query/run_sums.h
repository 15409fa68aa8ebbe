#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/query.h"
#include "core/api/run_sum.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "core/query/sum.h"
#include "core/query/values.h"

namespace scriptorium::query {

enum class SumBy : std::uint8_t {
  kUser,
  kAccount,
  kPartition,
  kProgram,
  kModule,
  kNode,
  kWeek,
  kMonth
};
// "user", ...; nothing for another word.
std::optional<SumBy> sum_by(std::string_view word) noexcept;
std::string word_of(SumBy by);
std::vector<std::string> sum_by_words();
// Whether the rows are one after the other in time, and not beside each other.
bool is_in_time(SumBy by) noexcept;
// What a store is asked for: nothing for those in time.
std::optional<RunsBy> runs_by(SumBy by) noexcept;

// The runs that are summed: those that ended at `from` or later and before `until`, and for the
// trend those of as long a time before `from`.
struct SumPeriod {
  std::optional<Timestamp> from;  // absent: from the first run on, without a trend
  Timestamp until;
  UtcOffset zone = local_offset;  // where weeks and months begin
};
// From what a person typed (read_time()), in whole seconds; without `since`, from the first run on,
// and without `until`, to now. `since` as an age in days or longer begins with that day, so that
// each day of the report is a whole one. The error begins with the name of what is wrong: `since:
// "x" is ...`
Result<SumPeriod> sum_period(const std::string& since, const std::string& until,
                             const Moment& moment);

std::vector<std::pair<std::string, std::uint64_t>> most_frequent(const FindingCounts& counts);
std::string frequent_text(
    const FindingCounts& counts);  // "cpu_low (5) mem_over (1)", at most three

// The name of the row of jobs without use.
inline constexpr const char* kWithoutUse = "(no usage)";

// What many runs had and did not use, a row for each user, account, ... of one period. Pure.
// Sums are whole seconds, so the rows of a user, an account, a partition, a node, a week or a month
// add up to the total exactly. How a run counts for several names: for_each_share(). Runs whose use
// was not measured are in a row of their own.
// Memory: grows with the rows, not with the runs.
class RunSums {
 public:
  struct Row {
    RunTotals now;
    RunTotals before;  // of as long a time before the period; nothing without a trend

    std::string trend() const;  // of what was wasted
  };
  using Named = std::pair<std::string, const Row*>;

  RunSums(SumBy by, SumPeriod period) : by_(by), period_(period) {}

  SumBy by() const noexcept { return by_; }
  const SumPeriod& period() const noexcept { return period_; }
  bool has_trend() const noexcept { return period_.from && !is_in_time(by_); }
  // The earliest end of a run that counts.
  Timestamp first() const noexcept;

  // The rows that a store gives for bounds(), or those of single runs.
  void add(const RunSumRow& row);
  void add(const JobRun& run);
  std::vector<Timestamp> bounds() const;
  // Jobs that were submitted in the period, or in the one before, of which no end is known.
  void add_unfinished(std::uint64_t now, std::uint64_t before);

  // The most wasteful first, or the newest week or month; last kWithoutUse, if there are any.
  std::vector<Named> rows() const;
  const Row& total() const noexcept { return total_; }
  // Of kWithoutUse: those whose use was not measured, and those of which no end is known.
  std::uint64_t unmeasured() const noexcept { return without_use_.now.jobs - unfinished_; }
  std::uint64_t unfinished() const noexcept { return unfinished_; }

  // All rows and the total, for programs.
  std::string csv() const;
  nlohmann::ordered_json json() const;

 private:
  nlohmann::ordered_json json_of(const Row& row) const;

  const SumBy by_;
  const SumPeriod period_;
  std::map<std::string, Row> rows_;
  Row without_use_;
  Row total_;
  std::uint64_t unfinished_ = 0;  // of the period, in without_use_
};

}  // namespace scriptorium::query
