#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace scriptorium::cli {

// A job as a person names it. `id` is the scheduler's: "4711", "4711_3" (a task), "4711+1" (a
// component), "12.server".
struct JobName {
  std::string id;
  std::optional<std::string> cluster;  // of "lab/4711"
  bool of_range = false;               // named by a range, in which a job may be missing
  bool operator==(const JobName&) const = default;
};

inline constexpr std::size_t kMostJobNames = 10'000;

// Ids, ranges ("4711-4720") and either with a cluster in front ("lab/4711"); `cluster`: of all that
// name none ("" = any). Each job once, in the order given. kInvalidConfig: a range that is empty or
// longer than kMostJobNames. Pure.
Result<std::vector<JobName>> job_names(const std::vector<std::string>& words,
                                       const std::string& cluster);

// "lab/4711", "4711"; printable.
std::string name_text(const JobName& name);

}  // namespace scriptorium::cli
