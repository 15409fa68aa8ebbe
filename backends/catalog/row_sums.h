#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "backends/catalog/names.h"
#include "backends/catalog/sums.h"
#include "core/api/kit/sqlite/connection.h"
#include "core/api/run_sum.h"
#include "core/base/time.h"

namespace scriptorium::catalog {

// What rows of `later` add up to, by the ids of their names: a name is read once, and not for each
// run. The rows begin with kRunColumns, and for RunsBy::kModule the modules of their job follow.
// Threads: one at a time.
class RowSums {
 public:
  RowSums(std::optional<RunsBy> by, NameReader& names) : by_(by), names_(names) {}

  // To the quarter of an hour in which it ended.
  void add_in_time(const sqlite::Statement& row);
  // To the names that it counts for, if it was measured. One that is removed need not have been
  // added: the figures of a name are then to be added to what had it, modulo 2^64.
  enum class Change : std::uint8_t { kAdd, kRemove };
  void add_by_name(const sqlite::Statement& row, Change change = Change::kAdd);

  // Calls use() with what was added since the last time, all of it of a period that begins then.
  void give(Timestamp from, const std::function<void(const RunSumRow&)>& use);

 private:
  static void add_to(StoredSum& sum, const sqlite::Statement& row, const RunSum& part,
                     Change change);

  const std::optional<RunsBy> by_;
  NameReader& names_;
  std::map<std::pair<std::int64_t, bool>, StoredSum> in_time_;  // quarter, whether measured
  std::map<std::pair<std::int64_t, bool>, StoredSum> by_id_;    // name or list, whether verified
  std::map<std::string, StoredSum> by_name_;                    // those that have parts of a run
};

}  // namespace scriptorium::catalog
