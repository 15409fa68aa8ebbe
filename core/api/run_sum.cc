#include "core/api/run_sum.h"

#include <algorithm>
#include <set>

namespace scriptorium {
namespace {

constexpr std::uint64_t kWhole = 10'000;  // JobRun::Program::share
constexpr const char* kUnknown = "(unknown)";

double hours_of(std::uint64_t core_seconds, std::uint64_t gpu_seconds) {
  return static_cast<double>(core_seconds + kCoreHoursOfGpuHour * gpu_seconds) / 3600;
}

}  // namespace

// Cut at the same places for every run, so that all parts of one add up to it.
void RunSum::add(const JobRun& run, std::uint64_t begin, std::uint64_t end, std::uint64_t of) {
  const auto part = [&](std::uint64_t seconds) {
    const auto until = [&](std::uint64_t place) {
      return seconds / of * place + seconds % of * place / of;
    };
    return until(end) - until(begin);
  };
  ++jobs;
  core_seconds += part(run.core_seconds);
  gpu_seconds += part(run.gpu_seconds);
  unused_core_seconds += part(run.unused_core_seconds.value_or(0));
  unused_gpu_seconds += part(run.unused_gpu_seconds.value_or(0));
}

RunSum& RunSum::operator+=(const RunSum& other) noexcept {
  jobs += other.jobs;
  core_seconds += other.core_seconds;
  unused_core_seconds += other.unused_core_seconds;
  gpu_seconds += other.gpu_seconds;
  unused_gpu_seconds += other.unused_gpu_seconds;
  return *this;
}

RunSum& RunSum::operator-=(const RunSum& other) noexcept {
  jobs -= other.jobs;
  core_seconds -= other.core_seconds;
  unused_core_seconds -= other.unused_core_seconds;
  gpu_seconds -= other.gpu_seconds;
  unused_gpu_seconds -= other.unused_gpu_seconds;
  return *this;
}

double RunSum::core_hours() const noexcept { return hours_of(core_seconds, gpu_seconds); }
double RunSum::wasted_core_hours() const noexcept {
  return hours_of(unused_core_seconds, unused_gpu_seconds);
}

void RunTotals::add(const JobRun& run, std::uint64_t begin, std::uint64_t end, std::uint64_t of) {
  RunSum::add(run, begin, end, of);
  for (const std::string& finding : run.findings) ++findings[finding];
}

RunTotals& RunTotals::operator+=(const RunTotals& other) {
  RunSum::operator+=(other);
  for (const auto& [finding, jobs_with] : other.findings) findings[finding] += jobs_with;
  return *this;
}

RunTotals& RunTotals::operator-=(const RunTotals& other) {
  RunSum::operator-=(other);
  for (const auto& [finding, jobs_with] : other.findings) {
    const auto found = findings.try_emplace(finding).first;
    found->second -= jobs_with;
    if (found->second == 0) findings.erase(found);
  }
  return *this;
}

std::uint64_t wasted_core_seconds(const JobRun& run) noexcept {
  return run.unused_core_seconds.value_or(0) +
         kCoreHoursOfGpuHour * run.unused_gpu_seconds.value_or(0);
}

bool is_measured(const JobRun& run) noexcept {
  return run.unused_core_seconds || run.unused_gpu_seconds;
}

void for_each_share(RunsBy by, const JobRun& run,
                    const std::function<void(const std::string& name, std::uint64_t begin,
                                             std::uint64_t end, std::uint64_t of)>& use) {
  switch (by) {
    case RunsBy::kUser: {
      const std::string user = run.user.value_or(kUnknown);
      return use(run.verified ? user : user + std::string(kUnverifiedMark), 0, 1, 1);
    }
    case RunsBy::kAccount: return use(run.account.value_or(kUnknown), 0, 1, 1);
    case RunsBy::kPartition: return use(run.partition.value_or(kUnknown), 0, 1, 1);
    case RunsBy::kModule:
      for (const std::string& module : std::set(run.modules.begin(), run.modules.end()))
        use(module, 0, 1, 1);
      if (run.modules.empty()) use("(none)", 0, 1, 1);
      return;
    case RunsBy::kProgram: {
      std::map<std::string, std::uint64_t> shares;
      std::uint64_t known = 0;
      for (const JobRun::Program& program : run.programs) {
        const std::uint64_t share = std::min<std::uint64_t>(program.share, kWhole - known);
        shares[program.name] += share;
        known += share;
      }
      if (shares.empty()) shares[kUnknown] = kWhole;
      std::uint64_t place = 0;
      for (const auto& [name, share] : shares) {
        use(name, place, place + share, kWhole);
        place += share;
      }
      return;
    }
    case RunsBy::kNode:
      for (std::size_t i = 0; i < run.nodes.size(); ++i)
        use(run.nodes[i], i, i + 1, run.nodes.size());
      if (run.nodes.empty()) use(kUnknown, 0, 1, 1);
      return;
  }
}

void for_each_row(std::optional<RunsBy> by, const JobRun& run,
                  const std::function<void(const RunSumRow&)>& use) {
  RunTotals whole;
  whole.add(run);
  use({.name = std::nullopt, .time = run.ended_at, .is_measured = is_measured(run), .sum = whole});
  if (!by || !is_measured(run)) return;
  for_each_share(
      *by, run,
      [&](const std::string& name, std::uint64_t begin, std::uint64_t end, std::uint64_t of) {
        RunTotals part;
        part.add(run, begin, end, of);
        use({.name = name, .time = run.ended_at, .sum = part});
      });
}

}  // namespace scriptorium
