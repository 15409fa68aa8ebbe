#include "core/page/array_part.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/base/text.h"
#include "core/page/job_page.h"
#include "core/page/plot.h"
#include "core/query/unchecked_json.h"

namespace scriptorium::page {
namespace {

using Json = nlohmann::ordered_json;
using List = kainjow::mustache::list;
using query::ArrayReport;

constexpr std::size_t kMostOutliers = 20;
constexpr std::size_t kMostFindings = 50;

List spreads_of(const ArrayReport& report) {
  constexpr std::array kTitles{"time", "memory", "cpu", "gpu"};
  List rows;
  for (const ArrayReport::Spread& one : report.spreads) {
    const auto text = [&](double value) { return query::figure_text(one.figure, value); };
    const std::string title = words(kTitles.at(static_cast<std::size_t>(one.figure)));
    Values row;
    row.set("title", title);
    row.set("least", text(one.least));
    row.set("median", text(one.median));
    row.set("most", text(one.most));
    row.set("tasks", std::to_string(one.tasks));
    const bool is_equal = text(one.least) == text(one.most);
    row.set("is_equal", is_equal);
    if (!is_equal) {
      std::string counts;
      for (const std::size_t count : one.bins)
        counts += (counts.empty() ? "" : ", ") + std::to_string(count);
      set_html(row, histogram_svg(words("histogram_title", {title, counts}),
                                  {one.bins.begin(), one.bins.end()}));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

List outliers_of(const ArrayReport& report) {
  List rows;
  for (const ArrayReport::Outlier& one : report.outliers) {
    if (rows.size() == kMostOutliers) break;
    std::string reasons;
    for (const std::string& reason : one.reasons) reasons += (reasons.empty() ? "" : "; ") + reason;
    Values row;
    row.set("task", one.task);
    row.set("reasons", reasons);
    rows.push_back(std::move(row));
  }
  return rows;
}

List findings_of(const ArrayReport& report) {
  List rows;
  for (const ArrayReport::SharedFinding& one : report.findings) {
    if (rows.size() == kMostFindings) break;
    Values row;
    row.set("id", one.id);
    row.set("severity", severity_class(one.severity));
    row.set("tasks", std::to_string(one.tasks));
    row.set("example", one.example);
    rows.push_back(std::move(row));
  }
  return rows;
}

Values next_time(const ArrayReport& report) {
  const auto based_on = query::number_at(report.suggest, {"tasks"});
  if (!based_on) return false;
  List lines;
  for (const Json& line : query::list_at(report.suggest, {"directives"}))
    lines.push_back(text_value(printable(line.get<std::string>())));
  List exceptions;
  for (const Json& exception : query::list_at(report.suggest, {"exceptions"}))
    exceptions.push_back(text_value(query::exception_text(exception)));
  Values values;
  set_list(values, "lines", lines);
  set_list(values, "exceptions", exceptions);
  values.set("based_on", std::to_string(static_cast<std::size_t>(*based_on)));
  values.set("condition", query::text_at(report.suggest, {"condition"}));
  return values;
}

}  // namespace

Values array_part(const std::vector<query::TaskLife>& lives) {
  if (!query::is_array(lives)) return false;
  const ArrayReport report = query::array_report(lives);
  Values values;
  values.set("count", std::to_string(report.tasks));
  set_list(values, "spreads", spreads_of(report));
  const List outliers = outliers_of(report);
  set_list(values, "outliers", outliers);
  const std::size_t more = report.outliers.size() - outliers.size();
  values.set("more_outliers", more > 0 ? Values(std::to_string(more)) : Values(false));
  set_list(values, "shared", findings_of(report));
  values.set("next_time", next_time(report));
  return values;
}

}  // namespace scriptorium::page
