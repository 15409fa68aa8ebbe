#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/guarded.h"
#include "core/capture/capture.h"
#include "tests/support/journal_fixture.h"
#include "tests/support/patience.h"

namespace scriptorium::test {

// A journal, and room for the capture that fills it. The parameter is a capture method.
class CaptureFixture : public JournalFixture<testing::TestWithParam<std::string>> {
 protected:
  void TearDown() override {
    capture_.reset();
    JournalFixture::TearDown();
  }

  // A spool's access; nothing if this machine cannot give the method, and the test is to be
  // skipped.
  std::optional<OpenedAccess> open_spool(const std::string& root, const SourceConfig& common) {
    auto opened = open_direct_access(root, SpoolCapture::wanted(common));
    EXPECT_TRUE(opened) << opened.error().message();
    if (common.capture != "fanotify" || opened->fanotify_problem.empty()) return *std::move(opened);
    skip_ = opened->fanotify_problem;
    return std::nullopt;
  }

  // Waits until `count` more events are in the journal.
  std::vector<std::shared_ptr<const Event>> collect_events(std::size_t count) {
    std::vector<std::shared_ptr<const Event>> result;
    const SteadyTime deadline = std::chrono::steady_clock::now() + kPatience;
    const std::uint64_t generation = journal_->parked_generation(sink_);
    while (result.size() < count && std::chrono::steady_clock::now() < deadline) {
      if (!journal_->wait(sink_, after_, generation, {}, deadline)) continue;
      auto items = journal_->read(sink_, after_, 1000, 64U << 20);
      EXPECT_TRUE(items) << items.error().message();
      for (const Journal::Item& item : *items) {
        result.push_back(item.event);
        after_ = item.sequence;
      }
    }
    EXPECT_EQ(result.size(), count);
    return result;
  }

  // Waits until the status says so.
  template <typename Condition>
  testing::AssertionResult eventually(Condition condition) {
    const SteadyTime deadline = std::chrono::steady_clock::now() + kPatience;
    Guarded<int> nothing;
    while (std::chrono::steady_clock::now() < deadline) {
      if (condition(capture_->status())) return testing::AssertionSuccess();
      nothing.wait_until({}, std::chrono::steady_clock::now() + std::chrono::milliseconds{5},
                         [](int) { return false; });
    }
    return testing::AssertionFailure() << "not within " << kPatience.count() << " s";
  }

  std::uint64_t missed() const {
    std::uint64_t sum = 0;
    for (const auto& [reason, count] : capture_->status().missed) sum += count;
    return sum;
  }

  std::unique_ptr<SpoolCapture> capture_;
  std::string skip_;
};

}  // namespace scriptorium::test
