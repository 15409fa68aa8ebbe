#include "core/cli/report_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/gzip.h"
#include "core/base/text.h"
#include "core/cli/console.h"
#include "core/cli/report_archive.h"
#include "core/cli/trend_text.h"
#include "core/query/sum.h"
#include "core/query/unchecked_json.h"
#include "core/query/usage_tables.h"

namespace scriptorium::cli {
namespace {

using query::block_of;
using query::bytes_text;
using query::count_text;
using query::list_at;
using query::number_at;
using query::percent;
using query::text_at;
using query::value_at;

using Json = nlohmann::ordered_json;

constexpr std::size_t kBarWidth = 24;
constexpr const char* kAccounting = "accounting";
constexpr double kGiB = 1024.0 * 1024 * 1024;

// ---- words

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 256> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, values...);
  return buffer.data();
}
std::string energy_text(double joules) {
  const double watt_hours = joules / 3600;
  if (watt_hours >= 1000) return format("%.1f kWh", watt_hours / 1000);
  return watt_hours >= 1 ? format("%.0f Wh", watt_hours) : format("%.0f J", joules);
}
std::string bar(double ratio) {
  const auto full = static_cast<std::size_t>(std::lround(std::clamp(ratio, 0.0, 1.0) * kBarWidth));
  return "[" + std::string(full, '#') + std::string(kBarWidth - full, '.') + "]";
}

// ---- one job

void line(std::string& into, const char* key, const std::string& value) {
  into += fact_line(key, value);
}

std::string joined_by(const char* between, const std::vector<std::string>& parts) {
  std::string result;
  for (const std::string& part : parts) {
    if (!part.empty()) result += (result.empty() ? "" : between) + part;
  }
  return result;
}
std::string joined(const std::vector<std::string>& parts) { return joined_by(", ", parts); }
std::string with(const char* word, const std::string& value) {
  return value.empty() ? value : word + value;
}

std::string head_text(const Json& event, const Console& console) {
  const Json& job = value_at(event, {"job"});
  std::string id = text_at(job, {"id"});
  if (const std::string task = text_at(job, {"array", "task_id"}); !task.empty()) {
    id += " (" + text_at(job, {"array", "job_id"}) + "_" + task + ")";
  }
  std::string result = console.bold("job " + id);
  if (const std::string name = text_at(job, {"name"}); !name.empty()) result += "  " + name;
  const std::string state = text_at(job, {"state"});
  if (!state.empty()) {
    const std::string exit = text_at(job, {"exit_code"});
    result += "  " + (state == "COMPLETED" ? state : console.yellow(state)) +
              (exit.empty() || exit == "0:0" ? "" : " (exit " + exit + ")");
  }
  result += "\n";

  line(result, "owner", owner_text(event));
  return result;
}

std::string ran_text(const Json& event, const std::vector<const Json*>& nodes) {
  const Json& usage = value_at(event, {kUsage});
  std::string result;
  if (const auto elapsed = number_at(usage, {"elapsed_seconds"})) result = format_seconds(*elapsed);
  if (const auto limit = number_at(usage, {"request", "time_limit_seconds"}))
    result += " of " + format_seconds(*limit) + " asked for";
  if (const std::string begin = text_at(usage, {"started_at"}); !begin.empty())
    result += ", from " + time_text(begin);
  std::vector<std::string> names;
  for (const Json* node : nodes) names.push_back(text_at(*node, {"host", "name"}));
  if (names.size() == 1) {
    result += ", on " + names.front();
  } else if (const auto count = number_at(usage, {"request", "nodes"}); count && *count > 1) {
    result += ", on " + count_text(*count) + " nodes";
  }
  return result;
}

// Why there are findings or none; an unmeasured value is never shown as 0.
std::string measured_text(const Json& usage) {
  const Json& quality = value_at(usage, {"quality"});
  const std::string status = text_at(quality, {"status"});
  std::string source = text_at(usage, {"source", "cpu"});
  if (source.empty()) source = text_at(usage, {"source", "memory"});
  std::string result;
  if (status == "none") {
    return std::string("no data: this job was not observed while it ran, and accounting has no ") +
           (value_at(quality, {"not_credible"}).empty() ? "figures for it"
                                                        : "credible figures for it");
  }
  const bool accounting = status == kAccounting || text_at(quality, {"last_read"}) == kAccounting;
  result =
      accounting ? "by the scheduler's accounting only" : "by " + (source.empty() ? "?" : source);
  if (const auto samples = number_at(quality, {"samples"}))
    result += ", " + count_text(*samples) + (*samples == 1 ? " reading" : " readings");
  if (const auto covered = number_at(quality, {"covered_ratio"});
      covered && (!accounting || status == "partial"))
    result += ", " + percent(covered) + " of the time seen";
  if (status == "short") result += "; too short to judge";
  if (status == "partial") {
    const auto reporting = number_at(quality, {"nodes_reporting"});
    const auto expected = number_at(quality, {"nodes_expected"});
    result += reporting && expected && *reporting < *expected
                  ? "; only " + count_text(*reporting) + " of " + count_text(*expected) +
                        " nodes measured, so it is not judged"
              : accounting && reporting && (!expected || *reporting > *expected)
                  ? "; it is not known how many nodes it had, so it is not judged"
                  : "; too little of it was observed to judge";
  }
  return result;
}

void bar_line(std::string& into, const char* what, const std::optional<double>& ratio,
              const std::string& words, const Console& console) {
  if (!ratio) return line(into, what, words.empty() ? "no data" : words);
  const std::string shown = bar(*ratio);
  const std::string share = percent(ratio);
  into += "  " + padded(what, 11) + (*ratio < 0.35 ? console.yellow(shown) : console.green(shown)) +
          std::string(share.size() < 7 ? 7 - share.size() : 1, ' ') + share + "   " + words + "\n";
}

std::string bars_text(const Json& usage, const Console& console) {
  std::string result;
  const bool partial = text_at(usage, {"quality", "status"}) == "partial";
  const auto cpus = number_at(usage, {"cpu", "allocated"});
  const auto cpu = number_at(usage, {"cpu", "efficiency_ratio"});
  std::string words;
  if (cpu && cpus)
    words = format("%.2f of ", *cpu * *cpus) + count_text(*cpus) + (*cpus == 1 ? " CPU" : " CPUs") +
            " busy on average";
  if (!cpu && cpus) {
    const auto seen = number_at(usage, {"cpu", "time_seconds"});
    words = (seen && partial ? "at least " + format_seconds(*seen) + " of CPU time" : "no data") +
            "; it had " + count_text(*cpus) + (*cpus == 1 ? " CPU" : " CPUs");
  }
  bar_line(result, "CPU", cpu, words, console);

  const auto peak = number_at(usage, {"memory", "peak_bytes"});
  const auto memory = number_at(usage, {"memory", "limit_bytes"});
  words.clear();
  const auto part = number_at(usage, {"memory", "efficiency_ratio"});
  if (peak)
    words = (partial && !part ? "at least " : "at most ") + bytes_text(*peak) +
            (memory ? (part ? " of " : "; it had ") + bytes_text(*memory) : "");
  bar_line(result, "memory", part, words, console);

  if (const auto time = number_at(usage, {"time", "efficiency_ratio"})) {
    bar_line(result, "time", time, "of the time limit", console);
  }
  if (const auto gpus = number_at(usage, {"gpu", "count"})) {
    bar_line(result, "GPU", number_at(usage, {"gpu", "utilization_ratio"}),
             count_text(*gpus) + (*gpus == 1 ? " GPU" : " GPUs, on average"), console);
    if (const auto held = number_at(usage, {"gpu", "memory_efficiency_ratio"}))
      bar_line(result, "GPU memory", held, "at most", console);
    if (const auto energy = number_at(usage, {"gpu", "energy_joules"}))
      line(result, "energy", energy_text(*energy) + " by its GPUs");
  } else if (const auto asked = number_at(usage, {"request", "gpus"}); asked && *asked > 0) {
    const auto most = number_at(usage, {"gpu", "peak_utilization_ratio"});
    const auto held = number_at(usage, {"gpu", "peak_memory_bytes"});
    line(result, "GPU",
         (most || held ? "by accounting at most " +
                             joined({most ? percent(most) + " busy" : "",
                                     held ? bytes_text(*held) + " held" : ""}) +
                             ", of "
                       : "no data of ") +
             count_text(*asked) + (*asked == 1 ? " GPU" : " GPUs"));
  } else if (value_at(usage, {"request", "shared_gpu"}).is_boolean()) {
    line(result, "GPU", "no data of its part of a GPU");
  }
  if (const auto energy = number_at(usage, {"energy", "nodes_joules"}))
    line(result, "energy", energy_text(*energy) + " by its nodes");
  const auto read = number_at(usage, {"io", "read_bytes"});
  const auto written = number_at(usage, {"io", "written_bytes"});
  if (read || written) {
    line(result, "I/O",
         joined({read ? bytes_text(*read) + " read" : "",
                 written ? bytes_text(*written) + " written" : ""}));
  }
  return result;
}

std::string findings_text(const Json& usage, const Console& console) {
  const Json& findings = value_at(usage, {"findings"});
  const std::string status = text_at(usage, {"quality", "status"});
  if (!findings.is_array() || findings.empty()) {
    return status == "ok" || status == "accounting" ? "\n" + console.green("No findings.") + "\n"
                                                    : std::string{};
  }
  std::string result = "\n" + console.bold("Findings") + "\n";
  for (const Json& finding : findings) {
    const std::string severity = text_at(finding, {"severity"});
    std::string words = text_at(finding, {"text"}, 1000);
    if (const Json& hosts = value_at(finding, {"hosts"}); hosts.is_array() && !hosts.empty()) {
      std::string names;
      for (std::size_t i = 0; i < hosts.size() && i < 8; ++i) {
        if (hosts[i].is_string())
          names += (names.empty() ? "" : ", ") + printable(hosts[i].get<std::string>(), 64);
      }
      if (hosts.size() > 8) names += ", ...";
      words += " (" + names + ")";
    }
    result += "  " + coloured(padded(severity, 9), severity, console) +
              wrapped(words + " [" + text_at(finding, {"id"}) + "]", 11) + "\n";
    if (const std::string page = text_at(finding, {"help_url"}, 1000); !page.empty())
      result += std::string(11, ' ') + page + "\n";
  }
  return result;
}

std::string table_text(const query::UsageTable& from, const Console& console) {
  if (from.rows.empty()) return {};
  TextTable table(from.head, from.numbers);
  for (const auto& row : from.rows) table.add(row);
  return "\n" + table.text(console);
}

std::string nodes_text(const std::vector<const Json*>& nodes, const Console& console) {
  constexpr std::size_t kMost = 32;
  TextTable table({"NODE", "CPU", "PEAK MEMORY", "LIMIT", "GPU"}, {1, 2, 3, 4});
  std::size_t shown = 0;
  for (const Json* node : nodes) {
    if (++shown > kMost) break;
    const Json& block = block_of(*node);
    double gpu = 0;
    int gpus = 0;
    if (const Json& list = value_at(block, {"gpus"}); list.is_array()) {
      for (const Json& one : list) {
        if (const auto busy = number_at(one, {"utilization", "avg_ratio"})) {
          gpu += *busy;
          ++gpus;
        }
      }
    }
    const auto peak = number_at(block, {"memory", "peak_working_set_bytes"});
    const auto limit = number_at(block, {"memory", "limit_bytes"});
    table.add({text_at(*node, {"host", "name"}),
               percent(number_at(block, {"cpu", "efficiency_ratio"})),
               peak ? bytes_text(*peak) : "-", limit ? bytes_text(*limit) : "-",
               gpus == 0 ? "-" : percent(gpu / gpus)});
  }
  if (nodes.size() > kMost) table.note("and " + std::to_string(nodes.size() - kMost) + " more");
  return "\n" + table.text(console);
}

std::vector<const Json*> nodes_of(const JobReport& job) {
  std::vector<const Json*> nodes;
  if (job.event != nullptr) {
    if (const Json& list = value_at(*job.event, {kUsage, "nodes"}); list.is_array()) {
      for (const Json& node : list) nodes.push_back(&node);
    }
  }
  // Accounting has no per-node data, but the nodes may have sent their own events.
  return nodes.empty() ? job.nodes : nodes;
}

}  // namespace

std::string wrapped(const std::string& words, std::size_t indent) {
  constexpr std::size_t kWidth = 96;
  std::string result;
  std::size_t column = indent;
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    if (column > indent && column + 1 + (end - begin) > kWidth) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += words.substr(begin, end - begin);
    column += end - begin;
    begin = end + 1;
  }
  return result;
}

std::string coloured(const std::string& words, const std::string& severity,
                     const Console& console) {
  if (severity == "critical") return console.red(words);
  if (severity == "warning") return console.yellow(words);
  return words;
}

std::string fact_line(const char* key, const std::string& value) {
  return value.empty() ? value : "  " + padded(key, 11) + value + "\n";
}

std::string suggestion_text(const Json& suggest, const std::string& by, const Console& console) {
  const Json& directives = list_at(suggest, {"directives"});
  if (directives.empty()) return {};
  std::string head = "Next time" + with(", if ", text_at(suggest, {"condition"}));
  if (!by.empty()) head += ", by the most that " + by + " needed";
  std::string result = "\n" + console.bold(wrapped(head, 0)) + "\n";
  for (const Json& directive : directives) {
    if (directive.is_string()) result += "  " + printable(directive.get<std::string>()) + "\n";
  }
  return result;
}

std::string screen_of(const JobReport& job, const std::optional<RunTrend>& trend,
                      const Console& console) {
  static const Json kNothing;
  const Json& event = job.event != nullptr ? *job.event
                      : !job.nodes.empty() ? *job.nodes.front()
                                           : kNothing;
  const auto nodes = nodes_of(job);
  std::string result = head_text(event, console);
  line(result, "ran", ran_text(event, nodes));
  if (job.event == nullptr) {
    line(result, "measured",
         "by its nodes one by one; there is no summary of the whole job, so it is not judged");
    return result + table_text(query::program_table(job), console) +
           table_text(query::step_table(job), console) + nodes_text(nodes, console);
  }
  const Json& usage = value_at(event, {kUsage});
  line(result, "measured", measured_text(usage));
  result += "\n" + bars_text(usage, console);
  if (const Json& doubts = value_at(usage, {"quality", "not_credible"}); doubts.is_array()) {
    for (const Json& doubt : doubts)
      line(result, "not used", wrapped(text_at(doubt, {"text"}, 1000), 13));
  }
  result += table_text(query::program_table(job), console);
  result += table_text(query::step_table(job), console);
  if (trend) result += trend_text(*trend, console);
  const Json with_past = trend ? with_trend(usage, *trend) : usage;
  result += findings_text(with_past, console);
  const auto runs = number_at(with_past, {"suggest", "runs"});
  result += suggestion_text(value_at(with_past, {"suggest"}),
                            runs ? count_text(*runs) + " runs" : "", console);
  if (nodes.size() > 1) result += nodes_text(nodes, console);
  return result;
}

void sort_by_waste(std::vector<ReportedJob>& rows) {
  std::sort(rows.begin(), rows.end(), [](const ReportedJob& a, const ReportedJob& b) {
    const double left = a.waste();
    const double right = b.waste();
    return left != right ? left > right : a.id < b.id;
  });
}

ReportedJob row_of(const Json& event) {
  const Json& usage = value_at(event, {kUsage});
  ReportedJob row{.id = shown_job_id(event),
                  .user = text_at(event, {"user", "name"}, 32),
                  .name = text_at(event, {"job", "name"}, 32),
                  .state = text_at(event, {"job", "state"}, 32),
                  .ended = text_at(usage, {"ended_at"}),
                  .elapsed_seconds = number_at(usage, {"elapsed_seconds"}),
                  .cpus = number_at(usage, {"cpu", "allocated"}),
                  .cpu_ratio = number_at(usage, {"cpu", "efficiency_ratio"}),
                  .memory_ratio = number_at(usage, {"memory", "efficiency_ratio"}),
                  .gpu_ratio = number_at(usage, {"gpu", "utilization_ratio"}),
                  .quality = text_at(usage, {"quality", "status"})};
  if (row.user.empty()) row.user = text_at(event, {"user", "id"}, 32);
  const double hours = row.elapsed_seconds.value_or(0) / 3600;
  if (row.cpu_ratio && row.cpus)
    row.wasted_core_hours = std::max(0.0, 1 - *row.cpu_ratio) * *row.cpus * hours;
  // A share of the part that was seen says nothing of the rest.
  const bool partial = row.quality == "partial";
  if (row.gpu_ratio && !partial)
    row.wasted_gpu_hours =
        std::max(0.0, 1 - *row.gpu_ratio) * number_at(usage, {"gpu", "count"}).value_or(0) * hours;
  if (row.memory_ratio && !partial) {
    row.wasted_gib_hours = std::max(0.0, 1 - *row.memory_ratio) *
                           number_at(usage, {"memory", "limit_bytes"}).value_or(0) / kGiB * hours;
  }
  if (const Json& findings = value_at(usage, {"findings"}); findings.is_array()) {
    for (const Json& finding : findings) {
      if (text_at(finding, {"severity"}) != "info")
        row.findings.push_back(text_at(finding, {"id"}, 64));
    }
  }
  return row;
}

std::string table_of(std::vector<ReportedJob> rows, std::size_t limit, const Console& console) {
  sort_by_waste(rows);
  std::vector<std::string> times;
  for (std::size_t i = 0; i < rows.size() && (limit == 0 || i < limit); ++i)
    times.push_back(rows[i].ended);
  TimeColumn ended = time_column("ENDED", times);
  TextTable table({"JOB", "USER", "NAME", "STATE", std::move(ended.title), "RAN", "CPUS", "CPU",
                   "MEMORY", "GPU", "WASTED", "FINDINGS"},
                  {5, 6, 7, 8, 9, 10});
  double core_hours = 0;
  double gpu_hours = 0;
  double gib_hours = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ReportedJob& row = rows[i];
    core_hours += row.wasted_core_hours;
    gpu_hours += row.wasted_gpu_hours;
    gib_hours += row.wasted_gib_hours;
    if (limit != 0 && i >= limit) continue;
    std::string findings;
    for (const std::string& id : row.findings) findings += (findings.empty() ? "" : " ") + id;
    if (row.quality == "short") findings += findings.empty() ? "(too short)" : " (too short)";
    if (row.quality == "partial" || row.quality == "none")
      findings += findings.empty() ? "(no data)" : " (no data)";
    table.add({row.id, row.user, row.name, row.state, std::move(ended.cells[i]),
               row.elapsed_seconds ? format_seconds(*row.elapsed_seconds) : "-",
               row.cpus ? count_text(*row.cpus) : "-", percent(row.cpu_ratio),
               percent(row.memory_ratio), percent(row.gpu_ratio), query::format_tenths(row.waste()),
               findings});
  }
  if (limit != 0 && rows.size() > limit)
    table.note("and " + std::to_string(rows.size() - limit) + " more; --limit 0 shows all");
  return table.text(console) + "\n" + std::to_string(rows.size()) +
         (rows.size() == 1 ? " job" : " jobs") + " left unused " +
         format("%.1f core hours, %.1f GPU hours and %.1f GiB hours of memory.", core_hours,
                gpu_hours, gib_hours) +
         "\nWASTED is in core hours; an hour of a GPU counts as ten.\n";
}

Json json_of(const ReportedJob& row) {
  Json json{{"id", row.id},
            {"user", row.user},
            {"name", row.name},
            {"state", row.state},
            {"ended_at", row.ended}};
  const std::array<std::pair<const char*, std::optional<double>>, 5> figures{
      {{"elapsed_seconds", row.elapsed_seconds},
       {"cpus", row.cpus},
       {"cpu_efficiency_ratio", row.cpu_ratio},
       {"memory_efficiency_ratio", row.memory_ratio},
       {"gpu_utilization_ratio", row.gpu_ratio}}};
  for (const auto& [key, value] : figures) {
    if (value) json[key] = *value;
  }
  json["wasted_core_hours"] = row.wasted_core_hours;
  json["wasted_gpu_hours"] = row.wasted_gpu_hours;
  json["wasted_memory_gib_hours"] = row.wasted_gib_hours;
  json["quality"] = row.quality;
  json["findings"] = row.findings;
  return json;
}

std::string js1_of(const JobReport& job) {
  const std::string status =
      job.event == nullptr ? "none" : text_at(*job.event, {kUsage, "quality", "status"});
  if (status == "short") return "JS1:Short";
  const auto blocks = nodes_of(job);
  if (status == "none" || blocks.empty()) return "JS1:None";
  // Its readers take the sums over the nodes in it for the job.
  if (job.event != nullptr) {
    const auto had = number_at(*job.event, {kUsage, "request", "nodes"});
    if (had && static_cast<double>(blocks.size()) < *had) return "JS1:None";
  }
  Json nodes = Json::object();
  double gpus = 0;
  double longest = 0;
  const auto put = [](Json& into, const char* key, const std::optional<double>& value) {
    if (value) into[key] = std::llround(*value);
  };
  for (const Json* node : blocks) {
    const Json& block = block_of(*node);
    Json one = Json::object();
    put(one, "total_memory", number_at(block, {"memory", "limit_bytes"}));
    put(one, "used_memory", number_at(block, {"memory", "peak_working_set_bytes"}));
    if (const auto seconds = number_at(block, {"cpu", "time_seconds"}))
      one["total_time"] = std::round(*seconds * 10) / 10;
    put(one, "cpus", number_at(block, {"cpu", "allocated"}));
    longest = std::max(longest, number_at(block, {"elapsed_seconds"}).value_or(0));
    if (const Json& list = value_at(block, {"gpus"}); list.is_array()) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        ++gpus;
        const auto index = number_at(list[i], {"index"});
        const std::string key = count_text(index.value_or(static_cast<double>(i)));
        if (const auto v = number_at(list[i], {"memory_limit_bytes"}))
          one["gpu_total_memory"][key] = std::llround(*v);
        if (const auto v = number_at(list[i], {"peak_memory_bytes"}))
          one["gpu_used_memory"][key] = std::llround(*v);
        if (const auto v = number_at(list[i], {"utilization", "avg_ratio"}))
          one["gpu_utilization"][key] = std::round(*v * 1000) / 10;
      }
    }
    nodes[value_at(*node, {"host", "name"}).is_string()
              ? value_at(*node, {"host", "name"}).get<std::string>()
              : "?"] = std::move(one);
  }
  const double total = number_at(*job.event, {kUsage, "elapsed_seconds"}).value_or(longest);
  const Json summary{{"nodes", std::move(nodes)},
                     {"total_time", std::llround(total)},
                     {"gpus", std::llround(gpus)}};
  return "JS1:" + base64_encode(gzip(summary.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

}  // namespace scriptorium::cli
