#include "core/delivery/filler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/sha256.h"
#include "tests/core/delivery/listed_events.h"
#include "tests/support/event_factory.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAreArray;

class FillerTest : public testing::Test {
 protected:
  void open(std::vector<std::shared_ptr<const Event>> events) {
    auto journal = Journal::open({.directory = directory_.path()}, log_, system_clock());
    ASSERT_TRUE(journal) << journal.error().message();
    journal_ = *std::move(journal);
    archives_.put("archive", std::make_shared<test::ListedEvents>(std::move(events)));
    journal_->set_archive([&](const Event& locator) { return archives_.fetch(locator); });
    auto sink = journal_->register_sink("new", {"*"});
    ASSERT_TRUE(sink);
    sink_ = *sink;
    filler_ = std::make_unique<Filler>(*journal_, archives_, log_, std::uint64_t{1} << 30);
  }
  // The fill, once it has ended.
  Journal::Fill fill() {
    const auto begun = filler_->begin("new", "archive", Timestamp{});
    EXPECT_TRUE(begun) << begun.error().message();
    filler_->start_thread();
    while (journal_->fills()[0].is_under_way())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(filler_->stop(std::chrono::steady_clock::now() + std::chrono::minutes(1)));
    return journal_->fills()[0];
  }
  std::vector<std::shared_ptr<const Event>> sent() {
    std::vector<std::shared_ptr<const Event>> events;
    std::uint64_t after = 0;
    while (true) {
      auto items = journal_->read(sink_, after, 10, 64U << 20);
      EXPECT_TRUE(items) << items.error().message();
      if (!items || items->empty()) return events;
      for (Journal::Item& item : *items) events.push_back(item.event);
      after = items->back().sequence;
    }
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
  Archives archives_;
  std::unique_ptr<Journal> journal_;
  Journal::SinkId sink_ = 0;
  std::unique_ptr<Filler> filler_;
};

std::shared_ptr<const Event> with_script(const Event& event, std::string script) {
  Event changed = event;
  EventFile file = test::make_file("script", std::move(script));
  changed.id = sha256_hex(event.id + file.sha256);
  changed.files[0] = std::move(file);
  return std::make_shared<const Event>(std::move(changed));
}

TEST_F(FillerTest, WhatTheRulesChangeIsSentAsTheyLeaveItAndTheRestAsItIs) {
  std::vector<std::shared_ptr<const Event>> events;
  for (int i = 0; i < 6; ++i) events.push_back(test::make_event(std::to_string(i)));
  Event usage = test::make_event_value("6");
  usage.kind = "usage.job";
  usage.files.clear();
  usage.extra_json = R"({"usage":{"command":"secret"}})";
  events.push_back(std::make_shared<const Event>(usage));
  open(events);
  filler_->set_rules([](const Event& event) -> Result<std::shared_ptr<const Event>> {
    if (event.job.id == "1") return with_script(event, "echo [redacted]\n");
    if (event.job.id == "3") return Error{ErrorKind::kPermanent, "no rules"};
    if (event.job.id == "6") {  // has no file, and keeps its id
      Event changed = event;
      changed.extra_json = R"({"usage":{"command":"[redacted]"}})";
      return std::make_shared<const Event>(std::move(changed));
    }
    return std::shared_ptr<const Event>{};
  });
  const Journal::Fill done = fill();
  EXPECT_EQ(done.state, Journal::Fill::State::kDone);
  EXPECT_EQ(done.sent, 6U);
  EXPECT_EQ(done.skipped, 1U);
  EXPECT_TRUE(log_.has("FILL_NOT_REDACTED"));
  std::vector<std::string> ids;
  for (const auto& event : sent()) {
    ids.push_back(event->id);
    EXPECT_NE(event->job.id, "3");
    EXPECT_EQ(event_json(*event).find("secret"), std::string::npos);
    if (event->job.id == "1") {
      EXPECT_EQ(*event->file("script")->bytes, "echo [redacted]\n");
    }
  }
  EXPECT_THAT(ids, UnorderedElementsAreArray(
                       {events[0]->id, with_script(*events[1], "echo [redacted]\n")->id,
                        events[2]->id, events[4]->id, events[5]->id, events[6]->id}));
}

// A page is as long as its events are small: those that are changed are in memory at once.
TEST_F(FillerTest, LargeEventsThatTheRulesChangeAreSentOnceEach) {
  std::vector<std::shared_ptr<const Event>> events;
  for (int i = 0; i < 9; ++i) events.push_back(test::make_event(std::to_string(i)));
  open(events);
  filler_->set_rules([](const Event& event) -> Result<std::shared_ptr<const Event>> {
    return with_script(event, std::string(10U << 20, '\n'));
  });
  const Journal::Fill done = fill();
  EXPECT_EQ(done.sent, 9U);
  EXPECT_EQ(done.present, 0U);
  std::vector<std::string> jobs;
  for (const auto& event : sent()) jobs.push_back(event->job.id);
  EXPECT_THAT(jobs, ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8"));
}

}  // namespace
}  // namespace scriptorium
