#include "core/cli/job_ids.h"

#include <algorithm>
#include <cstdint>

#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::cli {
namespace {

struct IdRange {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

// Only digits on both sides: other schedulers' ids may hold a '-'.
std::optional<IdRange> range_of(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto digits = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (!digits(text.substr(0, dash)) || !digits(text.substr(dash + 1))) return std::nullopt;
  const auto from = parse_number<std::uint64_t>(text.substr(0, dash));
  const auto to = parse_number<std::uint64_t>(text.substr(dash + 1));
  if (!from || !to) return std::nullopt;
  return IdRange{*from, *to};
}

}  // namespace

Result<std::vector<JobName>> job_names(const std::vector<std::string>& words,
                                       const std::string& cluster) {
  std::vector<JobName> names;
  const auto add = [&](const JobName& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& word : words) {
    JobName name;
    if (!cluster.empty()) name.cluster = cluster;
    std::string_view id = word;
    if (const std::size_t slash = id.find('/'); slash != std::string_view::npos && slash > 0) {
      name.cluster = id.substr(0, slash);
      id.remove_prefix(slash + 1);
    }
    const auto range = range_of(id);
    if (!range) {
      name.id = id;
      add(name);
      continue;
    }
    if (range->from > range->to || range->to - range->from >= kMostJobNames) {
      return Error{ErrorKind::kInvalidConfig, "the range " + printable(word) +
                                                  " is empty or has more than " +
                                                  std::to_string(kMostJobNames) + " jobs"};
    }
    name.of_range = true;
    for (std::uint64_t i = range->from; i <= range->to; ++i) {
      name.id = std::to_string(i);
      names.push_back(name);  // unchecked: a range has each id once, and may be long
    }
  }
  return names;
}

std::string name_text(const JobName& name) {
  return (name.cluster ? printable(*name.cluster) + "/" : "") + printable(name.id);
}

}  // namespace scriptorium::cli
