#include "core/cli/report_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/text.h"
#include "core/cli/job_text.h"
#include "core/query/job_fields.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kWithoutUse = "(no usage)";
constexpr const char* kTotal = "total";
constexpr std::uint64_t kWhole = 10'000;  // JobRun::Program::share

struct Word {
  const char* word;
  SumBy by;
  const char* foot;  // what several of them in one job mean
};
constexpr std::array<Word, 6> kWords{
    {{"user", SumBy::kUser, ""},
     {"account", SumBy::kAccount, ""},
     {"partition", SumBy::kPartition, ""},
     {"program", SumBy::kProgram,
      "A job counts in the row of each of its programs, by the program's share of its CPU time.\n"},
     {"module", SumBy::kModule,
      "A job counts in full in the row of each of its modules, so the rows add up to more than the "
      "total.\n"},
     {"node", SumBy::kNode,
      "A job counts on each of its nodes, with equal parts of its hours.\n"}}};

const Word& word_of(SumBy by) {
  return *std::find_if(kWords.begin(), kWords.end(), [&](const Word& w) { return w.by == by; });
}

double hours(std::uint64_t seconds) { return static_cast<double>(seconds) / 3600; }

std::string share_text(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return std::to_string(std::lround(100 * static_cast<double>(part) / static_cast<double>(whole))) +
         " %";
}

std::string trend_text(double now, double before) {
  if (before <= 0) return now > 0 ? "new" : "-";
  const auto change = std::lround(100 * (now - before) / before);
  if (change > 999) return "> 10 x";
  return (change > 0 ? "+" : "") + std::to_string(change) + " %";
}

}  // namespace

std::optional<SumBy> sum_by(std::string_view word) noexcept {
  const auto found =
      std::find_if(kWords.begin(), kWords.end(), [&](const Word& w) { return w.word == word; });
  return found == kWords.end() ? std::nullopt : std::optional(found->by);
}

std::vector<std::string> sum_by_words() {
  std::vector<std::string> words;
  for (const Word& word : kWords) words.emplace_back(word.word);
  return words;
}

Timestamp SumPeriod::first() const noexcept {
  if (!from) return Timestamp{std::numeric_limits<std::int64_t>::min()};
  return Timestamp{from->nanoseconds - (until.nanoseconds - from->nanoseconds)};
}

// Cut at the same places for every run, so that all parts of one add up to it.
void add_run(mail::Sum& into, const JobRun& run, std::uint64_t begin, std::uint64_t end,
             std::uint64_t of) {
  const auto part = [&](std::uint64_t seconds) {
    const auto until = [&](std::uint64_t place) {
      return seconds / of * place + seconds % of * place / of;
    };
    return until(end) - until(begin);
  };
  ++into.jobs;
  into.core_seconds += part(run.core_seconds);
  into.gpu_seconds += part(run.gpu_seconds);
  into.unused_core_seconds += part(run.unused_core_seconds.value_or(0));
  into.unused_gpu_seconds += part(run.unused_gpu_seconds.value_or(0));
}

void ReportSums::Sum::add(const JobRun& run, std::uint64_t begin, std::uint64_t end,
                          std::uint64_t of) {
  add_run(*this, run, begin, end, of);
  for (const std::string& finding : run.findings) ++findings[finding];
}

void ReportSums::add(const JobRun& run) {
  if (run.ended_at >= period_.until || run.ended_at < period_.first()) return;
  const auto sum = period_.from && run.ended_at < *period_.from ? &Row::before : &Row::now;
  (total_.*sum).add(run, 0, 1, 1);
  const bool measured = run.unused_core_seconds || run.unused_gpu_seconds;
  if (!measured) return (without_use_.*sum).add(run, 0, 1, 1);
  const auto add_whole = [&](const std::string& name) { (rows_[name].*sum).add(run, 0, 1, 1); };
  switch (by_) {
    case SumBy::kUser:
      return add_whole(run.user.value_or("(unknown)") + (run.verified ? "" : " (unverified)"));
    case SumBy::kAccount: return add_whole(run.account.value_or("(unknown)"));
    case SumBy::kPartition: return add_whole(run.partition.value_or("(unknown)"));
    case SumBy::kModule:
      for (const std::string& module : std::set(run.modules.begin(), run.modules.end()))
        add_whole(module);
      if (run.modules.empty()) add_whole("(none)");
      return;
    case SumBy::kProgram: {
      std::map<std::string, std::uint64_t> shares;
      std::uint64_t known = 0;
      for (const JobRun::Program& program : run.programs) {
        const std::uint64_t share = std::min<std::uint64_t>(program.share, kWhole - known);
        shares[program.name] += share;
        known += share;
      }
      if (shares.empty()) shares["(unknown)"] = kWhole;
      std::uint64_t place = 0;
      for (const auto& [name, share] : shares) {
        (rows_[name].*sum).add(run, place, place + share, kWhole);
        place += share;
      }
      return;
    }
    case SumBy::kNode:
      for (std::size_t i = 0; i < run.nodes.size(); ++i)
        (rows_[run.nodes[i]].*sum).add(run, i, i + 1, run.nodes.size());
      if (run.nodes.empty()) add_whole("(unknown)");
      return;
  }
}

void ReportSums::add_unfinished(std::uint64_t now, std::uint64_t before) {
  for (Row* row : {&without_use_, &total_}) {
    row->now.jobs += now;
    row->before.jobs += before;
  }
  unfinished_ += now;
}

std::vector<ReportSums::Named> ReportSums::rows() const {
  std::vector<Named> list;
  for (const auto& [name, row] : rows_) list.emplace_back(name, &row);
  std::stable_sort(list.begin(), list.end(), [](const Named& a, const Named& b) {
    return a.second->now.wasted_core_hours() > b.second->now.wasted_core_hours();
  });
  if (without_use_.now.jobs + without_use_.before.jobs > 0)
    list.emplace_back(kWithoutUse, &without_use_);
  return list;
}

std::string ReportSums::foot() const {
  std::string text = "\nJobs that ended ";
  const auto moment = [](Timestamp time) { return local_time(time) + ' ' + local_zone(time); };
  if (period_.from) text += "from " + moment(*period_.from) + " ";
  text += "until " + moment(period_.until);
  text += ".\nWASTED is what jobs had and did not use";
  if (total_.now.gpu_seconds > 0) text += "; in the order of the rows, a GPU hour counts as ten";
  text += ".\n";
  if (period_.from) text += "TREND compares WASTED with as long a time before.\n";
  text += word_of(by_).foot;
  const std::uint64_t unmeasured = without_use_.now.jobs - unfinished_;
  if (unmeasured > 0)
    text += "(no usage) has " + count_of(unmeasured, "job") + " whose use was not measured.\n";
  if (unfinished_ > 0)
    text += "(no usage) has " + count_of(unfinished_, "job") +
            " submitted in this time, of which no end is known.\n";
  return text;
}

std::string ReportSums::text(std::size_t limit, const Console& console) const {
  const bool gpus = total_.now.gpu_seconds > 0;
  std::string title = word_of(by_).word;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  std::vector<std::string> head{title, "JOBS", "CORE HOURS", "WASTED", ""};
  if (gpus) head.insert(head.end(), {"GPU HOURS", "WASTED", ""});
  if (period_.from) head.emplace_back("TREND");
  head.emplace_back("FINDINGS");
  std::vector<std::size_t> numbers(head.size() - 2);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = i + 1;
  TextTable table(std::move(head), std::move(numbers));
  const auto add = [&](const std::string& name, const Row& row) {
    const Sum& sum = row.now;
    const auto part = [&](std::vector<std::string>& cells, std::uint64_t unused,
                          std::uint64_t had) {
      cells.push_back(format_tenths(hours(had)));
      cells.push_back(format_tenths(hours(unused)));
      cells.push_back(share_text(unused, had));
    };
    std::vector<std::string> cells{printable(name), std::to_string(sum.jobs)};
    part(cells, sum.unused_core_seconds, sum.core_seconds);
    if (gpus) part(cells, sum.unused_gpu_seconds, sum.gpu_seconds);
    if (period_.from)
      cells.push_back(trend_text(sum.wasted_core_hours(), row.before.wasted_core_hours()));
    cells.push_back(frequent_text(sum.findings));
    table.add(std::move(cells));
  };
  const std::vector<Named> all = rows();
  std::size_t shown = 0;
  for (const auto& [name, row] : all) {
    if (limit != 0 && shown == limit) break;
    add(name, *row);
    ++shown;
  }
  if (shown < all.size())
    table.note("and " + std::to_string(all.size() - shown) + " more rows; --limit 0 shows all");
  add(kTotal, total_);
  return table.text(console) + foot();
}

std::string ReportSums::csv() const {
  std::vector<std::string> head{word_of(by_).word};
  const std::array<const char*, 5> figures{"jobs", "core_seconds", "wasted_core_seconds",
                                           "gpu_seconds", "wasted_gpu_seconds"};
  head.insert(head.end(), figures.begin(), figures.end());
  if (period_.from) {
    for (const char* figure : figures) head.push_back(std::string("before_") + figure);
  }
  head.emplace_back("findings");
  std::string text = query::csv_line(head);
  const auto add = [&](const std::string& name, const Row& row) {
    std::vector<std::string> cells{name};
    const auto add_sum = [&](const Sum& sum) {
      for (const std::uint64_t figure : {sum.jobs, sum.core_seconds, sum.unused_core_seconds,
                                         sum.gpu_seconds, sum.unused_gpu_seconds})
        cells.push_back(std::to_string(figure));
    };
    add_sum(row.now);
    if (period_.from) add_sum(row.before);
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

Json ReportSums::json_of(const Row& row) const {
  const auto put = [](Json& into, const Sum& sum) {
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
  if (period_.from) put(json["before"], row.before);
  return json;
}

Json ReportSums::json() const {
  const auto time = [](Timestamp t) { return format_rfc3339(t, TimePrecision::kSeconds); };
  Json json{{"by", word_of(by_).word}};
  if (period_.from) json["from"] = time(*period_.from);
  json["until"] = time(period_.until);
  json["unfinished_jobs"] = unfinished_;
  Json list = Json::array();
  for (const auto& [name, row] : rows()) {
    Json one{{word_of(by_).word, name}};
    one.update(json_of(*row));
    list.push_back(std::move(one));
  }
  json["rows"] = std::move(list);
  json["total"] = json_of(total_);
  return json;
}

}  // namespace scriptorium::cli
