#include "schedulers/usage/records.h"

#include <array>

namespace scriptorium::usage {
namespace {

constexpr std::array kMethods = {"cgroup1", "cgroup2", "proc", "nvml", "amd", "accounting"};
constexpr std::array kLastReads = {"removal", "populated", "sample", "accounting", "running"};

template <typename Enum, typename Names>
std::optional<Enum> find(const Names& names, std::string_view text) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text == names.at(i)) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

const char* to_string(Method method) noexcept {
  return kMethods.at(static_cast<std::size_t>(method));
}
std::optional<Method> method_from(std::string_view text) noexcept {
  return find<Method>(kMethods, text);
}
const char* to_string(LastRead last) noexcept {
  return kLastReads.at(static_cast<std::size_t>(last));
}
std::optional<LastRead> last_read_from(std::string_view text) noexcept {
  return find<LastRead>(kLastReads, text);
}

std::string JobSeen::key() const {
  return job_id + "@" + node + "/" + std::to_string(started_at.nanoseconds);
}

void JobSeen::add_step(std::string_view step) noexcept {
  if (step == "step_batch") {
    batch_step = true;
  } else if (step != "step_extern") {
    other_steps = true;
  }
}

std::optional<std::uint64_t> MemoryNow::working_set_bytes() const noexcept {
  if (!anon_bytes) return std::nullopt;
  return *anon_bytes + shmem_bytes.value_or(0) + swap_bytes.value_or(0);
}

std::optional<double> efficiency(const NodeCpu& cpu, double elapsed_seconds) noexcept {
  const double available = elapsed_seconds * cpu.allocated.value_or(0);
  if (!cpu.time_seconds || !(available > 0)) return std::nullopt;
  return *cpu.time_seconds / available;
}

Method NodeUsage::method() const noexcept {
  return source.cpu.value_or(source.memory.value_or(source.io.value_or(Method::kCgroup1)));
}

}  // namespace scriptorium::usage
