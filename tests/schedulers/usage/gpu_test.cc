#include "schedulers/usage/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <mutex>

#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::usage {
namespace {

using namespace std::chrono_literals;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Optional;

// Answers what a test says.
class ScriptedReader final : public GpuReader {
 public:
  explicit ScriptedReader(std::size_t count) : readings(count) {
    for (std::size_t i = 0; i < count; ++i) {
      devices_.push_back({"GPU-" + std::to_string(i), static_cast<std::uint32_t>(i),
                          static_cast<std::uint32_t>(i + 4), "A100"});
    }
  }
  Method method() const noexcept override { return Method::kNvml; }
  const std::vector<GpuDevice>& devices() const noexcept override { return devices_; }
  GpuReading read(std::size_t device) override {
    ++reads;
    return readings.at(device);
  }
  std::vector<GpuReading> readings;
  int reads = 0;

 private:
  std::vector<GpuDevice> devices_;
};

class GpuMonitorTest : public ::testing::Test {
 protected:
  test::FakeClock clock_;
  ScriptedReader* reader_ = nullptr;
  std::unique_ptr<GpuMonitor> monitor_ = make(2);

  std::unique_ptr<GpuMonitor> make(std::size_t count) {
    auto reader = std::make_unique<ScriptedReader>(count);
    reader_ = reader.get();
    std::vector<std::unique_ptr<GpuReader>> readers;
    readers.push_back(std::move(reader));
    return std::make_unique<GpuMonitor>(std::move(readers), clock_);
  }
  void poll(double first, double second = 0) {
    reader_->readings.at(0).utilization_ratio = first;
    if (reader_->readings.size() > 1) reader_->readings.at(1).utilization_ratio = second;
    monitor_->poll();
    clock_.advance(2s);
  }
};

// Others count one GPU a batch, so that two busy ones look like one that is half used.
TEST_F(GpuMonitorTest, TwoBusyGpusAreTwoBusyGpus) {
  monitor_->claim("job", {.indexes = {0, 1}});
  for (int i = 0; i < 5; ++i) poll(0.9, 0.9);
  const auto gpus = monitor_->release("job");
  ASSERT_EQ(gpus.size(), 2U);
  for (const NodeGpu& gpu : gpus) {
    EXPECT_THAT(gpu.utilization.avg, Optional(DoubleNear(0.9, 1e-9)));
    EXPECT_THAT(gpu.zero_ratio, Optional(0.0));
    EXPECT_EQ(gpu.samples, 5U);
  }
}

TEST_F(GpuMonitorTest, AGpuThatIsHeldAndIdleIsSeenWithoutAnyProcess) {
  monitor_->claim("job", {.indexes = {1}});
  for (int i = 0; i < 6; ++i) poll(1, 0);
  const auto gpus = monitor_->release("job");
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].id, "GPU-1");
  EXPECT_THAT(gpus[0].utilization.avg, Optional(0.0));
  EXPECT_THAT(gpus[0].utilization.max, Optional(0.0));
  EXPECT_THAT(gpus[0].zero_ratio, Optional(1.0));
  EXPECT_THAT(gpus[0].longest_zero_seconds, Optional(DoubleNear(10, 1e-9)));
}

TEST_F(GpuMonitorTest, TheLongestIdleTimeIsTheLongestUnbrokenOne) {
  monitor_->claim("job", {.indexes = {0}});
  for (const double busy : {0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.0}) poll(busy);
  const auto gpus = monitor_->release("job");
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_THAT(gpus[0].longest_zero_seconds, Optional(DoubleNear(6, 1e-9)));
  EXPECT_THAT(gpus[0].zero_ratio, Optional(DoubleNear(10.0 / 14, 1e-9)));
}

TEST_F(GpuMonitorTest, WhatADeviceCannotTellIsAbsentNotZero) {
  monitor_->claim("job", {.indexes = {0}});
  reader_->readings[0].memory_used_bytes = 1 << 20;  // a MIG instance tells its memory alone
  monitor_->poll();
  clock_.advance(2s);
  monitor_->poll();
  const auto gpus = monitor_->release("job");
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].utilization.avg, std::nullopt);
  EXPECT_EQ(gpus[0].zero_ratio, std::nullopt);
  EXPECT_EQ(gpus[0].longest_zero_seconds, std::nullopt);
  EXPECT_THAT(gpus[0].peak_memory_bytes, Optional(1U << 20));
}

TEST_F(GpuMonitorTest, EnergyIsTheDevicesCounterElseItsPowerOverTime) {
  monitor_->claim("job", {.indexes = {0, 1}});
  reader_->readings[0].energy_joules = 1000;
  reader_->readings[1].power_watts = 50;
  poll(1, 1);
  reader_->readings[0].energy_joules = 1600;
  poll(1, 1);
  monitor_->claim("later", {.indexes = {0}});
  reader_->readings[0].energy_joules = 1650;
  poll(1, 1);
  const auto gpus = monitor_->release("job");
  EXPECT_THAT(gpus.at(0).energy_joules, Optional(DoubleNear(650, 1e-9)));
  EXPECT_THAT(gpus.at(1).energy_joules, Optional(DoubleNear(200, 1e-9)));
  EXPECT_EQ(monitor_->release("later").at(0).energy_joules, std::nullopt) << "one reading has none";
}

TEST_F(GpuMonitorTest, TimeWithLowClocksCountsOnlyWhileTheGpuWorks) {
  monitor_->claim("job", {.indexes = {0, 1}});
  const std::vector<std::pair<double, bool>> readings{
      {1, false}, {1, true}, {0, true}, {1, false}, {0.5, true}};
  for (const auto& [busy, throttled] : readings) {
    reader_->readings[0].throttled = throttled;
    poll(busy, 1);
  }
  EXPECT_EQ(monitor_->records("job").at(0).clock_seconds, 8);
  const auto gpus = monitor_->release("job");
  EXPECT_THAT(gpus.at(0).throttled_ratio, Optional(DoubleNear(4.0 / 8, 1e-9)));
  EXPECT_EQ(gpus.at(1).throttled_ratio, std::nullopt) << "it cannot say it";
}

TEST_F(GpuMonitorTest, ThereIsNoEnergyAcrossACounterThatBeganAgain) {
  monitor_->claim("job", {.indexes = {0}});
  for (const double joules : {5000.0, 5600.0, 100.0, 9000.0}) {
    reader_->readings[0].energy_joules = joules;
    reader_->readings[0].power_watts = 50;
    poll(1);
  }
  EXPECT_EQ(monitor_->records("job").at(0).energy_origin_joules, std::nullopt);
  EXPECT_EQ(monitor_->release("job").at(0).energy_joules, std::nullopt);
}

TEST_F(GpuMonitorTest, EnergyIsCountedOverARestartOfTheDaemon) {
  monitor_->claim("job", {.indexes = {0}});
  reader_->readings[0].energy_joules = 1000;
  poll(1);
  const auto records = monitor_->records("job");
  monitor_ = make(2);
  monitor_->restore("job", records);
  reader_->readings[0].energy_joules = 1000 - 1e-6;  // it was rounded up in the state file
  poll(1);
  reader_->readings[0].energy_joules = 4000;
  poll(1);
  EXPECT_THAT(monitor_->release("job").at(0).energy_joules, Optional(DoubleNear(3000, 1e-9)));
}

TEST_F(GpuMonitorTest, TheEnergyOfADividedCardIsNotThatOfOnePart) {
  monitor_->claim("job", {.indexes = {0, 1}});
  reader_->readings[0].energy_joules = 1000;
  reader_->readings[1].power_watts = 50;
  monitor_->poll();  // without a utilization, as of a card in MIG mode
  clock_.advance(2s);
  reader_->readings[0].energy_joules = 1600;
  monitor_->poll();
  for (const NodeGpu& gpu : monitor_->release("job"))
    EXPECT_EQ(gpu.energy_joules, std::nullopt) << gpu.id;
}

TEST_F(GpuMonitorTest, DevicesAreFoundByIndexIdAndMinor) {
  monitor_->claim("index", {.indexes = {1}});
  monitor_->claim("id", {.ids = {"GPU-0"}});
  monitor_->claim("minor", {.minors = {5}});
  monitor_->claim("none", {.indexes = {9}});
  poll(0.25, 0.75);
  EXPECT_EQ(monitor_->release("index").at(0).id, "GPU-1");
  EXPECT_EQ(monitor_->release("id").at(0).id, "GPU-0");
  EXPECT_EQ(monitor_->release("minor").at(0).id, "GPU-1");
  EXPECT_TRUE(monitor_->release("none").empty());
}

TEST_F(GpuMonitorTest, NothingIsAskedOfADeviceThatNobodyHolds) {
  poll(1, 1);
  EXPECT_EQ(reader_->reads, 0);
  monitor_->claim("job", {.indexes = {1}});
  poll(1, 1);
  EXPECT_EQ(reader_->reads, 1);
}

TEST_F(GpuMonitorTest, ARestartGoesOnWithWhatWasCounted) {
  monitor_->claim("job", {.indexes = {0}});
  for (int i = 0; i < 3; ++i) poll(0.5);
  const auto records = monitor_->records("job");
  monitor_ = make(2);
  monitor_->restore("job", records);
  for (int i = 0; i < 3; ++i) poll(0.5);
  const auto gpus = monitor_->release("job");
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].samples, 6U);
  EXPECT_THAT(gpus[0].utilization.avg, Optional(DoubleNear(0.5, 1e-9)));
}

TEST_F(GpuMonitorTest, ASampleHasTheMeanSinceTheOneBefore) {
  monitor_->claim("job", {.indexes = {0}});
  poll(1);
  poll(1);
  EXPECT_THAT(monitor_->now("job").at(0).utilization_ratio, Optional(DoubleNear(1, 1e-9)));
  poll(0);
  poll(0.5);
  EXPECT_THAT(monitor_->now("job").at(0).utilization_ratio, Optional(DoubleNear(0.25, 1e-9)));
}

// ---- NVIDIA

class NvmlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"FAKE_NVML_INIT", "FAKE_NVML_LOST", "FAKE_NVML_NO_UTILIZATION", "FAKE_NVML_REASONS"})
      ::unsetenv(name);
    ::setenv("FAKE_NVML", "0:90:4096:150000:2000,1:0:1024:50000:100", 1);
  }
  void TearDown() override { SetUp(); }
};

TEST_F(NvmlTest, ReadsWhatTheLibrarySaysInOurUnits) {
  auto reader = open_nvml(SCRIPTORIUM_FAKE_NVML);
  ASSERT_TRUE(reader.has_value()) << reader.error().message();
  const auto& devices = (*reader)->devices();
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[0].id, "GPU-00000000");
  EXPECT_EQ(devices[1].index, 1U);
  EXPECT_THAT(devices[1].minor, Optional(1U));
  EXPECT_EQ(devices[0].model, "Fake A100");
  const GpuReading reading = (*reader)->read(0);
  EXPECT_THAT(reading.utilization_ratio, Optional(DoubleNear(0.9, 1e-9)));
  EXPECT_THAT(reading.memory_used_bytes, Optional(4096ULL << 20));
  EXPECT_THAT(reading.memory_limit_bytes, Optional(81920ULL << 20));
  EXPECT_THAT(reading.power_watts, Optional(DoubleNear(150, 1e-9)));
  EXPECT_THAT(reading.energy_joules, Optional(DoubleNear(2, 1e-9)));
  EXPECT_THAT((*reader)->read(1).utilization_ratio, Optional(0.0)) << "idle is a measurement";
}

TEST_F(NvmlTest, WithoutTheLibraryThereIsNoDataAndOneLine) {
  const auto reader = open_nvml("libscriptorium-no-such-nvml.so.1");
  ASSERT_FALSE(reader.has_value());
  EXPECT_EQ(reader.error().kind(), ErrorKind::kVanished);

  test::RecordingLogger log;
  test::FakeClock clock;
  const GpuMonitor monitor({.nvml_library = "libscriptorium-no-such-nvml.so.1"}, real_files(), log,
                           clock);
  EXPECT_TRUE(monitor.empty());
  EXPECT_EQ(log.messages().size(), 1U);
  EXPECT_TRUE(log.has("USAGE_NO_NVML"));
}

TEST_F(NvmlTest, ADriverThatIsNotLoadedIsSaidWithTheLibrarysWords) {
  ::setenv("FAKE_NVML_INIT", "9", 1);
  const auto reader = open_nvml(SCRIPTORIUM_FAKE_NVML);
  ASSERT_FALSE(reader.has_value());
  EXPECT_EQ(reader.error().kind(), ErrorKind::kTransient);
  EXPECT_THAT(reader.error().message(), HasSubstr("Driver Not Loaded (9)"));

  test::RecordingLogger log;
  test::FakeClock clock;
  const GpuMonitor monitor({.nvml_library = SCRIPTORIUM_FAKE_NVML}, real_files(), log, clock);
  EXPECT_EQ(log.count("USAGE_NVML_REFUSED"), 1U);
}

TEST_F(NvmlTest, ADeviceThatIsLostHidesNoOther) {
  ::setenv("FAKE_NVML_LOST", "0", 1);
  auto reader = open_nvml(SCRIPTORIUM_FAKE_NVML);
  ASSERT_TRUE(reader.has_value()) << reader.error().message();
  ASSERT_EQ((*reader)->devices().size(), 1U);
  EXPECT_EQ((*reader)->devices()[0].index, 1U);
  ::setenv("FAKE_NVML_LOST", "1", 1);  // now the other one too
  const GpuReading reading = (*reader)->read(0);
  EXPECT_EQ(reading.utilization_ratio, std::nullopt);
  EXPECT_EQ(reading.memory_used_bytes, std::nullopt);
  EXPECT_EQ(reading.energy_joules, std::nullopt);
}

TEST_F(NvmlTest, AnUnsupportedQuestionLeavesItsAnswerAbsent) {
  ::setenv("FAKE_NVML_NO_UTILIZATION", "0", 1);
  auto reader = open_nvml(SCRIPTORIUM_FAKE_NVML);
  ASSERT_TRUE(reader.has_value());
  EXPECT_EQ((*reader)->read(0).utilization_ratio, std::nullopt);
  EXPECT_TRUE((*reader)->read(0).memory_used_bytes.has_value());
}

TEST_F(NvmlTest, HeatAndHardwareHoldClocksDownButNotIdlenessNorTheLimitOfPower) {
  for (const char* name : {SCRIPTORIUM_FAKE_NVML, SCRIPTORIUM_FAKE_NVML_OLD}) {
    auto reader = open_nvml(name);
    ASSERT_TRUE(reader.has_value()) << reader.error().message();
    EXPECT_EQ((*reader)->read(0).throttled, std::nullopt) << "a GPU that cannot say it";
    for (const char* held_down : {"0x8", "0x20", "0x40", "0x80", "0x6c"}) {
      ::setenv("FAKE_NVML_REASONS", held_down, 1);
      EXPECT_THAT((*reader)->read(0).throttled, Optional(true)) << held_down;
    }
    // None, idle, the application's clocks, the software's limit of power, sync boost, display.
    for (const char* as_it_should : {"0x0", "0x1", "0x2", "0x4", "0x10", "0x100"}) {
      ::setenv("FAKE_NVML_REASONS", as_it_should, 1);
      EXPECT_THAT((*reader)->read(0).throttled, Optional(false)) << as_it_should;
    }
    ::unsetenv("FAKE_NVML_REASONS");
  }
}

TEST_F(NvmlTest, ALibraryWithoutACounterOfEnergyHasItsPower) {
  auto reader = open_nvml(SCRIPTORIUM_FAKE_NVML_OLD);
  ASSERT_TRUE(reader.has_value()) << reader.error().message();
  EXPECT_EQ((*reader)->read(0).energy_joules, std::nullopt);
  EXPECT_THAT((*reader)->read(0).power_watts, Optional(DoubleNear(150, 1e-9)));
}

TEST_F(NvmlTest, ItsOwnThreadReadsWhatIsHeldUntilTheEnd) {
  ::setenv("FAKE_NVML_REASONS", "0x40", 1);
  test::RecordingLogger log;
  GpuMonitor monitor({.nvml_library = SCRIPTORIUM_FAKE_NVML, .interval = 1ms}, real_files(), log,
                     system_clock());
  ASSERT_EQ(monitor.size(), 2U);
  monitor.claim("job", {.indexes = {0}});
  const auto limit = std::chrono::steady_clock::now() + 30s;
  std::mutex mutex;
  std::condition_variable nothing;
  std::unique_lock lock(mutex);
  while (monitor.records("job").at(0).gpu.samples < 3 && std::chrono::steady_clock::now() < limit)
    nothing.wait_for(lock, 5ms);
  const auto gpus = monitor.release("job");
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_GE(gpus[0].samples, 3U);
  EXPECT_THAT(gpus[0].utilization.avg, Optional(DoubleNear(0.9, 1e-9)));
  EXPECT_THAT(gpus[0].throttled_ratio, Optional(1.0));
}

// ---- AMD

class AmdTest : public ::testing::Test {
 protected:
  test::TempDir sys_;

  void card(int number, const char* percent, const char* unique_id) {
    const std::string path = "class/drm/card" + std::to_string(number) + "/device/";
    sys_.write(path + "gpu_busy_percent", percent);
    sys_.write(path + "mem_info_vram_used", "1073741824\n");
    sys_.write(path + "mem_info_vram_total", "68702699520\n");
    if (*unique_id != '\0') sys_.write(path + "unique_id", unique_id);
    sys_.write(path + "hwmon/hwmon3/power1_average", "93000000\n");
  }
};

TEST_F(AmdTest, CardsAreReadFromTheFilesOfTheirDriver) {
  card(1, "37\n", "0xabc\n");
  card(0, "0\n", "");
  sys_.make_directory("class/drm/card2/device");  // another vendor's
  sys_.make_directory("class/drm/card1-DP-1");
  auto reader = open_amd(sys_.path(), real_files());
  ASSERT_NE(reader, nullptr);
  ASSERT_EQ(reader->devices().size(), 2U);
  EXPECT_EQ(reader->devices()[0].id, "card0");
  EXPECT_EQ(reader->devices()[1].id, "0xabc");
  EXPECT_EQ(reader->devices()[1].index, 1U);
  const GpuReading reading = reader->read(1);
  EXPECT_THAT(reading.utilization_ratio, Optional(DoubleNear(0.37, 1e-9)));
  EXPECT_THAT(reading.memory_used_bytes, Optional(1073741824U));
  EXPECT_THAT(reading.power_watts, Optional(DoubleNear(93, 1e-9)));
  EXPECT_THAT(reader->read(0).utilization_ratio, Optional(0.0));
}

TEST_F(AmdTest, ANodeWithoutSuchCardsHasNoReader) {
  EXPECT_EQ(open_amd(sys_.path(), real_files()), nullptr);
}

}  // namespace
}  // namespace scriptorium::usage
