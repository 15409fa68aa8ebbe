#include "core/query/array_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/api/kit/job_request.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/time.h"
#include "core/query/unchecked_json.h"
#include "core/query/usage.h"
#include "core/query/usage_tables.h"

namespace scriptorium::query {
namespace {

using Json = nlohmann::ordered_json;
using Spread = ArrayReport::Spread;
using Outlier = ArrayReport::Outlier;
using SharedFinding = ArrayReport::SharedFinding;

constexpr double kMiB = 1048576;
constexpr std::array kFigures{Figure::kTime, Figure::kMemory, Figure::kCpu, Figure::kGpu};

// A suggestion leaves out no more tasks than a user can be expected to submit on their own.
constexpr std::size_t kMostExceptions = 10;
constexpr std::size_t kTasksForAnException = 10;

enum class TaskEnding { kUnknown, kCompleted, kFailed, kTimedOut, kKilledForMemory };

// A task as it ran last.
struct TaskFacts {
  const TaskLife* last = nullptr;
  TaskEnding ending = TaskEnding::kUnknown;
  std::size_t lives = 1;
  // For the most that any of its lives needed; 0: not known.
  double memory_to_ask = 0, time_to_ask = 0;

  const RunFigures& run() const noexcept { return last->run; }
  bool failed() const noexcept {
    return ending != TaskEnding::kUnknown && ending != TaskEnding::kCompleted;
  }
};

bool has_finding(const TaskLife& life, std::string_view id) {
  return std::any_of(life.findings.begin(), life.findings.end(),
                     [&](const auto& finding) { return finding.first == id; });
}

TaskEnding task_ending(const TaskLife& life) {
  if (life.state == "OUT_OF_MEMORY" || has_finding(life, "mem_oom"))
    return TaskEnding::kKilledForMemory;
  if (life.state == "TIMEOUT") return TaskEnding::kTimedOut;
  if (life.state.empty()) return TaskEnding::kUnknown;
  return life.run.completed ? TaskEnding::kCompleted : TaskEnding::kFailed;
}

// An earlier life may have needed more; one that was killed for memory counts until one completed.
void add_need(TaskFacts& task, const TaskLife& life) {
  if (const double peak = life.run.peak_node_bytes.value_or(0); peak > 0)
    task.memory_to_ask = std::max(task.memory_to_ask, static_cast<double>(memory_to_ask_for(peak)));
  if (task_ending(life) == TaskEnding::kKilledForMemory && task.ending != TaskEnding::kCompleted)
    task.memory_to_ask = std::max(task.memory_to_ask,
                                  static_cast<double>(life.run.suggested.memory_bytes.value_or(0)));
  if (life.run.elapsed_seconds)
    task.time_to_ask = std::max(task.time_to_ask, time_to_ask_for(*life.run.elapsed_seconds));
}

// Numbers of jobs begin at 1 again one day.
bool is_same_array(const TaskLife& a, const TaskLife& b) {
  const auto differ = [](const std::string& one, const std::string& other) {
    return !one.empty() && !other.empty() && one != other;
  };
  return !a.task.empty() && !differ(a.array, b.array) && !differ(a.cluster, b.cluster) &&
         !differ(a.user, b.user) && !differ(a.uid, b.uid);
}

// The last life of each task first, and each life once: several events may describe one.
std::vector<TaskLife> in_order(std::vector<TaskLife> lives) {
  std::stable_sort(lives.begin(), lives.end(), [](const TaskLife& a, const TaskLife& b) {
    return a.run.started_at > b.run.started_at;
  });
  std::set<std::pair<std::string, std::string>> seen;
  std::erase_if(lives, [&](const TaskLife& life) {
    return life.run.started_at && !seen.emplace(life.user + ' ' + life.run.job, life.began).second;
  });
  return lives;
}

std::vector<TaskFacts> facts_of(const std::vector<TaskLife>& lives, const TaskLife& newest) {
  std::map<std::string, TaskFacts> tasks;
  for (const TaskLife& life : lives) {
    if (!is_same_array(life, newest)) continue;
    const auto [task, is_last] =
        tasks.try_emplace(life.task, TaskFacts{.last = &life, .ending = task_ending(life)});
    if (!is_last) ++task->second.lives;
    add_need(task->second, life);
  }
  std::vector<TaskFacts> list;
  for (const auto& [id, task] : tasks) list.push_back(task);
  std::stable_sort(list.begin(), list.end(), [](const TaskFacts& a, const TaskFacts& b) {
    const auto number = [](const TaskFacts& task) {
      return parse_number<std::uint64_t>(task.last->task)
          .value_or(std::numeric_limits<std::uint64_t>::max());
    };
    return number(a) < number(b);
  });
  return list;
}

Task task_of(const TaskLife& life) {
  const auto whole = [](const std::optional<double>& number) {
    return number ? std::optional(static_cast<std::uint64_t>(*number)) : std::nullopt;
  };
  Task task{.id = life.task.empty() ? "?" : life.task, .run = {}};
  JobRow& run = task.run;
  if (!life.state.empty()) run.state = life.state;
  std::string_view exit = life.exit_code;
  run.exit_code = parse_number<std::int64_t>(take_until(exit, ':'));
  if (run.exit_code) run.exit_signal = parse_number<std::int64_t>(exit);
  run.started_at = life.run.started_at;
  run.ended_at = parse_rfc3339(life.ended);
  run.elapsed_seconds = life.run.elapsed_seconds;
  run.cpus = whole(life.run.cpus);
  run.cpu_ratio = life.run.cpu_ratio;
  if (life.is_whole) run.memory_peak_bytes = whole(life.peak_bytes);
  run.memory_limit_bytes = whole(life.limit_bytes);
  return task;
}

// ---- the spread

// Of a task that was measured in part, memory is known to be at least so much.
std::optional<double> figure_of(const TaskFacts& task, Figure figure) {
  return figure == Figure::kTime || task.last->is_whole ? value_of(task.run(), figure)
                                                        : std::nullopt;
}

std::optional<Spread> spread_of(const std::vector<TaskFacts>& tasks, Figure figure) {
  std::vector<double> values;
  for (const TaskFacts& task : tasks) {
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

std::string ending_text(const TaskFacts& task) {
  if (task.ending == TaskEnding::kKilledForMemory) return "killed for memory";
  const std::string& exit = task.last->exit_code;
  return task.last->state + (exit.empty() || exit == "0:0" ? "" : " (exit " + exit + ")");
}

std::string figure_words(Figure figure, double value, double median) {
  constexpr std::array kVerbs{"ran ", "needed ", "used ", "used "};
  constexpr std::array kOf{"", " of memory", " of its CPUs", " of its GPUs"};
  const auto place = static_cast<std::size_t>(figure);
  return kVerbs.at(place) + figure_text(figure, value) + kOf.at(place) + " (median " +
         figure_text(figure, median) + ")";
}

std::optional<Reason> unusual(const TaskFacts& task, Figure figure, const Fence& fence) {
  const bool is_share = figure == Figure::kCpu || figure == Figure::kGpu;
  const auto value = figure_of(task, figure);
  if (!value || (is_share && !task.run().judged)) return std::nullopt;
  const bool is_low = *value < fence.low;
  // A task that failed has little of everything.
  if ((!is_low && *value <= fence.high) || (is_low && task.failed())) return std::nullopt;
  return Reason{.kind = std::string(figure_name(figure)) + (is_low ? "-" : "+"),
                .text = figure_words(figure, *value, fence.median),
                .distance = std::abs(*value - fence.median) / (fence.high - fence.low)};
}

std::optional<Reason> rare(const TaskFacts& task, const SharedFinding& finding, std::size_t tasks) {
  const bool is_grave = finding.severity == "warning" || finding.severity == "critical";
  const bool is_ending = (finding.id == "mem_oom" || finding.id == "time_out") && task.failed();
  if (!is_grave || is_ending || tasks < kLeastForQuartiles ||
      finding.tasks > std::max<std::size_t>(1, tasks / 10) || !has_finding(*task.last, finding.id))
    return std::nullopt;
  return Reason{.kind = finding.id,
                .text = finding.id + " (" + std::to_string(finding.tasks) + " of " +
                        std::to_string(tasks) + " tasks)"};
}

std::map<Figure, Fence> fences_of(const std::vector<TaskFacts>& tasks) {
  std::map<Figure, Fence> fences;
  for (const Figure figure : kFigures) {
    std::vector<double> values;
    for (const TaskFacts& task : tasks) {
      const auto value = task.failed() ? std::nullopt : figure_of(task, figure);
      if (value) values.push_back(*value);
    }
    if (const auto fence = fence_of(values, figure)) fences.emplace(figure, *fence);
  }
  return fences;
}

// A reason that few tasks share comes first, then what is farthest from the median.
std::vector<Outlier> outliers_of(const std::vector<TaskFacts>& tasks,
                                 const std::vector<SharedFinding>& findings) {
  const auto fences = fences_of(tasks);
  std::vector<std::pair<const TaskFacts*, std::vector<Reason>>> list;
  std::map<std::string, std::size_t> counts;
  for (const TaskFacts& task : tasks) {
    std::vector<Reason> reasons;
    const auto add = [&](std::optional<Reason> reason) {
      if (!reason) return;
      ++counts[reason->kind];
      reasons.push_back(*std::move(reason));
    };
    if (task.failed())
      add(Reason{.kind = task.ending == TaskEnding::kKilledForMemory ? "memory" : task.last->state,
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
    Outlier& outlier = outliers.emplace_back(Outlier{.task = task->run().job});
    for (Reason& reason : reasons) outlier.reasons.push_back(std::move(reason.text));
  }
  return outliers;
}

std::vector<SharedFinding> shared_findings(const std::vector<TaskFacts>& tasks) {
  std::vector<SharedFinding> list;
  for (const TaskFacts& task : tasks) {
    for (const auto& [id, severity] : task.last->findings) {
      auto known = std::find_if(list.begin(), list.end(),
                                [&](const SharedFinding& f) { return f.id == id; });
      if (known == list.end())
        known = list.insert(known, {.id = id, .severity = severity, .example = task.run().job});
      ++known->tasks;
    }
  }
  std::stable_sort(list.begin(), list.end(), [](const SharedFinding& a, const SharedFinding& b) {
    return a.tasks > b.tasks;
  });
  return list;
}

// ---- what to ask for next time

double ask_of(const TaskFacts& task, Figure figure) {
  return figure == Figure::kTime ? task.time_to_ask : task.memory_to_ask;
}

// What is enough for all tasks but for a few that need far more than those that came to their end.
struct Fit {
  double enough = 0;
  std::set<const TaskFacts*> left_out;
};

Fit fit_of(const std::vector<TaskFacts>& tasks, Figure figure) {
  std::vector<double> asks;
  for (const TaskFacts& task : tasks) {
    if (task.run().came_to_its_end() && ask_of(task, figure) > 0)
      asks.push_back(ask_of(task, figure));
  }
  Fit fit;
  if (const auto fence = fence_of(asks, figure)) {
    for (const TaskFacts& task : tasks) {
      if (ask_of(task, figure) > fence->high) fit.left_out.insert(&task);
    }
  }
  const std::size_t most =
      std::clamp<std::size_t>(tasks.size() / kTasksForAnException, 1, kMostExceptions);
  if (fit.left_out.size() > most) fit.left_out.clear();
  for (const TaskFacts& task : tasks) {
    if (!fit.left_out.contains(&task)) fit.enough = std::max(fit.enough, ask_of(task, figure));
  }
  return fit;
}

bool any_came_to_its_end(const std::vector<TaskFacts>& tasks) {
  return std::any_of(tasks.begin(), tasks.end(),
                     [](const TaskFacts& task) { return task.run().came_to_its_end(); });
}

// Without a task that came to its end, only what the events suggest, which is not less than the
// tasks had.
std::optional<std::uint64_t> memory_of(const std::vector<TaskFacts>& tasks, const Fit& fit) {
  std::uint64_t own = 0;
  for (const TaskFacts& task : tasks)
    own = std::max(own, task.run().suggested.memory_bytes.value_or(0));
  const auto enough = static_cast<std::uint64_t>(fit.enough);
  if (any_came_to_its_end(tasks)) return enough > 0 ? std::optional(enough) : std::nullopt;
  return own > 0 ? std::optional(std::max(own, enough)) : std::nullopt;
}

// More if a task ran into its limit; less if even the longest that came to its end had far too
// much.
std::optional<double> time_of(const std::vector<TaskFacts>& tasks, const Fit& fit) {
  double asked = 0;
  const TaskFacts* longest = nullptr;
  bool too_little = false;
  for (const TaskFacts& task : tasks) {
    asked = std::max(asked, task.run().time_limit_seconds.value_or(0));
    if (fit.left_out.contains(&task)) continue;
    too_little = too_little || task.ending == TaskEnding::kTimedOut;
    if (task.run().came_to_its_end() &&
        (longest == nullptr || task.run().elapsed_seconds > longest->run().elapsed_seconds))
      longest = &task;
  }
  if (too_little) return fit.enough > asked ? std::optional(fit.enough) : std::nullopt;
  const bool too_much = longest != nullptr && longest->run().suggested.time_limit_seconds;
  return too_much && fit.enough < asked ? std::optional(fit.enough) : std::nullopt;
}

// One CPU if most tasks need no more and none used more; fewer GPUs if no task that came to its end
// used them.
void add_cpus_and_gpus(const std::vector<TaskFacts>& tasks, JobRequest& request) {
  std::size_t ends = 0;
  std::size_t want_cpus = 0;
  std::size_t want_gpus = 0;
  for (const TaskFacts& task : tasks) {
    if (!task.run().came_to_its_end()) continue;
    ++ends;
    const JobRequest& own = task.run().suggested;
    if (own.cpus) request.cpus = std::max(request.cpus.value_or(0), *own.cpus);
    if (own.gpus) request.gpus = std::max(request.gpus.value_or(0), *own.gpus);
    want_cpus += own.cpus ? 1 : 0;
    want_gpus += own.gpus ? 1 : 0;
  }
  const bool parallel = std::any_of(tasks.begin(), tasks.end(), [](const TaskFacts& task) {
    return task.run().used_several_cpus();
  });
  if (parallel || 2 * want_cpus <= ends) request.cpus.reset();
  if (want_gpus < ends) request.gpus.reset();
}

std::string condition_of(const std::vector<TaskFacts>& tasks, const Fit& memory,
                         std::size_t not_measured) {
  const bool any_end = any_came_to_its_end(tasks);
  std::map<std::string, std::size_t> own;
  std::size_t failed = 0;
  for (const TaskFacts& task : tasks) {
    if (task.run().came_to_its_end() || !any_end) ++own[task.run().condition];
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

Json exceptions_of(const std::map<const TaskFacts*, JobRequest>& more, const std::string& word) {
  Json list = Json::array();
  for (const auto& [task, request] : more) {
    Json one{{"task", task->run().job}};
    one.update(suggestion_json(request, word, task->run().nodes, ""));
    list.push_back(std::move(one));
  }
  return list;
}

Json suggestion_of(const std::vector<TaskFacts>& tasks) {
  const Fit memory = fit_of(tasks, Figure::kMemory);
  const Fit time = fit_of(tasks, Figure::kTime);
  JobRequest request{.memory_bytes = memory_of(tasks, memory),
                     .time_limit_seconds = time_of(tasks, time)};
  add_cpus_and_gpus(tasks, request);
  std::map<const TaskFacts*, JobRequest> more;  // in the order of the tasks
  for (const TaskFacts* task : memory.left_out)
    more[task].memory_bytes = static_cast<std::uint64_t>(task->memory_to_ask);
  for (const TaskFacts* task : time.left_out) {
    if (request.time_limit_seconds || task->ending == TaskEnding::kTimedOut)
      more[task].time_limit_seconds = task->time_to_ask;
  }
  if (request.empty() && more.empty()) return nullptr;
  std::string word;
  double nodes = 1;
  std::size_t not_measured = 0;
  for (const TaskFacts& task : tasks) {
    if (word.empty()) word = task.run().directive_word;
    nodes = std::max(nodes, task.run().nodes.value_or(1));
    not_measured += task.memory_to_ask > 0 && task.last->is_whole ? 0 : 1;
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

}  // namespace

TaskLife task_life(const Json& usage_job) {
  const std::string quality = text_at(usage_job, {kUsage, "quality", "status"});
  TaskLife life{.run = run_figures(usage_job),
                .cluster = text_at(usage_job, {"cluster"}),
                .user = text_at(usage_job, {"user", "name"}),
                .uid = text_at(usage_job, {"user", "id"}),
                .array = text_at(usage_job, {"job", "array", "job_id"}),
                .task = text_at(usage_job, {"job", "array", "task_id"}),
                .name = text_at(usage_job, {"job", "name"}),
                .owner = owner_text(usage_job),
                .state = text_at(usage_job, {"job", "state"}, 32),
                .exit_code = text_at(usage_job, {"job", "exit_code"}, 16),
                .began = text_at(usage_job, {kUsage, "started_at"}),
                .ended = text_at(usage_job, {kUsage, "ended_at"}),
                .peak_bytes = measured_at(usage_job, {kUsage, "memory", "peak_bytes"}),
                .limit_bytes = measured_at(usage_job, {kUsage, "memory", "limit_bytes"}),
                .is_whole = quality != "partial" && quality != "none"};
  if (!life.limit_bytes)
    life.limit_bytes = measured_at(usage_job, {kUsage, "request", "memory_bytes"});
  for (const Json& finding : list_at(usage_job, {kUsage, "findings"})) {
    const std::string id = text_at(finding, {"id"}, 64);
    if (!id.empty() && !has_finding(life, id))
      life.findings.emplace_back(id, text_at(finding, {"severity"}, 16));
  }
  return life;
}

std::vector<TaskLife> task_lives(const Searchable::Record& record) {
  std::vector<TaskLife> lives;
  for (const auto& event : record.later) {
    if (event->job.array && event->kind == "usage.job")
      lives.push_back(task_life(usage_document(*event)));
  }
  return lives;
}

std::vector<Task> tasks_of(const std::vector<TaskLife>& lives) {
  std::vector<Task> tasks;
  std::transform(lives.begin(), lives.end(), std::back_inserter(tasks), &task_of);
  return tasks;
}

std::vector<TaskLife> task_lives(const std::vector<UsageEvents>& jobs) {
  std::vector<TaskLife> lives;
  for (const UsageEvents& job : jobs) {
    if (job.event != nullptr) lives.push_back(task_life(*job.event));
  }
  return lives;
}

bool is_array(const std::vector<TaskLife>& lives) {
  std::set<std::string> tasks;
  for (const TaskLife& life : lives) {
    if (!life.task.empty()) tasks.insert(life.task);
  }
  return tasks.size() > 1;
}

ArrayReport array_report(std::vector<TaskLife> unordered) {
  const std::vector<TaskLife> lives = in_order(std::move(unordered));
  const auto newest = std::find_if(lives.begin(), lives.end(),
                                   [](const TaskLife& life) { return !life.task.empty(); });
  if (newest == lives.end()) return {};
  const std::vector<TaskFacts> tasks = facts_of(lives, *newest);
  ArrayReport report{
      .id = newest->array, .name = newest->name, .owner = newest->owner, .tasks = tasks.size()};
  std::map<std::string, std::size_t> states;
  for (const TaskFacts& task : tasks) {
    ++states[task.last->state];
    report.ran_again += task.lives > 1 ? 1 : 0;
    const std::string& began = task.last->began;
    if (!began.empty() && (report.began.empty() || began < report.began)) report.began = began;
    report.ended = std::max(report.ended, task.last->ended);
  }
  std::set<std::string> others;
  for (const TaskLife& life : lives) {
    if (!is_same_array(life, *newest)) others.insert(life.run.job);
  }
  report.other_jobs = others.size();
  report.states.assign(states.begin(), states.end());
  std::stable_sort(report.states.begin(), report.states.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const Figure figure : kFigures) {
    if (const auto spread = spread_of(tasks, figure)) report.spreads.push_back(*spread);
  }
  report.findings = shared_findings(tasks);
  report.outliers = outliers_of(tasks, report.findings);
  report.suggest = suggestion_of(tasks);
  return report;
}

std::string exception_text(const Json& exception) {
  std::string options;
  for (const Json& directive : list_at(exception, {"directives"})) {
    const auto line = directive.get<std::string>();
    options += (options.empty() ? "" : " ") + line.substr(line.find(' ') + 1);
  }
  return text_at(exception, {"task"}) + (options.empty() ? "" : " (" + options + ")");
}

}  // namespace scriptorium::query
