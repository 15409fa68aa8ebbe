#include "core/cli/array_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "core/api/kit/job_request.h"
#include "core/base/number.h"
#include "core/cli/report_archive.h"
#include "core/query/unchecked_json.h"

namespace scriptorium::cli {
namespace {

using query::list_at;
using query::number_at;
using query::text_at;

using Json = nlohmann::ordered_json;
using Spread = ArrayReport::Spread;
using Outlier = ArrayReport::Outlier;
using SharedFinding = ArrayReport::SharedFinding;

constexpr double kMiB = 1048576;
constexpr std::array kFigures{Figure::kTime, Figure::kMemory, Figure::kCpu, Figure::kGpu};

// How many lines the screen has for each.
constexpr std::size_t kOutliersShown = 10;
constexpr std::size_t kFindingsShown = 6;
constexpr std::size_t kBarHeight = 4;

// A suggestion leaves out no more tasks than a user can be expected to submit on their own.
constexpr std::size_t kMostExceptions = 10;
constexpr std::size_t kTasksForAnException = 10;

enum class Ending { kUnknown, kCompleted, kFailed, kTimedOut, kKilledForMemory };

// A task as it ran last.
struct Task {
  const Json* event = nullptr;
  RunFigures run;
  Ending ending = Ending::kUnknown;
  bool is_whole = false;  // nothing of it went unmeasured
  std::size_t lives = 1;
  // For the most that any of its lives needed; 0: not known.
  double memory_to_ask = 0, time_to_ask = 0;

  std::string state() const { return text_at(*event, {"job", "state"}, 32); }
  bool failed() const noexcept {
    return ending != Ending::kUnknown && ending != Ending::kCompleted;
  }
};

bool has_finding(const Json& event, std::string_view id) {
  const Json& findings = list_at(event, {kUsage, "findings"});
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Json& finding) { return text_at(finding, {"id"}) == id; });
}

Ending ending_of(const Json& event, const RunFigures& run) {
  const std::string state = text_at(event, {"job", "state"});
  if (state == "OUT_OF_MEMORY" || has_finding(event, "mem_oom")) return Ending::kKilledForMemory;
  if (state == "TIMEOUT") return Ending::kTimedOut;
  if (state.empty()) return Ending::kUnknown;
  return run.completed ? Ending::kCompleted : Ending::kFailed;
}

// An earlier life may have needed more; one that was killed for memory counts until one completed.
void add_need(Task& task, const RunFigures& life, Ending ending) {
  if (const double peak = life.peak_node_bytes.value_or(0); peak > 0)
    task.memory_to_ask = std::max(task.memory_to_ask, static_cast<double>(memory_to_ask_for(peak)));
  if (ending == Ending::kKilledForMemory && task.ending != Ending::kCompleted)
    task.memory_to_ask =
        std::max(task.memory_to_ask, static_cast<double>(life.suggested.memory_bytes.value_or(0)));
  if (life.elapsed_seconds)
    task.time_to_ask = std::max(task.time_to_ask, time_to_ask_for(*life.elapsed_seconds));
}

std::string task_id(const Json& event) { return text_at(event, {"job", "array", "task_id"}); }

// Numbers of jobs begin at 1 again one day.
bool is_same_array(const Json& a, const Json& b) {
  const auto differ = [&](std::initializer_list<const char*> path) {
    const std::string one = text_at(a, path);
    const std::string other = text_at(b, path);
    return !one.empty() && !other.empty() && one != other;
  };
  return !task_id(a).empty() && !differ({"job", "array", "job_id"}) && !differ({"cluster"}) &&
         !differ({"user", "name"}) && !differ({"user", "id"});
}

const Json* newest_task(const std::vector<JobReport>& jobs) {
  for (const JobReport& job : jobs) {
    if (job.event != nullptr && !task_id(*job.event).empty()) return job.event;
  }
  return nullptr;
}

std::vector<Task> tasks_of(const std::vector<JobReport>& jobs) {
  std::map<std::string, Task> tasks;
  const Json* newest = newest_task(jobs);
  for (const JobReport& job : jobs) {
    if (job.event == nullptr || !is_same_array(*job.event, *newest)) continue;
    const RunFigures life = run_figures(*job.event);
    const Ending ending = ending_of(*job.event, life);
    const std::string quality = text_at(*job.event, {kUsage, "quality", "status"});
    const auto [task, is_last] = tasks.try_emplace(
        task_id(*job.event), Task{.event = job.event,
                                  .run = life,
                                  .ending = ending,
                                  .is_whole = quality != "partial" && quality != "none"});
    if (!is_last) ++task->second.lives;
    add_need(task->second, life, ending);
  }
  std::vector<Task> list;
  for (auto& [id, task] : tasks) list.push_back(std::move(task));
  std::stable_sort(list.begin(), list.end(), [](const Task& a, const Task& b) {
    const auto number = [](const Task& task) {
      return parse_number<std::uint64_t>(task_id(*task.event))
          .value_or(std::numeric_limits<std::uint64_t>::max());
    };
    return number(a) < number(b);
  });
  return list;
}

// ---- the spread

// Of a task that was measured in part, memory is known to be at least so much.
std::optional<double> figure_of(const Task& task, Figure figure) {
  return figure == Figure::kTime || task.is_whole ? value_of(task.run, figure) : std::nullopt;
}

std::optional<Spread> spread_of(const std::vector<Task>& tasks, Figure figure) {
  std::vector<double> values;
  for (const Task& task : tasks) {
    if (const auto value = figure_of(task, figure)) values.push_back(*value);
  }
  if (values.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  Spread spread{.figure = figure,
                .tasks = values.size(),
                .least = *least,
                .median = quantile_of(values, 0.5),
                .most = *most};
  const double width = (spread.most - spread.least) / static_cast<double>(spread.bins.size());
  for (const double value : values) {
    const auto bin = width > 0 ? static_cast<std::size_t>((value - spread.least) / width) : 0;
    ++spread.bins.at(std::min(bin, spread.bins.size() - 1));
  }
  return spread;
}

// ---- what is unusual

struct Fence {
  double low = 0, median = 0, high = 0;
};

std::optional<Fence> fence_of(const std::vector<double>& values, Figure figure) {
  constexpr double kReach = 3;
  if (values.size() < kLeastForQuartiles) return std::nullopt;
  const double median = quantile_of(values, 0.5);
  const double lower = quantile_of(values, 0.25);
  const double upper = quantile_of(values, 0.75);
  const double margin = figure == Figure::kTime     ? std::max(median / 2, 60.0)
                        : figure == Figure::kMemory ? std::max(median / 2, 64 * kMiB)
                                                    : 0.1;
  const double reach = kReach * (upper - lower);
  return Fence{.low = std::min(lower - reach, median - margin),
               .median = median,
               .high = std::max(upper + reach, median + margin)};
}

struct Reason {
  std::string kind;  // tasks with the same reason have the same
  std::string text;
  double distance = 0;
};

std::string ending_text(const Task& task) {
  if (task.ending == Ending::kKilledForMemory) return "killed for memory";
  const std::string exit = text_at(*task.event, {"job", "exit_code"}, 16);
  return task.state() + (exit.empty() || exit == "0:0" ? "" : " (exit " + exit + ")");
}

std::string figure_words(Figure figure, double value, double median) {
  constexpr std::array kVerbs{"ran ", "needed ", "used ", "used "};
  constexpr std::array kOf{"", " of memory", " of its CPUs", " of its GPUs"};
  const auto place = static_cast<std::size_t>(figure);
  return kVerbs.at(place) + figure_text(figure, value) + kOf.at(place) + " (median " +
         figure_text(figure, median) + ")";
}

std::optional<Reason> unusual(const Task& task, Figure figure, const Fence& fence) {
  const bool is_share = figure == Figure::kCpu || figure == Figure::kGpu;
  const auto value = figure_of(task, figure);
  if (!value || (is_share && !task.run.judged)) return std::nullopt;
  const bool is_low = *value < fence.low;
  // A task that failed has little of everything.
  if ((!is_low && *value <= fence.high) || (is_low && task.failed())) return std::nullopt;
  return Reason{.kind = std::string(figure_name(figure)) + (is_low ? "-" : "+"),
                .text = figure_words(figure, *value, fence.median),
                .distance = std::abs(*value - fence.median) / (fence.high - fence.low)};
}

std::optional<Reason> rare(const Task& task, const SharedFinding& finding, std::size_t tasks) {
  const bool is_grave = finding.severity == "warning" || finding.severity == "critical";
  const bool is_ending = (finding.id == "mem_oom" || finding.id == "time_out") && task.failed();
  if (!is_grave || is_ending || tasks < kLeastForQuartiles ||
      finding.tasks > std::max<std::size_t>(1, tasks / 10) || !has_finding(*task.event, finding.id))
    return std::nullopt;
  return Reason{.kind = finding.id,
                .text = finding.id + " (" + std::to_string(finding.tasks) + " of " +
                        count_of(tasks, "task") + ")"};
}

std::map<Figure, Fence> fences_of(const std::vector<Task>& tasks) {
  std::map<Figure, Fence> fences;
  for (const Figure figure : kFigures) {
    std::vector<double> values;
    for (const Task& task : tasks) {
      const auto value = task.failed() ? std::nullopt : figure_of(task, figure);
      if (value) values.push_back(*value);
    }
    if (const auto fence = fence_of(values, figure)) fences.emplace(figure, *fence);
  }
  return fences;
}

// A reason that few tasks share comes first, then what is farthest from the median.
std::vector<Outlier> outliers_of(const std::vector<Task>& tasks,
                                 const std::vector<SharedFinding>& findings) {
  const auto fences = fences_of(tasks);
  std::vector<std::pair<const Task*, std::vector<Reason>>> list;
  std::map<std::string, std::size_t> counts;
  for (const Task& task : tasks) {
    std::vector<Reason> reasons;
    const auto add = [&](std::optional<Reason> reason) {
      if (!reason) return;
      ++counts[reason->kind];
      reasons.push_back(*std::move(reason));
    };
    if (task.failed())
      add(Reason{.kind = task.ending == Ending::kKilledForMemory ? "memory" : task.state(),
                 .text = ending_text(task),
                 .distance = std::numeric_limits<double>::infinity()});
    for (const auto& [figure, fence] : fences) add(unusual(task, figure, fence));
    for (const SharedFinding& finding : findings) add(rare(task, finding, tasks.size()));
    if (!reasons.empty()) list.emplace_back(&task, std::move(reasons));
  }
  const auto place = [&](const std::vector<Reason>& reasons) {
    std::pair best{std::numeric_limits<std::size_t>::max(), 0.0};
    for (const Reason& reason : reasons)
      best = std::min(best, {counts.at(reason.kind), -reason.distance});
    return best;
  };
  std::stable_sort(list.begin(), list.end(),
                   [&](const auto& a, const auto& b) { return place(a.second) < place(b.second); });
  std::vector<Outlier> outliers;
  for (auto& [task, reasons] : list) {
    Outlier& outlier = outliers.emplace_back(Outlier{.task = task->run.job});
    for (Reason& reason : reasons) outlier.reasons.push_back(std::move(reason.text));
  }
  return outliers;
}

std::vector<SharedFinding> findings_of(const std::vector<Task>& tasks) {
  std::vector<SharedFinding> list;
  for (const Task& task : tasks) {
    std::set<std::string> ids;
    for (const Json& finding : list_at(*task.event, {kUsage, "findings"})) {
      const std::string id = text_at(finding, {"id"}, 64);
      if (id.empty() || !ids.insert(id).second) continue;
      auto known = std::find_if(list.begin(), list.end(),
                                [&](const SharedFinding& f) { return f.id == id; });
      if (known == list.end())
        known = list.insert(
            known,
            {.id = id, .severity = text_at(finding, {"severity"}, 16), .example = task.run.job});
      ++known->tasks;
    }
  }
  std::stable_sort(list.begin(), list.end(), [](const SharedFinding& a, const SharedFinding& b) {
    return a.tasks > b.tasks;
  });
  return list;
}

// ---- what to ask for next time

double ask_of(const Task& task, Figure figure) {
  return figure == Figure::kTime ? task.time_to_ask : task.memory_to_ask;
}

// What is enough for all tasks but for a few that need far more than those that came to their end.
struct Fit {
  double enough = 0;
  std::set<const Task*> left_out;
};

Fit fit_of(const std::vector<Task>& tasks, Figure figure) {
  std::vector<double> asks;
  for (const Task& task : tasks) {
    if (task.run.came_to_its_end() && ask_of(task, figure) > 0)
      asks.push_back(ask_of(task, figure));
  }
  Fit fit;
  if (const auto fence = fence_of(asks, figure)) {
    for (const Task& task : tasks) {
      if (ask_of(task, figure) > fence->high) fit.left_out.insert(&task);
    }
  }
  const std::size_t most =
      std::clamp<std::size_t>(tasks.size() / kTasksForAnException, 1, kMostExceptions);
  if (fit.left_out.size() > most) fit.left_out.clear();
  for (const Task& task : tasks) {
    if (!fit.left_out.contains(&task)) fit.enough = std::max(fit.enough, ask_of(task, figure));
  }
  return fit;
}

bool any_came_to_its_end(const std::vector<Task>& tasks) {
  return std::any_of(tasks.begin(), tasks.end(),
                     [](const Task& task) { return task.run.came_to_its_end(); });
}

// Without a task that came to its end, only what the events suggest, which is not less than the
// tasks had.
std::optional<std::uint64_t> memory_of(const std::vector<Task>& tasks, const Fit& fit) {
  std::uint64_t own = 0;
  for (const Task& task : tasks) own = std::max(own, task.run.suggested.memory_bytes.value_or(0));
  const auto enough = static_cast<std::uint64_t>(fit.enough);
  if (any_came_to_its_end(tasks)) return enough > 0 ? std::optional(enough) : std::nullopt;
  return own > 0 ? std::optional(std::max(own, enough)) : std::nullopt;
}

// More if a task ran into its limit; less if even the longest that came to its end had far too
// much.
std::optional<double> time_of(const std::vector<Task>& tasks, const Fit& fit) {
  double asked = 0;
  const Task* longest = nullptr;
  bool too_little = false;
  for (const Task& task : tasks) {
    asked = std::max(asked, task.run.time_limit_seconds.value_or(0));
    if (fit.left_out.contains(&task)) continue;
    too_little = too_little || task.ending == Ending::kTimedOut;
    if (task.run.came_to_its_end() &&
        (longest == nullptr || task.run.elapsed_seconds > longest->run.elapsed_seconds))
      longest = &task;
  }
  if (too_little) return fit.enough > asked ? std::optional(fit.enough) : std::nullopt;
  const bool too_much = longest != nullptr && longest->run.suggested.time_limit_seconds;
  return too_much && fit.enough < asked ? std::optional(fit.enough) : std::nullopt;
}

// One CPU if most tasks need no more and none used more; fewer GPUs if no task that came to its end
// used them.
void add_cpus_and_gpus(const std::vector<Task>& tasks, JobRequest& request) {
  std::size_t ends = 0;
  std::size_t want_cpus = 0;
  std::size_t want_gpus = 0;
  for (const Task& task : tasks) {
    if (!task.run.came_to_its_end()) continue;
    ++ends;
    const JobRequest& own = task.run.suggested;
    if (own.cpus) request.cpus = std::max(request.cpus.value_or(0), *own.cpus);
    if (own.gpus) request.gpus = std::max(request.gpus.value_or(0), *own.gpus);
    want_cpus += own.cpus ? 1 : 0;
    want_gpus += own.gpus ? 1 : 0;
  }
  const bool parallel = std::any_of(tasks.begin(), tasks.end(),
                                    [](const Task& task) { return task.run.used_several_cpus(); });
  if (parallel || 2 * want_cpus <= ends) request.cpus.reset();
  if (want_gpus < ends) request.gpus.reset();
}

std::string condition_of(const std::vector<Task>& tasks, const Fit& memory,
                         std::size_t not_measured) {
  const bool any_end = any_came_to_its_end(tasks);
  std::map<std::string, std::size_t> own;
  std::size_t failed = 0;
  for (const Task& task : tasks) {
    if (task.run.came_to_its_end() || !any_end) ++own[task.run.condition];
    if (task.failed() && !memory.left_out.contains(&task)) ++failed;
  }
  own.erase("");
  std::string condition;
  const auto add = [&](const std::string& text) {
    condition += (condition.empty() ? "" : ", and if ") + text;
  };
  const auto most = std::max_element(
      own.begin(), own.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != own.end()) add(most->first);
  const auto add_tasks = [&](std::size_t count, const char* what) {
    if (count == 1) add(std::string("the task that ") + what + " needs no more");
    if (count > 1) add("the " + std::to_string(count) + " tasks that " + what + " need no more");
  };
  if (any_end) add_tasks(failed, "did not complete");
  add_tasks(not_measured, "had no measured memory");
  return condition;
}

Json exceptions_of(const std::map<const Task*, JobRequest>& more, const std::string& word) {
  Json list = Json::array();
  for (const auto& [task, request] : more) {
    Json one{{"task", task->run.job}};
    one.update(suggestion_json(request, word, task->run.nodes, ""));
    list.push_back(std::move(one));
  }
  return list;
}

Json suggestion_of(const std::vector<Task>& tasks) {
  const Fit memory = fit_of(tasks, Figure::kMemory);
  const Fit time = fit_of(tasks, Figure::kTime);
  JobRequest request{.memory_bytes = memory_of(tasks, memory),
                     .time_limit_seconds = time_of(tasks, time)};
  add_cpus_and_gpus(tasks, request);
  std::map<const Task*, JobRequest> more;  // in the order of the tasks
  for (const Task* task : memory.left_out)
    more[task].memory_bytes = static_cast<std::uint64_t>(task->memory_to_ask);
  for (const Task* task : time.left_out) {
    if (request.time_limit_seconds || task->ending == Ending::kTimedOut)
      more[task].time_limit_seconds = task->time_to_ask;
  }
  if (request.empty() && more.empty()) return nullptr;
  std::string word;
  double nodes = 1;
  std::size_t not_measured = 0;
  for (const Task& task : tasks) {
    if (word.empty()) word = task.run.directive_word;
    nodes = std::max(nodes, task.run.nodes.value_or(1));
    not_measured += task.memory_to_ask > 0 && task.is_whole ? 0 : 1;
  }
  const std::string condition =
      request.memory_bytes ? condition_of(tasks, memory, not_measured) : std::string{};
  Json suggest = suggestion_json(request, word, nodes, condition);
  if (suggest.is_null()) suggest = Json::object();
  suggest["tasks"] = tasks.size() - not_measured - memory.left_out.size();
  suggest["not_measured"] = not_measured;
  suggest["exceptions"] = exceptions_of(more, word);
  return suggest;
}

// ---- shown

// A bin as a column of a bar chart, from its top.
char bar_at(std::size_t row, std::size_t count, std::size_t most) {
  const auto height = static_cast<std::size_t>(
      std::lround(static_cast<double>(kBarHeight * count) / static_cast<double>(most)));
  if (row >= kBarHeight - height) return '#';
  return row == kBarHeight - 1 && count > 0 ? '.' : ' ';
}

std::string bars(const Spread& spread, std::size_t row) {
  if (figure_text(spread.figure, spread.least) == figure_text(spread.figure, spread.most))
    return row == kBarHeight - 1 && spread.tasks > 1 ? "all equal" : "";
  const std::size_t most = *std::max_element(spread.bins.begin(), spread.bins.end());
  std::string text;
  for (const std::size_t count : spread.bins) text += bar_at(row, count, most);
  return text;
}

std::string spread_text(const ArrayReport& report, const Console& console) {
  if (report.spreads.empty()) return {};
  std::vector<std::vector<std::string>> rows(4 + kBarHeight);
  std::vector<std::string> head{""};
  constexpr std::array kHeads{"TIME", "MEMORY", "CPU", "GPU"};
  constexpr std::array kRows{"least", "median", "most", "tasks"};
  for (std::size_t row = 0; row < rows.size(); ++row)
    rows[row].emplace_back(row < kRows.size()       ? kRows.at(row)
                           : row + 1 == rows.size() ? "least to most"
                                                    : "");
  bool is_of_all = true;
  for (const Spread& one : report.spreads) {
    head.push_back(kHeads.at(static_cast<std::size_t>(one.figure)));
    is_of_all = is_of_all && one.tasks == report.tasks;
    const std::array cells{figure_text(one.figure, one.least), figure_text(one.figure, one.median),
                           figure_text(one.figure, one.most), std::to_string(one.tasks)};
    for (std::size_t row = 0; row < rows.size(); ++row)
      rows[row].push_back(row < cells.size() ? cells.at(row) : bars(one, row - cells.size()));
  }
  TextTable table(std::move(head));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const bool is_blank = std::all_of(rows[row].begin(), rows[row].end(),
                                      [](const std::string& cell) { return cell.empty(); });
    if (!is_blank && (row != 3 || !is_of_all)) table.add(std::move(rows[row]));
  }
  return "\n" + table.text(console);
}

std::string outliers_text(const ArrayReport& report, const Console& console) {
  if (report.outliers.empty()) return {};
  std::string result = "\n" + console.bold("Tasks unlike the others") + "\n";
  std::size_t width = 0;
  const std::size_t shown = std::min(report.outliers.size(), kOutliersShown);
  for (std::size_t i = 0; i < shown; ++i)
    width = std::max(width, report.outliers[i].task.size() + 2);
  for (std::size_t i = 0; i < shown; ++i) {
    const Outlier& outlier = report.outliers[i];
    std::string reasons;
    for (const std::string& reason : outlier.reasons)
      reasons += (reasons.empty() ? "" : "; ") + reason;
    result += "  " + padded(outlier.task, width) + wrapped(reasons, width + 2) + "\n";
  }
  if (report.outliers.size() > shown)
    result += "  and " + std::to_string(report.outliers.size() - shown) + " more\n";
  return result;
}

std::string findings_text(const ArrayReport& report, const Console& console) {
  if (report.findings.empty()) return {};
  TextTable table({"FINDING", "SEVERITY", "TASKS", "EXAMPLE"}, {2});
  const std::size_t shown = std::min(report.findings.size(), kFindingsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const SharedFinding& finding = report.findings[i];
    table.add({finding.id, coloured(finding.severity, finding.severity, console),
               std::to_string(finding.tasks), finding.example});
  }
  if (report.findings.size() > shown)
    table.note("and " + std::to_string(report.findings.size() - shown) + " more");
  return "\n" + table.text(console);
}

// "4711_17 (--mem=9G)".
std::string exception_text(const Json& exception) {
  std::string options;
  for (const Json& directive : list_at(exception, {"directives"})) {
    const auto line = directive.get<std::string>();
    options += (options.empty() ? "" : " ") + line.substr(line.find(' ') + 1);
  }
  return text_at(exception, {"task"}) + (options.empty() ? "" : " (" + options + ")");
}

std::string next_time_text(const ArrayReport& report, const Console& console) {
  const auto based_on = number_at(report.suggest, {"tasks"});
  if (!based_on) return {};
  const std::string all = count_of(report.tasks, "task");
  const auto tasks = static_cast<std::size_t>(*based_on);
  std::string result = suggestion_text(
      report.suggest, tasks == report.tasks ? all : std::to_string(tasks) + " of " + all, console);
  std::string names;
  for (const Json& exception : list_at(report.suggest, {"exceptions"}))
    names += (names.empty() ? "" : ", ") + exception_text(exception);
  if (names.empty()) return result;
  const std::string head = result.empty() ? "Next time, more for " : "But more for ";
  return (result.empty() ? "\n" : result) + wrapped(head + names, 2) + "\n";
}

}  // namespace

bool is_array(const std::vector<JobReport>& jobs) {
  std::set<std::string> tasks;
  for (const JobReport& job : jobs) {
    if (job.event != nullptr && !task_id(*job.event).empty()) tasks.insert(task_id(*job.event));
  }
  return tasks.size() > 1;
}

ArrayReport array_report(const std::vector<JobReport>& jobs) {
  const Json* newest = newest_task(jobs);
  if (newest == nullptr) return {};
  const std::vector<Task> tasks = tasks_of(jobs);
  ArrayReport report{.id = text_at(*newest, {"job", "array", "job_id"}),
                     .name = text_at(*newest, {"job", "name"}),
                     .owner = owner_text(*newest),
                     .tasks = tasks.size()};
  std::map<std::string, std::size_t> states;
  std::set<std::string> others;
  for (const Task& task : tasks) {
    ++states[task.state()];
    report.ran_again += task.lives > 1 ? 1 : 0;
    const std::string began = text_at(*task.event, {kUsage, "started_at"});
    if (!began.empty() && (report.began.empty() || began < report.began)) report.began = began;
    report.ended = std::max(report.ended, text_at(*task.event, {kUsage, "ended_at"}));
  }
  for (const JobReport& job : jobs) {
    if (job.event != nullptr && !is_same_array(*job.event, *newest))
      others.insert(run_figures(*job.event).job);
  }
  report.other_jobs = others.size();
  report.states.assign(states.begin(), states.end());
  std::stable_sort(report.states.begin(), report.states.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const Figure figure : kFigures) {
    if (const auto spread = spread_of(tasks, figure)) report.spreads.push_back(*spread);
  }
  report.findings = findings_of(tasks);
  report.outliers = outliers_of(tasks, report.findings);
  report.suggest = suggestion_of(tasks);
  return report;
}

std::string array_text(const ArrayReport& report, const Console& console) {
  std::string text = console.bold("array " + report.id) +
                     (report.name.empty() ? "" : "  " + report.name) + "  " +
                     count_of(report.tasks, "task") + "\n";
  std::string states;
  for (const auto& [state, count] : report.states)
    states += (states.empty() ? "" : ", ") + std::to_string(count) + " " +
              (state.empty() ? "with an unknown end" : state);
  if (report.ran_again > 0)
    states += "; " + std::to_string(report.ran_again) + " ran more than once";
  text += fact_line("owner", report.owner) + fact_line("tasks", wrapped(states, 13));
  if (!report.began.empty() && !report.ended.empty())
    text += fact_line("ran", time_text(report.began) + " to " + time_text(report.ended));
  text += spread_text(report, console) + outliers_text(report, console) +
          findings_text(report, console) + next_time_text(report, console);
  if (report.other_jobs > 0)
    text += "\n" + count_of(report.other_jobs, "other job") + " had this number; --json has all.\n";
  const std::string example = !report.outliers.empty()   ? report.outliers.front().task
                              : !report.findings.empty() ? report.findings.front().example
                                                         : report.id + "_TASK";
  return text + "\nscriptorium report " + example + " shows one task, and explains its findings.\n";
}

Json array_json(const ArrayReport& report) {
  Json json{{"id", report.id},
            {"name", report.name},
            {"owner", report.owner},
            {"started_at", report.began},
            {"ended_at", report.ended},
            {"tasks", report.tasks},
            {"ran_again", report.ran_again},
            {"states", Json::object()},
            {"figures", Json::array()},
            {"outliers", Json::array()},
            {"findings", Json::array()}};
  for (const auto& [state, count] : report.states)
    json["states"][state.empty() ? "UNKNOWN" : state] = count;
  for (const Spread& one : report.spreads)
    json["figures"].push_back({{"figure", figure_name(one.figure)},
                               {"tasks", one.tasks},
                               {"least", one.least},
                               {"median", one.median},
                               {"most", one.most},
                               {"histogram", one.bins}});
  for (const Outlier& one : report.outliers)
    json["outliers"].push_back({{"task", one.task}, {"reasons", one.reasons}});
  for (const SharedFinding& one : report.findings)
    json["findings"].push_back({{"id", one.id},
                                {"severity", one.severity},
                                {"tasks", one.tasks},
                                {"example", one.example}});
  if (!report.suggest.is_null()) json["suggest"] = report.suggest;
  return json;
}

}  // namespace scriptorium::cli
