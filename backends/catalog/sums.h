#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/catalog/names.h"
#include "backends/catalog/schema.h"
#include "core/api/kit/sqlite/connection.h"
#include "core/api/run_sum.h"

// What the runs of a segment had and did not use, kept as they come, so that a report of a month
// need not read a million of them: the tables `sums` and `wasteful`.
namespace scriptorium::catalog {

// `sums.kind` is a RunsBy, of a day (`time`: seconds / kDay) and a name that counts; or this one,
// of a quarter of an hour (`time`: seconds / kQuarter), where `name` is 1 for the runs that were
// measured and 0 for the others. No time zone has days that begin elsewhere.
inline constexpr std::int64_t kQuarters = kRunsByCount;
inline constexpr std::int64_t kQuarter = 900;  // seconds
// The most wasteful runs of a day that `wasteful` has at least, if there are so many.
inline constexpr std::size_t kWastefulOfDay = 10;
// Parameters: the day, and kWastefulOfDay - 1. No row: the day has no more than are known.
inline constexpr const char* kSelectLeastWasteful =
    "SELECT waste FROM wasteful WHERE day = ? ORDER BY waste DESC LIMIT 1 OFFSET ?";

// `sums.data`: the figures, then for each finding its names.id and in how many jobs it occurs.
struct StoredSum {
  RunSum sum;
  std::map<std::int64_t, std::uint64_t> findings;  // while runs are read, also of lists of findings
};
RunTotals totals_of(const StoredSum& stored, NameReader& names);
std::string pack_sum(const StoredSum& sum);
std::optional<StoredSum> unpack_sum(std::string_view packed);

// Keeps both tables. What a transaction changes is gathered, and written by flush() in the order of
// the keys. Threads: one at a time. Errors stick to the connection.
class SumWriter {
 public:
  SumWriter(sqlite::Connection& db, NameWriter& names);

  // A new row of `later`: its job and key, and the run with the job's modules.
  void add(std::int64_t job, std::string_view key, const JobRun& run,
           const std::vector<std::string>& modules);
  // The modules of a job have changed, of which this is a run.
  void change_modules(const JobRun& run, const std::vector<std::string>& before,
                      const std::vector<std::string>& after);
  void flush();
  // After a rollback, and when another process may have changed the tables.
  void forget();

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // kind, time, name
  struct Wasteful {
    std::uint64_t waste;
    std::int64_t job;
    std::string key;
  };

  void add_to(const Key& key, const JobRun& run, std::uint64_t begin, std::uint64_t end,
              std::uint64_t of, bool is_removed = false);
  void add_names(RunsBy by, const JobRun& run, bool is_removed = false);
  void write_sum(const Key& key, const StoredSum& change);
  void write_wasteful(std::int64_t day, std::vector<Wasteful>& runs);
  std::uint64_t least_of(std::int64_t day);

  NameWriter& names_;
  sqlite::Statement select_;
  sqlite::Statement replace_;
  sqlite::Statement remove_;
  sqlite::Statement least_;
  sqlite::Statement insert_wasteful_;
  sqlite::Statement cut_wasteful_;
  // A change may be negative: all figures are modulo 2^64.
  std::map<Key, StoredSum> changes_;
  std::map<std::int64_t, std::vector<Wasteful>> wasteful_;  // by day
  // A run that wasted no more is none of the day's most wasteful.
  std::map<std::int64_t, std::uint64_t> least_waste_;
};

// The run as `later` and `names` give it back, with these modules.
JobRun as_summed(const JobRun& run, const std::vector<std::string>& modules);

}  // namespace scriptorium::catalog
