#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/accounts.h"
#include "core/base/number.h"
#include "core/base/text.h"
#include "core/base/time.h"
#include "core/cli/array_text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/past_runs.h"
#include "core/cli/report_archive.h"
#include "core/cli/report_families.h"
#include "core/cli/report_mail.h"
#include "core/cli/report_reader.h"
#include "core/cli/report_sums.h"
#include "core/cli/report_text.h"
#include "core/cli/run_trend.h"
#include "core/cli/secret_text.h"
#include "core/config/config.h"
#include "core/query/values.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string string_at(const Json& object, const char* outer, const char* inner) {
  if (!object.is_object() || !object.contains(outer) || !object.at(outer).is_object()) return {};
  const Json& below = object.at(outer);
  return below.contains(inner) && below.at(inner).is_string() ? below.at(inner).get<std::string>()
                                                              : std::string{};
}

using Record = UsageRecords::Record;

std::string kind_of(const Json& event) {
  return event.contains("kind") && event.at("kind").is_string()
             ? event.at("kind").get<std::string>()
             : std::string{};
}

// Whether a node's document and a job's document describe the same run of the job.
bool same_life(const Json& job, const Json& node) {
  const auto begin = [](const Json& e) {
    return parse_rfc3339(string_at(e, kUsage, "started_at"));
  };
  const auto end = [](const Json& e) { return parse_rfc3339(string_at(e, kUsage, "ended_at")); };
  const auto job_end = end(job);
  const auto node_begin = begin(node);
  const auto job_begin = begin(job);
  const auto node_end = end(node);
  if (job_end && node_begin && node_begin->nanoseconds > job_end->nanoseconds + 5 * kSecond)
    return false;
  return !(job_begin && node_end && node_end->nanoseconds + 5 * kSecond < job_begin->nanoseconds);
}

std::string life_of(const Json& event) {
  return string_at(event, "job", "id") + " " + string_at(event, kUsage, "started_at");
}

// False if the place cannot be read.
bool read_job(UsageRecords& place, const std::string& job, std::vector<Record>& found) {
  std::set<std::string> keys;
  return place.of_job(job, [&](Record record) {
    const std::string kind = kind_of(record.event);
    if ((kind == "usage.job" || kind == "usage.node") && is_of_job(record.event, job) &&
        keys.insert(record.key).second)
      found.push_back(std::move(record));
  });
}

// Each life of a job with its nodes, the last life first. Two trees may contain the same document.
std::vector<JobReport> lives_of(const std::vector<Record>& found) {
  std::map<std::string, const Json*> lives;
  std::map<std::string, std::map<std::string, const Json*>> nodes;  // of each job, by their ids
  for (const Record& record : found) {
    if (kind_of(record.event) == "usage.job") {
      lives.emplace(life_of(record.event), &record.event);
    } else {
      nodes[string_at(record.event, "job", "id")].emplace(record.event.value("id", record.key),
                                                          &record.event);
    }
  }
  std::vector<JobReport> jobs;
  for (const auto& [life, event] : lives) {
    JobReport& job = jobs.emplace_back();
    job.event = event;
    for (const auto& [id, node] : nodes[string_at(*event, "job", "id")]) {
      if (same_life(*event, *node)) job.nodes.push_back(node);
    }
  }
  if (jobs.empty() && !nodes.empty()) {
    JobReport& job = jobs.emplace_back();
    for (const auto& [of, list] : nodes) {
      for (const auto& [id, node] : list) job.nodes.push_back(node);
    }
  }
  const auto started = [](const JobReport& job) {
    return job.event == nullptr ? "" : string_at(*job.event, kUsage, "started_at");
  };
  std::sort(jobs.begin(), jobs.end(),
            [&](const JobReport& a, const JobReport& b) { return started(a) > started(b); });
  return jobs;
}

std::string json_of(const std::vector<JobReport>& jobs, const std::optional<RunTrend>& trend) {
  Json all = Json::array();
  for (const JobReport& job : jobs) {
    Json list = Json::array();
    for (const Json* node : job.nodes) list.push_back(*node);
    all.push_back(
        {{"event", job.event == nullptr ? Json() : *job.event}, {"nodes", std::move(list)}});
  }
  if (trend) all.front()["trend"] = trend_json(*trend);
  Json json{{"jobs", std::move(all)}};
  if (auto lives = query::task_lives(jobs); query::is_array(lives))
    json["array"] = array_json(query::array_report(std::move(lives)));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string text_of(const std::vector<JobReport>& jobs, const std::optional<RunTrend>& trend,
                    const Arguments& arguments, Console& console) {
  if (auto lives = query::task_lives(jobs); query::is_array(lives))
    return array_text(query::array_report(std::move(lives)), console);
  std::string text = screen_of(jobs.front(), trend, console);
  if (const Json* event = jobs.front().event; event != nullptr)
    text += secret_text(*event, arguments.config_file, redact::Reader::kOwner, console);
  if (jobs.size() > 1) {
    text += "\nThis is the last of " + std::to_string(jobs.size()) +
            " times that the job ran; --json has them all.\n";
  }
  return text;
}

// Of the last life of one job; nothing of a job without a summary.
std::optional<RunTrend> trend_of(const std::vector<JobReport>& jobs, const UsagePlaces& places) {
  const Json* event = jobs.front().event;
  if (event == nullptr || places.stores == nullptr || query::is_array(query::task_lives(jobs)))
    return std::nullopt;
  return run_trend(*event, past_runs(places.stores->list(), *event));
}

int one_job(const Arguments& arguments, const UsagePlaces& places, Console& console) {
  bool any = false;
  std::uint64_t closed = 0;
  std::vector<Record> found;
  for (const auto& place : places.list) {
    any = read_job(*place, arguments.job, found) || any;
    closed += place->closed();
    if (!found.empty()) break;
  }
  if (!any) return kExitUnavailable;
  const std::vector<JobReport> jobs = lives_of(found);
  if (jobs.empty()) {
    return fail(
        console,
        "no data on what job " + printable(arguments.job) +
            " used: it is still running, ended before usage was kept, or is not in this archive" +
            (closed > 0 ? ", parts of which you cannot read" : ""),
        kExitNoInput);
  }
  if (arguments.js1) {
    console.out << js1_of(jobs.front()) << "\n";
    return kExitGood;
  }
  const std::optional<RunTrend> trend = trend_of(jobs, places);
  console.out << (arguments.json ? json_of(jobs, trend) : text_of(jobs, trend, arguments, console));
  return kExitGood;
}

std::optional<query::SumPeriod> period_or_say(const Arguments& arguments, Console& console) {
  auto period = query::sum_period(arguments.since, arguments.until,
                                  {.now = system_clock().now(), .zone = local_offset});
  if (period) return *period;
  fail(console, "--" + period.error().message(), kExitUsage);
  return std::nullopt;
}

void say_closed(const UsageRecords& place, Console& console) {
  if (const std::uint64_t closed = place.closed(); closed > 0) {
    console.err << "scriptorium: " << closed
                << " folders or files of the archive are closed to you and not counted\n";
  }
}

void print_json(const Json& json, Console& console) {
  console.out << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

// A run has its user's name, unless that has none.
std::string name_of(const std::string& user) {
  const auto uid = parse_number<uid_t>(user);
  const auto found = uid ? find_user(*uid) : Result<std::optional<UserRecord>>(std::nullopt);
  return found && *found ? (*found)->name : user;
}

int sums(const Arguments& arguments, const UsagePlaces& places, Console& console) {
  const auto period = period_or_say(arguments, console);
  if (!period) return kExitUsage;
  const query::RunSums empty(*query::sum_by(arguments.by), *period);
  const Searchable::RunRequest of_runs{
      .from = empty.first(), .until = period->until, .modules = arguments.by == "module"};
  const Searchable::SumRequest of_all{.by = query::runs_by(empty.by()), .bounds = empty.bounds()};
  std::optional<query::RunSums> sums;
  const std::string user = name_of(arguments.user);
  const auto read = std::find_if(places.list.begin(), places.list.end(), [&](const auto& place) {
    sums.emplace(empty);  // without what a place said before it failed
    if (user.empty()) return place->sums(of_all, [&](const RunSumRow& row) { sums->add(row); });
    return place->runs(of_runs, [&](const JobRun& run) {
      if (run.user == user) sums->add(run);
    });
  });
  if (read == places.list.end()) return kExitUnavailable;
  const Timestamp from = period->from.value_or(Timestamp{});
  const auto unfinished = (**read).unfinished(from, period->until, user);
  const auto before =
      empty.has_trend() ? (**read).unfinished(empty.first(), from, user) : std::nullopt;
  sums->add_unfinished(unfinished.value_or(0), before.value_or(0));
  say_closed(**read, console);
  if (arguments.json) {
    print_json(sums->json(), console);
  } else {
    console.out << (arguments.csv
                        ? sums->csv()
                        : sums_text(*sums, static_cast<std::size_t>(arguments.limit), console));
  }
  return kExitGood;
}

int many_jobs(const Arguments& arguments, const UsagePlaces& places, Console& console) {
  const auto period = period_or_say(arguments, console);
  if (!period) return kExitUsage;
  const Timestamp since = period->from.value_or(Timestamp{});
  std::map<std::string, ReportedJob>
      rows;  // by event, so that two trees with the same jobs count once
  FamilyReport families;
  const UsageRecords::Use take = [&](const Record& record) {
    const Json& event = record.event;
    if (kind_of(event) != "usage.job") return;
    if (!arguments.user.empty() && string_at(event, "user", "name") != arguments.user &&
        string_at(event, "user", "id") != arguments.user) {
      return;
    }
    const auto ended = parse_rfc3339(string_at(event, kUsage, "ended_at"));
    if (ended && (*ended < since || *ended >= period->until)) return;
    const bool is_new = rows.emplace(event.value("id", record.key), row_of(event)).second;
    if (is_new && arguments.family) families.add(event, record.family);
  };
  const auto read = std::find_if(places.list.begin(), places.list.end(), [&](const auto& place) {
    return place->since(since, arguments.user, take);
  });
  if (read == places.list.end()) return kExitUnavailable;
  std::vector<ReportedJob> list;
  for (auto& [id, row] : rows) list.push_back(std::move(row));
  say_closed(**read, console);
  if (arguments.family) {
    if (arguments.json) {
      print_json(families.json(), console);
    } else {
      console.out << families.text(static_cast<std::size_t>(arguments.limit), console);
    }
    return kExitGood;
  }
  if (arguments.json) {
    sort_by_waste(list);
    Json all = Json::array();
    for (const ReportedJob& row : list) all.push_back(json_of(row));
    print_json(Json{{"jobs", std::move(all)}}, console);
    return kExitGood;
  }
  console.out << table_of(std::move(list), static_cast<std::size_t>(arguments.limit), console);
  return kExitGood;
}

}  // namespace

std::optional<Timestamp> since_of(const std::string& text) {
  if (text.empty()) return Timestamp{};
  const auto period = query::read_time(text, {.now = system_clock().now(), .zone = local_offset});
  return period ? std::optional(Timestamp{period->from}) : std::nullopt;
}

int report_command(const Arguments& arguments, Console& console) {
  if (arguments.mail) return report_mail(arguments, console);
  int code = kExitGood;
  const UsagePlaces places = usage_places_or_say(arguments, console, code);
  if (places.list.empty()) return code;
  if (!arguments.job.empty()) return one_job(arguments, places, console);
  return arguments.by.empty() ? many_jobs(arguments, places, console)
                              : sums(arguments, places, console);
}

}  // namespace scriptorium::cli
