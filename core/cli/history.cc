#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/fitted_table.h"
#include "core/cli/job_record.h"
#include "core/cli/job_text.h"
#include "core/cli/pager.h"
#include "core/cli/run_history.h"
#include "core/query/job_fields.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;

// Newest first. Scripts are read only where their hashes differ.
std::vector<Run> runs_of(const std::vector<query::Store>& stores, std::vector<JobRow> jobs,
                         std::size_t limit) {
  std::vector<Run> runs;
  std::optional<Searchable::Record> newer;  // of jobs[i]
  for (std::size_t i = 0; i < jobs.size() && i < limit; ++i) {
    Run run{jobs[i], std::nullopt};
    if (i + 1 < jobs.size()) {
      run.edit = run_edit(jobs[i + 1], jobs[i]);
      std::optional<Searchable::Record> older;
      if (!run.edit->known) {
        if (!newer) newer = record_of(stores, jobs[i]);
        older = record_of(stores, jobs[i + 1]);
        if (newer && older) run.edit = run_edit(*older, *newer);
      }
      newer = std::move(older);
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

FittedTable::Row row_of(const Run& run, const JobRow& asked, const Console& console) {
  const JobRow& job = run.job;
  const bool is_asked = job.id == asked.id && job.time == asked.time;
  FittedTable::Row row{{{local_time(job.time)},
                        {printable(job.id), is_asked ? Paint::kStrong : Paint::kNone},
                        {shown(job.name)},
                        {state_text(job), state_paint(job)},
                        {elapsed_text(job)},
                        {memory_text(job)},
                        {cpu_text(job)},
                        {gpu_text(job)},
                        {run.edit ? edit_text(*run.edit) : "first"}},
                       {}};
  if (!run.edit) return row;
  for (const std::string& line : run.edit->changed) {
    const std::string text = "    " + printable(line, 400);
    row.below.push_back(line.starts_with('-') ? console.red(text) : console.green(text));
  }
  for (const std::string& module : run.edit->modules.removed)
    row.below.push_back(console.red("    -module " + printable(module)));
  for (const std::string& module : run.edit->modules.added)
    row.below.push_back(console.green("    +module " + printable(module)));
  return row;
}

std::string history_text(const std::vector<Run>& runs, const JobRow& asked,
                         const Console& console) {
  FittedTable table({{.title = "SUBMITTED"},
                     {.title = "JOB"},
                     {.title = "NAME", .least = 10, .rank = 3},
                     {.title = "STATE", .least = 9},
                     {.title = "ELAPSED", .right = true},
                     {.title = "MEMORY", .right = true, .rank = 1},
                     {.title = "CPU", .right = true, .rank = 2},
                     {.title = "GPU", .right = true, .rank = 4},
                     {.title = "EDIT"}});
  std::vector<FittedTable::Row> rows;
  for (const Run& run : runs) rows.push_back(row_of(run, asked, console));
  return table.portion(rows, console);
}

Json history_json(const std::vector<Run>& runs) {
  Json list = Json::array();
  for (const Run& run : runs) {
    Json json{{"job", query::job_json(run.job)}};
    if (run.edit) {
      Json edit{{"known", run.edit->known}};
      if (run.edit->known) {
        edit["lines_added"] = run.edit->lines.added;
        edit["lines_removed"] = run.edit->lines.removed;
      }
      if (!run.edit->changed.empty()) edit["lines"] = run.edit->changed;
      edit["modules_removed"] = run.edit->modules.removed;
      edit["modules_added"] = run.edit->modules.added;
      json["edit"] = std::move(edit);
    }
    list.push_back(std::move(json));
  }
  return {{"runs", std::move(list)}};
}

}  // namespace

int history_command(const Arguments& arguments, Console& console) {
  const auto names = job_names(arguments.jobs, arguments.cluster);
  if (!names) return fail(console, names.error().message(), kExitUsage);
  int code = kExitGood;
  const auto stores = open_stores_or_say(arguments, console, code);
  if (!stores) return code;
  const auto record = find_record(*stores, names->front(), console, code);
  if (!record) return code;
  if (!record->job.family) {
    return fail(console,
                "no store knows a family of job " + printable(record->job.id) +
                    ": that needs a sink that compares scripts as they come in",
                kExitNoInput);
  }
  const auto limit = static_cast<std::size_t>(arguments.limit);
  std::vector<query::Refusal> refused;
  auto jobs = family_of(stores->list(), record->job, std::nullopt, limit + 1, refused);
  if (jobs.empty()) {
    const int reason = say_refusals(refused, console);
    return refused.empty() ? int{kExitNoInput} : reason;
  }
  const bool more = jobs.size() > limit;
  const std::vector<Run> runs = runs_of(stores->list(), std::move(jobs), limit);
  if (arguments.json) {
    console.out << printable_json(
                       history_json(runs).dump(2, ' ', false, Json::error_handler_t::replace))
                << "\n";
    return kExitGood;
  }
  Pager pager(console);
  pager.write(history_text(runs, record->job, console));
  if (more) pager.write("There are earlier runs; --limit shows more.\n");
  return kExitGood;
}

}  // namespace scriptorium::cli
