#include "core/page/job_list.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/page/job_page.h"
#include "core/page/shown.h"
#include "core/page/use_values.h"
#include "core/query/job_text.h"

namespace scriptorium::page {
namespace {

using List = kainjow::mustache::list;

constexpr std::size_t kColumns = 8;  // behind the box, without that of GPUs

List line_rows(const std::vector<Searchable::Line>& lines) {
  List rows;
  for (const Searchable::Line& line : lines) {
    Values row;
    const std::string number = std::to_string(line.number);
    row.set("number", line.part == JobPart::kScript ? number : words("environment_line", {number}));
    set_html(row, shown_line(line.text, line.marks));
    rows.push_back(std::move(row));
  }
  return rows;
}

Values row_of(const Searchable::Hit& hit, bool with_gpus, const std::string& root) {
  const JobRow& job = hit.job;
  Values row = run_values(job);
  row.set("key", job_path(job));
  row.set("href", root + job_path(job));
  row.set("id", printable(job.id));
  row.set("name", query::shown(job.name));
  row.set("owner", query::user_text(job));
  row.set("time", query::local_time(job.time));
  row.set("use", use_cells(job, with_gpus));
  set_list(row, "lines", line_rows(hit.lines));
  return row;
}

}  // namespace

void add_job_list(Values& values, const std::vector<Searchable::Hit>& hits,
                  const std::string& root) {
  const bool with_gpus = std::any_of(hits.begin(), hits.end(), [](const Searchable::Hit& hit) {
    return hit.job.gpus.value_or(0) > 0;
  });
  List rows;
  for (const Searchable::Hit& hit : hits) rows.push_back(row_of(hit, with_gpus, root));
  set_list(values, "jobs", rows);
  values.set("with_gpus", with_gpus);
  values.set("columns", std::to_string(kColumns + (with_gpus ? 1 : 0)));
  values.set("zone", local_zone(system_clock().now()));
}

}  // namespace scriptorium::page
