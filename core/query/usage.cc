#include "core/query/usage.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/plugin/call_plugin.h"

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

std::optional<std::uint64_t> unfinished_jobs(const std::vector<Store>& stores, Timestamp from,
                                             Timestamp until, const std::string& user,
                                             std::stop_token stop, SteadyTime deadline) {
  if (user.empty() && !stores.empty()) {
    const auto kept = call_plugin("its plugin", ErrorKind::kPermanent, [&] {
      return stores.front().searchable->unfinished(from, until, {});
    });
    if (kept) return *kept;
  }
  Query submitted{.kind = Query::Kind::kRange, .field = QueryField::kSubmitted};
  submitted.from = from.nanoseconds;
  submitted.to = until.nanoseconds - 1;
  Query ended{.kind = Query::Kind::kRange, .field = QueryField::kEnded};
  ended.from = 0;
  Query not_ended{.kind = Query::Kind::kNot};
  not_ended.children.push_back(std::move(ended));
  // A row that only a node's events made, as for the task of an array, has no user.
  Query owned{
      .kind = Query::Kind::kField, .field = QueryField::kUser, .text = user.empty() ? "*" : user};
  Searchable::Request request{.query = {.kind = Query::Kind::kAnd}, .limit = 0};
  for (Query* part : {&owned, &submitted, &not_ended})
    request.query.children.push_back(std::move(*part));
  request.count = true;
  request.exact = true;
  request.stop = std::move(stop);
  request.deadline = deadline;
  const auto asked = search_fastest(stores, request);
  if (asked.store == nullptr || !asked.answer.finished || !asked.answer.count) return std::nullopt;
  return asked.answer.count->jobs;
}

nlohmann::ordered_json usage_document(const Event& event) {
  using Json = nlohmann::ordered_json;
  Json json = Json::parse(event.extra_json, nullptr, false);
  if (!json.is_object()) return nullptr;
  const auto put = [](Json& object, const char* key, const std::optional<std::string>& value) {
    if (value) object[key] = *value;
  };
  json["id"] = event.id;
  json["cluster"] = event.cluster;
  Json& user = json["user"];
  if (!user.is_object()) user = Json::object();
  put(user, "name", event.user.name);
  put(user, "id", event.user.id);
  user["verified"] = event.user.verified;
  Json& job = json["job"];
  if (!job.is_object()) job = Json::object();
  job["id"] = event.job.id;
  put(job, "name", event.job.name);
  put(job, "account", event.job.account);
  put(job, "partition", event.job.partition);
  if (event.job.array) {
    job["array"] = {{"job_id", event.job.array->job_id}};
    put(job["array"], "task_id", event.job.array->task_id);
  }
  return json;
}

}  // namespace scriptorium::query
