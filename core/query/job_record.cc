#include "core/query/job_record.h"

#include <algorithm>
#include <utility>

#include "core/plugin/call_plugin.h"
#include "core/query/job_text.h"

namespace scriptorium::query {
namespace {

// How many are read at once: the last one that worked is mostly near.
constexpr std::size_t kFirstRuns = 10;
constexpr std::size_t kMostRunsAtOnce = 200;

std::optional<std::string_view> bytes_of_file(const Searchable::Record& record,
                                              std::string_view name) {
  const EventFile* file = record.event == nullptr ? nullptr : record.event->file(name);
  if (file == nullptr || file->bytes == nullptr) return std::nullopt;
  return *file->bytes;
}

}  // namespace

std::optional<Searchable::Record> record_of(const std::vector<Store>& stores, const JobRow& job) {
  Visibility owner;
  if (job.verified && job.user) owner = {.all = false, .users = {{*job.user, job.uid}}};
  auto asked =
      get_fastest(stores, {.id = job.id, .cluster = job.cluster, .time = job.time}, owner, 1);
  if (asked.answer.empty()) return std::nullopt;
  return std::move(asked.answer.front());
}

std::optional<std::string_view> script_text(const Searchable::Record& record) {
  return bytes_of_file(record, "script");
}
std::optional<std::string_view> environment_bytes(const Searchable::Record& record) {
  return bytes_of_file(record, "environment");
}

std::vector<JobRow> family_of(const std::vector<Store>& stores, const JobRow& job,
                              std::optional<Timestamp> before, std::size_t limit,
                              std::vector<Refusal>& refused) {
  if (!job.family) return {};
  for (const Store& store : stores) {
    auto jobs = call_plugin("its plugin", ErrorKind::kPermanent, [&] {
      return store.searchable->family(*job.family, {}, before, limit);
    });
    if (jobs) return *std::move(jobs);
    refused.push_back({store.name, jobs.error()});
  }
  return {};
}

std::optional<EarlierRun> earlier_run(const std::vector<Store>& stores, const JobRow& job,
                                      std::vector<Refusal>& refused, std::size_t most) {
  std::optional<EarlierRun> unknown;
  std::optional<Timestamp> before = job.time;
  std::size_t limit = kFirstRuns;
  for (std::size_t seen = 0; seen < most;) {
    const std::vector<JobRow> page = family_of(stores, job, before, limit, refused);
    for (const JobRow& run : page) {
      if (run.time >= job.time) continue;
      if (succeeded(run)) return EarlierRun{.job = run, .completed = true};
      if (!unknown && !run.state) unknown = EarlierRun{.job = run, .completed = false};
    }
    if (page.size() < limit || (before && page.back().time >= *before)) break;
    before = page.back().time;
    seen += page.size();
    limit = std::min(2 * limit, kMostRunsAtOnce);
  }
  return unknown;
}

}  // namespace scriptorium::query
