#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedulers/usage/finding_words.h"
#include "schedulers/usage/findings.h"

namespace scriptorium::usage::fixtures {

inline constexpr Timestamp kStart{1795219200LL * 1'000'000'000};

inline Timestamp after(double seconds) {
  return {kStart.nanoseconds + static_cast<std::int64_t>(seconds * 1e9)};
}

// One hour on one node: all of 4 CPUs busy, 3 of 4 GiB used, nothing to find fault with.
inline NodeUsage node(const std::string& name = "n1", double seconds = 3600) {
  NodeUsage made;
  made.job = {.scheduler = "slurm",
              .job_id = "4711",
              .uid = 0,
              .uid_trusted = true,
              .node = name,
              .started_at = kStart,
              .batch_step = true};
  made.ended_at = after(seconds);
  made.elapsed_seconds = seconds;
  made.source = {.cpu = Method::kCgroup2, .memory = Method::kCgroup2};
  made.cpu = {.time_seconds = 4 * seconds,
              .user_seconds = 3.9 * seconds,
              .system_seconds = 0.1 * seconds,
              .allocated = 4};
  made.memory = {.peak_working_set_bytes = 3 * kGiB, .limit_bytes = 4 * kGiB, .oom_kills = 0};
  made.node_cpus = 64;
  made.node_memory_bytes = 256 * kGiB;
  made.quality = {.samples = 120, .covered_ratio = 1.0, .last_read = LastRead::kRemoval};
  return made;
}

inline JobFacts facts(std::uint32_t nodes = 1) {
  JobFacts made;
  made.job.id = "4711";
  made.state = "COMPLETED";
  made.request = {.nodes = nodes,
                  .cpus = 4 * nodes,
                  .memory_bytes = nodes * 4 * kGiB,
                  .time_limit_seconds = 4000};
  return made;
}

inline JobView view(NodeUsage one) { return view_of(facts(), {std::move(one)}); }

inline NodeGpu gpu(double mean, std::string id = "GPU-1") {
  NodeGpu made;
  made.id = std::move(id);
  made.index = 0;
  made.utilization = {.avg = mean, .max = mean > 0 ? 1.0 : 0.0};
  made.peak_memory_bytes = 20 * kGiB;
  made.memory_limit_bytes = 80 * kGiB;
  made.zero_ratio = mean > 0 ? 0.1 : 1.0;
  made.longest_zero_seconds = mean > 0 ? 10 : 3600;
  made.samples = 1800;
  return made;
}

inline std::vector<std::string> ids(const JobView& job, const FindingOptions& options = {}) {
  std::vector<std::string> result;
  for (const Finding& found : find_all(job, options)) result.emplace_back(found.id);
  return result;
}
inline std::optional<Finding> find(const JobView& job, std::string_view id,
                                   const FindingOptions& options = {}) {
  for (const Finding& found : find_all(job, options)) {
    if (found.id == id) return found;
  }
  return std::nullopt;
}

}  // namespace scriptorium::usage::fixtures
