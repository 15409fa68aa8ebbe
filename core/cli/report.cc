#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/number.h"
#include "core/base/text.h"
#include "core/base/time.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/report_archive.h"
#include "core/cli/report_text.h"
#include "core/cli/secret_text.h"
#include "core/config/config.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string string_at(const Json& object, const char* outer, const char* inner) {
  if (!object.is_object() || !object.contains(outer) || !object.at(outer).is_object()) return {};
  const Json& below = object.at(outer);
  return below.contains(inner) && below.at(inner).is_string() ? below.at(inner).get<std::string>()
                                                              : std::string{};
}

// ---- archives

// The file trees to which the configured sinks write usage.job: those of all plugins with an option
// `root`.
std::vector<std::string> roots_of(const Config& config) {
  std::vector<std::string> roots;
  for (const SinkInstance& sink : config.sinks) {
    const Value* root = sink.table.find("root");
    const std::string* path = root == nullptr ? nullptr : std::get_if<std::string>(&root->data);
    const bool takes =
        std::any_of(sink.common.kinds.begin(), sink.common.kinds.end(),
                    [](const std::string& pattern) { return glob_match(pattern, "usage.job"); });
    if (path != nullptr && takes) roots.push_back(*path);
  }
  return roots;
}

// Problems of the configuration are left to other commands: a user who asks about a job may not be
// allowed to read all of it.
std::optional<std::vector<std::string>> find_roots(const Arguments& arguments, Console& console) {
  if (!arguments.archive.empty()) return std::vector{arguments.archive};
  Problems problems;
  auto roots = roots_of(load_config(arguments.config_file, problems));
  if (!roots.empty()) return roots;
  if (print_problems(problems, console)) return std::nullopt;
  console.err << "scriptorium: " << arguments.config_file
              << ": no sink keeps usage.job in files; give a sink that has a root kinds = "
                 "[\"job.script\", \"usage.*\"], or use --archive DIR\n";
  return std::nullopt;
}

// ---- reading

struct Record {
  Json event;
  std::string path;
};

class Reader {
 public:
  Reader(std::vector<std::string> roots, Console& console)
      : roots_(std::move(roots)), console_(console) {}

  // Calls use(event, path) for every event of these kinds; false if no tree could be read.
  template <typename Wanted, typename Use>
  bool each(RecordWalk walk, Wanted wanted, Use use) {
    bool any = false;
    walk.wanted = wanted;
    for (const std::string& root : roots_) {
      walk.root = root;
      std::uint64_t seen = 0;
      const auto counts =
          walk_records(walk, [&](const std::string& path, const std::string& bytes) {
            if (console_.out_is_terminal && ++seen % 1000 == 0)
              console_.err << "\r\033[K" << seen << " records ..." << std::flush;
            if (bytes.find(must_hold_) == std::string::npos) return;
            Json event = Json::parse(bytes, nullptr, false);
            if (event.is_object()) use(std::move(event), path);
          });
      if (console_.out_is_terminal && seen >= 1000) console_.err << "\r\033[K" << std::flush;
      if (!counts) {
        console_.err << "scriptorium: " << printable(counts.error().message()) << "\n";
        continue;
      }
      any = true;
      closed_ += counts->closed;
    }
    return any;
  }
  std::uint64_t closed() const noexcept { return closed_; }
  // Records without this text are not parsed: few contain a given user's name.
  void must_hold(std::string text) { must_hold_ = std::move(text); }

 private:
  std::vector<std::string> roots_;
  Console& console_;
  std::uint64_t closed_ = 0;
  std::string must_hold_;
};

std::string kind_of(const Json& event) {
  return event.contains("kind") && event.at("kind").is_string()
             ? event.at("kind").get<std::string>()
             : std::string{};
}

// A user who may only read his own folder of the tree gets the contents of that folder.
std::string own_folder(const std::string& user) {
  if (!user.empty()) return user.find('/') == std::string::npos ? user : std::string{};
  const char* name = std::getenv("USER");
  return name != nullptr && std::string_view(name).find('/') == std::string_view::npos ? name : "";
}

// "4711": that job, or all tasks of that array; "4711_3": one task.
bool is_job(const Json& event, const std::string& job) {
  if (string_at(event, "job", "id") == job) return true;
  const auto outer = event.find("job");
  if (outer == event.end() || !outer->is_object()) return false;
  const std::string array = string_at(*outer, "array", "job_id");
  return !array.empty() &&
         (array == job || array + "_" + string_at(*outer, "array", "task_id") == job);
}

// ---- the commands

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

std::vector<Record> read_job(Reader& reader, const std::string& job, bool& any) {
  std::vector<Record> found;
  const auto take = [&](Json event, const std::string& path) {
    const std::string kind = kind_of(event);
    const bool is_new =
        std::none_of(found.begin(), found.end(), [&](const Record& r) { return r.path == path; });
    if (is_new && (kind == "usage.job" || kind == "usage.node") && is_job(event, job))
      found.push_back({std::move(event), path});
  };
  const RecordWalk walk{.only_directory = own_folder("")};
  // The path nearly always contains the id, but an array's tasks are stored under their own
  // numbers.
  any = reader.each(
      walk, [&](std::string_view path) { return path.find(job) != std::string_view::npos; }, take);
  const bool of_array = std::any_of(found.begin(), found.end(), [](const Record& r) {
    return !r.event["job"].value("array", Json()).is_null();
  });
  if (any && (found.empty() || of_array)) reader.each(walk, nullptr, take);
  return found;
}

// Each life of a job with its nodes, the last life first. Two trees may contain the same document.
std::vector<JobReport> lives_of(const std::vector<Record>& found) {
  std::map<std::string, const Json*> lives;
  std::map<std::string, const Json*> nodes;
  for (const Record& record : found) {
    if (kind_of(record.event) == "usage.job") {
      lives.emplace(life_of(record.event), &record.event);
    } else {
      nodes.emplace(record.event.value("id", record.path), &record.event);
    }
  }
  std::vector<JobReport> jobs;
  for (const auto& [life, event] : lives) {
    JobReport& job = jobs.emplace_back();
    job.event = event;
    for (const auto& [id, node] : nodes) {
      if (string_at(*node, "job", "id") == string_at(*event, "job", "id") &&
          same_life(*event, *node))
        job.nodes.push_back(node);
    }
  }
  if (jobs.empty() && !nodes.empty()) {
    JobReport& job = jobs.emplace_back();
    for (const auto& [id, node] : nodes) job.nodes.push_back(node);
  }
  const auto started = [](const JobReport& job) {
    return job.event == nullptr ? "" : string_at(*job.event, kUsage, "started_at");
  };
  std::sort(jobs.begin(), jobs.end(),
            [&](const JobReport& a, const JobReport& b) { return started(a) > started(b); });
  return jobs;
}

std::string json_of(const std::vector<JobReport>& jobs) {
  Json all = Json::array();
  for (const JobReport& job : jobs) {
    Json list = Json::array();
    for (const Json* node : job.nodes) list.push_back(*node);
    all.push_back(
        {{"event", job.event == nullptr ? Json() : *job.event}, {"nodes", std::move(list)}});
  }
  return Json{{"jobs", std::move(all)}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string text_of(const std::vector<JobReport>& jobs, const Arguments& arguments,
                    Console& console) {
  std::vector<JobRow> rows;
  for (const JobReport& job : jobs) {
    if (job.event != nullptr) rows.push_back(row_of(*job.event));
  }
  const bool several_jobs = std::any_of(rows.begin(), rows.end(),
                                        [&](const JobRow& r) { return r.id != rows.front().id; });
  if (several_jobs) return table_of(std::move(rows), 0, console);
  std::string text = screen_of(jobs.front(), console);
  if (const Json* event = jobs.front().event; event != nullptr)
    text += secret_text(*event, arguments.config_file, redact::Reader::kOwner, console);
  if (jobs.size() > 1) {
    text += "\nThis is the last of " + std::to_string(jobs.size()) +
            " times that the job ran; --json has them all.\n";
  }
  return text;
}

int one_job(const Arguments& arguments, Reader& reader, Console& console) {
  bool any = false;
  const std::vector<Record> found = read_job(reader, arguments.job, any);
  if (!any) return kExitUnavailable;
  const std::vector<JobReport> jobs = lives_of(found);
  if (jobs.empty()) {
    return fail(
        console,
        "no data on what job " + printable(arguments.job) +
            " used: it is still running, ended before usage was kept, or is not in this archive" +
            (reader.closed() > 0 ? ", parts of which you cannot read" : ""),
        kExitNoInput);
  }
  console.out << (arguments.js1    ? js1_of(jobs.front()) + "\n"
                  : arguments.json ? json_of(jobs)
                                   : text_of(jobs, arguments, console));
  return kExitGood;
}

int many_jobs(const Arguments& arguments, Reader& reader, Console& console) {
  const auto since = since_of(arguments.since);
  if (!since) {
    return fail(console,
                "--since: \"" + printable(arguments.since) +
                    "\" is neither a date such as 2026-11-14, a time such as "
                    "2026-11-14T08:00:00Z, nor an age such as 7d",
                kExitUsage);
  }
  // As written in JSON.
  if (!arguments.user.empty())
    reader.must_hold(Json(arguments.user).dump(-1, ' ', false, Json::error_handler_t::replace));
  std::map<std::string, JobRow> rows;  // by event, so that two trees with the same jobs count once
  const RecordWalk walk{.since = *since, .only_directory = own_folder(arguments.user)};
  const bool any = reader.each(walk, nullptr, [&](const Json& event, const std::string& path) {
    if (kind_of(event) != "usage.job") return;
    if (!arguments.user.empty() && string_at(event, "user", "name") != arguments.user &&
        string_at(event, "user", "id") != arguments.user) {
      return;
    }
    const auto ended = parse_rfc3339(string_at(event, kUsage, "ended_at"));
    if (ended && *ended < *since) return;
    rows.emplace(event.value("id", path), row_of(event));
  });
  if (!any) return kExitUnavailable;
  std::vector<JobRow> list;
  for (auto& [id, row] : rows) list.push_back(std::move(row));
  if (reader.closed() > 0) {
    console.err << "scriptorium: " << reader.closed()
                << " folders or files of the archive are closed to you and not counted\n";
  }
  if (arguments.json) {
    sort_by_waste(list);
    Json all = Json::array();
    for (const JobRow& row : list) all.push_back(json_of(row));
    console.out << Json{{"jobs", std::move(all)}}.dump(2, ' ', false,
                                                       Json::error_handler_t::replace)
                << "\n";
    return kExitGood;
  }
  console.out << table_of(std::move(list), static_cast<std::size_t>(arguments.limit), console);
  return kExitGood;
}

}  // namespace

std::optional<Timestamp> since_of(const std::string& text) {
  if (text.empty()) return Timestamp{};
  static const std::map<char, std::int64_t> kUnits{
      {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
  const auto count = parse_number<std::int64_t>(std::string_view(text).substr(0, text.size() - 1));
  const auto unit = kUnits.find(text.back());
  if (count && unit != kUnits.end() && *count >= 0 && *count < 1'000'000) {
    const std::int64_t now = system_clock().now().nanoseconds;
    const std::int64_t age = *count * unit->second;
    return Timestamp{age > now / kSecond ? 0 : now - age * kSecond};
  }
  if (auto time = parse_rfc3339(text)) return time;
  if (auto day = parse_rfc3339(text + "T00:00:00Z")) return day;
  return parse_rfc3339(text + "Z");
}

int report_command(const Arguments& arguments, Console& console) {
  const auto roots = find_roots(arguments, console);
  if (!roots) return kExitConfig;
  Reader reader(*roots, console);
  return arguments.job.empty() ? many_jobs(arguments, reader, console)
                               : one_job(arguments, reader, console);
}

}  // namespace scriptorium::cli
