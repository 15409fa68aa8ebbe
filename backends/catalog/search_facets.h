#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/catalog/search_condition.h"
#include "backends/catalog/search_reader.h"
#include "core/api/searchable.h"

namespace scriptorium::catalog {

// Counts the values that jobs have in some fields.
// Threads: one at a time.
class FacetCounter {
 public:
  explicit FacetCounter(const std::vector<QueryField>& fields);

  void add(SearchReader& reader, const RawJob& job, std::uint64_t jobs = 1);
  // After the last job of a segment.
  void end_segment(SearchReader& reader);

  std::uint64_t jobs() const noexcept { return jobs_; }
  // The most frequent values first, equal ones in the order of their bytes.
  std::vector<Searchable::Facet> take(std::size_t values, bool exact);

 private:
  struct Field {
    QueryField field = QueryField::kUser;
    // By segment and names.id.
    std::map<std::int64_t, std::unordered_map<std::int64_t, std::uint64_t>> by_name;
    std::unordered_map<std::string, std::uint64_t> by_value;
    bool too_many = false;
  };
  static void count(Field& field, const std::string& value, std::uint64_t jobs);

  std::vector<Field> fields_;
  std::uint64_t jobs_ = 0;
};

// Whether count and facets of this query are sums of `daily`: it asks for nothing but users,
// accounts, partitions, clusters, whether they are verified, and whole days. Pure.
bool is_of_daily_sums(const Query& query, const std::vector<QueryField>& facets);

// Adds the sums of a segment for which `condition` holds; false: a user in the query may be a uid,
// which `daily` does not have. An error sticks to the connection.
bool add_daily_sums(SearchReader& reader, const Condition& condition, const Visibility& visibility,
                    FacetCounter& counter);

}  // namespace scriptorium::catalog
