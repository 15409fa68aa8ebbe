#include "core/delivery/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/delivery/archives.h"
#include "tests/support/event_factory.h"

namespace scriptorium::delivery {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

SinkConfig getting(std::vector<std::string> parts) {
  SinkConfig sink;
  sink.parts = std::move(parts);
  return sink;
}

std::vector<std::string> file_names(const Event& event) {
  std::vector<std::string> names;
  for (const EventFile& file : event.files) names.push_back(file.name);
  return names;
}

// With a script, an environment and a record.
std::shared_ptr<const Event> make_recorded_event() {
  Event event = test::make_event_value("4711");
  event.files.push_back(test::make_file("record", "the scheduler's own"));
  return std::make_shared<const Event>(std::move(event));
}

TEST(PartsTest, ASinkWithoutTheOptionGetsTheEventItself) {
  const auto event = make_recorded_event();
  EXPECT_TRUE(gets_whole_events(SinkConfig{}));
  EXPECT_EQ(select_parts(event, SinkConfig{}), event);
}

TEST(PartsTest, EachPartIsTheFilesOfThatName) {
  const auto event = make_recorded_event();
  struct Case {
    std::vector<std::string> parts, files;
  };
  const std::vector<Case> cases = {{{"script"}, {"script"}},
                                   {{"environment"}, {"environment"}},
                                   {{"records"}, {"record"}},
                                   {{"script", "environment"}, {"script", "environment"}},
                                   {{"script", "records"}, {"script", "record"}}};
  for (const Case& c : cases) {
    const SinkConfig sink = getting(c.parts);
    SCOPED_TRACE(testing::PrintToString(c.parts));
    EXPECT_FALSE(gets_whole_events(sink));
    const auto selected = select_parts(event, sink);
    EXPECT_EQ(file_names(*selected), c.files);
    EXPECT_EQ(selected->parts, c.parts);
  }
}

TEST(PartsTest, TheMetadataAndTheBytesOfTheOtherFilesStay) {
  const auto event = make_recorded_event();
  const auto selected = select_parts(event, getting({"script"}));
  EXPECT_EQ(selected->id, event->id);
  EXPECT_EQ(selected->file("script")->bytes, event->file("script")->bytes);
  EXPECT_EQ(selected->environment_format, EnvironmentFormat::kNone);
  Event rest = *selected;
  rest.files = event->files;
  rest.parts.clear();
  rest.environment_format = event->environment_format;
  EXPECT_EQ(event_json(rest), event_json(*event));
}

TEST(PartsTest, TheTextOfAWithheldPartIsNotInTheJson) {
  const auto event = make_recorded_event();
  const std::string environments = event_json(*select_parts(event, getting({"environment"})));
  EXPECT_THAT(environments, testing::HasSubstr("/home/alice\""));
  EXPECT_THAT(environments, testing::Not(testing::HasSubstr("srun hostname")));
  EXPECT_THAT(environments, testing::Not(testing::HasSubstr(event->file("script")->sha256)));
  const std::string scripts = event_json(*select_parts(event, getting({"script"})));
  EXPECT_THAT(scripts, testing::HasSubstr("srun hostname"));
  EXPECT_THAT(scripts, testing::Not(testing::HasSubstr("\"environment_size\"")));
  EXPECT_THAT(scripts, testing::Not(testing::HasSubstr("\"USER\"")));
}

TEST(PartsTest, AnEventOfWhichNothingIsLeftKeepsItsMetadata) {
  const auto event = test::make_event("4711");
  const auto selected = select_parts(event, getting({"records"}));
  EXPECT_THAT(selected->files, IsEmpty());
  EXPECT_THAT(selected->parts, ElementsAre("records"));
  EXPECT_EQ(selected->job.id, "4711");
}

TEST(PartsTest, AnEventThatLacksNothingIsNotMarked) {
  Event usage = test::make_event_value("4711");
  usage.files.clear();
  const auto event = std::make_shared<const Event>(std::move(usage));
  EXPECT_EQ(select_parts(event, getting({"script"})), event);
  EXPECT_EQ(select_parts(nullptr, getting({"script"})), nullptr);
}

// Has one whole event, and one that was stored when its sink had the option `parts`.
class PartlyFilledSink final : public Sink, public ReadableSink {
 public:
  void deliver(std::vector<Delivery> /*batch*/) override {}
  ReadableSink* readable() override { return this; }
  Result<std::shared_ptr<const Event>> fetch(const Event& locator) override {
    for (const auto& event : events) {
      if (event->id == locator.id) return event;
    }
    return Error{ErrorKind::kVanished, "not there"};
  }
  Result<Page> list(const Query& /*query*/, const std::string& /*after*/,
                    std::size_t /*limit*/) override {
    return Page{.events = events, .position = "x", .end = true};
  }

  const std::vector<std::shared_ptr<const Event>> events = {
      test::make_event("1"), select_parts(test::make_event("2"), getting({"script"}))};
};

TEST(ArchivesTest, AnEventWithoutAllItsPartsIsNeverTakenFromAnArchive) {
  const auto sink = std::make_shared<PartlyFilledSink>();
  Archives archives;
  archives.put("archive", sink);
  EXPECT_TRUE(archives.fetch_from("archive", *test::make_event("1")));
  const auto fetched = archives.fetch(*test::make_event("2"));
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().kind(), ErrorKind::kVanished);
  const auto page = archives.list("archive", {}, "", 10);
  ASSERT_TRUE(page);
  EXPECT_THAT(page->events, ElementsAre(sink->events[0]));
  EXPECT_EQ(page->skipped, 1U);
}

TEST(ArchivesTest, ASinkIsTakenBackByPuttingNone) {
  Archives archives;
  archives.put("archive", std::make_shared<PartlyFilledSink>());
  EXPECT_THAT(archives.names(), ElementsAre("archive"));
  archives.put("archive", nullptr);
  EXPECT_THAT(archives.names(), IsEmpty());
}

}  // namespace
}  // namespace scriptorium::delivery
