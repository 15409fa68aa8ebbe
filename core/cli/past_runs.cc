#include "core/cli/past_runs.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "core/api/kit/search/similarity.h"
#include "core/cli/job_record.h"
#include "core/query/stores.h"
#include "core/query/unchecked_json.h"

namespace scriptorium::cli {
namespace {

using query::text_at;
using query::value_at;

using Json = nlohmann::ordered_json;

constexpr std::size_t kPage = 50;
constexpr std::size_t kMostJobs = 200;  // that are read; those that failed count, too
constexpr std::chrono::seconds kSearchTime{2};
constexpr std::chrono::seconds kMostTime{5};  // scripts of a user's choice may be large

std::vector<Json> uses_of(const Searchable::Record& record) {
  std::vector<Json> uses;
  for (const auto& event : record.later) {
    if (event->kind != "usage.job") continue;
    Json json = Json::parse(event_json(*event), nullptr, false);
    if (json.is_object()) uses.push_back(std::move(json));
  }
  return uses;
}

// The submission that the event belongs to; an id may be used again.
std::optional<Searchable::Record> submission_of(const std::vector<query::Store>& stores,
                                                const Json& usage_job) {
  constexpr std::size_t kMostOfOneId = 10;
  const RunFigures run = run_figures(usage_job);
  Visibility owner;  // a file tree then reads the folders of one user only
  const std::string user = text_at(usage_job, {"user", "name"});
  if (value_at(usage_job, {"user", "verified"}) == true && !user.empty())
    owner = {.all = false, .users = {{.name = user}}};
  auto asked = query::get_fastest(
      stores, {.id = run.job, .cluster = text_at(usage_job, {"cluster"})}, owner, kMostOfOneId);
  for (Searchable::Record& record : asked.answer) {
    const bool has_it = std::any_of(record.later.begin(), record.later.end(),
                                    [&](const auto& event) { return event->id == run.event_id; });
    if (has_it) return std::move(record);
  }
  return std::nullopt;
}

// Jobs without a family that a person would call the same, the newest first.
class Namesakes {
 public:
  explicit Namesakes(const Searchable::Record& job)
      : job_(job.job), name_(stable_name(job.job.name.value_or(""))) {
    if (const auto script = script_text(job)) signature_ = script_signature(*script);
  }

  std::vector<JobRow> find(const std::vector<query::Store>& stores) const {
    if (!job_.user || name_.empty() || signature_.runs == 0) return {};
    std::string pattern = name_;
    std::replace(pattern.begin(), pattern.end(), '#', '*');
    Query query{.kind = Query::Kind::kAnd};
    query.children.push_back(
        {.kind = Query::Kind::kField, .field = QueryField::kUser, .text = *job_.user});
    query.children.push_back(
        {.kind = Query::Kind::kField, .field = QueryField::kName, .text = std::move(pattern)});
    Query submitted{.kind = Query::Kind::kRange, .field = QueryField::kSubmitted};
    submitted.to = job_.time.nanoseconds;
    query.children.push_back(std::move(submitted));
    Searchable::Request request{.query = std::move(query), .limit = kMostJobs};
    request.most_lines = 0;
    request.deadline = system_clock().steady() + kSearchTime;
    std::vector<JobRow> rows;
    for (Searchable::Hit& hit : query::search_fastest(stores, request).answer.hits)
      rows.push_back(std::move(hit.job));
    return rows;
  }

  bool has(const Searchable::Record& record) const {
    const auto script = script_text(record);
    // The name of a user who is not verified is only what the job says.
    return script && record.job.user == job_.user && record.job.verified == job_.verified &&
           stable_name(record.job.name.value_or("")) == name_ &&
           same_family(true, similarity(signature_, script_signature(*script)));
  }

 private:
  const JobRow& job_;
  const std::string name_;
  ScriptSignature signature_;
};

// Runs that began before `usage_job` did, as they are read.
class Runs {
 public:
  explicit Runs(const Json& usage_job) : start_(run_figures(usage_job).started_at) {}

  bool are_enough() const {
    return completed_ >= kMostPastRuns || jobs_ >= kMostJobs ||
           system_clock().steady() >= deadline_;
  }

  void add(const Searchable::Record& record) {
    ++jobs_;
    for (const Json& use : uses_of(record)) {
      RunFigures run = run_figures(use);
      if (run.started_at >= start_) continue;
      if (run.completed) ++completed_;
      runs_.push_back(std::move(run));
    }
  }

  std::vector<RunFigures> take() { return std::move(runs_); }

 private:
  const std::optional<Timestamp> start_;
  const SteadyTime deadline_ = system_clock().steady() + kMostTime;
  std::vector<RunFigures> runs_;
  std::size_t completed_ = 0;
  std::size_t jobs_ = 0;
};

void add_family(const std::vector<query::Store>& stores, const JobRow& job, Runs& runs) {
  std::vector<query::Refusal> refused;
  std::optional<Timestamp> before = Timestamp{job.time.nanoseconds + 1};  // an array's other tasks
  while (!runs.are_enough()) {
    const std::vector<JobRow> page = family_of(stores, job, before, kPage, refused);
    for (const JobRow& row : page) {
      if (runs.are_enough()) return;
      if (const auto record = record_of(stores, row)) runs.add(*record);
    }
    if (page.size() < kPage || page.back().time >= *before) return;
    before = page.back().time;
  }
}

void add_namesakes(const std::vector<query::Store>& stores, const Searchable::Record& job,
                   Runs& runs) {
  const Namesakes namesakes(job);
  for (const JobRow& row : namesakes.find(stores)) {
    if (runs.are_enough()) return;
    if (const auto record = record_of(stores, row); record && namesakes.has(*record))
      runs.add(*record);
  }
}

}  // namespace

std::vector<RunFigures> past_runs(const std::vector<query::Store>& stores, const Json& usage_job) {
  const auto job = submission_of(stores, usage_job);
  if (!job) return {};
  Runs runs(usage_job);
  if (job->job.family) {
    add_family(stores, job->job, runs);
  } else {
    add_namesakes(stores, *job, runs);
  }
  return runs.take();
}

}  // namespace scriptorium::cli
