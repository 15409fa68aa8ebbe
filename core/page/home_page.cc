#include "core/page/home_page.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/base/text.h"
#include "core/page/job_page.h"
#include "core/query/job_text.h"

namespace scriptorium::page {
namespace {

using List = kainjow::mustache::list;

constexpr std::size_t kMostWasteful = 3;

}  // namespace

std::vector<FailedJob> failed_families(const std::vector<Searchable::Hit>& hits, std::size_t most) {
  std::vector<FailedJob> list;
  for (const Searchable::Hit& hit : hits) {
    if (query::ending_of(hit.job) != query::Ending::kBad) continue;
    const auto same = std::find_if(list.begin(), list.end(), [&](const FailedJob& failed) {
      return hit.job.family && failed.job.family == hit.job.family;
    });
    if (same != list.end()) {
      ++same->again;
    } else if (list.size() < most) {
      list.push_back({.job = hit.job});
    }
  }
  return list;
}

Values failed_values(const FailedJob& failed, const Searchable::Record& record) {
  Values values = run_values(failed.job);
  values.set("href", job_path(failed.job));
  values.set("id", printable(failed.job.id));
  values.set("name", query::shown(failed.job.name));
  values.set("time", query::local_time(failed.job.time));
  values.set("again", failed.again == 0
                          ? Values(false)
                          : Values(words("failed_again", {std::to_string(failed.again)})));
  add_advice(values, record);
  return values;
}

void add_week(Values& values, const Report& week) {
  const query::Sum& sum = week.sums.total().now;
  values.set("week", sum.jobs == 0
                         ? Values(false)
                         : Values("text", words("last_days_sums",
                                                {count_text(sum.jobs, "one_job", "several_jobs"),
                                                 query::hours_text(sum.core_seconds),
                                                 query::hours_text(sum.unused_core_seconds)})));
  List wasteful;
  std::set<std::optional<std::string>> names;  // of the same job one run is enough
  for (const JobRun& run : week.wasteful) {
    if (wasteful.size() == kMostWasteful) break;
    if (!names.insert(run.event->job.name).second) continue;
    Values row = job_row(run);
    add_advice(row, *run.event);
    wasteful.push_back(std::move(row));
  }
  set_list(values, "wasteful", wasteful);
}

}  // namespace scriptorium::page
