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
#include "core/cli/console.h"
#include "core/cli/report_text.h"
#include "core/mail/summary.h"

namespace scriptorium::cli {

enum class SumBy : std::uint8_t { kUser, kAccount, kPartition, kProgram, kModule, kNode };
// "user", ...; nothing for another word.
std::optional<SumBy> sum_by(std::string_view word) noexcept;
std::vector<std::string> sum_by_words();

// The runs that are summed: those that ended at `from` or later and before `until`, and for the
// trend those of as long a time before `from`.
struct SumPeriod {
  std::optional<Timestamp> from;  // absent: from the first run on, without a trend
  Timestamp until;

  // The earliest end of a run that counts.
  Timestamp first() const noexcept;
};

// Adds a run, or the part of it from `begin` to `end` where `of` is all. What was not measured
// counts as used.
void add_run(mail::Sum& into, const JobRun& run, std::uint64_t begin = 0, std::uint64_t end = 1,
             std::uint64_t of = 1);

// What many runs had and did not use, a row for each user, account, ... of one period. Pure.
// Sums are whole seconds, so the rows of a user, an account, a partition or a node add up to the
// total exactly. A run counts in full in the row of each of its modules, by its share of the CPU
// time in that of a program, and by equal parts in those of its nodes. A run whose use was not
// measured is in a row of its own.
// Memory: grows with the rows, not with the runs.
class ReportSums {
 public:
  ReportSums(SumBy by, SumPeriod period) : by_(by), period_(period) {}

  void add(const JobRun& run);
  // Jobs that were submitted in the period, or in the one before, of which no end is known.
  void add_unfinished(std::uint64_t now, std::uint64_t before);

  // The most wasteful first, at most `limit` (0: all), then the total.
  std::string text(std::size_t limit, const Console& console) const;
  std::string csv() const;
  nlohmann::ordered_json json() const;

 private:
  struct Sum : mail::Sum {
    FindingCounts findings;

    // As add_run(), and the run's findings.
    void add(const JobRun& run, std::uint64_t begin, std::uint64_t end, std::uint64_t of);
  };
  struct Row {
    Sum now;
    Sum before;
  };
  using Named = std::pair<std::string, const Row*>;

  std::vector<Named> rows() const;  // with the one of no use, without the total
  std::string foot() const;
  nlohmann::ordered_json json_of(const Row& row) const;

  const SumBy by_;
  const SumPeriod period_;
  std::map<std::string, Row> rows_;
  Row without_use_;
  Row total_;
  std::uint64_t unfinished_ = 0;  // of the period, in without_use_
};

}  // namespace scriptorium::cli
