#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "core/api/searchable.h"
#include "core/query/stores.h"

// Jobs with their texts and their families, from the fastest store that has them.
namespace scriptorium::query {

// Exactly this job; nothing if no store has it any more.
std::optional<Searchable::Record> record_of(const std::vector<Store>& stores, const JobRow& job);

// Views into the record; nothing if the part was not stored.
std::optional<std::string_view> script_text(const Searchable::Record& record);
std::optional<std::string_view> environment_bytes(const Searchable::Record& record);

// The family's jobs, newest first, at most `limit`; empty if the job has none or no store knows.
std::vector<JobRow> family_of(const std::vector<Store>& stores, const JobRow& job,
                              std::optional<Timestamp> before, std::size_t limit,
                              std::vector<Refusal>& refused);

struct EarlierRun {
  JobRow job;
  bool completed = false;  // with exit code 0; otherwise how it ended is not known
};
// The last job of the family before `job` that completed with exit code 0. If no such job is known,
// the last one whose end is not known, since a site without usage events knows no outcome. At most
// so many earlier ones are read.
inline constexpr std::size_t kMostEarlierRuns = 20'000;
std::optional<EarlierRun> earlier_run(const std::vector<Store>& stores, const JobRow& job,
                                      std::vector<Refusal>& refused,
                                      std::size_t most = kMostEarlierRuns);

}  // namespace scriptorium::query
