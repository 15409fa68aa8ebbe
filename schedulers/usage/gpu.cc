#include "schedulers/usage/gpu.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <type_traits>
#include <utility>

#include "core/base/pause.h"

namespace scriptorium::usage {
namespace {

constexpr std::uint32_t kNvidiaMajor = 195;
constexpr std::uint32_t kNvidiaControlMinors = 254;  // 254 modeset, 255 nvidiactl
constexpr double kMillijoule = 1e-3;  // NVML counts in these; the state file rounds to less

double seconds_between(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double>(to - from).count();
}

// What a member function returns for each device that the life holds.
template <typename Lives, typename Get>
auto of_each(Lives& lives, const std::string& life, Get get) {
  std::vector<
      std::decay_t<std::invoke_result_t<Get, decltype((lives.begin()->second.begin()->second))>>>
      all;
  if (const auto found = lives.find(life); found != lives.end()) {
    for (auto& [position, statistics] : found->second) all.push_back(std::invoke(get, statistics));
  }
  return all;
}

template <typename T>
bool holds(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

// ---- one device, one job

GpuStatistics::GpuStatistics(const GpuDevice& device) {
  record_.gpu.id = device.id;
  record_.gpu.index = device.index;
  record_.gpu.model = device.model;
}

void GpuStatistics::add(const GpuReading& reading, SteadyTime at) {
  const double since = last_at_ ? seconds_between(*last_at_, at) : 0;
  NodeGpu& gpu = record_.gpu;
  if (reading.utilization_ratio) {
    const double utilization = *reading.utilization_ratio;
    ++gpu.samples;
    record_.utilization_seconds += utilization * since;
    record_.seconds += since;
    gpu.utilization.max = std::max(gpu.utilization.max.value_or(0), utilization);
    gpu.utilization.min = std::min(gpu.utilization.min.value_or(1), utilization);
    if (utilization > 0) {
      zero_since_.reset();
    } else {
      record_.zero_seconds += since;
      // The reading covers what went before it.
      if (!zero_since_) zero_since_ = last_at_.value_or(at);
      record_.longest_zero_seconds =
          std::max(record_.longest_zero_seconds, seconds_between(*zero_since_, at));
    }
  }
  if (reading.memory_used_bytes)
    gpu.peak_memory_bytes = std::max(gpu.peak_memory_bytes.value_or(0), *reading.memory_used_bytes);
  if (reading.memory_limit_bytes) gpu.memory_limit_bytes = reading.memory_limit_bytes;
  if (reading.throttled) {
    record_.clock_seconds += since;
    // While it changes to lower clocks because it is idle, a GPU may report a slowdown too.
    if (*reading.throttled && reading.utilization_ratio.value_or(1) > 0)
      record_.throttled_seconds += since;
  }
  // A card that is divided (MIG) cannot say its utilization, and its energy is that of all parts.
  if (reading.utilization_ratio) add_energy(reading, since);
  last_ = reading;
  last_at_ = at;
}

void GpuStatistics::add_energy(const GpuReading& reading, double since_seconds) {
  if (reading.energy_joules) {
    if (!record_.energy_joules) record_.energy_origin_joules = reading.energy_joules;
    // The counter began again, as it does when the driver is loaded again: what was counted between
    // the two readings is lost, so there is no total from here on.
    if (*reading.energy_joules + kMillijoule < record_.energy_joules.value_or(0))
      record_.energy_origin_joules.reset();
    record_.energy_joules = reading.energy_joules;
  } else if (reading.power_watts && since_seconds > 0) {
    record_.integrated_joules =
        record_.integrated_joules.value_or(0) + *reading.power_watts * since_seconds;
  }
}

NodeGpu GpuStatistics::summary() const {
  NodeGpu gpu = record_.gpu;
  if (gpu.samples > 0) {
    // One reading alone represents all.
    const double most = gpu.utilization.max.value_or(0);
    gpu.utilization.avg =
        record_.seconds > 0 ? record_.utilization_seconds / record_.seconds : most;
    gpu.zero_ratio =
        record_.seconds > 0 ? record_.zero_seconds / record_.seconds : (most > 0 ? 0.0 : 1.0);
    gpu.longest_zero_seconds = record_.longest_zero_seconds;
  }
  if (record_.clock_seconds > 0)
    gpu.throttled_ratio = record_.throttled_seconds / record_.clock_seconds;
  if (!record_.energy_joules) {
    gpu.energy_joules = record_.integrated_joules;
  } else if (record_.energy_origin_joules &&
             *record_.energy_joules > *record_.energy_origin_joules) {
    gpu.energy_joules = *record_.energy_joules - *record_.energy_origin_joules;
  }
  return gpu;
}

GpuNow GpuStatistics::now() {
  GpuNow now;
  now.id = record_.gpu.id;
  now.index = record_.gpu.index;
  now.model = record_.gpu.model;
  now.memory_used_bytes = last_.memory_used_bytes;
  now.memory_limit_bytes = last_.memory_limit_bytes;
  now.power_watts = last_.power_watts;
  now.utilization_ratio = last_.utilization_ratio;
  if (const double seconds = record_.seconds - sampled_seconds_; seconds > 0) {
    now.utilization_ratio = (record_.utilization_seconds - sampled_utilization_seconds_) / seconds;
    sampled_seconds_ = record_.seconds;
    sampled_utilization_seconds_ = record_.utilization_seconds;
  }
  return now;
}

// ---- all devices

GpuMonitor::GpuMonitor(const Options& options, Files& files, Logger& log, const Clock& clock)
    : clock_(clock), interval_(options.interval) {
  std::vector<std::unique_ptr<GpuReader>> readers;
  if (!options.nvml_library.empty()) {
    if (auto nvml = open_nvml(options.nvml_library)) {
      readers.push_back(*std::move(nvml));
    } else if (nvml.error().kind() == ErrorKind::kVanished) {
      log.info("USAGE_NO_NVML", "there is no NVIDIA library here, so no data of NVIDIA's GPUs",
               {{"library", options.nvml_library}, {"reason", nvml.error().message()}});
    } else {
      log.warning("USAGE_NVML_REFUSED",
                  "NVIDIA's library refuses to work, so there is no data of its GPUs",
                  {{"library", options.nvml_library}, {"reason", nvml.error().message()}});
    }
  }
  if (!options.sys.empty()) {
    if (auto amd = open_amd(options.sys, files)) readers.push_back(std::move(amd));
  }
  take(std::move(readers));
  if (!empty()) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
}

GpuMonitor::GpuMonitor(std::vector<std::unique_ptr<GpuReader>> readers, const Clock& clock)
    : clock_(clock) {
  take(std::move(readers));
}

GpuMonitor::~GpuMonitor() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void GpuMonitor::take(std::vector<std::unique_ptr<GpuReader>> readers) {
  readers_ = std::move(readers);
  for (std::size_t r = 0; r < readers_.size(); ++r) {
    const std::vector<GpuDevice>& devices = readers_[r]->devices();
    if (!devices.empty() && devices_.empty()) method_ = readers_[r]->method();
    for (std::size_t d = 0; d < devices.size(); ++d) {
      places_.push_back({r, d});
      devices_.push_back(devices[d]);
    }
  }
}

void GpuMonitor::claim(const std::string& life, const GpuClaim& claim) {
  lives_.with([&](auto& lives) {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const GpuDevice& device = devices_[i];
      const bool given = holds(claim.indexes, device.index) || holds(claim.ids, device.id) ||
                         (device.minor && holds(claim.minors, *device.minor));
      if (given) lives[life].try_emplace(i, device);
    }
  });
}

std::vector<GpuNow> GpuMonitor::now(const std::string& life) {
  return lives_.with([&](auto& lives) { return of_each(lives, life, &GpuStatistics::now); });
}

std::vector<NodeGpu> GpuMonitor::release(const std::string& life) {
  return lives_.with([&](auto& lives) {
    auto summaries = of_each(lives, life, &GpuStatistics::summary);
    lives.erase(life);
    const std::string steps = life + "/";
    for (auto step = lives.lower_bound(steps);
         step != lives.end() && step->first.starts_with(steps);)
      step = lives.erase(step);
    return summaries;
  });
}

bool GpuMonitor::is_held_by(const std::string& life) const {
  return lives_.with([&](const auto& lives) { return lives.contains(life); });
}

bool GpuMonitor::claim_step(const std::string& life, const std::string& step,
                            const std::optional<std::vector<std::uint32_t>>& minors) {
  return lives_.with([&](auto& lives) {
    const auto held = lives.find(life);
    if (held == lives.end()) return false;
    Held given;
    for (const auto& [position, statistics] : held->second) {
      const GpuDevice& device = devices_.at(position);
      if (!minors || !device.minor || holds(*minors, *device.minor))
        given.try_emplace(position, device);
    }
    return !given.empty() && lives.try_emplace(life + "/" + step, std::move(given)).second;
  });
}

std::vector<NodeGpu> GpuMonitor::release_step(const std::string& life, const std::string& step) {
  return release(life + "/" + step);
}

std::vector<GpuRecord> GpuMonitor::records(const std::string& life) const {
  return lives_.with(
      [&](const auto& lives) { return of_each(lives, life, &GpuStatistics::record); });
}

void GpuMonitor::restore(const std::string& life, const std::vector<GpuRecord>& records) {
  lives_.with([&](auto& lives) {
    for (const GpuRecord& record : records) {
      for (std::size_t i = 0; i < devices_.size(); ++i) {
        if (devices_[i].id == record.gpu.id) lives[life].insert_or_assign(i, GpuStatistics(record));
      }
    }
  });
}

void GpuMonitor::poll() {
  std::vector<char> wanted(devices_.size(), 0);
  lives_.with([&](const auto& lives) {
    for (const auto& [life, held] : lives) {
      for (const auto& [position, statistics] : held) wanted.at(position) = 1;
    }
  });
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (wanted[i] == 0) continue;
    // Outside the lock: a driver may take its time.
    const GpuReading reading = readers_[places_[i].reader]->read(places_[i].device);
    const SteadyTime at = clock_.steady();
    lives_.with([&](auto& lives) {
      for (auto& [life, held] : lives) {
        if (const auto found = held.find(i); found != held.end()) found->second.add(reading, at);
      }
    });
  }
}

void GpuMonitor::run(const std::stop_token& stop) noexcept {
  while (!stop.stop_requested()) {
    try {
      poll();
    } catch (const std::bad_alloc&) {
      return;  // readings end; the summaries say by their number how far they went
    }
    pause_for(stop, interval_);
  }
}

// ---- allocation

void GpuClaims::read_prolog_files() {
  prolog_.clear();
  if (prolog_dir_.empty() || gpus_.empty()) return;
  std::vector<DirectoryEntry> entries;
  static_cast<void>(files_.list(prolog_dir_, entries));
  std::string text;
  for (const DirectoryEntry& entry : entries) {
    if (entry.directory || read_text(files_, prolog_dir_ + "/" + entry.name, text, 256) < 0)
      continue;
    const std::string job = text.substr(0, text.find_first_of(" \n"));
    if (job.empty()) continue;
    if (const auto position = whole_number(entry.name)) {
      prolog_[job].indexes.push_back(static_cast<std::uint32_t>(*position));
    } else {
      prolog_[job].ids.push_back(entry.name);
    }
  }
}

std::optional<std::vector<std::uint32_t>> GpuClaims::gpu_minors(std::string_view devices) {
  auto minors = allowed_minors(devices, kNvidiaMajor);
  if (minors)
    std::erase_if(*minors, [](std::uint32_t minor) { return minor >= kNvidiaControlMinors; });
  return minors;
}

void GpuClaims::claim(const JobSeen& job, std::optional<std::string_view> devices,
                      const std::optional<std::string>& indexes) {
  GpuClaim claim;
  if (const auto found = prolog_.find(job.job_id); found != prolog_.end()) claim = found->second;
  if (auto minors = devices ? gpu_minors(*devices) : std::nullopt) {
    // Where devices are not constrained, all of them are allowed one by one: that says nothing.
    if (!minors->empty() && minors->size() < gpus_.size()) claim.minors = *std::move(minors);
  }
  if (const auto more = indexes ? parse_index_list(*indexes) : std::nullopt)
    claim.indexes.insert(claim.indexes.end(), more->begin(), more->end());
  if (!claim.indexes.empty() || !claim.ids.empty() || !claim.minors.empty())
    gpus_.claim(job.key(), claim);
}

}  // namespace scriptorium::usage
