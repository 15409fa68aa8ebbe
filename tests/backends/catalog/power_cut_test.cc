#include "tests/support/power_cut/power_cut.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/catalog/sink.h"
#include "tests/backends/catalog/catalog_events.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::catalog {
namespace {

using namespace test_support;
using test::PowerCut;
using test::PowerCutCase;
namespace fs = std::filesystem;

// Each state is opened and read whole.
#ifdef __SANITIZE_THREAD__
constexpr std::size_t kMostStates = 40;
#else
constexpr std::size_t kMostStates = 150;
#endif

class CatalogPowerCutTest : public ::testing::Test {
 protected:
  std::unique_ptr<CatalogSink> start(const std::string& root) {
    CatalogConfig config;
    config.root = root;
    config.segment_jobs = 8;
    auto sink =
        std::make_unique<CatalogSink>(config, PluginContext{"catalog", "lab", log_, clock_});
    const auto started = sink->start();
    EXPECT_TRUE(started) << started.error().message();
    return sink;
  }
  void deliver(CatalogSink& sink, PowerCut* disk) {
    for (const std::vector<Event>& events : workload()) {
      test::Outbox outbox;
      std::vector<std::shared_ptr<const Event>> batch;
      for (const Event& event : events) batch.push_back(shared(event));
      sink.deliver(outbox.batch(batch));
      for (const Event& event : events) {
        ASSERT_EQ(outbox.outcome(event.job.id), Outcome::kAcknowledged)
            << outbox.reason(event.job.id);
        if (disk != nullptr) disk->mark(event.id);
      }
    }
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
  test::FakeClock clock_;
  const std::string disk_ = directory_.make_directory("disk");
};

TEST_F(CatalogPowerCutTest, WhatWasAcknowledgedIsWholeAtAnyStepOfTwoLivesAndAMove) {
  PowerCut disk(disk_);
  for (int life = 0; life < 2; ++life) {
    const auto sink = start(disk_ + "/catalog");
    ASSERT_NO_FATAL_FAILURE(deliver(*sink, &disk));
    sink->stop(SteadyTime::max());
  }
  ASSERT_EQ(move_all_segments(disk_ + "/catalog"), "");
  disk.stop();
  ASSERT_EQ(disk.missed([](const std::string& path) { return path.ends_with("-shm"); }), "");
  std::map<std::string, Event> events;
  std::set<std::string> superseded;
  for (const std::vector<Event>& batch : workload()) {
    for (const Event& event : batch) {
      events.emplace(event.id, event);
      if (event.supersedes) superseded.insert(*event.supersedes);
    }
  }
  std::set<std::uint64_t> seen;
  std::size_t broken = 0;
  for (const PowerCutCase& c : test::power_cut_cases(disk, kMostStates)) {
    const PowerCut::Disk state = disk.build(c.step, c.loss, c.seed);
    if (!seen.insert(state.fingerprint()).second) continue;
    SCOPED_TRACE("before step " + std::to_string(c.step) + " (" + disk.step_text(c.step) +
                 "), losing " + PowerCut::name_of(c.loss));
    const std::string copy = directory_.path_to("copy");
    fs::remove_all(copy);
    state.write_to(copy);
    const std::string root = copy + "/catalog";
    const auto sink = start(root);
    for (const std::string& id : disk.marks_until(c.step)) {
      if (superseded.contains(id)) continue;
      const Event& event = events.at(id);
      const auto fetched = sink->readable()->fetch(test::without_bytes(event));
      EXPECT_TRUE(fetched) << "job " << event.job.id
                           << " was acknowledged: " << (fetched ? "" : fetched.error().message());
      if (fetched) {
        EXPECT_EQ(event_json(**fetched), event_json(event));
      }
    }
    // Also what was being moved when the power went.
    EXPECT_EQ(rebuild(root), "");
    EXPECT_EQ(problems_of(root), std::vector<std::string>{});
    // What was not acknowledged comes once more.
    ASSERT_NO_FATAL_FAILURE(deliver(*sink, nullptr));
    EXPECT_EQ(problems_of(root), std::vector<std::string>{});
    if (HasFailure() && ++broken == 3) FAIL() << "and so on";
  }
  std::printf("%zu calls, %zu different states\n", disk.steps(), seen.size());
}

}  // namespace
}  // namespace scriptorium::catalog
