#include "schedulers/usage/job_facts.h"

#include <algorithm>

#include "schedulers/usage/program_table.h"
#include "schedulers/usage/step_table.h"

namespace scriptorium::usage {
namespace {

template <typename T>
void add(std::optional<T>& sum, const std::optional<T>& more) {
  if (more) sum = sum.value_or(T{}) + *more;
}
template <typename T>
void keep_least(std::optional<T>& least, const std::optional<T>& other) {
  if (other) least = least ? std::min(*least, *other) : *other;
}

std::optional<double> ratio(const std::optional<double>& part,
                            const std::optional<double>& whole) noexcept {
  if (!part || !whole || *whole <= 0) return std::nullopt;
  return *part / *whole;
}
template <typename T>
std::optional<double> number(const std::optional<T>& value) noexcept {
  return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
}

void add_gpus(const std::vector<NodeUsage>& nodes, const Request& request, Totals& totals) {
  double busy = 0;
  double memory = 0;
  double energy = 0;
  std::uint32_t told_energy = 0;
  std::uint32_t told_busy = 0;
  std::uint32_t told_memory = 0;
  for (const NodeUsage& node : nodes) {
    for (const NodeGpu& gpu : node.gpus) {
      ++totals.gpus;
      if (gpu.energy_joules) {
        energy += *gpu.energy_joules;
        ++told_energy;
      }
      if (gpu.utilization.avg) {
        busy += *gpu.utilization.avg;
        ++told_busy;
      }
      if (const auto part = ratio(number(gpu.peak_memory_bytes), number(gpu.memory_limit_bytes))) {
        memory += *part;
        ++told_memory;
      }
    }
  }
  // A mean of some says nothing of the others.
  if (totals.gpus == 0 || totals.gpus < request.gpus.value_or(0)) return;
  // That of a whole GPU is not that of the part that the job had.
  if (told_energy == totals.gpus && !request.shared_gpu) totals.gpu_energy_joules = energy;
  if (told_busy == totals.gpus) totals.gpu_utilization_ratio = busy / told_busy;
  if (told_memory == totals.gpus) totals.gpu_memory_ratio = memory / told_memory;
}

// A sum says nothing if a node did not measure its part.
template <typename Get>
auto sum_of_all(const std::vector<NodeUsage>& nodes, Get get) {
  decltype(get(nodes.front())) sum;
  for (const NodeUsage& node : nodes) {
    const auto part = get(node);
    if (!part) return decltype(sum){};
    add(sum, part);
  }
  return sum;
}

}  // namespace

const char* to_string(QualityStatus status) noexcept {
  switch (status) {
    case QualityStatus::kOk: return "ok";
    case QualityStatus::kShort: return "short";
    case QualityStatus::kPartial: return "partial";
    case QualityStatus::kAccounting: return "accounting";
    case QualityStatus::kNone: return "none";
  }
  return "none";
}

std::optional<double> JobView::cpu_ratio() const noexcept {
  if (!totals.cpus || !all_nodes_measured()) return std::nullopt;
  return ratio(totals.cpu_seconds, totals.elapsed_seconds * *totals.cpus);
}
std::optional<double> JobView::memory_ratio() const noexcept {
  if (!all_nodes_measured()) return std::nullopt;
  return ratio(number(totals.peak_memory_bytes), number(totals.memory_bytes));
}
std::optional<double> JobView::system_ratio() const noexcept {
  if (!totals.system_seconds || !totals.user_seconds || !all_nodes_measured()) return std::nullopt;
  return ratio(totals.system_seconds, *totals.system_seconds + *totals.user_seconds);
}
std::optional<double> JobView::time_ratio() const noexcept {
  return ratio(totals.elapsed_seconds, facts.request.time_limit_seconds);
}
bool JobView::all_nodes_measured() const noexcept {
  return nodes_expected ? nodes_measured == nodes_expected : !accounting;
}
bool JobView::has_all_cpu_time() const noexcept {
  return !nodes.empty() &&
         std::all_of(nodes.begin(), nodes.end(), [](const NodeUsage& n) { return n.is_counted(); });
}
bool JobView::ended_by_oom() const noexcept {
  return facts.state == "OUT_OF_MEMORY" || totals.oom_kills.value_or(0) > 0;
}

JobView view_of(JobFacts facts, std::vector<NodeUsage> nodes) {
  JobView view;
  Totals& totals = view.totals;
  // Where it is not known how many nodes there were, those that reported are taken for all.
  const bool is_whole = !facts.request.nodes || *facts.request.nodes == nodes.size();
  double longest = 0;
  for (const NodeUsage& node : nodes) {
    longest = std::max(longest, node.elapsed_seconds);
    add(totals.peak_swap_bytes, node.memory.peak_swap_bytes);
    add(totals.oom_kills, node.memory.oom_kills);
    keep_least(view.samples, std::optional(node.quality.samples));
    keep_least(view.covered_ratio, node.quality.covered_ratio);
    keep_most(view.gap_seconds, node.quality.gap_seconds);
  }
  if (!nodes.empty()) {
    totals.read_bytes = sum_of_all(nodes, [](const NodeUsage& n) { return n.io.read_bytes; });
    totals.written_bytes = sum_of_all(nodes, [](const NodeUsage& n) { return n.io.written_bytes; });
    totals.cpu_seconds = sum_of_all(nodes, [](const NodeUsage& n) { return n.cpu.time_seconds; });
    totals.user_seconds = sum_of_all(nodes, [](const NodeUsage& n) { return n.cpu.user_seconds; });
    totals.system_seconds =
        sum_of_all(nodes, [](const NodeUsage& n) { return n.cpu.system_seconds; });
    totals.cpus = sum_of_all(nodes, [](const NodeUsage& n) { return n.cpu.allocated; });
    totals.peak_memory_bytes =
        sum_of_all(nodes, [](const NodeUsage& n) { return n.memory.peak_working_set_bytes; });
    totals.memory_bytes =
        sum_of_all(nodes, [](const NodeUsage& n) { return n.memory.limit_bytes; });
    const bool all_said = std::all_of(nodes.begin(), nodes.end(), [](const NodeUsage& n) {
      return n.cpu.idle_tail_seconds.has_value();
    });
    for (const NodeUsage& node : nodes) {
      // A node that did not say may have needed more than the others.
      if (totals.peak_memory_bytes)
        keep_most(totals.peak_node_bytes, node.memory.peak_working_set_bytes);
      if (all_said && is_whole) keep_least(totals.idle_tail_seconds, node.cpu.idle_tail_seconds);
    }
  }
  add_gpus(nodes, facts.request, totals);
  // Slurm counts whole seconds from before its prolog to after its epilog; the node's own clock is
  // nearer to the truth.
  totals.elapsed_seconds = longest > 0
                               ? std::max(longest - facts.suspended_seconds.value_or(0), 0.0)
                               : facts.elapsed_seconds.value_or(0);
  // What was allocated is what the scheduler says: where it binds nobody to CPUs, a job's cgroup
  // shows all of the node.
  if (is_whole && facts.request.cpus) totals.cpus = facts.request.cpus;
  if (is_whole && facts.request.memory_bytes) totals.memory_bytes = facts.request.memory_bytes;
  view.nodes_expected = facts.request.nodes;
  view.nodes_measured = static_cast<std::uint32_t>(nodes.size());
  view.programs = merge_programs(nodes, totals.cpu_seconds);
  view.steps = merge_steps(nodes);
  view.facts = std::move(facts);
  view.nodes = std::move(nodes);
  return view;
}

}  // namespace scriptorium::usage
