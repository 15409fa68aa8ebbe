#include "schedulers/usage/findings.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "schedulers/usage/finding_parts.h"
#include "schedulers/usage/finding_words.h"
#include "schedulers/usage/gpu_findings.h"

namespace scriptorium::usage {
namespace {

constexpr double kNothing = 0.001;  // of the CPUs: the scheduler's own processes in a job take less

// ---- words

std::string cpus_of(const JobView& job) { return std::to_string(job.totals.cpus.value_or(0)); }

// ---- what several rules ask

bool has_gpus(const JobView& job) {
  return job.totals.gpus > 0 || job.facts.request.gpus.value_or(0) > 0 ||
         job.facts.request.shared_gpu;
}

std::optional<double> node_cpu_ratio(const NodeUsage& node) {
  return efficiency(node.cpu, node.elapsed_seconds);
}

// ---- steps

constexpr std::size_t kMostStepsNamed = 4;

// "step 3", "steps 0, 3, 7 and 9", "steps 0, 1, 2, 3 and 12 more".
std::string steps_words(const std::vector<std::string>& steps) {
  const std::size_t named = std::min(steps.size(), kMostStepsNamed);
  std::string words = steps.size() == 1 ? "step " : "steps ";
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) words += i + 1 == steps.size() ? " and " : ", ";
    words += steps[i];
  }
  if (steps.size() > named) words += " and " + std::to_string(steps.size() - named) + " more";
  return words;
}

void name_step_with_idle_cpus(const JobView& job, Finding& found) {
  const auto part_of = [](const StepUse& step) -> std::optional<StepPart> {
    if (!step.cpu.efficiency_ratio || step.last_read == LastRead::kSample) return std::nullopt;
    return StepPart{*step.cpu.allocated, *step.cpu.efficiency_ratio};
  };
  name_idle_step(job, job.totals.cpus.value_or(0), job.cpu_ratio().value_or(0), "CPU", part_of,
                 found);
}

// How many of the threads ran of the program that used most of the CPU time.
std::string threads_words(const JobView& job) {
  constexpr double kMost = 0.5;
  const std::vector<ProgramUse>& programs = job.programs.programs;
  if (programs.empty() || programs[0].cpu_ratio.value_or(0) <= kMost || programs[0].threads < 2 ||
      !programs[0].busy_threads)
    return {};
  return " Of the " + std::to_string(programs[0].threads) + " threads of its main program, " +
         std::to_string(*programs[0].busy_threads) + " ran.";
}

// The worst node by a measure, if it is above the limit; all that are above it are named.
template <typename Measure, typename Compare = std::greater<>>
Found worst_node(const JobView& job, double limit, Measure measure, Compare is_above = {}) {
  Found found;
  for (const NodeUsage& node : job.nodes) {
    const std::optional<double> value = measure(node);
    if (!value || !is_above(*value, limit)) continue;
    if (!found) found = Finding{.threshold = limit, .scope = "node"};
    found->value = std::max(found->value, *value);
    found->hosts.push_back(node.job.node);
  }
  return found;
}

template <typename Value>
std::optional<double> per(const std::optional<Value>& part, double whole) {
  if (!part || whole <= 0) return std::nullopt;
  return static_cast<double>(*part) / whole;
}

// How a run ended decides what its figures are good for. COMPLETED: they are those of a whole run.
// Any other state: it was stopped, or failed, and what it needed until then is no ground to ask for
// less; this includes words of Slurm's that we do not know. No state: nobody said, so it depends.
enum class Run { kWhole, kCutShort, kUnknown };
Run run_of(const JobView& job) {
  if (!job.facts.state) return Run::kUnknown;
  return job.facts.state == "COMPLETED" ? Run::kWhole : Run::kCutShort;
}

std::optional<double> requested_node_bytes(const JobView& job) {
  const Request& had = job.facts.request;
  if (!had.memory_bytes || had.nodes.value_or(0) == 0 || job.nodes_differ) return std::nullopt;
  return static_cast<double>(*had.memory_bytes) / *had.nodes;
}

std::optional<std::uint64_t> memory_wish(const JobView& job) {
  // Where it is not known how many nodes there were, another may have needed more.
  const std::uint64_t most = job.totals.peak_node_bytes.value_or(0);
  if (most == 0 || !job.nodes_expected) return std::nullopt;
  const std::uint64_t wish = memory_to_ask_for(static_cast<double>(most));
  const std::optional<double> had = requested_node_bytes(job);
  if (run_of(job) == Run::kCutShort && (!had || static_cast<double>(wish) < *had))
    return std::nullopt;
  return wish;
}

void add_condition(std::string_view condition, Suggestion& into) {
  if (into.empty() || into.condition.find(condition) != std::string::npos) return;
  into.condition.append(into.condition.empty() ? "" : ", and if ").append(condition);
}

void add_conditions(const JobView& job, Suggestion& into) {
  constexpr double kAllOfTheTime = 0.95;  // but for its first and last readings
  const double seen = job.covered_ratio.value_or(1);
  if (into.request.memory_bytes && seen < kAllOfTheTime && job.all_nodes_measured())
    add_condition("no more was needed in the " + percent(1 - seen) + " of the time not measured",
                  into);
  if (run_of(job) != Run::kWhole) add_condition("the part that did not run needs no more", into);
}

void suggest_memory(const JobView& job, Suggestion& into) {
  into.request.memory_bytes = memory_wish(job);
}

void suggest_time(const JobView& job, Suggestion& into) {
  into.request.time_limit_seconds = time_to_ask_for(job.totals.elapsed_seconds);
}

// ---- the rules

// While nobody saw it, it may have used all of its CPUs.
double unseen_cpu_ratio(const JobView& job) {
  return job.has_all_cpu_time() ? 0 : 1 - job.covered_ratio.value_or(1);
}

Found cpu_low(const JobView& job, const FindingOptions& set) {
  const auto used = job.cpu_ratio();
  if (has_gpus(job) || !used) return std::nullopt;
  const auto level = below(*used + unseen_cpu_ratio(job), set.get("cpu_low_notice_ratio"),
                           set.get("cpu_low_warning_ratio"));
  if (!level) return std::nullopt;
  Finding found{.severity = level->severity,
                .value = *used,
                .threshold = level->threshold,
                .unit = "ratio",
                .text = "The job used " + percent(*used) + " of its " + cpus_of(job) +
                        " CPUs, and no other job could use the rest. Ask for fewer, or start as "
                        "many tasks and threads as there are CPUs." +
                        threads_words(job)};
  name_step_with_idle_cpus(job, found);
  return found;
}

Found cpu_unused_node(const JobView& job, const FindingOptions&) {
  Finding found{
      .severity = Severity::kCritical, .threshold = kNothing, .unit = "ratio", .scope = "node"};
  bool another_works = false;
  for (const NodeUsage& node : job.nodes) {
    const auto used = node_cpu_ratio(node);
    if (used && *used < kNothing) {
      found.hosts.push_back(node.job.node);
    } else if (used) {
      another_works = true;
    }
  }
  if (found.hosts.empty() || !another_works) return std::nullopt;
  found.text =
      std::to_string(found.hosts.size()) + " of " + std::to_string(job.nodes.size()) +
      " nodes did nothing, and no other job could use the CPUs there. Start the program with srun "
      "or mpirun, or ask for fewer nodes.";
  return found;
}

// The mean of a program that is parallel for a part of its time may be that of a serial one.
bool was_parallel(const JobView& job) {
  constexpr double kSurely = 1.5;  // CPUs busy at once
  return std::any_of(job.nodes.begin(), job.nodes.end(), [](const NodeUsage& n) {
    return n.cpu.utilization.max.value_or(0) * n.cpu.allocated.value_or(0) >= kSurely;
  });
}

Found cpu_serial(const JobView& job, const FindingOptions& set) {
  const auto used = job.cpu_ratio();
  const std::uint32_t cpus = job.totals.cpus.value_or(0);
  if (has_gpus(job) || !used || cpus < 2 || job.nodes_expected.value_or(1) != 1 ||
      job.nodes.size() > 1 || was_parallel(job))
    return std::nullopt;
  const double busy = *used * cpus;
  if (busy <= set.get("cpu_serial_least_cpus") ||
      busy + unseen_cpu_ratio(job) * cpus >= set.get("cpu_serial_most_cpus"))
    return std::nullopt;
  Suggestion one;
  if (job.nodes_expected) one.request.cpus = 1;
  if (job.nodes_expected && job.accounting)
    one.condition = "the program never uses more than one CPU at a time";
  Finding found{
      .severity = Severity::kWarning,
      .value = busy,
      .threshold = set.get("cpu_serial_most_cpus"),
      .unit = "count",
      .suggest = std::move(one),
      .text =
          format("On average %.2f CPUs were busy of %u: the program %s on one CPU at a time. More "
                 "CPUs do not make such a program faster, but its job waits longer in the queue. "
                 "Ask for one, or start several tasks or threads.",
                 busy, cpus, job.accounting ? "may run" : "runs") +
          threads_words(job)};
  name_step_with_idle_cpus(job, found);
  return found;
}

Found cpu_oversubscribed(const JobView& job, const FindingOptions& set) {
  const double limit = set.get("cpu_oversubscribed_ratio");
  Found found = worst_node(job, limit, [](const NodeUsage& n) {
    const auto waited = per(n.cpu.pressure_some_seconds, n.elapsed_seconds);
    return waited ? waited : per(n.cpu.throttled_seconds, n.elapsed_seconds);
  });
  if (!found) return std::nullopt;
  found->unit = "ratio";
  found->text = "For " + percent(found->value) +
                " of the time something in the job waited for a CPU, which slows down all of it. "
                "Start as many tasks and threads as there are CPUs, or ask for more CPUs." +
                threads_words(job);
  return found;
}

Found cpu_imbalance(const JobView& job, const FindingOptions& set) {
  double most = 0;
  double least = 1e9;
  std::string idlest;
  for (const NodeUsage& node : job.nodes) {
    const auto used = node_cpu_ratio(node);
    if (!used) return std::nullopt;
    most = std::max(most, *used);
    if (*used < least) {
      least = *used;
      idlest = node.job.node;
    }
  }
  if (job.nodes.size() < 2 || most <= set.get("cpu_imbalance_busy_ratio")) return std::nullopt;
  const double spread = (most - least) / most;
  if (spread <= set.get("cpu_imbalance_ratio")) return std::nullopt;
  return Finding{.value = spread,
                 .threshold = set.get("cpu_imbalance_ratio"),
                 .unit = "ratio",
                 .scope = "node",
                 .hosts = {idlest},
                 .text = "The busiest node used " + percent(most) + " of its CPUs, the idlest " +
                         percent(least) +
                         ". The job takes as long as its busiest node, and the others wait for it. "
                         "Spread the work evenly, or ask for fewer nodes."};
}

Found idle_tail(const JobView& job, const FindingOptions& set) {
  const auto idle = job.totals.idle_tail_seconds;
  const double limit = std::max(set.get("idle_tail_seconds"),
                                set.get("idle_tail_ratio") * job.totals.elapsed_seconds);
  if (!idle || *idle < limit) return std::nullopt;
  return Finding{.severity = Severity::kWarning,
                 .value = *idle,
                 .threshold = limit,
                 .unit = "seconds",
                 .text = "Nothing was computed in the last " + duration(*idle) +
                         ", and the job kept its CPUs for that time. Find out what the program "
                         "waits for at its end, and let the job end when its work is done."};
}

Found system_time(const JobView& job, const FindingOptions& set) {
  const auto part = job.system_ratio();
  if (!part || *part < set.get("system_time_ratio") ||
      *job.totals.system_seconds < set.get("system_time_seconds")) {
    return std::nullopt;
  }
  return Finding{
      .value = *part,
      .threshold = set.get("system_time_ratio"),
      .unit = "ratio",
      .text =
          percent(*part) +
          " of the CPU time went into the operating system and not into the program. Read and "
          "write in larger pieces, start fewer short processes, and no more threads than CPUs."};
}

Found mem_over(const JobView& job, const FindingOptions& set) {
  const auto used = job.memory_ratio();
  if (!used || job.ended_by_oom() || run_of(job) == Run::kCutShort) return std::nullopt;
  const auto level =
      below(*used, set.get("mem_over_notice_ratio"), set.get("mem_over_warning_ratio"));
  if (!level) return std::nullopt;
  const double request = static_cast<double>(*job.totals.memory_bytes);
  const std::uint32_t cpus = job.totals.cpus.value_or(0);
  // A job with no more than everybody gets by default asked for nothing.
  if (cpus != 0 && request <= set.get("mem_over_default_bytes_per_cpu") * cpus) return std::nullopt;
  // The memory of a node whose CPUs are taken is of use to nobody else.
  double node_cpus = 0;
  for (const NodeUsage& node : job.nodes) node_cpus += node.node_cpus.value_or(0);
  if (cpus != 0 && node_cpus > 0 && cpus >= set.get("mem_over_whole_node_ratio") * node_cpus)
    return std::nullopt;
  // Each node gets as much as the fullest one needs.
  const std::optional<double> had = requested_node_bytes(job);
  const double fullest = static_cast<double>(job.totals.peak_node_bytes.value_or(0));
  if (had && fullest >= set.get("mem_over_notice_ratio") * *had) return std::nullopt;
  Finding found{.severity = level->severity,
                .value = *used,
                .threshold = level->threshold,
                .unit = "ratio",
                .text = "At most " +
                        size_words(static_cast<double>(*job.totals.peak_memory_bytes)) + " of " +
                        size_words(request) + " of memory were needed (" + percent(*used) +
                        "). No other job could use the rest, and a job that asks for less starts "
                        "earlier. Ask for less."};
  suggest_memory(job, found.suggest);
  return found;
}

// What a node had where processes were killed, the most if there are several; 0: not known.
double memory_of_node(const JobView& job) {
  std::uint64_t most = 0;
  for (const NodeUsage& node : job.nodes) {
    if (node.memory.oom_kills.value_or(0) > 0)
      most = std::max(most, node.memory.limit_bytes.value_or(0));
  }
  return most > 0 ? static_cast<double>(most) : requested_node_bytes(job).value_or(0);
}

Found mem_oom(const JobView& job, const FindingOptions&) {
  if (!job.ended_by_oom()) return std::nullopt;
  Finding found{.severity = Severity::kCritical,
                .value = static_cast<double>(job.totals.oom_kills.value_or(1)),
                .unit = "count",
                .text = "The job needed more memory than it had, and processes were killed."};
  if (const double had = memory_of_node(job); had > 0) {
    // What it would have needed is not known, as it was stopped before.
    found.suggest.request.memory_bytes = static_cast<std::uint64_t>(had * 2);
    found.text = "The job needed more than the " + size_words(had) + " that it had" +
                 (job.facts.request.nodes.value_or(1) > 1 ? " on each node" : "") +
                 ", and processes were killed.";
  }
  for (const NodeUsage& node : job.nodes) {
    if (node.memory.oom_kills.value_or(0) > 0) found.hosts.push_back(node.job.node);
  }
  if (!found.hosts.empty()) found.scope = "node";
  for (const StepUse& step : job.steps.steps) {
    if (step.memory.oom_kills.value_or(0) > 0) found.steps.push_back(step.name);
  }
  if (!found.steps.empty()) found.text += " It happened in " + steps_words(found.steps) + ".";
  found.text += " Its results may be incomplete. Ask for more memory, or let it use less.";
  return found;
}

Found mem_near_limit(const JobView& job, const FindingOptions& set) {
  if (job.ended_by_oom()) return std::nullopt;
  Found found = worst_node(
      job, set.get("mem_near_limit_ratio"),
      [](const NodeUsage& n) -> std::optional<double> {
        if (n.memory.limit_bytes.value_or(0) == 0) return std::nullopt;
        return per(n.memory.peak_working_set_bytes, static_cast<double>(*n.memory.limit_bytes));
      },
      std::greater_equal<>{});
  if (!found) return std::nullopt;
  found->unit = "ratio";
  found->text = "The job came to " + percent(found->value) +
                " of its memory. A little more, and its processes would have been killed. Ask for "
                "more.";
  suggest_memory(job, found->suggest);
  return found;
}

Found mem_swap(const JobView& job, const FindingOptions& set) {
  const auto& swap = job.totals.peak_swap_bytes;
  if (!swap) return std::nullopt;
  const double limit = std::max(
      set.get("mem_swap_bytes"),
      set.get("mem_swap_ratio") * static_cast<double>(job.totals.memory_bytes.value_or(0)));
  if (static_cast<double>(*swap) < limit) return std::nullopt;
  return Finding{
      .value = static_cast<double>(*swap),
      .threshold = limit,
      .unit = "bytes",
      .text = "Up to " + size_words(static_cast<double>(*swap)) +
              " of the job's memory lay in swap, which is far slower than memory. Ask for "
              "more memory, or let the job use less."};
}

// mem_pressure and io_heavy: the part of the time in which everything in the job waited for
// it.
Found mem_pressure(const JobView& job, const FindingOptions& set) {
  Found found = worst_node(job, set.get("mem_pressure_ratio"), [](const NodeUsage& n) {
    return per(n.memory.pressure_full_seconds, n.elapsed_seconds);
  });
  if (!found) return std::nullopt;
  found->unit = "ratio";
  found->text =
      "For " + percent(found->value) +
      " of the time the whole job stood still for lack of memory, and ran that much longer. "
      "Ask for more memory, or let the job use less.";
  return found;
}

Found io_heavy(const JobView& job, const FindingOptions& set) {
  Found found = worst_node(job, set.get("io_heavy_ratio"), [](const NodeUsage& n) {
    return per(n.io.pressure_full_seconds, n.elapsed_seconds);
  });
  if (found) {
    found->unit = "ratio";
    found->text =
        "For " + percent(found->value) +
        " of the time the whole job waited for input and output while its CPUs were idle. "
        "Read and write in larger pieces, use fewer files, or work on a local disk.";
    return found;
  }
  const double most = set.get("io_heavy_bytes_per_second");
  if (most <= 0 || job.totals.elapsed_seconds <= 0) return std::nullopt;
  const double moved = static_cast<double>(job.totals.read_bytes.value_or(0) +
                                           job.totals.written_bytes.value_or(0)) /
                       job.totals.elapsed_seconds;
  if (moved < most) return std::nullopt;
  return Finding{.value = moved,
                 .threshold = most,
                 .unit = "bytes",
                 .text = "The job moved " + size_words(moved) +
                         " a second, which slows down others on the same file system. Read and "
                         "write less often, or work on a local disk."};
}

Found time_over(const JobView& job, const FindingOptions& set) {
  const auto used = job.time_ratio();
  if (job.facts.state != "COMPLETED" || !used ||
      job.totals.elapsed_seconds <= set.get("time_over_seconds"))
    return std::nullopt;
  const auto level =
      below(*used, set.get("time_over_notice_ratio"), set.get("time_over_warning_ratio"));
  if (!level) return std::nullopt;
  Finding found{.severity = level->severity,
                .value = *used,
                .threshold = level->threshold,
                .unit = "ratio",
                .text = "The job ran for " + duration(job.totals.elapsed_seconds) + " of the " +
                        duration(*job.facts.request.time_limit_seconds) +
                        " asked for. A job that asks for less starts earlier, in a gap before a "
                        "larger one. Ask for less."};
  suggest_time(job, found.suggest);
  return found;
}

Found time_out(const JobView& job, const FindingOptions&) {
  if (job.facts.state != "TIMEOUT") return std::nullopt;
  return Finding{
      .severity = Severity::kCritical,
      .value = job.totals.elapsed_seconds,
      .threshold = job.facts.request.time_limit_seconds,
      .unit = "seconds",
      .text =
          "The job was ended at its time limit, so its work may be incomplete. Ask for "
          "more time, or let it save its state and let the next job continue from there."};
}

Found short_job(const JobView& job, const FindingOptions& set) {
  if (job.totals.elapsed_seconds >= set.get("short_job_seconds")) return std::nullopt;
  return Finding{.severity = Severity::kInfo,
                 .value = job.totals.elapsed_seconds,
                 .threshold = set.get("short_job_seconds"),
                 .unit = "seconds",
                 .text = "The job ran for " + duration(job.totals.elapsed_seconds) +
                         (run_of(job) == Run::kCutShort
                              ? " and did not come to its end."
                              : ". Starting a job takes the scheduler and the nodes some seconds "
                                "too. If you have many of these, let one job do several one after "
                                "the other.")};
}

Found fragmented(const JobView& job, const FindingOptions& set) {
  if (job.nodes.size() < 2 || has_gpus(job)) return std::nullopt;
  double most = 0;
  for (const NodeUsage& node : job.nodes) {
    const auto cpus = per(node.cpu.allocated, node.node_cpus.value_or(0));
    const auto memory = per(node.memory.peak_working_set_bytes,
                            static_cast<double>(node.node_memory_bytes.value_or(0)));
    if (!cpus || !memory || *cpus >= set.get("fragmented_cpu_ratio") ||
        *memory >= set.get("fragmented_mem_ratio")) {
      return std::nullopt;
    }
    most = std::max(most, *cpus);
  }
  return Finding{
      .value = most,
      .threshold = set.get("fragmented_cpu_ratio"),
      .unit = "ratio",
      .text = "The job took a part of each of " + std::to_string(job.nodes.size()) +
              " nodes, where fewer nodes would have been enough. Communication between nodes is "
              "slower than within one. Ask for tasks and CPUs, and leave the number of nodes to "
              "the scheduler."};
}

// ---- the tables

// In the order of finding_rules().
constexpr std::array kRules = {
    cpu_low,     cpu_unused_node, cpu_serial,   cpu_oversubscribed, cpu_imbalance,  idle_tail,
    system_time, mem_over,        mem_oom,      mem_near_limit,     mem_swap,       mem_pressure,
    gpu_unused,  gpu_low,         gpu_idle_run, gpu_host_bound,     gpu_memory_low, gpu_throttled,
    time_over,   time_out,        io_heavy,     short_job,          fragmented};

}  // namespace

const char* to_string(Severity severity) noexcept {
  switch (severity) {
    case Severity::kInfo: return "info";
    case Severity::kNotice: return "notice";
    case Severity::kWarning: return "warning";
    case Severity::kCritical: return "critical";
  }
  return "info";
}

QualityStatus quality_of(const JobView& job, const FindingOptions& options) {
  if (!job.totals.cpu_seconds && !job.totals.peak_memory_bytes && job.totals.gpus == 0)
    return QualityStatus::kNone;
  if (job.totals.elapsed_seconds < options.get("min_elapsed_seconds")) return QualityStatus::kShort;
  if (!job.accounting && static_cast<double>(job.samples.value_or(0)) < options.get("min_samples"))
    return QualityStatus::kShort;
  if (job.covered_ratio && *job.covered_ratio < options.get("min_covered_ratio"))
    return QualityStatus::kPartial;
  if (!job.all_nodes_measured()) return QualityStatus::kPartial;
  return job.accounting ? QualityStatus::kAccounting : QualityStatus::kOk;
}

namespace {
bool may_judge(QualityStatus status) {
  return status == QualityStatus::kOk || status == QualityStatus::kAccounting;
}

// What is missing is nodes, and nothing but nodes.
bool some_nodes_are_known(const JobView& job, const FindingOptions& options) {
  const std::uint32_t measured = job.nodes_measured.value_or(0);
  if (!job.accounting || measured == 0 || measured >= job.nodes_expected.value_or(0) ||
      job.totals.elapsed_seconds < options.get("min_elapsed_seconds"))
    return false;
  return job.covered_ratio.value_or(0) * *job.nodes_expected / measured >=
         options.get("min_covered_ratio");
}
}  // namespace

std::vector<Finding> find_all(const JobView& job, const FindingOptions& options) {
  const bool judged = may_judge(quality_of(job, options));
  // The worst first; the rules' order within one severity.
  std::multimap<Severity, Finding, std::greater<>> findings;
  for (std::size_t i = 0; i < kRules.size(); ++i) {
    const FindingRuleInfo& rule = finding_rules().at(i);
    if (!options.on(rule.id) || (!judged && !rule.always)) continue;
    if (Found found = kRules.at(i)(job, options)) {
      found->id = rule.id;
      if (!job.ended_by_oom()) add_conditions(job, found->suggest);
      const Severity severity = found->severity;
      findings.emplace(severity, *std::move(found));
    }
  }
  std::vector<Finding> result;
  for (auto& [severity, finding] : findings) result.push_back(std::move(finding));
  return result;
}

Suggestion suggest(const JobView& job, const FindingOptions& options) {
  Suggestion all;
  for (const Finding& finding : find_all(job, options)) {
    const JobRequest& one = finding.suggest.request;
    if (one.memory_bytes && all.request.memory_bytes) continue;  // the worse finding has said it
    if (one.cpus) all.request.cpus = one.cpus;
    if (one.memory_bytes) all.request.memory_bytes = one.memory_bytes;
    if (one.time_limit_seconds) all.request.time_limit_seconds = one.time_limit_seconds;
    if (one.gpus) all.request.gpus = one.gpus;
    if (!finding.suggest.condition.empty()) add_condition(finding.suggest.condition, all);
  }
  if (all.request.memory_bytes || job.ended_by_oom()) return all;
  const bool judged = may_judge(quality_of(job, options));
  if (!judged && !some_nodes_are_known(job, options)) return all;
  suggest_memory(job, all);
  if (!all.request.memory_bytes) return all;
  if (!judged) {
    const std::uint32_t others = *job.nodes_expected - *job.nodes_measured;
    add_condition(others == 1 ? "the node that was not measured needed no more"
                              : "the " + std::to_string(others) +
                                    " nodes that were not measured needed no more",
                  all);
  }
  add_conditions(job, all);
  return all;
}

}  // namespace scriptorium::usage
