// What every sink promises, whatever its destination.
#include "tests/contract/sink_contract.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/event_factory.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"

namespace scriptorium::test {
namespace {

class SinkContractTest : public ::testing::TestWithParam<SinkCase> {
 protected:
  std::unique_ptr<Sink> make_started() {
    auto sink = destination_->make(context_);
    const auto started = sink->start();
    EXPECT_TRUE(started) << started.error().message();
    return sink;
  }
  void stop(Sink& sink) { sink.stop(std::chrono::steady_clock::now() + std::chrono::seconds(10)); }

  RecordingLogger log_;
  PluginContext context_{"under-test", "lab", log_, system_clock()};
  std::unique_ptr<SinkCase::Destination> destination_ = GetParam().destination();
  Outbox outbox_;
};

TEST_P(SinkContractTest, CheckSucceedsBeforeTheStartAndLeavesNothingBehind) {
  auto sink = destination_->make(context_);
  const std::string before = destination_->contents();
  const auto checked = sink->check();
  EXPECT_TRUE(checked) << checked.error().message();
  EXPECT_EQ(destination_->contents(), before);
}

TEST_P(SinkContractTest, AcknowledgesEachEventOfABatchExactlyOnce) {
  auto sink = make_started();
  std::vector<std::shared_ptr<const Event>> events;
  for (int i = 0; i < 100; ++i)
    events.push_back(
        make_event(std::to_string(4000 + i), "#!/bin/sh\necho " + std::to_string(i) + '\n'));
  sink->deliver(outbox_.batch(events));
  ASSERT_TRUE(outbox_.wait_all_settled());
  for (const auto& event : events)
    EXPECT_EQ(outbox_.outcome(event->job.id), Outcome::kAcknowledged)
        << outbox_.reason(event->job.id);
  EXPECT_EQ(outbox_.settled_twice(), 0U);
  stop(*sink);
}

TEST_P(SinkContractTest, TakesEventsInAnyOrder) {
  auto sink = make_started();
  std::vector<std::shared_ptr<const Event>> events;
  for (int i = 0; i < 60; ++i) events.push_back(make_event(std::to_string(4000 + i)));
  std::mt19937 random(7);
  std::shuffle(events.begin(), events.end(), random);
  for (std::size_t i = 0; i < events.size(); i += 7) {
    sink->deliver(outbox_.batch(
        {events.begin() + static_cast<std::ptrdiff_t>(i),
         events.begin() + static_cast<std::ptrdiff_t>(std::min(events.size(), i + 7))}));
    ASSERT_TRUE(outbox_.wait_all_settled());
  }
  for (const auto& event : events)
    EXPECT_EQ(outbox_.outcome(event->job.id), Outcome::kAcknowledged)
        << outbox_.reason(event->job.id);
  stop(*sink);
}

TEST_P(SinkContractTest, ASecondDeliveryIsAcknowledgedAndChangesNothing) {
  const auto event = make_event("4711");
  auto sink = make_started();
  sink->deliver(outbox_.batch({event}));
  ASSERT_TRUE(outbox_.wait_all_settled());
  const std::string before = destination_->contents();
  sink->deliver(outbox_.batch({event}, 2));
  ASSERT_TRUE(outbox_.wait_all_settled());
  EXPECT_EQ(outbox_.outcome("4711"), Outcome::kAcknowledged) << outbox_.reason("4711");
  if (destination_->keeps_events_apart()) {
    EXPECT_EQ(destination_->contents(), before);
  }
  stop(*sink);
}

TEST_P(SinkContractTest, ASecondDeliveryAfterARestartChangesNothing) {
  const auto event = make_event("4711");
  auto first = make_started();
  first->deliver(outbox_.batch({event}));
  ASSERT_TRUE(outbox_.wait_all_settled());
  stop(*first);
  first.reset();
  const std::string before = destination_->contents();
  auto second = make_started();
  second->deliver(outbox_.batch({event}));
  ASSERT_TRUE(outbox_.wait_all_settled());
  EXPECT_EQ(outbox_.outcome("4711"), Outcome::kAcknowledged) << outbox_.reason("4711");
  if (destination_->keeps_events_apart()) {
    EXPECT_EQ(destination_->contents(), before);
  }
  stop(*second);
}

TEST_P(SinkContractTest, TheSameEventTwiceInOneBatchIsOneEvent) {
  const auto event = make_event("4711");
  auto once = make_started();
  once->deliver(outbox_.batch({event, event}));
  ASSERT_TRUE(outbox_.wait_all_settled());
  EXPECT_EQ(outbox_.outcome("4711"), Outcome::kAcknowledged) << outbox_.reason("4711");
  const std::string before = destination_->contents();
  once->deliver(outbox_.batch({event}));
  ASSERT_TRUE(outbox_.wait_all_settled());
  if (destination_->keeps_events_apart()) {
    EXPECT_EQ(destination_->contents(), before);
  }
  if (destination_->finds()) {
    const auto found = once->find("4711");
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(found->size(), 1U);
  }
  stop(*once);
}

TEST_P(SinkContractTest, StartsTwice) {
  auto sink = make_started();
  const auto again = sink->start();
  EXPECT_TRUE(again) << again.error().message();
  sink->deliver(outbox_.batch({make_event("4711")}));
  ASSERT_TRUE(outbox_.wait_all_settled());
  EXPECT_EQ(outbox_.outcome("4711"), Outcome::kAcknowledged) << outbox_.reason("4711");
  stop(*sink);
}

TEST_P(SinkContractTest, StopSettlesOrLeavesAloneWhatWasDelivered) {
  auto sink = make_started();
  sink->deliver(outbox_.batch({make_event("1"), make_event("2")}));
  stop(*sink);
  const auto unsettled = outbox_.unsettled();
  sink.reset();  // what it still held counts as retry now, which is no loss
  EXPECT_TRUE(outbox_.wait_all_settled());
  EXPECT_LE(unsettled, 2U);
}

TEST_P(SinkContractTest, StopsWithoutHavingDelivered) {
  auto sink = make_started();
  stop(*sink);
}

TEST_P(SinkContractTest, TakesAnEmptyBatch) {
  auto sink = make_started();
  EXPECT_NO_THROW(sink->deliver({}));
  stop(*sink);
}

struct OddEvent {
  std::string what;
  Event event;
};

std::vector<OddEvent> odd_events() {
  std::vector<OddEvent> result;
  const auto add = [&](const std::string& what, auto change) {
    // Each with an id and a job of its own.
    Event event =
        make_event_value(std::to_string(9000 + result.size()), "#!/bin/sh\n# " + what + '\n');
    change(event);
    result.push_back({what, std::move(event)});
  };
  add("an empty script", [](Event& e) { e.files[0] = make_file("script", ""); });
  add("a script that is not UTF-8", [](Event& e) {
    e.files[0] = make_file("script", "#!/bin/sh\n\xff\xfe\0x\n" + std::string(1, '\0'));
  });
  add("a name of 4 kB", [](Event& e) { e.job.name = std::string(4096, 'n'); });
  add("a name that is not UTF-8", [](Event& e) { e.job.name = "\xc3\x28 \xf0\x9f \xed\xa0\x80"; });
  add("a name that leads elsewhere", [](Event& e) { e.job.name = "../../../../etc/cron.d/x"; });
  add("a name with newline and NUL", [](Event& e) { e.job.name = std::string("a\nb\0c", 5); });
  add("an empty name", [](Event& e) { e.job.name = ""; });
  add("no name", [](Event& e) { e.job.name.reset(); });
  add("no files", [](Event& e) {
    e.files.clear();
    e.environment_format = EnvironmentFormat::kNone;
  });
  add("a part only", [](Event& e) {
    std::erase_if(e.files, [](const EventFile& file) { return file.name == "script"; });
    e.parts = {"environment"};
  });
  add("no user", [](Event& e) { e.user = {}; });
  add("an unverified user", [](Event& e) { e.user.verified = false; });
  add("a raw environment", [](Event& e) {
    e.environment_format = EnvironmentFormat::kRaw;
    e.files[1] = make_file("environment", std::string("\0\1\2garbage", 10));
  });
  add("an environment of one megabyte", [](Event& e) {
    e.files[1] = make_file("environment", "BIG=" + std::string(1U << 20, 'v') + '\0');
  });
  add("an odd job id", [](Event& e) { e.job.id = "17[3]/..\n"; });
  add("an empty job id", [](Event& e) { e.job.id = ""; });
  add("a time before 1970", [](Event& e) { e.time = Timestamp{-1'000'000'000}; });
  add("an incomplete capture", [](Event& e) {
    e.complete = false;
    e.problems = {"environment: count 9, 4 strings"};
  });
  return result;
}

TEST_P(SinkContractTest, SettlesOddEventsWithoutThrowing) {
  auto sink = make_started();
  for (OddEvent& odd : odd_events()) {
    SCOPED_TRACE(odd.what);
    const auto event = std::make_shared<const Event>(odd.event);
    ASSERT_NO_THROW(sink->deliver(outbox_.batch({event})));
    ASSERT_TRUE(outbox_.wait_all_settled());
    EXPECT_EQ(outbox_.outcome(event->job.id), Outcome::kAcknowledged)
        << outbox_.reason(event->job.id);
    const bool compare = destination_->keeps_events_apart();
    const std::string before = compare ? destination_->contents() : "";
    ASSERT_NO_THROW(sink->deliver(outbox_.batch({event}, 2)));
    ASSERT_TRUE(outbox_.wait_all_settled());
    EXPECT_EQ(outbox_.outcome(event->job.id), Outcome::kAcknowledged)
        << outbox_.reason(event->job.id);
    if (compare) {
      EXPECT_EQ(destination_->contents(), before);
    }
  }
  stop(*sink);
}

TEST_P(SinkContractTest, OddEventsInOneBatchDoNotHarmAnOrdinaryOne) {
  auto sink = make_started();
  std::vector<std::shared_ptr<const Event>> events;
  for (OddEvent& odd : odd_events())
    events.push_back(std::make_shared<const Event>(std::move(odd.event)));
  events.insert(events.begin() + static_cast<std::ptrdiff_t>(events.size() / 2),
                make_event("4711"));
  ASSERT_NO_THROW(sink->deliver(outbox_.batch(events)));
  ASSERT_TRUE(outbox_.wait_all_settled());
  EXPECT_EQ(outbox_.outcome("4711"), Outcome::kAcknowledged) << outbox_.reason("4711");
  stop(*sink);
}

TEST_P(SinkContractTest, FindsWhatItStoredAndNothingElse) {
  if (!destination_->finds()) GTEST_SKIP() << "this sink does not look back";
  const auto event = make_event("4711");
  auto sink = make_started();
  sink->deliver(outbox_.batch({event, make_event("47110"), make_event("14711")}));
  ASSERT_TRUE(outbox_.wait_all_settled());
  stop(*sink);
  // As the command does: an instance that was never started.
  auto reader = destination_->make(context_);
  const auto found = reader->find("4711");
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->size(), 1U);
  const auto script = std::ranges::find(found->front().files, "script", &StoredFile::name);
  ASSERT_NE(script, found->front().files.end());
  EXPECT_EQ(*script->bytes, *event->file("script")->bytes);
  const auto none = reader->find("471");
  ASSERT_TRUE(none) << none.error().message();
  EXPECT_TRUE(none->empty());
}

TEST_P(SinkContractTest, StatusIsAJsonObjectOrNothing) {
  auto sink = make_started();
  const std::string status = sink->status_json();
  if (!status.empty()) {
    EXPECT_TRUE(status.starts_with('{') && status.ends_with('}')) << status;
  }
  stop(*sink);
}

INSTANTIATE_TEST_SUITE_P(EverySink, SinkContractTest, ::testing::ValuesIn(sink_cases()),
                         [](const ::testing::TestParamInfo<SinkCase>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace scriptorium::test
