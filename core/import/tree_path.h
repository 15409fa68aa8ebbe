#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// The naming schemes of other archivers. Pure functions on paths.
//   sarchive     [YYYY|YYYYMM|YYYYMMDD/]job.ID_script and job.ID_environment
//   job_archive  USER/YYYY/MM/ID[-NAME].sh and .env
//   savescript   [YYYYMMDD/]ID.savescript
// These may be in further directories; only the end of the path counts.
namespace scriptorium::import {

enum class TreeFormat { kSarchive, kJobArchive, kSavescript };

std::optional<TreeFormat> parse_tree_format(std::string_view name) noexcept;
const char* to_string(TreeFormat format) noexcept;

// The period that a folder's name denotes, in UTC; nanoseconds since 1970.
struct Period {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // exclusive
  bool operator==(const Period&) const = default;
};

// The day, month or year denoted by digits such as "2026", "202611" or "20261121"; nothing for any
// other text or date.
std::optional<Period> period_of(std::string_view digits) noexcept;

struct TreePath {
  enum class Role { kForeign, kScript, kEnvironment } role = Role::kForeign;
  std::string entry;  // the path without the part that distinguishes script and environment: the
                      // key that a job's files share
  std::string job_id;
  std::optional<std::string> job_name;
  std::optional<std::string> user;  // from the folder's name; the job's user could choose it
  std::optional<Period> period;
};

// `path` is relative to the tree, without a leading '/'.
TreePath classify(TreeFormat format, std::string_view path);

// The period of the innermost folder of `path` that denotes one. For files with a scheduler's own
// names.
std::optional<Period> period_of_folder(std::string_view path) noexcept;

}  // namespace scriptorium::import
