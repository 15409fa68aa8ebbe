#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "backends/file/layout.h"
#include "core/api/query.h"
#include "core/api/searchable.h"
#include "core/base/result.h"

// Which directories of a tree may hold a query's jobs, as far as the layout tells.
namespace scriptorium::file {

// A part of time, nanoseconds since 1970, both ends included.
struct TimeSpan {
  std::int64_t from = std::numeric_limits<std::int64_t>::min();
  std::int64_t to = std::numeric_limits<std::int64_t>::max();
  bool operator==(const TimeSpan&) const = default;
  bool overlaps(const TimeSpan& other) const noexcept {
    return from <= other.to && other.from <= to;
  }
};

// What every job has that a query can match.
struct Wanted {
  TimeSpan time;
  std::optional<std::string> job_id;  // as safe_value() writes it
  // Folders of users, lower case; nothing: any.
  std::optional<std::vector<std::string>> folders;
};
Wanted wanted_by(const Query& query, const Visibility& visibility);

// The period that the names of directories state; all time if they state none.
TimeSpan span_of(const Layout::DirectoryFacts& facts);

// A directory that holds files of jobs.
struct Leaf {
  std::string path;  // below the root
  TimeSpan span;
};
struct Leaves {
  std::vector<Leaf> list;    // the newest span first
  std::uint64_t closed = 0;  // directories that this user may not list or enter
  bool finished = true;      // false: `ended` said so
};
// Spans are equal or do not overlap, so that one after the other can be searched.
Leaves find_leaves(const Layout& layout, int root, const Wanted& wanted,
                   const std::function<bool()>& ended);

}  // namespace scriptorium::file
