#include "core/cli/archived_images.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/api/query.h"
#include "core/base/accounts.h"
#include "core/cli/common.h"
#include "core/cli/job_record.h"
#include "core/cli/open_stores.h"
#include "core/query/checkpoint_chain.h"
#include "core/query/stores.h"
#include "core/query/unchecked_json.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kMostTime{20};
constexpr std::size_t kMostImagePath = 4096;

Query text_node(std::string text) { return {.kind = Query::Kind::kText, .text = std::move(text)}; }

Query jobs_with_images(const std::string& user) {
  Query words{.kind = Query::Kind::kOr,
              .children = {text_node(query::kCheckpoint), text_node("scriptorium-run")}};
  Query own{.kind = Query::Kind::kField, .field = QueryField::kUser, .text = user};
  return {.kind = Query::Kind::kAnd, .children = {std::move(own), std::move(words)}};
}

// The path of an image that scriptorium-checkpointd made or resumed for this user; "" = none. What
// a program saves itself is not an image.
std::string path_in(const Event& event, const UserRecord& user) {
  if (event.kind != "job.checkpoint" || event.user.name != user.name ||
      (event.user.id && *event.user.id != std::to_string(user.uid)))
    return {};
  const Json json = Json::parse(event.extra_json, nullptr, false);
  const Json& path = query::value_at(json, {query::kCheckpoint, "image_path"});
  if (query::text_at(json, {query::kCheckpoint, "engine"}) == "app" || !path.is_string()) return {};
  std::string text = path.get<std::string>();
  return text.starts_with('/') && text.size() <= kMostImagePath ? text : std::string{};
}

using ByPath = std::map<std::string, ArchivedImage>;

void add_images(const Searchable::Record& record, const UserRecord& user, ByPath& found) {
  for (const auto& event : record.later) {
    std::string path = path_in(*event, user);
    if (path.empty()) continue;
    ArchivedImage& image = found[path];
    if (!image.path.empty() && image.saved > event->time) continue;
    image = {
        .path = std::move(path), .job = event->job.id, .saved = event->time, .node = event->host};
  }
}

}  // namespace

ArchivedImages archived_images(const Arguments& arguments, Console& console) {
  ArchivedImages result;
  const auto user = find_user(::geteuid());
  if (::geteuid() == 0 || !user || !*user) return result;
  if (!arguments.config_given && ::access(arguments.config_file.c_str(), R_OK) != 0) return result;
  Problems problems;
  Setup setup = load_setup(arguments.config_file, problems);
  if (setup.sinks.empty()) return result;
  const OpenStores open = open_stores(std::move(setup), "", console);
  const auto stores = query::indexed(open.list());
  if (stores.empty()) return result;
  const SteadyTime deadline = std::chrono::steady_clock::now() + kMostTime;
  const auto asked = query::search_fastest(stores, {.query = jobs_with_images((*user)->name),
                                                    .limit = kMostJobsWithImages,
                                                    .deadline = deadline,
                                                    .most_lines = 0});
  if (asked.store == nullptr) {
    say_refusals(asked.refused, console);
    return result;
  }
  result.was_asked = true;
  result.is_cut = !asked.answer.next.empty();
  ByPath found;
  for (const Searchable::Hit& hit : asked.answer.hits) {
    if (std::chrono::steady_clock::now() > deadline) {
      result.is_cut = true;
      break;
    }
    if (const auto record = record_of(stores, hit.job)) add_images(*record, **user, found);
  }
  for (auto& each : found) result.images.push_back(std::move(each.second));
  std::ranges::sort(result.images, std::greater{}, &ArchivedImage::saved);
  return result;
}

}  // namespace scriptorium::cli
