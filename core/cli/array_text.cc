#include "core/cli/array_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/cli/report_text.h"
#include "core/query/unchecked_json.h"

namespace scriptorium::cli {
namespace {

using query::ArrayReport;
using query::exception_text;
using query::figure_name;
using query::figure_text;
using query::list_at;
using query::number_at;

using Json = nlohmann::ordered_json;
using Spread = ArrayReport::Spread;
using Outlier = ArrayReport::Outlier;
using SharedFinding = ArrayReport::SharedFinding;

// How many lines the screen has for each.
constexpr std::size_t kOutliersShown = 10;
constexpr std::size_t kFindingsShown = 6;
constexpr std::size_t kBarHeight = 4;

// A bin as a column of a bar chart, from its top.
char bar_at(std::size_t row, std::size_t count, std::size_t most) {
  const auto height = static_cast<std::size_t>(
      std::lround(static_cast<double>(kBarHeight * count) / static_cast<double>(most)));
  if (row >= kBarHeight - height) return '#';
  return row == kBarHeight - 1 && count > 0 ? '.' : ' ';
}

std::string bars(const Spread& spread, std::size_t row) {
  if (figure_text(spread.figure, spread.least) == figure_text(spread.figure, spread.most))
    return row == kBarHeight - 1 && spread.tasks > 1 ? "all equal" : "";
  const std::size_t most = *std::max_element(spread.bins.begin(), spread.bins.end());
  std::string text;
  for (const std::size_t count : spread.bins) text += bar_at(row, count, most);
  return text;
}

std::string spread_text(const ArrayReport& report, const Console& console) {
  if (report.spreads.empty()) return {};
  std::vector<std::vector<std::string>> rows(4 + kBarHeight);
  std::vector<std::string> head{""};
  constexpr std::array kHeads{"TIME", "MEMORY", "CPU", "GPU"};
  constexpr std::array kRows{"least", "median", "most", "tasks"};
  for (std::size_t row = 0; row < rows.size(); ++row)
    rows[row].emplace_back(row < kRows.size()       ? kRows.at(row)
                           : row + 1 == rows.size() ? "least to most"
                                                    : "");
  bool is_of_all = true;
  for (const Spread& one : report.spreads) {
    head.push_back(kHeads.at(static_cast<std::size_t>(one.figure)));
    is_of_all = is_of_all && one.tasks == report.tasks;
    const std::array cells{figure_text(one.figure, one.least), figure_text(one.figure, one.median),
                           figure_text(one.figure, one.most), std::to_string(one.tasks)};
    for (std::size_t row = 0; row < rows.size(); ++row)
      rows[row].push_back(row < cells.size() ? cells.at(row) : bars(one, row - cells.size()));
  }
  TextTable table(std::move(head));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const bool is_blank = std::all_of(rows[row].begin(), rows[row].end(),
                                      [](const std::string& cell) { return cell.empty(); });
    if (!is_blank && (row != 3 || !is_of_all)) table.add(std::move(rows[row]));
  }
  return "\n" + table.text(console);
}

std::string outliers_text(const ArrayReport& report, const Console& console) {
  if (report.outliers.empty()) return {};
  std::string result = "\n" + console.bold("Tasks unlike the others") + "\n";
  std::size_t width = 0;
  const std::size_t shown = std::min(report.outliers.size(), kOutliersShown);
  for (std::size_t i = 0; i < shown; ++i)
    width = std::max(width, report.outliers[i].task.size() + 2);
  for (std::size_t i = 0; i < shown; ++i) {
    const Outlier& outlier = report.outliers[i];
    std::string reasons;
    for (const std::string& reason : outlier.reasons)
      reasons += (reasons.empty() ? "" : "; ") + reason;
    result += "  " + padded(outlier.task, width) + wrapped(reasons, width + 2) + "\n";
  }
  if (report.outliers.size() > shown)
    result += "  and " + std::to_string(report.outliers.size() - shown) + " more\n";
  return result;
}

std::string findings_text(const ArrayReport& report, const Console& console) {
  if (report.findings.empty()) return {};
  TextTable table({"FINDING", "SEVERITY", "TASKS", "EXAMPLE"}, {2});
  const std::size_t shown = std::min(report.findings.size(), kFindingsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const SharedFinding& finding = report.findings[i];
    table.add({finding.id, coloured(finding.severity, finding.severity, console),
               std::to_string(finding.tasks), finding.example});
  }
  if (report.findings.size() > shown)
    table.note("and " + std::to_string(report.findings.size() - shown) + " more");
  return "\n" + table.text(console);
}

std::string next_time_text(const ArrayReport& report, const Console& console) {
  const auto based_on = number_at(report.suggest, {"tasks"});
  if (!based_on) return {};
  const std::string all = count_of(report.tasks, "task");
  const auto tasks = static_cast<std::size_t>(*based_on);
  std::string result = suggestion_text(
      report.suggest, tasks == report.tasks ? all : std::to_string(tasks) + " of " + all, console);
  std::string names;
  for (const Json& exception : list_at(report.suggest, {"exceptions"}))
    names += (names.empty() ? "" : ", ") + exception_text(exception);
  if (names.empty()) return result;
  const std::string head = result.empty() ? "Next time, more for " : "But more for ";
  return (result.empty() ? "\n" : result) + wrapped(head + names, 2) + "\n";
}

}  // namespace

std::string array_text(const ArrayReport& report, const Console& console) {
  std::string text = console.bold("array " + report.id) +
                     (report.name.empty() ? "" : "  " + report.name) + "  " +
                     count_of(report.tasks, "task") + "\n";
  std::string states;
  for (const auto& [state, count] : report.states)
    states += (states.empty() ? "" : ", ") + std::to_string(count) + " " +
              (state.empty() ? "with an unknown end" : state);
  if (report.ran_again > 0)
    states += "; " + std::to_string(report.ran_again) + " ran more than once";
  text += fact_line("owner", report.owner) + fact_line("tasks", wrapped(states, 13));
  if (!report.began.empty() && !report.ended.empty())
    text += fact_line("ran", time_text(report.began) + " to " + time_text(report.ended));
  text += spread_text(report, console) + outliers_text(report, console) +
          findings_text(report, console) + next_time_text(report, console);
  if (report.other_jobs > 0)
    text += "\n" + count_of(report.other_jobs, "other job") + " had this number; --json has all.\n";
  const std::string example = !report.outliers.empty()   ? report.outliers.front().task
                              : !report.findings.empty() ? report.findings.front().example
                                                         : report.id + "_TASK";
  return text + "\nscriptorium report " + example + " shows one task, and explains its findings.\n";
}

Json array_json(const ArrayReport& report) {
  Json json{{"id", report.id},
            {"name", report.name},
            {"owner", report.owner},
            {"started_at", report.began},
            {"ended_at", report.ended},
            {"tasks", report.tasks},
            {"ran_again", report.ran_again},
            {"states", Json::object()},
            {"figures", Json::array()},
            {"outliers", Json::array()},
            {"findings", Json::array()}};
  for (const auto& [state, count] : report.states)
    json["states"][state.empty() ? "UNKNOWN" : state] = count;
  for (const Spread& one : report.spreads)
    json["figures"].push_back({{"figure", figure_name(one.figure)},
                               {"tasks", one.tasks},
                               {"least", one.least},
                               {"median", one.median},
                               {"most", one.most},
                               {"histogram", one.bins}});
  for (const Outlier& one : report.outliers)
    json["outliers"].push_back({{"task", one.task}, {"reasons", one.reasons}});
  for (const SharedFinding& one : report.findings)
    json["findings"].push_back({{"id", one.id},
                                {"severity", one.severity},
                                {"tasks", one.tasks},
                                {"example", one.example}});
  if (!report.suggest.is_null()) json["suggest"] = report.suggest;
  return json;
}

}  // namespace scriptorium::cli
