#include "core/query/run_sums.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/ascii.h"
#include "core/base/text.h"
#include "core/query/calendar.h"
#include "core/query/job_fields.h"

namespace scriptorium::query {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTotal = "total";

// In the order of SumBy.
constexpr std::array kWords{"user",   "account", "partition", "program",
                            "module", "node",    "week",      "month"};

}  // namespace

std::optional<SumBy> sum_by(std::string_view word) noexcept {
  const auto found = std::find(kWords.begin(), kWords.end(), word);
  return found == kWords.end() ? std::nullopt
                               : std::optional(static_cast<SumBy>(found - kWords.begin()));
}

std::string word_of(SumBy by) { return kWords.at(static_cast<std::size_t>(by)); }

std::vector<std::string> sum_by_words() { return {kWords.begin(), kWords.end()}; }

bool is_in_time(SumBy by) noexcept { return by == SumBy::kWeek || by == SumBy::kMonth; }

std::optional<RunsBy> runs_by(SumBy by) noexcept {
  static_assert(static_cast<int>(SumBy::kNode) == static_cast<int>(RunsBy::kNode));
  if (is_in_time(by)) return std::nullopt;
  return static_cast<RunsBy>(by);
}

namespace {

// "7d", "2w", "3mo", "1y": an age that ends with the unit of days or of something longer.
bool is_of_days(const std::string& since) {
  return !since.empty() && is_digit(since.front()) &&
         std::string_view("dwoyDWOY").find(since.back()) != std::string_view::npos;
}

}  // namespace

Result<SumPeriod> sum_period(const std::string& since, const std::string& until,
                             const Moment& moment) {
  const auto read = [&](const char* name, const std::string& text) -> Result<Timestamp> {
    const auto time = read_time(text, moment);
    if (time) return Timestamp{time->from / kSecond * kSecond};
    return Error{ErrorKind::kInvalidConfig,
                 std::string(name) + ": \"" + printable(text) +
                     "\" is neither a date such as 2026-11-14, a time such as 2026-11-14T08:00, "
                     "nor an age such as 7d"};
  };
  SumPeriod period{.from = std::nullopt,
                   .until = {(moment.now.nanoseconds / kSecond + 1) * kSecond},
                   .zone = moment.zone};
  if (!since.empty()) {
    auto time = read("since", since);
    if (!time) return time.error();
    period.from = is_of_days(since) ? begin_of(day_of(*time, moment.zone), moment.zone) : *time;
  }
  if (!until.empty()) {
    auto time = read("until", until);
    if (!time) return time.error();
    period.until = *time;
  }
  if (period.until <= period.from.value_or(Timestamp{}))
    return Error{ErrorKind::kInvalidConfig, "until: give a time after since"};
  return period;
}

std::vector<std::pair<std::string, std::uint64_t>> most_frequent(const FindingCounts& counts) {
  std::vector<std::pair<std::string, std::uint64_t>> list(counts.begin(), counts.end());
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return list;
}

std::string frequent_text(const FindingCounts& counts) {
  constexpr std::size_t kMost = 3;
  auto list = most_frequent(counts);
  list.resize(std::min(list.size(), kMost));
  std::string text;
  for (const auto& [id, jobs] : list)
    text += (text.empty() ? "" : " ") + printable(id) + " (" + std::to_string(jobs) + ")";
  return text;
}

std::string RunSums::Row::trend() const {
  return trend_text(now.wasted_core_hours(), before.wasted_core_hours());
}

Timestamp RunSums::first() const noexcept {
  if (!period_.from) return Timestamp{std::numeric_limits<std::int64_t>::min()};
  if (!has_trend()) return *period_.from;
  const auto seconds = [](Timestamp time) { return time.nanoseconds / kSecond; };
  const std::int64_t before = 2 * seconds(*period_.from) - seconds(period_.until);
  return Timestamp{std::max(before, std::numeric_limits<std::int64_t>::min() / kSecond) * kSecond};
}

std::vector<Timestamp> RunSums::bounds() const {
  if (has_trend()) return {first(), *period_.from, period_.until};
  return {first(), period_.until};
}

void RunSums::add(const RunSumRow& row) {
  const auto sum = period_.from && row.time < *period_.from ? &Row::before : &Row::now;
  const auto add_to = [&](Row& into) { (into.*sum) += row.sum; };
  if (row.name) return add_to(rows_[std::string(*row.name)]);
  add_to(total_);
  if (!row.is_measured) return add_to(without_use_);
  if (!is_in_time(by_)) return;
  const CalendarUnit unit = by_ == SumBy::kWeek ? CalendarUnit::kWeek : CalendarUnit::kMonth;
  add_to(rows_[calendar_text(unit, first_day(unit, day_of(row.time, period_.zone)))]);
}

void RunSums::add(const JobRun& run) {
  if (run.ended_at >= period_.until || run.ended_at < first()) return;
  for_each_row(runs_by(by_), run, [&](const RunSumRow& row) { add(row); });
}

void RunSums::add_unfinished(std::uint64_t now, std::uint64_t before) {
  for (Row* row : {&without_use_, &total_}) {
    row->now.jobs += now;
    row->before.jobs += before;
  }
  unfinished_ += now;
}

std::vector<RunSums::Named> RunSums::rows() const {
  std::vector<Named> list;
  for (const auto& [name, row] : rows_) list.emplace_back(name, &row);
  if (is_in_time(by_)) {
    std::reverse(list.begin(), list.end());
  } else {
    std::stable_sort(list.begin(), list.end(), [](const Named& a, const Named& b) {
      return a.second->now.wasted_core_hours() > b.second->now.wasted_core_hours();
    });
  }
  if (without_use_.now.jobs + without_use_.before.jobs > 0)
    list.emplace_back(kWithoutUse, &without_use_);
  return list;
}

std::string RunSums::csv() const {
  std::vector<std::string> head{word_of(by_)};
  const std::array<const char*, 5> figures{"jobs", "core_seconds", "wasted_core_seconds",
                                           "gpu_seconds", "wasted_gpu_seconds"};
  head.insert(head.end(), figures.begin(), figures.end());
  if (has_trend()) {
    for (const char* figure : figures) head.push_back(std::string("before_") + figure);
  }
  head.emplace_back("findings");
  std::string text = query::csv_line(head);
  const auto add = [&](const std::string& name, const Row& row) {
    std::vector<std::string> cells{name};
    const auto add_sum = [&](const RunTotals& sum) {
      for (const std::uint64_t figure : {sum.jobs, sum.core_seconds, sum.unused_core_seconds,
                                         sum.gpu_seconds, sum.unused_gpu_seconds})
        cells.push_back(std::to_string(figure));
    };
    add_sum(row.now);
    if (has_trend()) add_sum(row.before);
    std::string findings;
    for (const auto& [id, jobs] : most_frequent(row.now.findings))
      findings += (findings.empty() ? "" : " ") + id + ":" + std::to_string(jobs);
    cells.push_back(std::move(findings));
    text += query::csv_line(cells);
  };
  for (const auto& [name, row] : rows()) add(name, *row);
  add(kTotal, total_);
  return text;
}

Json RunSums::json_of(const Row& row) const {
  const auto put = [](Json& into, const RunTotals& sum) {
    into["jobs"] = sum.jobs;
    into["core_seconds"] = sum.core_seconds;
    into["wasted_core_seconds"] = sum.unused_core_seconds;
    into["gpu_seconds"] = sum.gpu_seconds;
    into["wasted_gpu_seconds"] = sum.unused_gpu_seconds;
    Json findings = Json::array();
    for (const auto& [id, jobs] : most_frequent(sum.findings))
      findings.push_back({{"id", id}, {"jobs", jobs}});
    into["findings"] = std::move(findings);
  };
  Json json = Json::object();
  put(json, row.now);
  if (has_trend()) put(json["before"], row.before);
  return json;
}

Json RunSums::json() const {
  const auto time = [](Timestamp t) { return format_rfc3339(t, TimePrecision::kSeconds); };
  Json json{{"by", word_of(by_)}};
  if (period_.from) json["from"] = time(*period_.from);
  json["until"] = time(period_.until);
  json["unfinished_jobs"] = unfinished_;
  Json list = Json::array();
  for (const auto& [name, row] : rows()) {
    Json one{{word_of(by_), name}};
    one.update(json_of(*row));
    list.push_back(std::move(one));
  }
  json["rows"] = std::move(list);
  json["total"] = json_of(total_);
  return json;
}

}  // namespace scriptorium::query
