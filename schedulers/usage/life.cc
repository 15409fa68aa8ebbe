#include "schedulers/usage/life.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium::usage {
namespace {

constexpr double kNano = 1e-9;
// An interval shorter than this says nothing about utilization: one tick of the clock would be some
// percent of it.
constexpr double kShortInterval = 1.0;
// Less than this part of the CPUs counts as idle at the end of a job.
constexpr double kIdleRatio = 0.01;
// A reading may come so much later than it is due before it counts as a gap.
constexpr double kLateFactor = 1.5;

template <typename T>
void keep(std::optional<T>& into, const std::optional<T>& now) {
  if (now) into = now;
}

std::optional<double> ratio(double part, double whole) noexcept {
  if (!(whole > 0)) return std::nullopt;
  return part / whole;
}

}  // namespace

void Reading::put(const CpuStat& stat, Method method) noexcept {
  if (!stat.time_seconds) return;
  source.cpu = method;
  cpu.time_seconds = stat.time_seconds;
  cpu.user_seconds = stat.user_seconds;
  cpu.system_seconds = stat.system_seconds;
  cpu.throttled_seconds = stat.throttled_seconds;
}

void Reading::put(const MemoryStat& stat, Method method) noexcept {
  if (!stat.anon_bytes) return;
  source.memory = method;
  memory.anon_bytes = stat.anon_bytes;
  memory.shmem_bytes = stat.shmem_bytes;
  memory.swap_bytes = stat.swap_bytes;
  memory.file_bytes = stat.file_bytes;
  memory.limit_bytes = stat.limit_bytes;
}

void Reading::put(const IoBytes& bytes, Method method) noexcept {
  if (!bytes.read_bytes && !bytes.written_bytes) return;
  source.io = method;
  io.read_bytes = bytes.read_bytes;
  io.written_bytes = bytes.written_bytes;
}

void UtilizationHistogram::add(double ratio, double seconds) noexcept {
  const double step = std::clamp(std::round(ratio * 100), 0.0, static_cast<double>(kSteps - 1));
  seconds_.at(static_cast<std::size_t>(step)) += static_cast<float>(seconds);
}

std::optional<double> UtilizationHistogram::median() const noexcept {
  double all = 0;
  for (const float s : seconds_) all += s;
  if (!(all > 0)) return std::nullopt;
  double below = 0;
  for (std::size_t i = 0; i < kSteps; ++i) {
    below += seconds_.at(i);
    if (below >= all / 2) return static_cast<double>(i) / 100;
  }
  return 1.0;
}

std::string UtilizationHistogram::text() const {
  std::string text;
  for (std::size_t i = 0; i < kSteps; ++i) {
    if (!(seconds_.at(i) > 0)) continue;
    std::array<char, 32> digits{};
    const auto [end, problem] =
        std::to_chars(digits.data(), digits.data() + digits.size(), seconds_.at(i));
    if (problem != std::errc{}) continue;
    text.append(text.empty() ? "" : " ")
        .append(std::to_string(i))
        .append(":")
        .append(digits.data(), end);
  }
  return text;
}

UtilizationHistogram UtilizationHistogram::from(std::string_view text) {
  UtilizationHistogram histogram;
  while (!text.empty()) {
    std::string_view pair = take_until(text, ' ');
    const auto step = take_number<std::size_t>(pair);
    if (!step || *step >= kSteps || !pair.starts_with(':')) continue;
    const auto seconds = parse_number<float>(pair.substr(1));
    if (seconds && *seconds > 0 && std::isfinite(*seconds)) histogram.seconds_.at(*step) = *seconds;
  }
  return histogram;
}

Life Life::begin(JobSeen job, SteadyTime started) {
  LifeState state;
  state.job = std::move(job);
  state.started_ns = count(started);
  state.anchor_ns = state.started_ns;
  state.busy_until_ns = state.started_ns;
  return Life(std::move(state));
}

SteadyTime Life::started() const noexcept {
  return SteadyTime(std::chrono::nanoseconds(state_.started_ns));
}

bool Life::is_reset(const Reading& reading) const noexcept {
  // A microsecond: v2 counts in these, and what the state file holds is rounded to them.
  return reading.source.cpu == state_.source.cpu && reading.cpu.time_seconds &&
         state_.cpu.time_seconds && *reading.cpu.time_seconds + 1e-6 < *state_.cpu.time_seconds &&
         reading.source.cpu != Method::kProc;
}

void Life::count_utilization(std::int64_t until_ns, double cpu_seconds) {
  const double seconds = static_cast<double>(until_ns - state_.anchor_ns) * kNano;
  const double used = std::max(0.0, cpu_seconds - state_.anchor_cpu_seconds);
  const double cpus = state_.cpu.allocated.value_or(1);
  const auto is_busy = [&](double cpu_seconds, double of) {
    return cpu_seconds > kIdleRatio * cpus * of;
  };
  // To end programs takes some ms, much of a short interval: that is busy only if it is so together
  // with the one before.
  const bool is_short = seconds < interval_seconds_ / 2;
  if (is_busy(used, seconds) &&
      (!is_short || is_busy(used + interval_used_, seconds + interval_seconds_)))
    state_.busy_until_ns = until_ns;
  interval_seconds_ = seconds;
  interval_used_ = used;
  if (state_.cpu.allocated) {
    const double share = used / (seconds * cpus);
    state_.utilization.add(share, seconds);
    if (seconds >= kShortInterval || !state_.least) {
      state_.least = std::min(state_.least.value_or(share), share);
      state_.most = std::max(state_.most.value_or(share), share);
    }
    state_.busy_seconds += used;
    state_.counted_seconds += seconds * cpus;
    interval_utilization_ = share;
  }
  state_.anchor_ns = until_ns;
  state_.anchor_cpu_seconds = cpu_seconds;
}

void Life::add(const Reading& reading, double due_seconds) {
  if (!reading.any()) return;
  const std::int64_t now = count(reading.at);
  const double since = state_.readings == 0 ? 0 : static_cast<double>(now - state_.last_ns) * kNano;
  if (since > due_seconds * kLateFactor) {
    state_.gap_seconds = std::max(state_.gap_seconds, since - due_seconds);
    state_.uncovered_seconds += since - due_seconds;
  }
  if (state_.readings == 0) state_.first_ns = now;
  ++state_.readings;
  state_.last_ns = now;
  state_.last_time = reading.time;

  keep(state_.source.cpu, reading.source.cpu);
  keep(state_.source.memory, reading.source.memory);
  keep(state_.source.io, reading.source.io);
  add_cpu(reading.cpu, now);
  add_memory(reading, since);
  keep_most(state_.io.read_bytes, reading.io.read_bytes);
  keep_most(state_.io.written_bytes, reading.io.written_bytes);
  keep_most(state_.io.pressure_full_seconds, reading.io.pressure_full_seconds);
  keep_most(state_.peak_tasks, reading.tasks.current);
  keep_most(state_.peak_tasks, reading.tasks.peak);
}

void Life::add_cpu(const CpuNow& cpu, std::int64_t now_ns) {
  keep(state_.cpu.allocated, cpu.allocated);
  keep_most(state_.cpu.time_seconds, cpu.time_seconds);
  if (cpu.user_seconds) {
    state_.cpu.user_seconds = cpu.user_seconds;
    state_.cpu.system_seconds = cpu.system_seconds;
  }
  keep_most(state_.cpu.pressure_some_seconds, cpu.pressure_some_seconds);
  keep_most(state_.cpu.throttled_seconds, cpu.throttled_seconds);
  if (state_.cpu.time_seconds &&
      static_cast<double>(now_ns - state_.anchor_ns) * kNano >= kShortInterval) {
    count_utilization(now_ns, *state_.cpu.time_seconds);
  }
}

void Life::add_memory(const Reading& reading, double since_seconds) {
  keep(state_.memory.limit_bytes, reading.memory.limit_bytes);
  keep_most(state_.memory.peak_charged_bytes, reading.memory.peak_charged_bytes);
  keep_most(state_.memory.charged_bytes, reading.memory.charged_bytes);
  keep_most(state_.memory.pressure_full_seconds, reading.memory.pressure_full_seconds);
  keep_most(state_.memory.oom_kills, reading.memory.oom_kills);
  if (reading.oom_kills_unknown && state_.memory.oom_kills == 0U) state_.memory.oom_kills.reset();
  keep_most(state_.peak_swap, reading.memory.swap_bytes);
  if (const auto working = reading.memory.working_set_bytes()) {
    keep_most(state_.peak_working_set, working);
    if (state_.last_working_set) {
      // As it was before: the reading at the end of a job finds its memory given back.
      state_.working_set_seconds += static_cast<double>(*state_.last_working_set) * since_seconds;
      state_.memory_seconds += since_seconds;
    }
    state_.last_working_set = working;
  }
}

UsageSample Life::sample(const Reading& reading) {
  const std::int64_t now = count(reading.at);
  UsageSample sample;
  sample.job = state_.job;
  sample.time = reading.time;
  sample.seq = ++state_.seq;
  if (sampled_ns_) sample.interval_seconds = static_cast<double>(now - *sampled_ns_) * kNano;
  sample.elapsed_seconds = static_cast<double>(now - state_.started_ns) * kNano;
  sample.source = reading.source;
  sample.cpu = reading.cpu;
  if (!sample.cpu.allocated) sample.cpu.allocated = state_.cpu.allocated;
  sample.memory = reading.memory;
  if (!sample.memory.limit_bytes) sample.memory.limit_bytes = state_.memory.limit_bytes;
  sample.io = reading.io;
  sample.tasks = reading.tasks;
  if (reading.cpu.time_seconds) {
    if (sampled_ns_ && sample.cpu.allocated) {
      sample.cpu.utilization_ratio =
          ratio(std::max(0.0, *reading.cpu.time_seconds - sampled_cpu_seconds_),
                *sample.interval_seconds * *sample.cpu.allocated);
    } else {
      sample.cpu.utilization_ratio = interval_utilization_;
    }
    sampled_cpu_seconds_ = *reading.cpu.time_seconds;
  }
  sampled_ns_ = now;
  return sample;
}

namespace {

NodeCpu cpu_of(const LifeState& s, double elapsed_seconds, std::int64_t end_ns) {
  NodeCpu cpu;
  cpu.time_seconds = s.cpu.time_seconds;
  if (s.cpu.time_seconds && s.cpu.user_seconds && s.cpu.system_seconds) {
    // The split was read with a total that may be older than the last one.
    const double both = *s.cpu.user_seconds + *s.cpu.system_seconds;
    const double share = both > 0 ? *s.cpu.user_seconds / both : 0;
    cpu.user_seconds = *s.cpu.time_seconds * share;
    cpu.system_seconds = *s.cpu.time_seconds - *cpu.user_seconds;
  }
  cpu.allocated = s.cpu.allocated;
  cpu.efficiency_ratio = efficiency(cpu, elapsed_seconds);
  if (s.counted_seconds > 0)
    cpu.utilization = {s.busy_seconds / s.counted_seconds, s.least, s.most, s.utilization.median()};
  if (s.cpu.time_seconds)
    cpu.idle_tail_seconds = std::max(0.0, static_cast<double>(end_ns - s.busy_until_ns) * kNano);
  cpu.pressure_some_seconds = s.cpu.pressure_some_seconds;
  cpu.throttled_seconds = s.cpu.throttled_seconds;
  return cpu;
}

NodeMemory memory_of(const LifeState& s) {
  NodeMemory memory;
  memory.peak_working_set_bytes = s.peak_working_set;
  memory.avg_working_set_bytes =
      s.memory_seconds > 0
          ? std::optional(static_cast<std::uint64_t>(s.working_set_seconds / s.memory_seconds))
          : s.peak_working_set;
  // Without a counter of the peak (v2 of EL8), the largest that was seen is the best that is known.
  memory.peak_charged_bytes =
      s.memory.peak_charged_bytes ? s.memory.peak_charged_bytes : s.memory.charged_bytes;
  memory.peak_swap_bytes = s.peak_swap;
  memory.limit_bytes = s.memory.limit_bytes;
  memory.oom_kills = s.memory.oom_kills;
  memory.pressure_full_seconds = s.memory.pressure_full_seconds;
  return memory;
}

NodeQuality node_quality(const LifeState& s, double elapsed_seconds, std::int64_t end_ns,
                         LastRead last) {
  NodeQuality quality;
  quality.samples = s.readings;
  quality.last_read = last;
  if (s.readings == 0) {
    quality.covered_ratio = 0;
    return quality;
  }
  const double first_to_last =
      static_cast<double>(s.last_ns - s.first_ns) * kNano - s.uncovered_seconds;
  quality.covered_ratio = std::clamp(ratio(first_to_last, elapsed_seconds).value_or(0), 0.0, 1.0);
  double gap = s.gap_seconds;
  if (last == LastRead::kSample)
    gap = std::max(gap, static_cast<double>(end_ns - s.last_ns) * kNano);
  if (gap > 0) quality.gap_seconds = gap;
  return quality;
}

}  // namespace

NodeUsage Life::finish(SteadyTime ended, Timestamp ended_time, LastRead last) const {
  Life whole = *this;
  LifeState& s = whole.state_;
  const std::int64_t end_ns = std::max(count(ended), s.started_ns);
  // What was read last and did not fill an interval of its own.
  if (s.readings > 0 && s.cpu.time_seconds && s.last_ns > s.anchor_ns &&
      (s.counted_seconds == 0 || *s.cpu.time_seconds > s.anchor_cpu_seconds)) {
    whole.count_utilization(s.last_ns, *s.cpu.time_seconds);
  }
  NodeUsage node;
  node.job = s.job;
  node.ended_at = ended_time;
  node.elapsed_seconds = static_cast<double>(end_ns - s.started_ns) * kNano;
  node.source = s.source;
  node.cpu = cpu_of(s, node.elapsed_seconds, end_ns);
  node.memory = memory_of(s);
  node.io = s.io;
  node.tasks.peak = s.peak_tasks;
  node.programs = s.programs.shares(s.cpu.time_seconds);
  node.steps = s.steps.uses({ended, ended_time});
  node.quality = node_quality(s, node.elapsed_seconds, end_ns, last);
  return node;
}

}  // namespace scriptorium::usage
