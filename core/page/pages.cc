#include "core/page/pages.h"

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/number.h"
#include "core/base/text.h"
#include "core/page/compare_page.h"
#include "core/page/home_page.h"
#include "core/page/job_list.h"
#include "core/page/job_page.h"
#include "core/page/report_page.h"
#include "core/page/shown.h"
#include "core/page/templates.h"
#include "core/plugin/call_plugin.h"
#include "core/query/answer_json.h"
#include "core/query/checkpoint_chain.h"
#include "core/query/job_fields.h"
#include "core/query/job_record.h"
#include "core/query/job_text.h"
#include "core/query/parse.h"
#include "core/query/visible_store.h"

namespace scriptorium::page {
namespace {

using List = kainjow::mustache::list;
using Json = nlohmann::ordered_json;

constexpr std::size_t kJobsOfAPage = 30;
constexpr std::size_t kUsualJsonJobs = 50;
constexpr std::size_t kMostOfOneId = 10;
constexpr std::size_t kMostRuns = 20;
// Of a family, for whether a job ever worked.
constexpr std::size_t kMostLookedThrough = 1'000;
constexpr std::size_t kMostFailed = 5;
constexpr std::size_t kFacetValues = 8;
constexpr std::size_t kCsvPage = 1'000;
constexpr std::size_t kMostJsonJobs = 1'000;
constexpr std::size_t kMostCsvRows = 10'000;
constexpr std::chrono::seconds kMostSearchTime{2};

// One request of one person.
class Answering {
 public:
  Answering(const Request& request, const Context& context, serve::Caller caller)
      : request_(request), context_(context), caller_(std::move(caller)) {}

  Response run(const Target& target) {
    for (const query::Store& store : context_.stores) {
      Visibility visibility = serve::visibility_of(caller_, *store.searchable);
      fields_ = serve::caller_fields(caller_, visibility);
      sees_others_ = sees_others_ || visibility.all || !visibility.accounts.empty();
      visible_.emplace_back(*store.searchable, std::move(visibility));
      stores_.push_back({store.name, &visible_.back()});
    }
    fields_.emplace_back("address", request_.address);
    fields_.emplace_back("call", "page");
    fields_.emplace_back("asked", request_.target);
    const std::vector<std::string>& path = target.path;
    if (path.empty()) return target.has_query("q") ? jobs(target) : home();
    if (path.size() == 1 && path.front() == "jobs.csv") return jobs_csv(target);
    if (path.size() == 1 && path.front() == "compare") return comparison(target);
    if (path.size() == 1 && (path.front() == "reports" || path.front() == "reports.csv"))
      return reports(target);
    if (is_for_programs(request_.target)) return for_programs(target);
    if (path.front() == "job" && path.size() == 3) return job(target, Part::kPage);
    if (path.front() == "job" && path.size() == 4 && path[3] == "script")
      return job(target, Part::kScript);
    if (path.front() == "job" && path.size() == 4 && path[3] == "compare")
      return job(target, Part::kSinceItWorked);
    return sentence(404, words("no_page"));
  }

 private:
  // ---- the reader's own

  Response home() {
    const Visibility own{.all = false,
                         .users = {{.name = caller_.login, .uid = std::to_string(caller_.uid)}},
                         .accounts = {}};
    std::deque<query::VisibleStore> visible;
    std::vector<query::Store> stores;
    for (const query::Store& store : context_.stores)
      stores.push_back({store.name, &visible.emplace_back(*store.searchable, own)});
    // A store behind the query service decides on its own what the reader sees, which may be more.
    const std::string mine =
        query::to_text(
            {.kind = Query::Kind::kField, .field = QueryField::kUser, .text = caller_.login}) +
        " verified:true";
    const std::string failed_lately = mine + " " + kFailedLately;
    auto asked = query::search_fastest(stores, quick_request(mine));
    if (asked.store == nullptr) return refused(asked.refused);
    const auto bad = query::search_fastest(stores, quick_request(failed_lately));

    Values values = page_values("");
    values.set("title", words("home_title"));
    std::vector<std::string> ids = ids_of(asked.answer);
    List failed;
    for (const FailedJob& one : failed_families(bad.answer.hits, kMostFailed)) {
      const auto found = query::record_of(stores, one.job);
      if (!found) continue;
      ids.push_back(one.job.event_id);
      failed.push_back(failed_values(one, *found));
    }
    ReportQuestion week = report_question({.path = {}, .query = {}}, false, system_clock().now());
    week.by = query::SumBy::kWeek;  // neither rows of names nor a trend are shown
    const ReportAnswer used = read_report(week, stores, {.wasteful = true}, context_.stop, soon());
    if (used.report) {
      add_week(values, *used.report);
      for (const JobRun& run : used.report->wasteful) ids.push_back(run.event->id);
    }
    List notes;
    if (!asked.answer.finished || !bad.answer.finished || used.is_late)
      notes.push_back({"text", words("home_too_slow")});
    if (asked.answer.hits.empty() && asked.answer.finished) {
      notes.push_back({"text", words("no_own_jobs")});
      auto all = query::search_fastest(stores_, quick_request(""));
      if (all.store != nullptr) asked = std::move(all);
      ids = ids_of(asked.answer);
      values.set("jobs_title", words("newest_of_all"));
    } else {
      values.set("jobs_title", words("your_newest"));
    }
    if (auto kept = record(ids); !kept) return not_recorded(kept.error());
    add_problems(notes, asked.answer);
    values.set("notes", notes);
    set_list(values, "failed", failed);
    values.set("all_own", ".?q=" + percent_encoded(mine));
    values.set("all_failed", ".?q=" + percent_encoded(failed_lately));
    add_job_list(values, asked.answer.hits, "");
    return page("home", std::move(values));
  }

  static void add_problems(List& notes, const Searchable::Answer& answer) {
    for (const std::string& problem : answer.problems)
      notes.push_back(text_value(printable(problem, 1000)));
  }

  // Until when a page waits for what it can be without.
  SteadyTime soon() const {
    return std::min(context_.deadline, std::chrono::steady_clock::now() + kMostSearchTime);
  }

  // For a list that a page has beside others, without lines.
  Searchable::Request quick_request(const std::string& text) const {
    Searchable::Request request{.query = parsed_query(text).query, .limit = kJobsOfAPage};
    request.most_lines = 0;
    request.stop = context_.stop;
    request.deadline = soon();
    return request;
  }

  // ---- the jobs of a search

  Response jobs(const Target& target) {
    const std::string text = target.query_value("q");
    const query::Parsed parsed = parsed_query(text);
    if (parsed.error) return wrong_query(text, *parsed.error);
    Values values = search_values(text);
    values.set("title", words(text.empty() ? "newest_jobs" : "jobs_found"));
    Searchable::Request request = request_of(target, parsed.query);
    request.deadline = soon();
    auto asked = query::search_fastest(stores_, request);
    if (asked.store == nullptr) return refused(asked.refused);
    const Searchable::Answer& found = asked.answer;
    if (auto kept = record(ids_of(found)); !kept) return not_recorded(kept.error());

    add_job_list(values, found.hits, way_to_first_page(request_.target));
    if (found.finished && found.next.empty() && request.after.empty() && !text.empty()) {
      values.set("title", count_text(found.hits.size(), "one_job_found", "all_jobs_found"));
    }
    List notes;
    const bool narrows = !target.query_value("narrow").empty();
    if (narrows && !add_facets(values, request, text, *asked.store))
      notes.push_back({"text", words("counting_too_long")});
    if (found.hits.empty() && found.finished)
      notes.push_back({"text", words(text.empty() ? "no_jobs" : "no_match")});
    add_problems(notes, found);
    values.set("notes", notes);
    if (!found.next.empty()) {
      Values next;
      next.set("href", ".?q=" + percent_encoded(text) + "&after=" + percent_encoded(found.next));
      next.set(
          "text",
          found.finished
              ? words("older_jobs")
              : words("searched_back",
                      {found.searched_back_to ? query::local_time(*found.searched_back_to) : "?"}));
      values.set("next", next);
    }
    return page("jobs", std::move(values));
  }

  // How many of the matches have which value, with a link to those. False if counting takes too
  // long, as it may where it must read what the jobs are: so it is done where it is asked for.
  bool add_facets(Values& values, Searchable::Request request, const std::string& text,
                  const query::Store& store) const {
    request.limit = 0;
    request.after.clear();
    request.facets = {QueryField::kState, QueryField::kUser, QueryField::kAccount,
                      QueryField::kPartition, QueryField::kModule};
    request.facet_values = kFacetValues;
    request.deadline = soon();
    const auto counted = query::search_fastest({store}, request);
    if (counted.store == nullptr || !counted.answer.finished) return false;
    List facets;
    for (const Searchable::Facet& facet : counted.answer.facets) {
      if (facet.values.size() < 2) continue;  // all have it, or none
      List found;
      for (const Searchable::FacetValue& value : facet.values) {
        Query only{.kind = Query::Kind::kField, .field = facet.field, .text = value.value};
        const bool is_choice = request.query.kind == Query::Kind::kOr;
        const std::string narrowed = (is_choice ? "(" + text + ")" : text) +
                                     (text.empty() ? "" : " ") + query::to_text(only);
        Values row;
        row.set("href", ".?q=" + percent_encoded(narrowed));
        row.set("value", printable(value.value));
        row.set("count", std::to_string(value.jobs));
        found.push_back(std::move(row));
      }
      Values group;
      group.set("field", std::string(query_field_name(facet.field)));
      group.set("over", facet.exact ? Values(false) : Values(std::to_string(facet.over)));
      group.set("values", found);
      facets.push_back(std::move(group));
    }
    set_list(values, "facets", facets);
    return true;
  }

  static query::Parsed parsed_query(const std::string& text) {
    return query::parse(text, system_clock().now(), &local_offset);
  }

  Searchable::Request request_of(const Target& target, const Query& query) const {
    return {.query = query,
            .limit = kJobsOfAPage,
            .after = target.query_value("after"),
            .deadline = context_.deadline,
            .stop = context_.stop};
  }

  Response wrong_query(const std::string& text, const query::ParseError& error) const {
    Values values = search_values(text);
    values.set("title", words("jobs_found"));
    values.set("error", Values("text", query::error_text(text, error, "search")));
    return page("jobs", std::move(values), 400);
  }

  // What the page of a search has, whatever was found.
  Values search_values(const std::string& text) const {
    Values values = page_values(text);
    std::string fields;
    for (const std::string& name : query_field_names())
      fields += (fields.empty() ? "" : " ") + name;
    values.set("fields", fields);
    values.set("csv", "jobs.csv?q=" + percent_encoded(text));
    values.set("json", "api/v1/jobs?q=" + percent_encoded(text));
    values.set("narrow", ".?q=" + percent_encoded(text) + "&narrow=1");
    return values;
  }

  // All jobs of a search, as `scriptorium search --csv` has them, but the newest of very many.
  Response jobs_csv(const Target& target) {
    const std::string text = target.query_value("q");
    const query::Parsed parsed = parsed_query(text);
    if (parsed.error) return wrong_query(text, *parsed.error);
    Searchable::Request request = request_of(target, parsed.query);
    request.limit = kCsvPage;
    request.most_lines = 0;
    std::string csv = query::csv_line(query::job_columns());
    std::vector<std::string> ids;
    std::vector<query::Store> stores = stores_;
    bool has_more = true;
    while (has_more && ids.size() < kMostCsvRows) {
      const auto asked = query::search_fastest(stores, request);
      if (asked.store == nullptr) return refused(asked.refused);
      const Searchable::Answer& answer = asked.answer;
      if (!answer.finished) return sentence(503, words("search_too_long"));
      for (const Searchable::Hit& hit : answer.hits)
        csv += query::csv_line(query::job_cells(hit.job));
      for (std::string& id : ids_of(answer)) ids.push_back(std::move(id));
      stores = {query::Store(*asked.store)};  // `next` is its own
      has_more = !answer.next.empty() && answer.next != request.after;
      request.after = answer.next;
    }
    if (auto kept = record(ids); !kept) return not_recorded(kept.error());
    const std::string name = has_more ? "jobs-newest-" + std::to_string(ids.size()) : "jobs";
    return download("text/csv; charset=utf-8", std::move(csv), name + ".csv");
  }

  // ---- the sums of many jobs

  Response reports(const Target& target) {
    const std::string& file = target.path.back();
    const bool is_page = file == "reports" && !is_for_programs(request_.target);
    const ReportQuestion question = report_question(target, sees_others_, system_clock().now());
    Values values = report_form(question);
    add_page_values(values, "");
    const auto without_figures = [&](unsigned status, const std::string& text) {
      if (!is_page) return sentence(status, text);
      values.set("problem", Values("text", text));
      return page("reports", std::move(values), status);
    };
    if (!question.problem.empty()) return without_figures(400, question.problem);
    const ReportAnswer answer =
        read_report(question, stores_, {.wasteful = is_page, .unfinished = true}, context_.stop,
                    context_.deadline);
    if (answer.is_late) return without_figures(is_page ? 200 : 503, words("report_too_long"));
    if (!answer.report) return refused(answer.refused);
    const Report& report = *answer.report;
    std::vector<std::string> ids;
    for (const JobRun& run : report.wasteful) ids.push_back(run.event->id);
    if (is_page) serve::add_found(fields_, ids);  // the sums name no other
    if (auto kept = context_.record(fields_); !kept) return not_recorded(kept.error());
    if (file == "reports.csv") {
      return download("text/csv; charset=utf-8", report.sums.csv(),
                      "report-by-" + query::word_of(question.by) + ".csv");
    }
    if (!is_page) return {.type = "application/json", .body = report_json(report), .headers = {}};
    add_report(values, report, sees_others_);
    return page("reports", std::move(values));
  }

  // ---- one job

  // What "job/CLUSTER/ID?at=TIME" names, anywhere in a path; nothing for another address.
  static std::optional<Searchable::Selector> selector_of(const Target& target) {
    const auto job = std::find(target.path.begin(), target.path.end(), "job");
    if (target.path.end() - job < 3) return std::nullopt;
    Searchable::Selector selector{.id = job[2], .cluster = job[1]};
    const std::string at = target.query_value("at");
    if (at.empty()) return selector;
    selector.time = parse_rfc3339(at);
    return selector.time ? std::optional(std::move(selector)) : std::nullopt;
  }

  // A time without a fraction, or in milliseconds, as the JSON has it, names each job of that
  // second or millisecond.
  query::Asked<std::vector<Searchable::Record>> jobs_of(Searchable::Selector selector) const {
    auto asked = query::get_fastest(stores_, selector, {}, kMostOfOneId);
    const auto at = std::exchange(selector.time, std::nullopt);
    const std::int64_t unit = !at                                ? 1
                              : at->nanoseconds % kSecond == 0   ? kSecond
                              : at->nanoseconds % 1'000'000 == 0 ? 1'000'000
                                                                 : 1;
    if (asked.store == nullptr || !asked.answer.empty() || unit == 1) return asked;
    asked = query::get_fastest(stores_, selector, {}, kMostOfOneId);
    std::erase_if(asked.answer, [&](const Searchable::Record& record) {
      return record.job.time.nanoseconds / unit != at->nanoseconds / unit;
    });
    return asked;
  }

  enum class Part : std::uint8_t { kPage, kScript, kSinceItWorked, kJson };
  Response job(const Target& target, Part part) {
    const auto selector = selector_of(target);
    if (!selector) return sentence(404, words("no_page"));
    const auto asked = jobs_of(*selector);
    if (asked.store == nullptr) return refused(asked.refused);
    if (part == Part::kSinceItWorked && !asked.answer.empty())
      return since_it_worked(asked.answer.front());
    std::vector<std::string> ids;
    for (const Searchable::Record& found : asked.answer) ids.push_back(found.job.event_id);
    if (auto kept = record(ids); !kept) return not_recorded(kept.error());
    if (asked.answer.empty()) return no_job(*selector);
    if (part == Part::kScript) return script_of(asked.answer.front());
    if (part == Part::kJson) return records_json(asked.answer);
    const JobRow& job = asked.answer.front().job;
    const std::string root = way_to_first_page(request_.target);
    std::vector<query::Refusal> refusals;  // the page is worth having without its family
    Values values = job_values(
        asked.answer, query::family_of(stores_, job, std::nullopt, kMostRuns, refusals), root);
    const bool worked = query::earlier_run(stores_, job, refusals, kMostLookedThrough).has_value();
    Values since;
    since.set("href", root + job_path(job, "compare"));
    since.set("text", words(query::succeeded(job) ? "since_before" : "since_worked"));
    values.set("since", worked ? since : Values(false));
    add_page_values(values, "");
    return page("job", std::move(values));
  }

  // With the last of its family that went well.
  Response since_it_worked(const Searchable::Record& after) {
    std::vector<query::Refusal> refusals;
    const auto run = query::earlier_run(stores_, after.job, refusals);
    auto before = run ? query::record_of(stores_, run->job) : std::nullopt;
    if (before) return compared({*std::move(before), after});
    if (auto kept = record({after.job.event_id}); !kept) return not_recorded(kept.error());
    if (!refusals.empty()) return refused(refusals);
    return sentence(404, words("nothing_before", {printable(after.job.id)}));
  }

  // The jobs that the address names.
  Response comparison(const Target& target) {
    const std::vector<std::string> keys = target.query_values("job");
    if (keys.size() > kMostCompared)
      return sentence(400, words("too_many_jobs", {std::to_string(kMostCompared)}));
    std::vector<Searchable::Record> jobs;
    for (const std::string& key : keys) {
      const auto named = parse_target("/" + key);
      const auto selector = named ? selector_of(*named) : std::nullopt;
      if (!selector) return sentence(404, words("no_page"));
      auto asked = jobs_of(*selector);
      if (asked.store == nullptr) return refused(asked.refused);
      if (asked.answer.empty()) {
        if (auto kept = record({}); !kept) return not_recorded(kept.error());
        return no_job(*selector);
      }
      const bool is_new = std::none_of(jobs.begin(), jobs.end(), [&](const auto& other) {
        return other.job.event_id == asked.answer.front().job.event_id &&
               other.job.id == asked.answer.front().job.id;
      });
      if (is_new) jobs.push_back(std::move(asked.answer.front()));
    }
    if (jobs.size() < 2) return sentence(400, words("too_few_jobs"));
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const auto& a, const auto& b) { return a.job.time < b.job.time; });
    return compared(jobs);
  }

  Response compared(const std::vector<Searchable::Record>& jobs) {
    std::vector<std::string> ids;
    for (const Searchable::Record& job : jobs) ids.push_back(job.job.event_id);
    if (auto kept = record(ids); !kept) return not_recorded(kept.error());
    Values values = compare_values(jobs, way_to_first_page(request_.target));
    add_page_values(values, "");
    return page("compare", std::move(values));
  }

  Response no_job(const Searchable::Selector& selector) const {
    return sentence(404, words("no_job", {printable(selector.id), printable(*selector.cluster)}));
  }

  // The bytes themselves, which a browser stores and does not show.
  Response script_of(const Searchable::Record& record) const {
    const auto script = query::script_text(record);
    if (!script) return sentence(404, words("no_script"));
    std::string name = record.job.id;
    std::replace_if(
        name.begin(), name.end(),
        [](char c) { return !is_word_byte(c) || static_cast<unsigned char>(c) >= 0x80; }, '_');
    return download("application/octet-stream", std::string(*script), name + ".sh");
  }

  // ---- for programs; core/page/assets/openapi.json describes it

  Response for_programs(const Target& target) {
    const std::vector<std::string>& path = target.path;  // "api", ...
    const bool is_first_version = path.size() >= 3 && path[1] == "v1";
    if (is_first_version && path.size() == 3 && path[2] == "openapi.json")
      return {.type = asset("openapi.json").type,
              .body = std::string(asset("openapi.json").bytes),
              .headers = {}};
    if (is_first_version && path.size() == 3 && path[2] == "jobs") return jobs_json(target);
    if (is_first_version && path.size() == 3 && path[2] == "reports") return reports(target);
    if (is_first_version && path.size() >= 5 && path[2] == "job") {
      if (path.size() == 5) return job(target, Part::kJson);
      if (path.size() == 6 && path[5] == "script") return job(target, Part::kScript);
    }
    return sentence(404, words("no_page"));
  }

  // As `scriptorium search --json` has them.
  Response jobs_json(const Target& target) {
    const std::string text = target.query_value("q");
    const query::Parsed parsed = parsed_query(text);
    if (parsed.error) return sentence(400, query::error_text(text, *parsed.error, "search"));
    Searchable::Request request = request_of(target, parsed.query);
    request.limit = kUsualJsonJobs;
    if (target.has_query("limit")) {
      const auto limit = parse_number<std::size_t>(target.query_value("limit"));
      if (!limit || *limit < 1 || *limit > kMostJsonJobs)
        return sentence(400, words("wrong_limit", {std::to_string(kMostJsonJobs)}));
      request.limit = *limit;
    }
    const auto asked = query::search_fastest(stores_, request);
    if (asked.store == nullptr) return refused(asked.refused);
    if (auto kept = record(ids_of(asked.answer)); !kept) return not_recorded(kept.error());
    Json json{{"query", text}, {"hits", Json::array()}};
    for (const Searchable::Hit& hit : asked.answer.hits)
      json["hits"].push_back(query::hit_json(hit));
    json.update(query::answer_json(asked.answer, asked.store->name));
    return json_response(json);
  }

  static Response records_json(const std::vector<Searchable::Record>& records) {
    Json jobs = Json::array();
    for (const Searchable::Record& record : records) {
      Json job = query::record_json(record);
      if (Json chain = query::checkpoint_json(record, system_clock().now()); !chain.is_null())
        job[query::kCheckpoint] = std::move(chain);
      jobs.push_back(std::move(job));
    }
    return json_response({{"jobs", std::move(jobs)}});
  }

  // ---- what all have

  void add_page_values(Values& values, const std::string& query) const {
    values.set("login", printable(caller_.login));
    values.set("query", query);
  }
  Values page_values(const std::string& query) const {
    Values values;
    add_page_values(values, query);
    return values;
  }
  Response page(std::string_view name, Values values, unsigned status = 200) const {
    return {.status = status,
            .body = filled(name, std::move(values), way_to_first_page(request_.target))};
  }
  Response sentence(unsigned status, const std::string& text) const {
    if (is_for_programs(request_.target)) return plain_page(status, text, request_.target);
    Values values = page_values("");
    values.set("title", std::to_string(status));
    values.set("sentence", text);
    return page("sentence", std::move(values), status);
  }

  static Response download(const char* type, std::string body, const std::string& name) {
    return {.type = type,
            .body = std::move(body),
            .headers = {{"Content-Disposition", "attachment; filename=\"" + name + "\""},
                        {"Content-Security-Policy", "sandbox"}}};
  }

  static std::vector<std::string> ids_of(const Searchable::Answer& answer) {
    std::vector<std::string> ids;
    for (const Searchable::Hit& hit : answer.hits) ids.push_back(hit.job.event_id);
    return ids;
  }
  Result<void> record(const std::vector<std::string>& event_ids) {
    serve::add_found(fields_, event_ids);
    return context_.record(fields_);
  }
  Response not_recorded(const Error& error) const {
    return sentence(503, words("not_logged", {printable(error.message())}));
  }
  Response refused(const std::vector<query::Refusal>& refused) const {
    return sentence(
        503, words("not_readable", {refused.empty() ? words("no_sink")
                                                    : printable(refused.front().error.message())}));
  }

  const Request& request_;
  const Context& context_;
  const serve::Caller caller_;
  std::deque<query::VisibleStore> visible_;
  std::vector<query::Store> stores_;
  bool sees_others_ = false;
  Logger::Fields fields_;
};

// Not about any job.
std::optional<Response> asset_page(const Target& target) {
  if (target.path.size() != 3 || target.path[0] != "static") return std::nullopt;
  const Asset found = asset(target.path[2]);
  if (found.bytes.data() == nullptr || target.path[1] != assets_hash()) return std::nullopt;
  return Response{.type = found.type,
                  .body = std::string(found.bytes),
                  .headers = {{"Cache-Control", "max-age=31536000, immutable"}}};
}

}  // namespace

Response answer(const Request& request, const Context& context) {
  const auto target = parse_target(request.target);
  if (!target) return plain_page(404, words("no_page"), request.target);
  if (auto found = asset_page(*target)) return *std::move(found);
  auto caller = context.find_caller(request.login);
  if (!caller) {
    return caller.error().kind() == ErrorKind::kPermanent
               ? plain_page(403, words("no_account", {printable(request.login)}), request.target)
               : plain_page(503, words("who_unknown", {printable(caller.error().message())}),
                            request.target);
  }
  auto response = call_plugin("its plugin", ErrorKind::kPermanent, [&]() -> Result<Response> {
    return Answering(request, context, *std::move(caller)).run(*target);
  });
  if (response) return *std::move(response);
  return plain_page(500, words("not_made", {printable(response.error().message())}),
                    request.target);
}

}  // namespace scriptorium::page
