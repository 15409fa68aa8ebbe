#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "backends/catalog/field_lists.h"
#include "backends/catalog/id_set.h"
#include "backends/catalog/search_reader.h"
#include "core/api/query.h"
#include "core/api/searchable.h"

// What the index of fields says of a query, for one segment: which chunks can have a job, which
// owners' blocks, and which times. Each may name too much, never too little.
namespace scriptorium::catalog {

struct TimeSpan {
  std::int64_t from = std::numeric_limits<std::int64_t>::min();  // nanoseconds, both included
  std::int64_t to = std::numeric_limits<std::int64_t>::max();
};
// When a job for which the query holds was submitted. Pure.
TimeSpan time_span(const Query& query);

// Errors stick to the reader's connection.
class FieldIndex {
 public:
  explicit FieldIndex(SearchReader& reader);

  // Other chunks are not asked for from now on, and may be named or not.
  void limit(FieldReader::Chunks chunks) noexcept { limit_ = chunks; }

  IdSet chunks(const Query& query);
  IdSet visible_chunks(const Visibility& visibility);
  // owners.id of the blocks that hold the scripts of such jobs, ascending; nothing if it can be
  // any.
  std::optional<std::vector<std::int64_t>> owners(const Query& query, const Visibility& visibility);

 private:
  IdSet field_chunks(const Query& query);
  IdSet range_chunks(const Query& query);
  // Or of kAccountsOfOwner the owners.
  IdSet chunks_of_values(std::int64_t field, std::vector<std::int64_t> values);
  IdSet chunks_of_range(std::int64_t field, std::int64_t from, std::int64_t to);
  IdSet chunks_of_jobs(const std::vector<std::int64_t>& jobs);
  IdSet chunks_of_script(std::string_view prefix);
  IdSet chunks_of_job_id(std::string_view pattern);
  // names.id of the names of a field for which the query can hold; nothing if there are very many.
  std::optional<std::vector<std::int64_t>> names(QueryField field, const Query& query);
  IdSet owners_with_account(const Query& query);
  std::optional<std::int64_t> uid_name(std::string_view text);

  SearchReader& reader_;
  FieldReader::Chunks limit_;
  sqlite::Statement equal_names_;
  sqlite::Statement names_between_;
  FieldReader fields_;
  sqlite::Statement keys_;
  sqlite::Statement numbers_between_;
  sqlite::Statement texts_between_;
  sqlite::Statement owners_;
};

}  // namespace scriptorium::catalog
