#include "core/page/report_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/text.h"
#include "core/query/calendar.h"
#include "core/query/job_text.h"
#include "core/query/parse.h"
#include "core/query/usage.h"

namespace scriptorium::page {
namespace {

using query::CalendarUnit;
using query::RunSums;
using query::Sum;
using query::SumBy;
using std::chrono::sys_days;
using List = kainjow::mustache::list;
using Json = nlohmann::ordered_json;

constexpr const char* kUsualTime = "7d";
constexpr std::chrono::seconds kMostTime{10};
constexpr std::size_t kMostJobs = 10;
constexpr std::size_t kMostRows = 50;
constexpr std::size_t kMostBars = 60;
constexpr std::size_t kMostProblemBytes = 1'000;
constexpr double kFullBar = 1'000;  // of a picture's height

// ---- reading

void add_problems(Report& report, const std::vector<std::string>& problems) {
  for (const std::string& problem : problems) {
    if (std::find(report.problems.begin(), report.problems.end(), problem) == report.problems.end())
      report.problems.push_back(problem);
  }
}

void add_unfinished(query::RunSums& sums, const query::Store& store, const std::stop_token& stop,
                    SteadyTime deadline) {
  const Timestamp from = sums.period().from.value_or(Timestamp{});
  const auto count = [&](Timestamp begin, Timestamp end) {
    return query::unfinished_jobs({store}, begin, end, "", stop, deadline).value_or(0);
  };
  sums.add_unfinished(count(from, sums.period().until),
                      sums.has_trend() ? count(sums.first(), from) : 0);
}

// Nothing if the deadline came first.
Result<std::optional<Report>> read_from(const query::Store& store, const ReportQuestion& question,
                                        ReportParts parts, const std::stop_token& stop,
                                        SteadyTime deadline) {
  Report report{.sums = {question.by, question.period}, .days = {}, .wasteful = {}, .problems = {}};
  const query::SumPeriod& period = report.sums.period();
  const auto read =
      store.searchable->sums({.by = query::runs_by(question.by),
                              .bounds = report.sums.bounds(),
                              .deadline = deadline,
                              .stop = stop,
                              .visibility = {}},
                             [&](const RunSumRow& row) {
                               report.sums.add(row);
                               if (!row.name && row.time >= period.from.value_or(row.time))
                                 report.days[query::day_of(row.time, period.zone)] += row.sum;
                             });
  if (!read) return read.error();
  add_problems(report, read->problems);
  bool finished = read->finished;
  if (parts.wasteful && finished) {
    const auto jobs =
        store.searchable->runs({.from = period.from.value_or(report.sums.first()),
                                .until = period.until,
                                .origin = true,
                                .with_event = [](const JobRun& /*run*/) { return true; },
                                .most_wasteful = kMostJobs,
                                .deadline = deadline,
                                .stop = stop,
                                .visibility = {}},
                               [&](const JobRun& run) {
                                 if (run.event != nullptr) report.wasteful.push_back(run);
                               });
    // A store without them has only sums to show.
    if (jobs) add_problems(report, jobs->problems);
    finished = !jobs || jobs->finished;
  }
  if (parts.unfinished && finished) add_unfinished(report.sums, store, stop, deadline);
  if (!finished || std::chrono::steady_clock::now() >= deadline) return std::optional<Report>();
  return std::optional(std::move(report));
}

// ---- what a row leads to

// The jobs that ended from then until then.
Query ended_in(Timestamp from, Timestamp until) {
  Query query{.kind = Query::Kind::kRange, .field = QueryField::kEnded};
  query.from = from.nanoseconds;
  query.to = until.nanoseconds - 1;
  return query;
}

Query with_value(QueryField field, std::string value) {
  return {.kind = Query::Kind::kField, .field = field, .text = std::move(value)};
}

std::optional<QueryField> field_of(SumBy by) {
  switch (by) {
    case SumBy::kUser: return QueryField::kUser;
    case SumBy::kAccount: return QueryField::kAccount;
    case SumBy::kPartition: return QueryField::kPartition;
    case SumBy::kModule: return QueryField::kModule;
    case SumBy::kNode: return QueryField::kNode;
    default: return std::nullopt;
  }
}

// The search for the jobs of a row; nothing where the query language has none.
std::optional<Query> search_of(const RunSums& sums, std::string name) {
  const query::SumPeriod& period = sums.period();
  const Timestamp from = period.from.value_or(Timestamp{});
  if (name.starts_with('(')) return std::nullopt;  // (no usage), (unknown), (none)
  if (query::is_in_time(sums.by())) {
    const auto day = parse_rfc3339(name + (name.size() == 7 ? "-01" : "") + "T00:00:00Z");
    if (!day) return std::nullopt;
    const CalendarUnit unit =
        sums.by() == SumBy::kWeek ? CalendarUnit::kWeek : CalendarUnit::kMonth;
    const sys_days first = query::day_of(*day, kUtc);
    return ended_in(
        std::max(from, query::begin_of(first, period.zone)),
        std::min(period.until, query::begin_of(query::next_first_day(unit, first), period.zone)));
  }
  const auto field = field_of(sums.by());
  if (!field || name.find('*') != std::string::npos) return std::nullopt;
  Query query{.kind = Query::Kind::kAnd};
  if (field == QueryField::kUser) {
    const bool is_verified = !name.ends_with(kUnverifiedMark);
    if (!is_verified) name.resize(name.size() - kUnverifiedMark.size());
    query.children.push_back(with_value(*field, std::move(name)));
    query.children.push_back(with_value(QueryField::kVerified, is_verified ? "true" : "false"));
  } else {
    query.children.push_back(with_value(*field, std::move(name)));
  }
  query.children.push_back(ended_in(from, period.until));
  return query;
}

// ---- tables

// "had", "wasted", "share", "percent" of cores, or of GPUs with a "gpu_" before each. What is not
// known is "".
void set_hours(Values& values, const std::string& prefix, std::uint64_t had,
               std::optional<std::uint64_t> unused) {
  const std::string share = unused ? query::share_text(*unused, had) : "";
  values.set(prefix + "had", had > 0 ? query::hours_text(had) : "");
  values.set(prefix + "wasted", unused && had > 0 ? query::hours_text(*unused) : "");
  values.set(prefix + "share", share.empty() ? Values(false) : Values(share));
  values.set(prefix + "percent", share.substr(0, share.find(' ')));
}

// `search`: for the jobs of the row.
Values row_values(const RunSums& sums, const std::string& name, const RunSums::Row& row,
                  const std::optional<Query>& search) {
  const RunTotals& sum = row.now;
  const bool is_measured = name != query::kWithoutUse;
  const auto measured = [&](std::uint64_t unused) {
    return is_measured ? std::optional(unused) : std::nullopt;
  };
  Values values;
  values.set("name", printable(name));
  values.set("href",
             search ? Values(".?q=" + percent_encoded(query::to_text(*search))) : Values(false));
  values.set("jobs", std::to_string(sum.jobs));
  set_hours(values, "", sum.core_seconds, measured(sum.unused_core_seconds));
  set_hours(values, "gpu_", sum.gpu_seconds, measured(sum.unused_gpu_seconds));
  values.set("trend", sums.has_trend() && is_measured ? row.trend() : "");
  values.set("findings", query::frequent_text(sum.findings));
  return values;
}

// "4711", of a task "4711_3": as the command takes it.
std::string shown_id(const Event& event) {
  const auto& array = event.job.array;
  return array && array->task_id ? array->job_id + "_" + *array->task_id : event.job.id;
}

}  // namespace

Values job_row(const JobRun& run) {
  const std::string id = shown_id(*run.event);
  Values values;
  values.set("href", "job/" + percent_encoded(run.cluster) + "/" + percent_encoded(id));
  values.set("name", printable(id));
  values.set("job_name", query::shown(run.event->job.name));
  values.set("owner", query::shown(run.user) + (run.user && !run.verified ? "?" : ""));
  values.set("time", query::local_time(run.ended_at));
  set_hours(values, "", run.core_seconds, run.unused_core_seconds);
  set_hours(values, "gpu_", run.gpu_seconds, run.unused_gpu_seconds);
  values.set("findings", query::shown(run.findings));
  return values;
}

namespace {

// ---- the picture

struct Bar {
  sys_days first;
  Sum sum;
};

// The finest unit with few enough bars, and its bars from the first to the last day.
struct Bars {
  CalendarUnit unit = CalendarUnit::kDay;
  std::vector<Bar> list;
};
Bars empty_bars(sys_days first, sys_days last) {
  Bars bars;
  for (const CalendarUnit unit :
       {CalendarUnit::kDay, CalendarUnit::kWeek, CalendarUnit::kMonth, CalendarUnit::kYear}) {
    bars = {.unit = unit, .list = {}};
    for (sys_days day = query::first_day(unit, first);
         day <= last && (bars.list.size() <= kMostBars || unit == CalendarUnit::kYear);
         day = query::next_first_day(unit, day))
      bars.list.push_back({day, {}});
    if (bars.list.size() <= kMostBars) break;
  }
  return bars;
}

Bars bars_of(const Report& report) {
  const query::SumPeriod& period = report.sums.period();
  const sys_days last = query::day_of({period.until.nanoseconds - kSecond}, period.zone);
  const sys_days oldest = report.days.begin()->first;
  Bars bars = empty_bars(
      period.from ? std::min(query::day_of(*period.from, period.zone), oldest) : oldest, last);
  // Of many years, only the time in which there was something.
  if (bars.unit == CalendarUnit::kYear) bars = empty_bars(oldest, report.days.rbegin()->first);
  auto bar = bars.list.begin();
  for (const auto& [day, sum] : report.days) {
    while (bar + 1 != bars.list.end() && (bar + 1)->first <= day) ++bar;
    bar->sum += sum;
  }
  return bars;
}

// Nothing for a period in which nothing was had.
Values picture_of(const Report& report) {
  if (report.days.empty()) return {false};
  const Bars bars = bars_of(report);
  const auto most = std::max_element(
      bars.list.begin(), bars.list.end(),
      [](const Bar& a, const Bar& b) { return a.sum.core_hours() < b.sum.core_hours(); });
  const double full = most->sum.core_hours();
  if (full <= 0) return {false};
  constexpr std::array kUnits{"day", "week", "month", "year"};
  const auto name = [&](const Bar& bar) { return query::calendar_text(bars.unit, bar.first); };
  List list;
  for (std::size_t i = 0; i < bars.list.size(); ++i) {
    const Sum& sum = bars.list[i].sum;
    const auto height = [&](double hours) { return std::lround(kFullBar * hours / full); };
    const auto had = height(sum.core_hours());
    const auto wasted = std::min(had, height(sum.wasted_core_hours()));
    Values bar;
    bar.set("x", std::to_string(10 * i + 1));
    bar.set("had_y", std::to_string(std::lround(kFullBar) - had));
    bar.set("had_height", std::to_string(had));
    bar.set("wasted_y", std::to_string(std::lround(kFullBar) - wasted));
    bar.set("wasted_height", std::to_string(wasted));
    bar.set("name", name(bars.list[i]));
    bar.set("had", query::format_tenths(sum.core_hours()));
    bar.set("wasted", query::format_tenths(sum.wasted_core_hours()));
    list.push_back(std::move(bar));
  }
  Values picture;
  picture.set("unit", words(kUnits.at(static_cast<std::size_t>(bars.unit))));
  picture.set("width", std::to_string(10 * bars.list.size()));
  picture.set("first", name(bars.list.front()));
  picture.set("last", name(bars.list.back()));
  picture.set("most_name", name(*most));
  picture.set("most", query::format_tenths(full));
  picture.set("most_wasted", query::format_tenths(most->sum.wasted_core_hours()));
  picture.set("bars", list);
  return picture;
}

// ---- words

std::string time_text(Timestamp time) { return query::local_time(time) + " " + local_zone(time); }

List foot_notes(const RunSums& sums) {
  List notes;
  const auto add = [&](const std::string& text) { notes.push_back(text_value(text)); };
  add(words("what_wasted_is"));
  if (sums.total().now.gpu_seconds > 0) add(words("what_gpus_count"));
  if (sums.has_trend()) add(words("what_trend_is"));
  switch (sums.by()) {
    case SumBy::kProgram: add(words("of_programs")); break;
    case SumBy::kModule: add(words("of_modules")); break;
    case SumBy::kNode: add(words("of_nodes")); break;
    case SumBy::kWeek: add(words("of_weeks")); break;
    default: break;
  }
  if (sums.unmeasured() > 0) add(count_text(sums.unmeasured(), "one_unmeasured", "unmeasured"));
  if (sums.unfinished() > 0) add(count_text(sums.unfinished(), "one_unfinished", "unfinished"));
  return notes;
}

std::string report_path(const std::string& file, SumBy by, const std::string& since,
                        const std::string& until) {
  return file + "?by=" + query::word_of(by) + "&since=" + percent_encoded(since) +
         (until.empty() ? "" : "&until=" + percent_encoded(until));
}

}  // namespace

ReportQuestion report_question(const Target& target, bool sees_others, Timestamp now) {
  ReportQuestion question{.by = sees_others ? SumBy::kUser : SumBy::kProgram,
                          .since = target.query_value("since"),
                          .until = target.query_value("until")};
  if (question.since.empty()) question.since = kUsualTime;
  const std::string by = target.query_value("by");
  if (const auto known = query::sum_by(by)) {
    question.by = *known;
  } else if (!by.empty()) {
    question.problem = words("no_such_sums", {printable(by), query::shown(query::sum_by_words())});
  }
  const auto period =
      query::sum_period(question.since, question.until, {.now = now, .zone = local_offset});
  if (period) {
    question.period = *period;
  } else {
    question.problem = period.error().message();
  }
  return question;
}

ReportAnswer read_report(const ReportQuestion& question, const std::vector<query::Store>& stores,
                         ReportParts parts, const std::stop_token& stop, SteadyTime deadline) {
  deadline = std::min(deadline, std::chrono::steady_clock::now() + kMostTime);
  ReportAnswer answer;
  for (const query::Store& store : stores) {
    auto report = read_from(store, question, parts, stop, deadline);
    if (!report) {
      answer.refused.push_back({store.name, report.error()});
      continue;
    }
    answer.is_late = !*report;
    if (*report) answer.report.emplace(**std::move(report));
    return answer;
  }
  return answer;
}

Values report_form(const ReportQuestion& question) {
  Values values;
  values.set("title", words("reports"));
  List ways;
  for (const std::string& word : query::sum_by_words()) {
    Values way;
    way.set("word", word);
    way.set("is_chosen", query::sum_by(word) == question.by);
    ways.push_back(std::move(way));
  }
  values.set("ways", ways);
  values.set("since", question.since);
  values.set("until", question.until);
  List periods;
  for (const auto& [since, text] : {std::pair("7d", "last_week"), std::pair("30d", "last_month"),
                                    std::pair("12mo", "last_year")}) {
    Values period = text_value(words(text));
    period.set("href", report_path("reports", question.by, since, ""));
    period.set("is_chosen", question.since == since && question.until.empty());
    periods.push_back(std::move(period));
  }
  values.set("periods", periods);
  values.set("csv", report_path("reports.csv", question.by, question.since, question.until));
  values.set("json", report_path("api/v1/reports", question.by, question.since, question.until));
  return values;
}

void add_report(Values& values, const Report& report, bool sees_others) {
  const RunSums& sums = report.sums;
  const query::SumPeriod& period = sums.period();
  values.set("by", query::word_of(sums.by()));
  values.set("from_time", time_text(period.from.value_or(Timestamp{})));
  values.set("until_time", time_text(period.until));
  values.set("has_gpus", sums.total().now.gpu_seconds > 0);
  values.set("has_trend", sums.has_trend());
  values.set("has_owners", sees_others);
  const std::vector<RunSums::Named> all = sums.rows();
  List rows;
  for (const auto& [name, row] : all) {
    if (rows.size() == kMostRows) break;
    rows.push_back(row_values(sums, name, *row, search_of(sums, name)));
  }
  set_list(values, "rows", rows);
  values.set("more", all.size() > kMostRows ? Values(std::to_string(all.size() - kMostRows))
                                            : Values(false));
  values.set("total", row_values(sums, words("total"), sums.total(),
                                 ended_in(period.from.value_or(Timestamp{}), period.until)));
  values.set("picture", picture_of(report));
  List jobs;
  for (const JobRun& run : report.wasteful) jobs.push_back(job_row(run));
  set_list(values, "wasteful", jobs);
  values.set("zone", local_zone(period.until));
  List notes;
  if (rows.empty()) notes.push_back(text_value(words("nothing_ended")));
  for (const std::string& problem : report.problems)
    notes.push_back(text_value(printable(problem, kMostProblemBytes)));
  values.set("notes", notes);
  values.set("foot_notes", rows.empty() ? List{} : foot_notes(sums));
}

std::string report_json(const Report& report) {
  return report.sums.json().dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace scriptorium::page
