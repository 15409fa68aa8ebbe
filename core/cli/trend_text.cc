#include "core/cli/trend_text.h"

#include <array>
#include <cstddef>
#include <utility>

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;

// In the order of Course.
constexpr std::array kCourses{"", "rising", "falling"};
constexpr std::array kMarks{"", " +", " -"};

template <typename Texts, typename Place>
const char* at_place(const Texts& texts, Place place) {
  return texts.at(static_cast<std::size_t>(place));
}

}  // namespace

std::string trend_text(const RunTrend& trend, const Console& console) {
  if (trend.figures.empty()) return {};
  TextTable table({"ITS LAST " + std::to_string(trend.compared) + " RUNS", "LEAST", "MEDIAN",
                   "MOST", "THIS RUN", "TREND"},
                  {1, 2, 3, 4});
  for (const FigureTrend& one : trend.figures)
    table.add({figure_title(one.figure), figure_text(one.figure, one.least),
               figure_text(one.figure, one.median), figure_text(one.figure, one.most),
               figure_text(one.figure, one.now), at_place(kCourses, one.course)});
  return "\n" + table.text(console);
}

std::string typical_text(const std::vector<RunFigures>& runs, Figure figure,
                         const RunTrend& trend) {
  const auto value = typical(runs, figure);
  if (!value) return "-";
  std::string text = figure_text(figure, *value);
  for (const FigureTrend& one : trend.figures) {
    if (one.figure == figure) text += at_place(kMarks, one.course);
  }
  return text;
}

Json with_trend(Json usage, const RunTrend& trend) {
  Json& findings = usage["findings"];
  if (!findings.is_array()) findings = Json::array();
  findings.insert(findings.end(), trend.findings.begin(), trend.findings.end());
  if (trend.runs == 0) return usage;
  usage["suggest"] = trend.suggest;
  if (!trend.suggest.is_null()) usage["suggest"]["runs"] = trend.runs;
  return usage;
}

}  // namespace scriptorium::cli
