// A stand-in for NVIDIA's library with just the functions that we use; with FAKE_NVML_OLD, for one
// before Volta and driver 535. The environment says what it answers:
//   FAKE_NVML="0:90:4096:150000:2000,1:0:1024:50000:100"
//                               a device each: index, percent, MiB in use, mW, mJ
//   FAKE_NVML_INIT=9            nvmlInit_v2 fails with this code
//   FAKE_NVML_LOST=1            this device answers GPU_IS_LOST to everything
//   FAKE_NVML_NO_UTILIZATION=0  this device does not support the question for its utilization, as
//                               a card in MIG mode does not
//   FAKE_NVML_RUNS=1            the energy of all devices grows by their power from the start on
//   FAKE_NVML_REASONS=0x24      why the clocks of all devices are low; absent: NOT_SUPPORTED
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kNotSupported = 3;
constexpr int kLost = 15;

struct Device {
  unsigned int index = 0, percent = 0, mebibytes = 0, milliwatts = 0;
  unsigned long long millijoules = 0;
};

bool is(const char* variable, unsigned int index) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::strtoul(value, nullptr, 10) == index;
}

std::vector<Device> all() {
  std::vector<Device> devices;
  const char* text = std::getenv("FAKE_NVML");
  while (text != nullptr && *text != '\0') {
    Device device;
    if (std::sscanf(text, "%u:%u:%u:%u:%llu", &device.index, &device.percent, &device.mebibytes,
                    &device.milliwatts, &device.millijoules) != 5) {
      break;
    }
    devices.push_back(device);
    text = std::strchr(text, ',');
    if (text != nullptr) ++text;
  }
  return devices;
}

// A handle is the index plus one, so that it is not null.
int find(void* handle, Device& into) {
  const std::size_t index = reinterpret_cast<std::size_t>(handle) - 1;
  const std::vector<Device> devices = all();
  if (index >= devices.size() || is("FAKE_NVML_LOST", static_cast<unsigned int>(index)))
    return kLost;
  into = devices[index];
  return 0;
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE int nvmlInit_v2() {
  const char* code = std::getenv("FAKE_NVML_INIT");
  return code == nullptr ? 0 : std::atoi(code);
}
FAKE int nvmlShutdown() { return 0; }
FAKE const char* nvmlErrorString(int code) {
  return code == 9 ? "Driver Not Loaded" : "Some Error";
}
FAKE int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = static_cast<unsigned int>(all().size());
  return 0;
}
FAKE int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** handle) {
  if (is("FAKE_NVML_LOST", index)) return kLost;
  *handle = reinterpret_cast<void*>(static_cast<std::size_t>(index) + 1);
  return 0;
}
FAKE int nvmlDeviceGetUUID(void* handle, char* text, unsigned int size) {
  Device device;
  if (const int code = find(handle, device)) return code;
  std::snprintf(text, size, "GPU-%08u", device.index);
  return 0;
}
FAKE int nvmlDeviceGetName(void* handle, char* text, unsigned int size) {
  Device device;
  if (const int code = find(handle, device)) return code;
  std::snprintf(text, size, "Fake A100");
  return 0;
}
FAKE int nvmlDeviceGetMinorNumber(void* handle, unsigned int* minor) {
  Device device;
  if (const int code = find(handle, device)) return code;
  *minor = device.index;
  return 0;
}
FAKE int nvmlDeviceGetUtilizationRates(void* handle, unsigned int* rates) {
  Device device;
  if (const int code = find(handle, device)) return code;
  if (is("FAKE_NVML_NO_UTILIZATION", device.index)) return kNotSupported;
  rates[0] = device.percent;
  rates[1] = device.percent / 2;
  return 0;
}
FAKE int nvmlDeviceGetMemoryInfo(void* handle, unsigned long long* memory) {
  Device device;
  if (const int code = find(handle, device)) return code;
  memory[0] = 81920ULL << 20;
  memory[2] = static_cast<unsigned long long>(device.mebibytes) << 20;
  memory[1] = memory[0] - memory[2];
  return 0;
}
FAKE int nvmlDeviceGetPowerUsage(void* handle, unsigned int* milliwatts) {
  Device device;
  if (const int code = find(handle, device)) return code;
  *milliwatts = device.milliwatts;
  return 0;
}
#ifdef FAKE_NVML_OLD
#define CLOCK_REASONS nvmlDeviceGetCurrentClocksThrottleReasons
#else
#define CLOCK_REASONS nvmlDeviceGetCurrentClocksEventReasons
FAKE int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules) {
  Device device;
  if (const int code = find(handle, device)) return code;
  *millijoules = device.millijoules;
  if (std::getenv("FAKE_NVML_RUNS") != nullptr) {
    static const auto start = std::chrono::steady_clock::now();
    const std::chrono::duration<double> ran = std::chrono::steady_clock::now() - start;
    *millijoules += static_cast<unsigned long long>(ran.count() * device.milliwatts);
  }
  return 0;
}
#endif
FAKE int CLOCK_REASONS(void* handle, unsigned long long* reasons) {
  Device device;
  if (const int code = find(handle, device)) return code;
  const char* value = std::getenv("FAKE_NVML_REASONS");
  if (value == nullptr) return kNotSupported;
  *reasons = std::strtoull(value, nullptr, 0);
  return 0;
}
