#include "core/cli/report_families.h"

#include <algorithm>

#include "core/api/kit/search/similarity.h"
#include "core/cli/trend_text.h"
#include "core/query/sum.h"
#include "core/query/unchecked_json.h"

namespace scriptorium::cli {
namespace {

using query::text_at;

using Json = nlohmann::ordered_json;

}  // namespace

void FamilyReport::add(const Json& usage_job, std::optional<std::uint64_t> family) {
  ReportedJob row = row_of(usage_job);
  const std::string key = family ? "#" + std::to_string(*family)
                                 : row.user + "\n" + text_at(usage_job, {"cluster"}) + "\n" +
                                       stable_name(text_at(usage_job, {"job", "name"}));
  Family& into = families_[key];
  into.by_name = !family;
  into.wasted_core_hours += row.wasted_core_hours;
  into.wasted_gpu_hours += row.wasted_gpu_hours;
  into.waste += row.waste();
  for (const std::string& id : row.findings) ++into.findings[id];
  RunFigures figures = run_figures(usage_job);
  if (into.runs.empty() || into.last_start < figures.started_at) {
    into.last = std::move(row);
    into.last_start = figures.started_at;
    into.event = usage_job;
  }
  into.runs.push_back(std::move(figures));
}

std::size_t FamilyReport::Family::completed() const {
  return static_cast<std::size_t>(
      std::count_if(runs.begin(), runs.end(), [](const RunFigures& run) { return run.completed; }));
}

std::vector<const FamilyReport::Family*> FamilyReport::by_waste() const {
  std::vector<const Family*> list;
  for (const auto& [key, family] : families_) list.push_back(&family);
  std::stable_sort(list.begin(), list.end(),
                   [](const Family* a, const Family* b) { return a->waste > b->waste; });
  return list;
}

std::string FamilyReport::text(std::size_t limit, const Console& console) const {
  const std::vector<const Family*> list = by_waste();
  const std::size_t shown = limit == 0 ? list.size() : std::min(limit, list.size());
  std::vector<std::string> times;
  for (std::size_t i = 0; i < shown; ++i) times.push_back(list[i]->last.ended);
  TimeColumn ended = time_column("ENDED", times);
  TextTable table({"NAME", "USER", "RUNS", "COMPLETED", "LAST JOB", std::move(ended.title), "TIME",
                   "MEMORY", "CPU", "WASTED", "FINDINGS"},
                  {2, 3, 6, 7, 8, 9});
  bool by_name = false;
  for (std::size_t i = 0; i < shown; ++i) {
    const Family& family = *list[i];
    const RunTrend trend = run_trend(family.event, family.runs);
    std::string findings;
    const auto add = [&](const std::string& id) { findings += (findings.empty() ? "" : " ") + id; };
    for (const Json& finding : trend.findings) add(text_at(finding, {"id"}));
    if (const std::string frequent = frequent_text(family.findings); !frequent.empty())
      add(frequent);
    table.add({family.last.name, family.last.user, std::to_string(family.runs.size()),
               std::to_string(family.completed()), family.last.id, std::move(ended.cells[i]),
               typical_text(family.runs, Figure::kTime, trend),
               typical_text(family.runs, Figure::kMemory, trend),
               typical_text(family.runs, Figure::kCpu, trend), query::format_tenths(family.waste),
               findings});
    by_name = by_name || family.by_name;
  }
  if (list.size() > shown)
    table.note("and " + std::to_string(list.size() - shown) + " more; --limit 0 shows all");
  std::string foot =
      "\nTIME, MEMORY and CPU are medians of the runs that completed; + and - say that they rise "
      "or\n"
      "fall. WASTED is in core hours; an hour of a GPU counts as ten.\n";
  if (by_name)
    foot +=
        "No store knows families here: one user's jobs whose names differ in numbers alone are "
        "one.\n";
  return table.text(console) + foot;
}

Json FamilyReport::json() const {
  Json list = Json::array();
  for (const Family* family : by_waste()) {
    Json findings = Json::array();
    for (const auto& [id, runs] : most_frequent(family->findings))
      findings.push_back({{"id", id}, {"runs", runs}});
    list.push_back({{"name", family->last.name},
                    {"user", family->last.user},
                    {"by_name", family->by_name},
                    {"runs", family->runs.size()},
                    {"completed_runs", family->completed()},
                    {"last", json_of(family->last)},
                    {"trend", trend_json(run_trend(family->event, family->runs))},
                    {"wasted_core_hours", family->wasted_core_hours},
                    {"wasted_gpu_hours", family->wasted_gpu_hours},
                    {"findings", std::move(findings)}});
  }
  return {{"families", std::move(list)}};
}

}  // namespace scriptorium::cli
