#include <dlfcn.h>

#include <array>
#include <cstring>
#include <utility>

#include "schedulers/usage/gpu.h"

// NVIDIA's management library through the dozen functions that we need. Its header may not be
// copied, so what they take is declared here, as its manual describes it.
namespace scriptorium::usage {
namespace {

using NvmlReturn = int;
using NvmlDevice = void*;
struct NvmlUtilization {
  unsigned int gpu;     // percent of the last 1/6 to 1 s in which a kernel ran
  unsigned int memory;  // percent in which memory was read or written
};
struct NvmlMemory {
  unsigned long long total, free, used;
};

constexpr NvmlReturn kSuccess = 0;
constexpr std::size_t kTextBytes = 96;

// Why the clocks are lower than they could be, as bits. Not among them: the software's limit of
// power (0x4), which a GPU at full load meets as it should, and low clocks because it is idle.
constexpr unsigned long long kHardwareSlowdown = 0x08;  // heat, power brake or too much power
constexpr unsigned long long kSoftwareThermal = 0x20;
constexpr unsigned long long kHardwareThermal = 0x40;
constexpr unsigned long long kPowerBrake = 0x80;  // asserted from outside, as by a power supply
constexpr unsigned long long kThrottled =
    kHardwareSlowdown | kSoftwareThermal | kHardwareThermal | kPowerBrake;

struct CloseLibrary {
  void operator()(void* library) const noexcept { ::dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

struct Functions {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlReturn) = nullptr;
  NvmlReturn (*count)(unsigned int*) = nullptr;
  NvmlReturn (*handle)(unsigned int, NvmlDevice*) = nullptr;
  NvmlReturn (*uuid)(NvmlDevice, char*, unsigned int) = nullptr;
  NvmlReturn (*name)(NvmlDevice, char*, unsigned int) = nullptr;
  NvmlReturn (*minor)(NvmlDevice, unsigned int*) = nullptr;
  NvmlReturn (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  NvmlReturn (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlReturn (*power)(NvmlDevice, unsigned int*) = nullptr;
  NvmlReturn (*energy)(NvmlDevice, unsigned long long*) = nullptr;   // not in old versions
  NvmlReturn (*reasons)(NvmlDevice, unsigned long long*) = nullptr;  // likewise
};

template <typename Function>
void look_up(void* library, const char* name, Function& into) {
  // The one conversion that POSIX asks for.
  void* const found = ::dlsym(library, name);
  static_assert(sizeof(found) == sizeof(into));
  std::memcpy(static_cast<void*>(&into), static_cast<const void*>(&found), sizeof(into));
}

class NvmlReader final : public GpuReader {
 public:
  NvmlReader(Library library, const Functions& nvml) : library_(std::move(library)), nvml_(nvml) {}
  ~NvmlReader() override { nvml_.shutdown(); }

  Result<void> find_devices() {
    unsigned int count = 0;
    if (const NvmlReturn code = nvml_.count(&count); code != kSuccess)
      return refused("nvmlDeviceGetCount_v2", code);
    for (unsigned int i = 0; i < count; ++i) {
      NvmlDevice handle = nullptr;
      // A device that is lost is left out; the others still count.
      if (nvml_.handle(i, &handle) != kSuccess) continue;
      GpuDevice device;
      device.index = i;
      device.id = text(nvml_.uuid, handle);
      device.model = text(nvml_.name, handle);
      unsigned int minor = 0;
      if (nvml_.minor(handle, &minor) == kSuccess) device.minor = minor;
      if (device.id.empty()) device.id = "nvidia" + std::to_string(i);
      devices_.push_back(std::move(device));
      handles_.push_back(handle);
    }
    return {};
  }

  Error refused(const char* call, NvmlReturn code) const {
    const char* words = nvml_.error_string != nullptr ? nvml_.error_string(code) : nullptr;
    return {ErrorKind::kTransient, std::string(call) + ": " + (words != nullptr ? words : "error") +
                                       " (" + std::to_string(code) + ")"};
  }

  Method method() const noexcept override { return Method::kNvml; }
  const std::vector<GpuDevice>& devices() const noexcept override { return devices_; }

  GpuReading read(std::size_t device) override {
    GpuReading reading;
    NvmlDevice const handle = handles_.at(device);
    NvmlUtilization utilization{};
    if (nvml_.utilization(handle, &utilization) == kSuccess) {
      reading.utilization_ratio = static_cast<double>(utilization.gpu) / 100;
    }
    NvmlMemory memory{};
    if (nvml_.memory(handle, &memory) == kSuccess) {
      reading.memory_used_bytes = memory.used;
      reading.memory_limit_bytes = memory.total;
    }
    unsigned int milliwatts = 0;
    if (nvml_.power(handle, &milliwatts) == kSuccess)
      reading.power_watts = static_cast<double>(milliwatts) / 1000;
    unsigned long long millijoules = 0;
    if (nvml_.energy != nullptr && nvml_.energy(handle, &millijoules) == kSuccess) {
      reading.energy_joules = static_cast<double>(millijoules) / 1000;
    }
    unsigned long long reasons = 0;
    if (nvml_.reasons != nullptr && nvml_.reasons(handle, &reasons) == kSuccess)
      reading.throttled = (reasons & kThrottled) != 0;
    return reading;
  }

 private:
  static std::string text(NvmlReturn (*ask)(NvmlDevice, char*, unsigned int), NvmlDevice handle) {
    std::array<char, kTextBytes> buffer{};
    if (ask(handle, buffer.data(), kTextBytes) != kSuccess) return {};
    return {buffer.data(), ::strnlen(buffer.data(), kTextBytes)};
  }

  Library library_;
  Functions nvml_;
  std::vector<GpuDevice> devices_;
  std::vector<NvmlDevice> handles_;
};

}  // namespace

Result<std::unique_ptr<GpuReader>> open_nvml(const std::string& name) {
  Library library(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) {
    const char* why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it for each thread
    return Error{ErrorKind::kVanished, why != nullptr ? why : "it does not load"};
  }
  Functions nvml;
  look_up(library.get(), "nvmlInit_v2", nvml.init);
  look_up(library.get(), "nvmlShutdown", nvml.shutdown);
  look_up(library.get(), "nvmlErrorString", nvml.error_string);
  look_up(library.get(), "nvmlDeviceGetCount_v2", nvml.count);
  look_up(library.get(), "nvmlDeviceGetHandleByIndex_v2", nvml.handle);
  look_up(library.get(), "nvmlDeviceGetUUID", nvml.uuid);
  look_up(library.get(), "nvmlDeviceGetName", nvml.name);
  look_up(library.get(), "nvmlDeviceGetMinorNumber", nvml.minor);
  look_up(library.get(), "nvmlDeviceGetUtilizationRates", nvml.utilization);
  look_up(library.get(), "nvmlDeviceGetMemoryInfo", nvml.memory);
  look_up(library.get(), "nvmlDeviceGetPowerUsage", nvml.power);
  look_up(library.get(), "nvmlDeviceGetTotalEnergyConsumption", nvml.energy);
  look_up(library.get(), "nvmlDeviceGetCurrentClocksEventReasons", nvml.reasons);
  if (nvml.reasons == nullptr)  // its name in older drivers
    look_up(library.get(), "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.reasons);
  if (nvml.init == nullptr || nvml.shutdown == nullptr || nvml.count == nullptr ||
      nvml.handle == nullptr || nvml.uuid == nullptr || nvml.name == nullptr ||
      nvml.minor == nullptr || nvml.utilization == nullptr || nvml.memory == nullptr ||
      nvml.power == nullptr) {
    return Error{ErrorKind::kTransient,
                 name + " lacks functions that NVIDIA's library has had since 2013"};
  }
  const NvmlReturn code = nvml.init();
  if (code != kSuccess) {
    const char* words = nvml.error_string != nullptr ? nvml.error_string(code) : nullptr;
    return Error{ErrorKind::kTransient, std::string("nvmlInit_v2: ") +
                                            (words != nullptr ? words : "error") + " (" +
                                            std::to_string(code) + ")"};
  }
  auto reader = std::make_unique<NvmlReader>(std::move(library), nvml);
  if (auto found = reader->find_devices(); !found) return found.error();
  return std::unique_ptr<GpuReader>(std::move(reader));
}

}  // namespace scriptorium::usage
