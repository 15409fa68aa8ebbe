#include "schedulers/usage/steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "schedulers/slurm_client/text.h"
#include "schedulers/usage/finding_words.h"

namespace scriptorium::usage {
namespace {

// Clocks of nodes, and times in whole seconds, make a figure exceed its bound by a little.
constexpr double kTolerance = 1.05;
constexpr double kWholeSeconds = 2;
constexpr double kSurelyComputed = 60;  // a job of so many seconds has used a millisecond
constexpr double kNegligibleCpu = 1;    // in less, a program fills a few GiB at most
// Of all steps together. A user may start as many as slurmctld takes; each place takes some 100 B.
constexpr std::uint64_t kMostPlaces = 1'000'000;

double length(Timestamp begin, Timestamp end) {
  return static_cast<double>(end.nanoseconds - begin.nanoseconds) / kSecond;
}

double cpu_of(const AccountedStep& step) {
  return std::max(step.cpu_seconds.value_or(0), step.sampled_cpu_seconds.value_or(0));
}

bool is_measured(const AccountedStep& step) {
  return step.largest_task_bytes || step.all_tasks_bytes || cpu_of(step) > 0;
}

// What it used does not matter for the job, so a figure of it may be missing.
bool is_negligible(const AccountedStep& step) {
  const double cpu = cpu_of(step);
  if (cpu > 0) return cpu < kNegligibleCpu;
  return step.is_extern || length(step.started_at, step.ended_at) < kSurelyComputed;
}

// Steps of another life or size of the job do not count for this one.
std::vector<AccountedStep> within(std::vector<AccountedStep> steps, const JobFacts& job) {
  std::erase_if(steps, [&](const AccountedStep& step) {
    return step.ended_at < *job.started_at || *job.ended_at < step.started_at;
  });
  for (AccountedStep& step : steps) {
    step.started_at = std::max(step.started_at, *job.started_at);
    step.ended_at = std::min(step.ended_at, *job.ended_at);
  }
  return steps;
}

// ---- what ran at the same time

struct Use {
  Timestamp begin, end;
  double amount = 0;
};

// The largest sum of what overlaps. Steps that follow each other share a second at most.
double most_at_once(std::span<const Use> uses) {
  std::vector<std::pair<Timestamp, double>> changes;
  double most = 0;
  for (const Use& use : uses) {
    most = std::max(most, use.amount);
    if (!(use.begin < use.end)) continue;
    changes.emplace_back(use.begin, use.amount);
    changes.emplace_back(use.end, -use.amount);
  }
  // At one time first what ends, which is negative.
  std::sort(changes.begin(), changes.end());
  double sum = 0;
  for (const auto& [time, change] : changes) {
    sum += change;
    most = std::max(most, sum);
  }
  return most;
}

double covered_seconds(std::vector<Use> uses) {
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.begin < b.begin; });
  double sum = 0;
  std::optional<Timestamp> until;
  for (const Use& use : uses) {
    const Timestamp from = until ? std::max(*until, use.begin) : use.begin;
    if (from < use.end) sum += length(from, use.end);
    until = until ? std::max(*until, use.end) : use.end;
  }
  return sum;
}

// ---- memory

struct StepMemory {
  double all = 0;      // of all nodes
  double fullest = 0;  // of the node that had most: at most this
};

StepMemory memory_of(const AccountedStep& step) {
  const auto largest = static_cast<double>(step.largest_task_bytes.value_or(0));
  StepMemory memory{.all = static_cast<double>(step.all_tasks_bytes.value_or(0))};
  if (!step.all_tasks_bytes) memory.all = largest * step.tasks.value_or(1);
  memory.all = std::max(memory.all, largest);
  // How the tasks lie on the nodes is not known without the largest one. Without their number they
  // are taken for as few as they can be, all as large.
  memory.fullest = memory.all;
  if (step.largest_task_bytes) {
    const double tasks = step.tasks ? *step.tasks : std::max(1.0, std::round(memory.all / largest));
    const double on_one_node = std::ceil(tasks / step.nodes);
    memory.fullest =
        std::max({memory.all / step.nodes, largest, std::min(memory.all, largest * on_one_node)});
  }
  return memory;
}

bool has_memory(const AccountedStep& step) {
  return step.all_tasks_bytes || (step.largest_task_bytes && step.tasks);
}

// ---- what each node had

struct Host {
  std::vector<Use> memory, fullest;
  std::vector<Use> measured, unseen;  // without amounts
};

using Lists = std::map<std::string_view, std::vector<std::string>>;

// By the steps' lists; nothing if one could not be read.
std::optional<Lists> read_lists(const std::vector<AccountedStep>& steps) {
  Lists lists;
  for (const AccountedStep& step : steps) {
    auto& hosts = lists[step.node_list];
    if (hosts.empty()) hosts = slurm_client::read_hosts(step.node_list);
    if (hosts.size() != step.nodes) return std::nullopt;
  }
  return lists;
}

// Where one step's list of nodes could not be read, all are taken to share as many as possible:
// then their memory adds up to most, and they cover least.
std::map<std::string, Host> hosts_of(const std::vector<AccountedStep>& steps) {
  const std::optional<Lists> lists = read_lists(steps);
  std::map<std::string, Host> hosts;
  for (const AccountedStep& step : steps) {
    const bool measured = is_measured(step);
    const StepMemory memory = memory_of(step);
    for (std::uint32_t i = 0; i < step.nodes; ++i) {
      Host& host = hosts[lists ? lists->at(step.node_list)[i] : std::to_string(i)];
      if (!step.is_extern)
        (measured ? host.measured : host.unseen).push_back({step.started_at, step.ended_at});
      if (!measured) continue;
      host.memory.push_back({step.started_at, step.ended_at, memory.all / step.nodes});
      host.fullest.push_back({step.started_at, step.ended_at, memory.fullest});
    }
  }
  return hosts;
}

// ---- the whole job

// With --ntasks alone, the last node often has fewer CPUs than the first. The script's row has
// those of the first.
bool do_nodes_differ(const std::vector<AccountedStep>& steps, const JobView& job) {
  const std::uint32_t nodes = job.nodes_expected.value_or(1);
  const std::uint32_t cpus = job.totals.cpus.value_or(0);
  if (nodes < 2 || cpus == 0) return false;
  for (const AccountedStep& step : steps) {
    if (step.is_batch && step.cpus) return std::uint64_t{*step.cpus} * nodes != cpus;
  }
  return cpus % nodes != 0;
}

void add_coverage(const std::map<std::string, Host>& hosts, JobView& job) {
  double seconds = 0;
  std::uint32_t nodes = 0;
  for (const auto& [name, host] : hosts) {
    if (host.measured.empty()) continue;
    ++nodes;
    // While a step ran of which nothing is known, what the others used is not all.
    std::vector<Use> all = host.unseen;
    all.insert(all.end(), host.measured.begin(), host.measured.end());
    seconds += covered_seconds(std::move(all)) - covered_seconds(host.unseen);
  }
  job.nodes_measured = nodes;
  if (job.nodes_expected && nodes > *job.nodes_expected) {
    job.not_credible.push_back({"request.nodes", static_cast<double>(*job.nodes_expected),
                                "Its steps ran on " + std::to_string(nodes) +
                                    " nodes and accounting has the job with " +
                                    std::to_string(*job.nodes_expected) +
                                    ": its size was changed, so it is not known what it had."});
  }
  const double all =
      job.nodes_expected.value_or(1) * length(*job.facts.started_at, *job.facts.ended_at);
  if (all > 0) job.covered_ratio = std::min(1.0, seconds / all);
}

void add_memory(const std::vector<AccountedStep>& steps, const std::map<std::string, Host>& hosts,
                JobView& job) {
  double sum = 0;
  double fullest = 0;  // one node had at most this much, and at least `surely`
  double surely = 0;
  for (const auto& [name, host] : hosts) {
    const double most = most_at_once(host.memory);
    sum += most;
    surely = std::max(surely, most);
    fullest = std::max(fullest, most_at_once(host.fullest));
  }
  for (const AccountedStep& step : steps)
    surely = std::max(surely, static_cast<double>(step.largest_task_bytes.value_or(0)));
  if (sum <= 0) return;
  double unread = 0;
  bool is_known = true;
  bool is_layout_known = true;
  for (const AccountedStep& step : steps) {
    if (!is_measured(step)) continue;
    if (step.nodes > 1 && !step.is_extern && job.nodes_differ) is_layout_known = false;
    if (has_memory(step) || is_negligible(step)) continue;
    is_known = false;
    unread += cpu_of(step);
  }
  if (!is_known) {
    job.not_credible.push_back(
        {"memory.peak_bytes", sum,
         "Accounting has no memory of steps that used " + duration(unread) +
             " of CPU time, as when they end before they are read: what the job needed is not "
             "known."});
    return;
  }
  Totals& totals = job.totals;
  const auto had = static_cast<double>(totals.memory_bytes.value_or(0));
  // A job that was killed for memory may have had more for a moment.
  if (had > 0 && sum > had * kTolerance && !job.ended_by_oom()) {
    job.not_credible.push_back(
        {"memory.peak_bytes", sum,
         "Accounting has " + size_words(sum) + " of memory for a job that had " + size_words(had) +
             ": memory that processes share was counted for each of them, or the limit is not "
             "enforced."});
    return;
  }
  if (had > 0) fullest = std::max(surely, std::min(fullest, had / job.nodes_expected.value_or(1)));
  totals.peak_memory_bytes = static_cast<std::uint64_t>(sum);
  if (is_layout_known) totals.peak_node_bytes = static_cast<std::uint64_t>(fullest);
}

void forget_split(Totals& totals) {
  totals.user_seconds.reset();
  totals.system_seconds.reset();
}

// Which of the fields has the CPU time differs by release and by how programs are started: TotalCPU
// lacks processes that nobody waited for, the readings lack the last seconds, and either was seen
// with sums that no job can have used. Taken is the largest that is possible.
void add_cpu(const std::vector<AccountedStep>& steps, JobView& job) {
  Totals& totals = job.totals;
  double most = 0;
  double sampled = 0;
  double silent = 0;  // the longest step that used memory and no CPU
  bool measured = false;
  for (const AccountedStep& step : steps) {
    if (!is_measured(step)) continue;
    measured = true;
    most += cpu_of(step);
    sampled += step.sampled_cpu_seconds.value_or(step.cpu_seconds.value_or(0));
    if (cpu_of(step) <= 0 && !is_negligible(step))
      silent = std::max(silent, length(step.started_at, step.ended_at));
  }
  const double own = totals.cpu_seconds.value_or(0);
  totals.cpu_seconds.reset();
  if (!measured && own <= 0) {  // no plugin gathers: nothing measured, not nothing used
    forget_split(totals);
    return;
  }
  const double possible =
      totals.cpus.value_or(0) * (totals.elapsed_seconds + kWholeSeconds) * kTolerance;
  const bool must_be_some = totals.elapsed_seconds >= kSurelyComputed;
  const auto is_possible = [&](double seconds) {
    return (!totals.cpus || seconds <= possible) && (seconds > 0 || !must_be_some);
  };
  std::array claims{most, sampled, own};
  std::sort(claims.begin(), claims.end(), std::greater<>());
  for (const double seconds : claims) {
    const bool lacks_a_step = silent > 0 && seconds <= most + kWholeSeconds;
    if (!is_possible(seconds) || lacks_a_step || (seconds <= 0 && !measured)) continue;
    totals.cpu_seconds = seconds;
    break;
  }
  const double split = totals.user_seconds.value_or(0) + totals.system_seconds.value_or(0);
  const double cpu = totals.cpu_seconds.value_or(0);
  if (!totals.cpu_seconds || std::abs(split - cpu) > cpu * (kTolerance - 1) + kWholeSeconds)
    forget_split(totals);
  const double claimed = totals.cpu_seconds ? own : std::max(most, own);
  if (totals.cpu_seconds && (claimed <= 0 || is_possible(claimed))) return;
  std::string text = "Accounting has ";
  if (claimed > 0 && !is_possible(claimed)) {
    text += duration(claimed) + " of CPU time for a job that ran for " +
            duration(totals.elapsed_seconds) + " on " + std::to_string(totals.cpus.value_or(0)) +
            " CPUs: more than they have.";
  } else {
    text += "no CPU time of a step that ran for " +
            duration(silent > 0 ? silent : totals.elapsed_seconds) + " and used memory.";
  }
  if (totals.cpu_seconds) text += " The sum of its steps is used.";
  job.not_credible.push_back({"cpu.time_seconds", claimed, std::move(text)});
}

void add_gpus(const std::vector<AccountedStep>& steps, JobView& job) {
  std::vector<Use> busy;
  std::vector<Use> memory;
  bool all_busy = true;  // have it
  bool all_memory = true;
  for (const AccountedStep& step : steps) {
    all_busy = all_busy && (step.gpu_percent || is_negligible(step));
    all_memory = all_memory && (step.gpu_bytes || is_negligible(step));
    if (step.gpu_percent) busy.push_back({step.started_at, step.ended_at, *step.gpu_percent / 100});
    if (step.gpu_bytes)
      memory.push_back({step.started_at, step.ended_at, static_cast<double>(*step.gpu_bytes)});
  }
  const std::uint32_t gpus = job.facts.request.gpus.value_or(0);
  if (gpus == 0 || job.facts.request.shared_gpu) return;
  const double held = most_at_once(memory);
  if (!memory.empty() && all_memory)
    job.totals.gpu_peak_memory_bytes = static_cast<std::uint64_t>(held);
  const double used = most_at_once(busy);
  if (!all_busy) return;
  if (used > 0 || (!busy.empty() && !memory.empty() && all_memory && held <= 0)) {
    job.totals.gpu_peak_utilization_ratio = std::min(1.0, used / gpus);
  } else if (!busy.empty() && held > 0) {
    job.not_credible.push_back(
        {"gpu.peak_utilization_ratio", 0,
         "Accounting has " + size_words(held) +
             " of GPU memory in use by GPUs that did nothing: it cannot read how busy a part of a "
             "GPU is (MIG)."});
  }
}

}  // namespace

void add_up_steps(const std::vector<AccountedStep>& all, JobView& job) {
  const std::vector<AccountedStep> steps = within(all, job.facts);
  add_cpu(steps, job);
  add_gpus(steps, job);
  job.nodes_differ = do_nodes_differ(steps, job);
  std::uint64_t places = 0;
  for (const AccountedStep& step : steps) places += step.nodes;
  if (places > kMostPlaces) {
    job.nodes_measured = 0;
    job.covered_ratio = 0;
    job.not_credible.push_back({"memory.peak_bytes", 0,
                                "Accounting has its steps on " + std::to_string(places) +
                                    " nodes in all: too many, so they are not added up."});
    return;
  }
  const auto hosts = hosts_of(steps);
  add_coverage(hosts, job);
  add_memory(steps, hosts, job);
}

}  // namespace scriptorium::usage
