#include "schedulers/usage/gpu_findings.h"

#include <algorithm>

#include "schedulers/usage/finding_words.h"

namespace scriptorium::usage {
namespace {

void name_step_with_idle_gpus(const JobView& job, double gpus, double used_ratio, Finding& found) {
  const auto part_of = [](const StepUse& step) -> std::optional<StepPart> {
    if (!step.gpu.utilization_ratio) return std::nullopt;
    return StepPart{step.gpu.count, *step.gpu.utilization_ratio};
  };
  name_idle_step(job, gpus, used_ratio, "GPU", part_of, found);
}

struct GpuOfNode {
  const NodeUsage* node;
  const NodeGpu* gpu;
};
std::vector<GpuOfNode> gpus_with_readings(const JobView& job, const FindingOptions& set) {
  std::vector<GpuOfNode> result;
  for (const NodeUsage& node : job.nodes) {
    for (const NodeGpu& gpu : node.gpus) {
      if (gpu.utilization.avg && static_cast<double>(gpu.samples) >= set.get("min_samples"))
        result.push_back({&node, &gpu});
    }
  }
  return result;
}
// Those of the job, also where a node saw fewer.
std::uint32_t all_gpus(const JobView& job) {
  return std::max(job.totals.gpus, job.facts.request.gpus.value_or(0));
}
bool unused(const NodeGpu& gpu) { return gpu.utilization.max.value_or(*gpu.utilization.avg) <= 0; }

void name_host(Finding& finding, const std::string& host) {
  if (std::find(finding.hosts.begin(), finding.hosts.end(), host) == finding.hosts.end())
    finding.hosts.push_back(host);
}

// How busy the GPUs were on average.
struct GpuUse {
  double ratio = 0;
  std::string text;
  std::size_t gpus = 0;  // that were read; by accounting none
};

// Nothing where one was unused: gpu_unused says that, and it is worse.
std::optional<GpuUse> use_of(const JobView& job, const FindingOptions& set) {
  // By accounting there is no mean, but if even the highest reading is low, it is.
  if (const auto& most = job.totals.gpu_peak_utilization_ratio) {
    return GpuUse{
        *most, "No reading of the accounting has the GPUs more than " + percent(*most) + " busy."};
  }
  const auto gpus = gpus_with_readings(job, set);
  double sum = 0;
  for (const auto& one : gpus) {
    if (unused(*one.gpu)) return std::nullopt;
    sum += *one.gpu->utilization.avg;
  }
  if (gpus.empty()) return std::nullopt;
  const double mean = sum / static_cast<double>(gpus.size());
  const std::string which =
      gpus.size() < all_gpus(job)
          ? format("%zu of %u GPUs could be read, and were", gpus.size(), all_gpus(job))
          : "The GPUs were";
  return GpuUse{mean, which + " busy for " + percent(mean) + " of the time on average.",
                gpus.size()};
}

}  // namespace

Found gpu_unused(const JobView& job, const FindingOptions& set) {
  const auto gpus = gpus_with_readings(job, set);
  Finding found{.severity = Severity::kCritical, .unit = "count", .scope = "gpu"};
  for (const auto& [node, gpu] : gpus) {
    if (!unused(*gpu)) continue;
    ++found.value;
    name_host(found, node->job.node);
  }
  if (found.value == 0) return std::nullopt;
  found.text = format(
      "%.0f of %u GPUs did nothing for all of the job. Does the program know of them? Others "
      "waited for them.",
      found.value, all_gpus(job));
  const auto left = static_cast<std::uint32_t>(gpus.size() - static_cast<std::size_t>(found.value));
  if (job.nodes.size() == 1 && job.all_nodes_measured() && gpus.size() == all_gpus(job) && left > 0)
    found.suggest.request.gpus = left;
  return found;
}

Found gpu_low(const JobView& job, const FindingOptions& set) {
  const auto use = use_of(job, set);
  if (!use) return std::nullopt;
  const auto level =
      below(use->ratio, set.get("gpu_low_notice_ratio"), set.get("gpu_low_warning_ratio"));
  // If its CPUs are the reason, gpu_host_bound says so, and larger batches would not help.
  if (!level || (set.on("gpu_host_bound") && gpu_host_bound(job, set))) return std::nullopt;
  Finding found{.severity = level->severity,
                .value = use->ratio,
                .threshold = level->threshold,
                .unit = "ratio",
                .scope = "gpu",
                .text = use->text + " Larger batches, or more CPUs that feed them, may help."};
  if (use->gpus > 0)
    name_step_with_idle_gpus(job, static_cast<double>(use->gpus), use->ratio, found);
  return found;
}

Found gpu_idle_run(const JobView& job, const FindingOptions& set) {
  Finding found{.unit = "seconds", .scope = "gpu"};
  for (const auto& [node, gpu] : gpus_with_readings(job, set)) {
    const double limit = std::max(set.get("gpu_idle_run_seconds"),
                                  set.get("gpu_idle_run_ratio") * node->elapsed_seconds);
    if (unused(*gpu) || !gpu->longest_zero_seconds || *gpu->longest_zero_seconds < limit) continue;
    found.value = std::max(found.value, *gpu->longest_zero_seconds);
    found.threshold = limit;
    name_host(found, node->job.node);
  }
  if (found.hosts.empty()) return std::nullopt;
  found.text = "A GPU did nothing for " + duration(found.value) +
               " on end. If that part needs no GPU, make it a job of its own and let the other "
               "depend on it.";
  return found;
}

Found gpu_host_bound(const JobView& job, const FindingOptions& set) {
  const auto use = use_of(job, set);
  const auto cpu = job.cpu_ratio();
  // A program that never used its GPUs does not wait for them.
  if (!use || use->ratio <= 0 || !cpu || *cpu < set.get("gpu_host_bound_cpu_ratio"))
    return std::nullopt;
  const auto level =
      below(use->ratio, set.get("gpu_host_bound_gpu_ratio"), set.get("gpu_low_warning_ratio"));
  if (!level) return std::nullopt;
  const double cpus = static_cast<double>(job.totals.cpus.value_or(0)) / all_gpus(job);
  return Finding{.severity = level->severity,
                 .value = use->ratio,
                 .threshold = level->threshold,
                 .unit = "ratio",
                 .scope = "gpu",
                 .text = use->text + " Meanwhile " + percent(*cpu) +
                         format(" of the CPUs were busy: the program probably waits for its CPUs, "
                                "and the GPUs wait with it. Ask for more CPUs for each GPU (it had "
                                "%.3g), or for fewer GPUs.",
                                cpus)};
}

Found gpu_memory_low(const JobView& job, const FindingOptions& set) {
  const auto gpus = gpus_with_readings(job, set);
  // Of a part of a GPU, it is not known how much memory it had.
  if (gpus.empty() || gpus.size() < all_gpus(job) || job.facts.request.shared_gpu)
    return std::nullopt;
  const NodeGpu* fullest = nullptr;
  double most = 0;
  for (const auto& [node, gpu] : gpus) {
    if (unused(*gpu) || !gpu->peak_memory_bytes || gpu->memory_limit_bytes.value_or(0) == 0)
      return std::nullopt;
    const double part = static_cast<double>(*gpu->peak_memory_bytes) /
                        static_cast<double>(*gpu->memory_limit_bytes);
    if (fullest == nullptr || part > most) fullest = gpu;
    most = std::max(most, part);
  }
  const double limit = set.get("gpu_memory_low_ratio");
  if (most >= limit) return std::nullopt;
  return Finding{
      .value = most,
      .threshold = limit,
      .unit = "ratio",
      .scope = "gpu",
      .text = "At most " + size_words(static_cast<double>(*fullest->peak_memory_bytes)) +
              " of the " + size_words(static_cast<double>(*fullest->memory_limit_bytes)) +
              " of memory of a GPU were needed (" + percent(most) +
              "), and others may wait for a GPU of this size. If the program is as fast on a "
              "smaller GPU or on a part of one (MIG), ask for that next time; otherwise larger "
              "batches may use it better."};
}

Found gpu_throttled(const JobView& job, const FindingOptions& set) {
  Finding found{.severity = Severity::kWarning,
                .threshold = set.get("gpu_throttled_ratio"),
                .unit = "ratio",
                .scope = "gpu"};
  std::uint32_t throttled = 0;
  for (const NodeUsage& node : job.nodes) {
    for (const NodeGpu& gpu : node.gpus) {
      if (!gpu.throttled_ratio || *gpu.throttled_ratio < *found.threshold) continue;
      ++throttled;
      found.value = std::max(found.value, *gpu.throttled_ratio);
      name_host(found, node.job.node);
    }
  }
  if (throttled == 0) return std::nullopt;
  found.text =
      format("%u of %u GPUs worked with their clocks held down for ", throttled, all_gpus(job)) +
      (throttled > 1 ? "up to " : "") + percent(found.value) +
      " of the time, because of heat or because the hardware protects itself, so the program was "
      "slower. The job is not the cause: report it to the site's staff, and until it is repaired "
      "keep jobs off that node if you can.";
  return found;
}

}  // namespace scriptorium::usage
