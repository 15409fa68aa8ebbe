#include "core/cli/report_sums.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "core/base/time.h"
#include "core/query/job_text.h"

namespace scriptorium::cli {
namespace {

using query::RunSums;
using query::SumBy;

// What a row means where a job may count in several, or where it begins.
const char* foot_of(SumBy by) {
  switch (by) {
    case SumBy::kProgram:
      return "A job counts in the row of each of its programs, by the program's share of its CPU "
             "time.\n";
    case SumBy::kModule:
      return "A job counts in full in the row of each of its modules, so the rows add up to more "
             "than the total.\n";
    case SumBy::kNode: return "A job counts on each of its nodes, with equal parts of its hours.\n";
    case SumBy::kWeek: return "A row has the jobs that ended in the week from that Monday on.\n";
    default: return "";
  }
}

std::string foot(const RunSums& sums) {
  const query::SumPeriod& period = sums.period();
  std::string text = "\nJobs that ended ";
  const auto moment = [](Timestamp time) {
    return query::local_time(time) + ' ' + local_zone(time);
  };
  if (period.from) text += "from " + moment(*period.from) + " ";
  text += "until " + moment(period.until);
  text += ".\nWASTED is what jobs had and did not use";
  if (sums.total().now.gpu_seconds > 0 && !query::is_in_time(sums.by()))
    text += "; in the order of the rows, a GPU hour counts as ten";
  text += ".\n";
  if (sums.has_trend()) text += "TREND compares WASTED with as long a time before.\n";
  text += foot_of(sums.by());
  if (sums.unmeasured() > 0) {
    text +=
        "(no usage) has " + count_of(sums.unmeasured(), "job") + " whose use was not measured.\n";
  }
  if (sums.unfinished() > 0) {
    text += "(no usage) has " + count_of(sums.unfinished(), "job") +
            " submitted in this time, of which no end is known.\n";
  }
  return text;
}

std::string or_dash(std::string text) { return text.empty() ? "-" : std::move(text); }

}  // namespace

std::string sums_text(const RunSums& sums, std::size_t limit, const Console& console) {
  const bool gpus = sums.total().now.gpu_seconds > 0;
  std::string title = query::word_of(sums.by());
  std::transform(title.begin(), title.end(), title.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  std::vector<std::string> head{title, "JOBS", "CORE HOURS", "WASTED", ""};
  if (gpus) head.insert(head.end(), {"GPU HOURS", "WASTED", ""});
  if (sums.has_trend()) head.emplace_back("TREND");
  head.emplace_back("FINDINGS");
  std::vector<std::size_t> numbers(head.size() - 2);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = i + 1;
  TextTable table(std::move(head), std::move(numbers));
  const auto add = [&](const std::string& name, const RunSums::Row& row) {
    const RunTotals& sum = row.now;
    std::vector<std::string> cells{printable(name), std::to_string(sum.jobs)};
    const auto add_part = [&](std::uint64_t unused, std::uint64_t had) {
      cells.push_back(query::hours_text(had));
      cells.push_back(query::hours_text(unused));
      cells.push_back(or_dash(query::share_text(unused, had)));
    };
    add_part(sum.unused_core_seconds, sum.core_seconds);
    if (gpus) add_part(sum.unused_gpu_seconds, sum.gpu_seconds);
    if (sums.has_trend()) cells.push_back(or_dash(row.trend()));
    cells.push_back(query::frequent_text(sum.findings));
    table.add(std::move(cells));
  };
  const std::vector<RunSums::Named> all = sums.rows();
  std::size_t shown = 0;
  for (const auto& [name, row] : all) {
    if (limit != 0 && shown == limit) break;
    add(name, *row);
    ++shown;
  }
  if (shown < all.size())
    table.note("and " + std::to_string(all.size() - shown) + " more rows; --limit 0 shows all");
  add("total", sums.total());
  return table.text(console) + foot(sums);
}

}  // namespace scriptorium::cli
