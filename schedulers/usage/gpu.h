#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/api/logger.h"
#include "core/base/guarded.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "schedulers/usage/files.h"
#include "schedulers/usage/life.h"
#include "schedulers/usage/records.h"

// GPUs of the node, and what each job that holds some has used of them. A GPU belongs to a job
// because it was allocated, never because a process runs on it: one that is held and idle is what
// this is about.
namespace scriptorium::usage {

struct GpuDevice {
  std::string id;  // "GPU-e8ba89df-...", an AMD card's unique id, or its PCI address
  std::uint32_t index = 0;
  std::optional<std::uint32_t> minor;  // of its device file
  std::string model;
};

// One reading of one device; what it cannot say (a MIG instance's utilization) is absent.
struct GpuReading {
  std::optional<double> utilization_ratio;
  std::optional<std::uint64_t> memory_used_bytes, memory_limit_bytes;
  std::optional<double> power_watts;
  std::optional<double> energy_joules;  // a counter from an origin of its own
  // Its clocks are held down for heat, or by its hardware to protect itself.
  std::optional<bool> throttled;
};

// One vendor's way to ask. Threads: one at a time. May block for long where a driver hangs.
class GpuReader {
 public:
  GpuReader() = default;
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;
  virtual ~GpuReader() = default;
  virtual Method method() const noexcept = 0;
  virtual const std::vector<GpuDevice>& devices() const noexcept = 0;
  virtual GpuReading read(std::size_t device) = 0;
};

// NVIDIA's library, loaded now: a node without one has no data of it and needs none. kVanished:
// there is no such library; kTransient: it is there and refuses, such as for a driver that is not
// loaded.
Result<std::unique_ptr<GpuReader>> open_nvml(const std::string& library);
// AMD's cards as SYS/class/drm shows them; null if there are none.
std::unique_ptr<GpuReader> open_amd(const std::string& sys, Files& files);

// Which devices a job was given, in words of the node: by index, by id, or by minor number.
struct GpuClaim {
  std::vector<std::uint32_t> indexes;
  std::vector<std::string> ids;
  std::vector<std::uint32_t> minors;
};

// Running statistics of one device for one job.
class GpuStatistics {
 public:
  explicit GpuStatistics(const GpuDevice& device);
  explicit GpuStatistics(GpuRecord record)
      : record_(std::move(record)) {}  // continues where it was

  void add(const GpuReading& reading, SteadyTime at);
  NodeGpu summary() const;
  GpuNow now();  // with the mean utilization since the last call
  const GpuRecord& record() const noexcept { return record_; }

 private:
  void add_energy(const GpuReading& reading, double since_seconds);

  GpuRecord record_;
  GpuReading last_;
  std::optional<SteadyTime> last_at_, zero_since_;
  double sampled_utilization_seconds_ = 0, sampled_seconds_ = 0;
};

// Asks all readers every few seconds, in a thread of its own so that a driver that hangs delays
// nobody, and counts for every job that holds a device. Without a reader it has no thread. Threads:
// any.
class GpuMonitor {
 public:
  struct Options {
    std::string nvml_library;  // "" = do not look for NVIDIA's GPUs
    std::string sys;           // "" = do not look for AMD's
    std::chrono::milliseconds interval{2000};
  };
  GpuMonitor(const Options& options, Files& files, Logger& log, const Clock& clock);
  // For tests: with these readers and without a thread, so that poll() is called by hand.
  GpuMonitor(std::vector<std::unique_ptr<GpuReader>> readers, const Clock& clock);
  ~GpuMonitor();

  bool empty() const noexcept { return devices_.empty(); }
  std::size_t size() const noexcept { return devices_.size(); }
  const std::vector<GpuDevice>& devices() const noexcept { return devices_; }
  Method method() const noexcept { return method_; }

  // This life holds these devices from now on; what it held already continues.
  void claim(const std::string& life, const GpuClaim& claim);
  std::vector<GpuNow> now(const std::string& life);
  // The life has ended: its statistics, and no more of it and of its steps.
  std::vector<NodeGpu> release(const std::string& life);

  bool is_held_by(const std::string& life) const;

  // A step of this life holds those of its devices that have these minor numbers, or no known
  // one; all of them without such a list. False if there is none.
  bool claim_step(const std::string& life, const std::string& step,
                  const std::optional<std::vector<std::uint32_t>>& minors);
  // The step has ended.
  std::vector<NodeGpu> release_step(const std::string& life, const std::string& step);

  // For the state file, and from it: devices that are there no more are left out.
  std::vector<GpuRecord> records(const std::string& life) const;
  void restore(const std::string& life, const std::vector<GpuRecord>& records);

  void poll();

 private:
  void take(std::vector<std::unique_ptr<GpuReader>> readers);
  void run(const std::stop_token& stop) noexcept;

  struct Place {
    std::size_t reader = 0, device = 0;
  };
  using Held = std::map<std::size_t, GpuStatistics>;  // by position in devices_

  const Clock& clock_;
  std::chrono::milliseconds interval_{2000};
  std::vector<std::unique_ptr<GpuReader>> readers_;
  std::vector<Place> places_;
  std::vector<GpuDevice> devices_;
  Method method_ = Method::kNvml;
  Guarded<std::map<std::string, Held>> lives_;  // those of its steps: "LIFE/STEP"
  std::jthread thread_;
};

// Which GPUs a job was allocated: by the files of a prolog, the device group of v1, and the
// environment of its processes. Threads: one.
class GpuClaims {
 public:
  // `prolog_dir`: "/run/gpustat", where a file is named by a GPU's index or id and begins with the
  // job's id; "" = none.
  GpuClaims(std::string prolog_dir, Files& files, GpuMonitor& gpus)
      : prolog_dir_(std::move(prolog_dir)), files_(files), gpus_(gpus) {}

  void read_prolog_files();
  // The minor numbers of NVIDIA's GPUs in a devices.list; nothing if it allows all.
  static std::optional<std::vector<std::uint32_t>> gpu_minors(std::string_view devices);
  // `devices`: of devices.list; `indexes`: of SLURM_JOB_GPUS.
  void claim(const JobSeen& job, std::optional<std::string_view> devices,
             const std::optional<std::string>& indexes);

 private:
  std::string prolog_dir_;
  Files& files_;
  GpuMonitor& gpus_;
  std::map<std::string, GpuClaim, std::less<>> prolog_;  // by job id
};

}  // namespace scriptorium::usage
