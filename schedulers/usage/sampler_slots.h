#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "schedulers/usage/sampler.h"

// What the parts of the sampler share: which files are read of a job.
namespace scriptorium::usage {

// What changes rarely is read at each of the first readings and then at every eighth.
constexpr std::uint64_t kSlowFirst = 4;
constexpr std::uint64_t kSlowEach = 8;

constexpr std::size_t index(Controller controller) { return static_cast<std::size_t>(controller); }
inline bool is_step(std::string_view name) { return name.starts_with("step_"); }
inline bool is_task(std::string_view name) { return name.starts_with("task_"); }
inline bool says_gone(int code) { return code == -ENOENT || code == -ENODEV || code == -ENOTDIR; }

// By position in slot_table().
enum SlotName : std::size_t {
  kMemoryStat,
  kCpuUsage,
  kMemoryMax,
  kCpuTicks,
  kMemoryUsage,
  kMemoryFailures,
  kCpusV1,
  kBlockBytes,
  kDeviceList,
  kCpuStat,
  kMemoryStat2,
  kMemoryCurrent,
  kMemoryPeak,
  kMemoryEvents,
  kSwapCurrent,
  kIoStat,
  kPidsCurrent,
  kPidsPeak,
  kCpuPressure,
  kMemoryPressure,
  kIoPressure,
  kCpusV2,
  kCpusSet,
  kGroupEvents,
};

struct Sampler::SlotInfo {
  Controller controller;
  const char* file;
  bool kept;  // its descriptor stays open, as long as there are some to keep
};

}  // namespace scriptorium::usage
