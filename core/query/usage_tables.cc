#include "core/query/usage_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/text.h"
#include "core/base/time.h"
#include "core/query/unchecked_json.h"

namespace scriptorium::query {
namespace {

using Json = nlohmann::ordered_json;

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 256> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, values...);
  return buffer.data();
}

// The job's own summary; where that has no such list, as by accounting, its nodes' events.
std::vector<const Json*> blocks_with(const char* list, const UsageEvents& job) {
  if (job.event != nullptr && value_at(*job.event, {kUsage, list}).is_array())
    return {&value_at(*job.event, {kUsage})};
  std::vector<const Json*> blocks;
  for (const Json* node : job.nodes) blocks.push_back(&block_of(*node));
  return blocks;
}

template <typename Row>
auto find_named(std::vector<Row>& rows, const std::string& name) {
  return std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
}

// A sum is absent if one of the nodes did not measure its part.
std::optional<double> sum(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b ? std::optional(*a + *b) : std::nullopt;
}

// A name, a script and a container in one column, and what they used on all nodes.
struct ProgramRow {
  std::string name;
  double cpu_seconds = 0, processes = 0, threads = 0;
  std::optional<double> busy_threads, ranks;
};

void add_programs(const Json& block, std::vector<ProgramRow>& rows) {
  for (const Json& one : list_at(block, {"programs"})) {
    std::string name = text_at(one, {"name"});
    if (const std::string script = text_at(one, {"script"}); !script.empty()) name += " " + script;
    if (const std::string image = text_at(one, {"container"}); !image.empty())
      name += " in " + image;
    auto row = find_named(rows, name);
    if (row == rows.end()) row = rows.insert(row, ProgramRow{.name = name, .busy_threads = 0});
    row->cpu_seconds += number_at(one, {"cpu_seconds"}).value_or(0);
    row->processes += number_at(one, {"processes"}).value_or(0);
    row->threads += number_at(one, {"threads"}).value_or(0);
    row->busy_threads = sum(row->busy_threads, number_at(one, {"busy_threads"}));
    if (const auto ranks = number_at(one, {"ranks"})) row->ranks = row->ranks.value_or(0) + *ranks;
  }
}

// A step on all of its nodes.
struct StepRow {
  std::string name;
  std::string started_at;  // on the first of its nodes
  double elapsed_seconds = 0;
  std::optional<double> cpus, cpu_seconds, cpu_ratio, peak_bytes;
  double gpus = 0;
  std::optional<double> gpu_ratio;
  double oom_kills = 0;
  bool is_read_to_its_end = true;
};

// Like a job's, a step's memory on several nodes is the sum of their peaks, and its CPU efficiency
// is that of all its CPUs during all of its time.
void add_node(StepRow& row, const StepRow& node) {
  row.started_at = std::min(row.started_at, node.started_at);
  row.elapsed_seconds = std::max(row.elapsed_seconds, node.elapsed_seconds);
  row.cpus = sum(row.cpus, node.cpus);
  row.cpu_seconds = sum(row.cpu_seconds, node.cpu_seconds);
  row.peak_bytes = sum(row.peak_bytes, node.peak_bytes);
  row.oom_kills += node.oom_kills;
  if (const double gpus = row.gpus + node.gpus; gpus > 0) {
    const double used =
        row.gpu_ratio.value_or(0) * row.gpus + node.gpu_ratio.value_or(0) * node.gpus;
    const bool known = (row.gpu_ratio || row.gpus == 0) && (node.gpu_ratio || node.gpus == 0);
    row.gpu_ratio = known ? std::optional(used / gpus) : std::nullopt;
    row.gpus = gpus;
  }
  row.is_read_to_its_end = row.is_read_to_its_end && node.is_read_to_its_end;
  const double available = row.cpus.value_or(0) * row.elapsed_seconds;
  row.cpu_ratio =
      row.cpu_seconds && available > 0 ? std::optional(*row.cpu_seconds / available) : std::nullopt;
}

StepRow step_of(const Json& step) {
  return {.name = text_at(step, {"name"}),
          .started_at = text_at(step, {"started_at"}),
          .elapsed_seconds = number_at(step, {"elapsed_seconds"}).value_or(0),
          .cpus = number_at(step, {"cpu", "allocated"}),
          .cpu_seconds = number_at(step, {"cpu", "time_seconds"}),
          .cpu_ratio = number_at(step, {"cpu", "efficiency_ratio"}),
          .peak_bytes = number_at(step, {"memory", "peak_working_set_bytes"}),
          .gpus = number_at(step, {"gpu", "count"}).value_or(0),
          .gpu_ratio = number_at(step, {"gpu", "utilization_ratio"}),
          .oom_kills = number_at(step, {"memory", "oom_kills"}).value_or(0),
          .is_read_to_its_end = text_at(step, {"last_read"}) != "sample"};
}

std::vector<std::string> cells_of(const StepRow& row, std::string started) {
  const double kills = row.oom_kills;
  return {row.name,
          std::move(started),
          format_seconds(row.elapsed_seconds),
          row.cpus ? count_text(*row.cpus) : "-",
          row.cpu_seconds
              ? (row.is_read_to_its_end ? "" : "at least ") + format_seconds(*row.cpu_seconds)
              : "-",
          percent(row.cpu_ratio),
          row.peak_bytes ? bytes_text(*row.peak_bytes) : "-",
          kills > 0 ? count_text(kills) + (kills == 1 ? " kill" : " kills") + " for memory" : ""};
}

// The steps that used most CPU time, as many as an event lists, and what the others used.
struct StepTable {
  std::vector<StepRow> rows;
  double others = 0;
  std::optional<double> other_cpu_seconds;  // of those that were read

  void leave_out(double count, const std::optional<double>& cpu_seconds) {
    others += count;
    if (cpu_seconds) other_cpu_seconds = other_cpu_seconds.value_or(0) + *cpu_seconds;
  }
};

StepTable steps_of(const std::vector<const Json*>& blocks) {
  constexpr std::size_t kMost = 32;
  StepTable steps;
  for (const Json* block : blocks) {
    for (const Json& one : list_at(*block, {"steps"})) {
      StepRow step = step_of(one);
      const auto known = find_named(steps.rows, step.name);
      if (known == steps.rows.end()) {
        steps.rows.push_back(std::move(step));
      } else {
        add_node(*known, step);
      }
    }
    steps.leave_out(number_at(*block, {"steps_other", "steps"}).value_or(0),
                    number_at(*block, {"steps_other", "cpu_seconds"}));
  }
  std::stable_sort(steps.rows.begin(), steps.rows.end(), [](const StepRow& a, const StepRow& b) {
    return a.cpu_seconds.value_or(0) > b.cpu_seconds.value_or(0);
  });
  for (; steps.rows.size() > kMost; steps.rows.pop_back())
    steps.leave_out(1, steps.rows.back().cpu_seconds);
  std::stable_sort(steps.rows.begin(), steps.rows.end(),
                   [](const StepRow& a, const StepRow& b) { return a.started_at < b.started_at; });
  return steps;
}

}  // namespace

std::string percent(const std::optional<double>& ratio) {
  if (!ratio) return "-";
  return format(*ratio < 0.0995 && *ratio > 0 ? "%.1f %%" : "%.0f %%", *ratio * 100);
}
std::string bytes_text(double value) {
  return format_bytes(static_cast<std::uint64_t>(std::clamp(value, 0.0, 9e18)));
}
std::string count_text(double value) {
  return format(value == std::floor(value) ? "%.0f" : "%.2f", value);
}

std::string owner_text(const Json& event) {
  std::string owner = text_at(event, {"user", "name"});
  const std::string uid = text_at(event, {"user", "id"});
  if (owner.empty() && !uid.empty()) owner = "uid " + uid;
  const Json& verified = value_at(event, {"user", "verified"});
  if (!owner.empty() && !(verified.is_boolean() && verified.get<bool>())) owner += " (unverified)";
  for (const char* what : {"account", "partition"}) {
    const std::string value = text_at(event, {"job", what});
    if (!value.empty()) owner += (owner.empty() ? "" : ", ") + std::string(what) + " " + value;
  }
  return owner;
}

std::string time_text(const std::string& time) {
  const auto parsed = parse_rfc3339(time);
  return parsed ? local_text(*parsed) + " " + local_zone(*parsed) : time;
}

TimeColumn time_column(const std::string& title, const std::vector<std::string>& times) {
  std::set<std::string> zones;
  for (const std::string& time : times) {
    if (const auto parsed = parse_rfc3339(time)) zones.insert(local_zone(*parsed));
  }
  TimeColumn column{.title = title};
  const bool is_one = zones.size() == 1;
  if (is_one) column.title += " (" + *zones.begin() + ")";
  for (const std::string& time : times) {
    const auto parsed = parse_rfc3339(time);
    column.cells.push_back(is_one && parsed ? local_text(*parsed) : time_text(time));
  }
  return column;
}

const Json& block_of(const Json& node) {
  return node.contains(kUsage) ? value_at(node, {kUsage}) : node;
}

UsageTable program_table(const UsageEvents& job) {
  constexpr std::size_t kMost = 8;
  std::vector<ProgramRow> rows;
  double other = 0;
  double total = 0;
  for (const Json* block : blocks_with("programs", job)) {
    add_programs(*block, rows);
    other += number_at(*block, {"programs_other", "cpu_seconds"}).value_or(0);
    total += number_at(*block, {"cpu", "time_seconds"}).value_or(0);
  }
  UsageTable table;
  if (rows.empty()) return table;
  double seen = other;
  for (const ProgramRow& row : rows) seen += row.cpu_seconds;
  std::stable_sort(rows.begin(), rows.end(), [](const ProgramRow& a, const ProgramRow& b) {
    return a.cpu_seconds > b.cpu_seconds;
  });
  const auto share = [&](double seconds) {
    return percent(total > 0 ? std::optional(std::min(1.0, seconds / total)) : std::nullopt);
  };
  table.head = {"PROGRAM", "CPU TIME", "SHARE", "PROCESSES", "THREADS", "BUSY", "RANKS"};
  table.numbers = {1, 2, 3, 4, 5, 6};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ProgramRow& row = rows[i];
    if (i >= kMost) {
      other += row.cpu_seconds;
      continue;
    }
    table.rows.push_back({row.name, format_seconds(row.cpu_seconds), share(row.cpu_seconds),
                          count_text(row.processes), count_text(row.threads),
                          row.busy_threads ? count_text(*row.busy_threads) : "-",
                          row.ranks ? count_text(*row.ranks) : "-"});
  }
  if (other > 0 || rows.size() > kMost)
    table.rows.push_back({"(other programs)", format_seconds(other), share(other), "", "", "", ""});
  const double unseen = total - seen;
  if (unseen > total / 1000)
    table.rows.push_back(
        {"(not seen by a reading)", format_seconds(unseen), share(unseen), "", "", "", ""});
  return table;
}

UsageTable step_table(const UsageEvents& job) {
  const auto blocks = blocks_with("steps", job);
  const StepTable steps = steps_of(blocks);
  UsageTable table;
  if (steps.rows.empty()) return table;
  std::vector<std::string> times;
  for (const StepRow& row : steps.rows) times.push_back(row.started_at);
  TimeColumn started = time_column("STARTED", times);
  std::vector<std::string> head{
      "STEP", std::move(started.title), "RAN", "CPUS", "CPU TIME", "CPU", "PEAK MEMORY"};
  const bool gpus = std::any_of(steps.rows.begin(), steps.rows.end(),
                                [](const StepRow& row) { return row.gpus > 0; });
  const auto at_gpu = [](auto& list) { return list.begin() + 6; };
  if (gpus) head.insert(at_gpu(head), "GPU");
  table.head = std::move(head);
  table.numbers = {2, 3, 4, 5, 6, gpus ? 7U : 6U};
  for (std::size_t i = 0; i < steps.rows.size(); ++i) {
    const StepRow& row = steps.rows[i];
    std::vector<std::string> cells = cells_of(row, std::move(started.cells[i]));
    if (gpus) cells.insert(at_gpu(cells), percent(row.gpu_ratio));
    table.rows.push_back(std::move(cells));
  }
  if (steps.others > 0) {
    // It is not known which of several nodes' other steps are the same ones.
    const std::string count = blocks.size() == 1 ? count_text(steps.others) + " " : "";
    table.rows.push_back(
        {"(" + count + (count == "1 " ? "other step)" : "other steps)"), "", "", "",
         steps.other_cpu_seconds ? format_seconds(*steps.other_cpu_seconds) : "-", "", ""});
  }
  return table;
}

}  // namespace scriptorium::query
