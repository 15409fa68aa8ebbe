#include <algorithm>
#include <array>
#include <cstdio>
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
#include "core/cli/job_text.h"
#include "core/cli/open_stores.h"
#include "core/cli/pager.h"
#include "core/cli/search_progress.h"
#include "core/cli/search_request.h"
#include "core/cli/signal_stop.h"
#include "core/cli/software_table.h"
#include "core/query/job_fields.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kJobPage = 1000;

std::string hours_text(const SoftwareUse& use) {
  if (use.measured_jobs == 0) return {};
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.1f", use.cpu_hours);
  return text.data();
}

std::string table_text(const std::vector<SoftwareUse>& rows, const std::string& by,
                       const Console& console) {
  FittedTable table({{.title = "SOFTWARE", .least = 16},
                     {.title = by == "account" ? "ACCOUNT" : "USER", .least = 8},
                     {.title = "JOBS", .right = true},
                     {.title = "USERS", .right = true},
                     {.title = "CPU HOURS", .right = true},
                     {.title = "LAST", .rank = 1}});
  std::vector<FittedTable::Row> lines;
  for (const SoftwareUse& use : rows) {
    const bool module = use.kind == "module";
    // What a module or an interpreter is, its name shows.
    const std::string name =
        module || use.kind == "interpreter" ? use.name : use.kind + ' ' + use.name;
    lines.push_back({{{printable(name), module ? Paint::kStrong : Paint::kNone},
                      {printable(use.by)},
                      {std::to_string(use.jobs)},
                      {std::to_string(use.users)},
                      {hours_text(use)},
                      {use.last ? local_time(*use.last) : ""}},
                     {}});
  }
  return table.portion(lines, console);
}

Json software_json(const SoftwareTable& table, const std::string& by) {
  Json list = Json::array();
  for (const SoftwareUse& use : table.rows()) {
    Json json{{"kind", use.kind}, {"name", use.name}};
    if (!by.empty()) json[by] = use.by;
    json["jobs"] = use.jobs;
    json["users"] = use.users;
    json["measured_jobs"] = use.measured_jobs;
    json["cpu_hours"] = use.cpu_hours;
    if (use.last) json["last"] = format_rfc3339(*use.last, TimePrecision::kSeconds);
    list.push_back(std::move(json));
  }
  return {{"jobs", table.jobs()},
          {"measured_jobs", table.measured_jobs()},
          {"software", std::move(list)}};
}

std::string csv_of(const std::vector<SoftwareUse>& rows, const std::string& by) {
  std::string text = query::csv_line({"kind", "name", by.empty() ? "by" : by, "jobs", "users",
                                      "measured_jobs", "cpu_hours", "last"});
  for (const SoftwareUse& use : rows) {
    text += query::csv_line({use.kind, use.name, use.by, std::to_string(use.jobs),
                             std::to_string(use.users), std::to_string(use.measured_jobs),
                             hours_text(use),
                             use.last ? format_rfc3339(*use.last, TimePrecision::kSeconds) : ""});
  }
  return text;
}

// Adds every job to the table. False: no store answered; `code` is set.
bool read_jobs(std::vector<query::Store> stores, Searchable::Request request, SoftwareTable& table,
               Console& console, int& code) {
  SearchProgress progress(stores.front().name,
                          stores.front().searchable->speed() == Searchable::Speed::kScan, console);
  std::uint64_t jobs = 0;
  request.limit = kJobPage;
  request.most_lines = 0;
  request.progress = [&](Searchable::Progress p) {
    p.jobs = std::max(p.jobs, jobs);
    progress.report(p);
  };
  const auto pages = query::each_page(
      std::move(stores), std::move(request), [&](const Searchable::Answer& answer) {
        progress.clear();
        for (const Searchable::Hit& hit : answer.hits) table.add(hit.job);
        jobs += answer.hits.size();
        if (!answer.hits.empty())
          progress.report({.searched_back_to = answer.hits.back().job.time, .jobs = jobs});
        if (!answer.finished) {
          console.err << "scriptorium: stopped; only the newest " << jobs << " jobs are counted\n";
        }
      });
  progress.clear();
  code = say_refusals(pages.refused, console);
  return pages.answered;
}

}  // namespace

int software_command(const Arguments& arguments, Console& console) {
  const SignalStop signal(console.owns_process);
  Searchable::Request request;
  request.stop = signal.token();
  if (!arguments.since.empty()) {
    const Timestamp now = system_clock().now();
    auto since = since_node(arguments.since, now, local_offset);
    if (!since)
      return fail(console, "--since: \"" + printable(arguments.since) + "\" is no time or age",
                  kExitUsage);
    request.query = *std::move(since);
  }
  int code = kExitGood;
  const auto stores = open_stores_or_say(arguments, console, code);
  if (!stores) return code;
  SoftwareTable table(arguments.by == "user"      ? SoftwareBy::kUser
                      : arguments.by == "account" ? SoftwareBy::kAccount
                                                  : SoftwareBy::kNothing);
  if (!read_jobs(stores->list(), std::move(request), table, console, code)) return code;
  Pager pager(console);
  if (arguments.json) {
    pager.write(printable_json(software_json(table, arguments.by)
                                   .dump(2, ' ', false, Json::error_handler_t::replace)) +
                "\n");
  } else if (arguments.csv) {
    pager.write(csv_of(table.rows(), arguments.by));
  } else {
    pager.write(table_text(table.rows(), arguments.by, console));
    pager.write("\nof " + count_of(table.jobs(), "job") + ", of which " +
                std::to_string(table.measured_jobs()) + " with a known CPU time\n");
  }
  return kExitGood;
}

}  // namespace scriptorium::cli
