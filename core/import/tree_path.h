#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// How other archivers name what they keep, as pure functions on paths.
//   sarchive     [YYYY|YYYYMM|YYYYMMDD/]job.ID_script and job.ID_environment
//   job_archive  USER/YYYY/MM/ID[-NAME].sh and .env
//   savescript   [YYYYMMDD/]ID.savescript
// Each may stand in further directories: what counts is the end of the path.
namespace scriptorium::import {

enum class TreeFormat { kSarchive, kJobArchive, kSavescript };

std::optional<TreeFormat> parse_tree_format(std::string_view name) noexcept;
const char* to_string(TreeFormat format) noexcept;

// The time that a folder's name stands for, UTC; nanoseconds since 1970.
struct Period {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // the first moment that no longer belongs to it
  bool operator==(const Period&) const = default;
};

// The day, month or year that the digits "2026", "202611" or "20261121" name; nothing for any other
// text or date.
std::optional<Period> period_of(std::string_view digits) noexcept;

struct TreePath {
  enum class Role { kForeign, kScript, kEnvironment } role = Role::kForeign;
  std::string entry;  // the path without what tells script from environment: what ties an entry's
                      // files together
  std::string job_id;
  std::optional<std::string> job_name;
  std::optional<std::string>
      user;  // as the folder says; whoever wrote the job's environment could choose it
  std::optional<Period> period;
};

// `path` is relative to the tree, without a leading '/'.
TreePath classify(TreeFormat format, std::string_view path);

// The period of the innermost folder of `path` that names one. For files that a scheduler's own
// names tell apart.
std::optional<Period> period_of_folder(std::string_view path) noexcept;

}  // namespace scriptorium::import
