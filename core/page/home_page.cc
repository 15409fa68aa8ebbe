#include "core/page/home_page.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/page/job_page.h"
#include "core/query/job_text.h"

namespace scriptorium::page {

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

}  // namespace scriptorium::page
