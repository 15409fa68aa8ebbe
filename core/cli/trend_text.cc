#include "core/cli/trend_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/base/text.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;
using Figure = FigureTrend::Figure;
using Course = FigureTrend::Course;

std::string value_text(Figure figure, double value) {
  switch (figure) {
    case Figure::kTime: return format_seconds(value);
    case Figure::kMemory:
      return format_bytes(static_cast<std::uint64_t>(std::clamp(value, 0.0, 9e18)));
    case Figure::kCpu: return std::to_string(std::lround(value * 100)) + " %";
  }
  return {};
}

std::string title_of(Figure figure) {
  switch (figure) {
    case Figure::kTime: return "time";
    case Figure::kMemory: return "memory";
    case Figure::kCpu: return "CPU";
  }
  return {};
}

std::string course_text(Course course) {
  switch (course) {
    case Course::kSteady: return "";
    case Course::kRising: return "rising";
    case Course::kFalling: return "falling";
  }
  return {};
}

}  // namespace

std::string trend_text(const RunTrend& trend, const Console& console) {
  if (trend.figures.empty()) return {};
  TextTable table({"ITS LAST " + std::to_string(trend.compared) + " RUNS", "LEAST", "MEDIAN",
                   "MOST", "THIS RUN", "TREND"},
                  {1, 2, 3, 4});
  for (const FigureTrend& one : trend.figures)
    table.add({title_of(one.figure), value_text(one.figure, one.least),
               value_text(one.figure, one.median), value_text(one.figure, one.most),
               value_text(one.figure, one.now), course_text(one.course)});
  return "\n" + table.text(console);
}

std::string typical_text(const std::vector<RunFigures>& runs, Figure figure,
                         const RunTrend& trend) {
  const auto value = typical(runs, figure);
  if (!value) return "-";
  std::string text = value_text(figure, *value);
  for (const FigureTrend& one : trend.figures) {
    if (one.figure != figure || one.course == Course::kSteady) continue;
    text += one.course == Course::kRising ? " +" : " -";
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
