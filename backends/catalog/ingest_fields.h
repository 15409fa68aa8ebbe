#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/catalog/names.h"
#include "backends/catalog/number_set.h"
#include "backends/catalog/rows.h"
#include "core/api/kit/sqlite/connection.h"

namespace scriptorium::catalog {

// Keeps `fields`, `chunks` and `daily` of one segment. What a transaction changes is gathered, and
// written by flush() in the order of the keys.
// Threads: one at a time. Errors stick to the connection.
class FieldWriter {
 public:
  FieldWriter(sqlite::Connection& db, NameWriter& names);

  // A row is new or has changed.
  void add(std::int64_t job, std::int64_t owner, const JobRow& row);
  // How many jobs a day has; before and after a change. Of a row that is_job() only.
  void count(const JobRow& row, std::int64_t jobs);
  void flush();
  // After a rollback, and when another process may have changed the tables.
  void forget();

 private:
  struct Times {
    std::int64_t newest = 0;
    std::int64_t oldest = 0;
  };
  // day, cluster, user, account, partition, verified
  using Day = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t>;

  void add_value(std::int64_t field, std::int64_t value, std::int64_t chunk);
  void add_name(QueryField field, const std::optional<std::string>& text, std::int64_t chunk);
  void add_account(std::int64_t owner, const JobRow& row);
  void write_field(std::int64_t key, std::vector<std::int64_t>& values);
  void add_names(QueryField field, const std::vector<std::string>& texts, std::int64_t chunk);

  NameWriter& names_;
  sqlite::Statement select_field_;
  sqlite::Statement replace_field_;
  sqlite::Statement extend_chunk_;
  sqlite::Statement add_daily_;
  // To be written, by field_key(); in no order, and perhaps twice.
  std::map<std::int64_t, std::vector<std::int64_t>> fields_;
  std::map<std::int64_t, Times> chunks_;
  std::map<Day, std::int64_t> daily_;
  // What the newest chunk has already.
  std::int64_t newest_chunk_ = -1;
  NumberSet in_newest_;
  NumberSet accounts_;  // of owners, that are written already
};

}  // namespace scriptorium::catalog
