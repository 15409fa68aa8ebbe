#include "core/query/usage.h"

#include <utility>

namespace scriptorium::query {

Result<UsagePage> usage_page(const Store& store, const Searchable::Request& request) {
  auto asked = search_fastest({store}, request);
  if (asked.store == nullptr) return asked.refused.front().error;
  Searchable::Answer& found = asked.answer;
  UsagePage page{.uses = {},
                 .next = std::move(found.next),
                 .finished = found.finished,
                 .problems = std::move(found.problems)};
  for (const Searchable::Hit& hit : found.hits) {
    auto got =
        get_fastest({store}, {.id = hit.job.id, .cluster = hit.job.cluster, .time = hit.job.time},
                    request.visibility, 1);
    if (got.store == nullptr) return got.refused.front().error;
    if (got.answer.empty()) continue;  // removed meanwhile
    Searchable::Record& record = got.answer.front();
    for (auto& event : record.later) {
      if (event->kind == "usage.job" || event->kind == "usage.node")
        page.uses.push_back({std::move(event), hit.job.family});
    }
    for (std::string& problem : record.problems) page.problems.push_back(std::move(problem));
  }
  return page;
}

}  // namespace scriptorium::query
