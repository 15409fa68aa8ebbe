#include "backends/file/archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backends/file/marker.h"
#include "tests/backends/file/sink_fixture.h"
#include "tests/support/event_factory.h"

namespace scriptorium::file {
namespace {

using test::make_event;
using test::make_event_value;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// What core keeps of an event to find it again.
Event locator_of(const Event& event) {
  Event locator;
  locator.id = event.id;
  locator.kind = event.kind;
  locator.time = event.time;
  locator.cluster = event.cluster;
  locator.scheduler = event.scheduler;
  locator.host = event.host;
  locator.job.id = event.job.id;
  locator.job.name = event.job.name;
  locator.job.account = event.job.account;
  locator.job.array = event.job.array;
  locator.user = event.user;
  return locator;
}

class FileArchiveTest : public FileSinkFixture {
 protected:
  void deliver(FileSink& sink, std::vector<std::shared_ptr<const Event>> events) {
    sink.deliver(outbox_.batch(events));
    for (const auto& event : events)
      ASSERT_EQ(outbox_.outcome(event->job.id), Outcome::kAcknowledged);
  }
  // As another sink gets it: the whole JSON, and the bytes that some keep as they are.
  static void expect_same(const Event& fetched, const Event& delivered) {
    EXPECT_EQ(fetched.id, delivered.id);
    EXPECT_EQ(event_json(fetched), event_json(delivered));
    EXPECT_EQ(fetched.environment_format, delivered.environment_format);
    ASSERT_EQ(fetched.files.size(), delivered.files.size());
    for (std::size_t i = 0; i < fetched.files.size(); ++i) {
      ASSERT_NE(fetched.files[i].bytes, nullptr);
      EXPECT_EQ(*fetched.files[i].bytes, *delivered.files[i].bytes);
    }
  }
  std::vector<std::string> list_all(FileSink& sink, const ReadableSink::Query& query,
                                    std::size_t limit) {
    std::vector<std::string> ids;
    std::string after;
    for (int calls = 0; calls < 1000; ++calls) {
      auto page = sink.readable()->list(query, after, limit);
      EXPECT_TRUE(page) << page.error().message();
      if (!page) break;
      EXPECT_LE(page->events.size(), limit);
      for (const auto& event : page->events) ids.push_back(event->id);
      if (page->end) return ids;
      EXPECT_NE(page->position, after) << "no progress";
      after = page->position;
    }
    ADD_FAILURE() << "the listing does not end";
    return ids;
  }
};

// One of each sort that core can hand to a sink.
std::vector<std::shared_ptr<const Event>> assorted_events() {
  std::vector<std::shared_ptr<const Event>> events;
  events.push_back(make_event("1", std::string("#!/bin/sh\n\xff\0tail", 16),
                              {"A=1", "B=line\nline\\n", "C=it's", "1x=y", "odd"}));
  events.push_back(make_event("2", "echo no environment\n", {}));
  Event raw = make_event_value("3", "raw\n", {"x"});
  raw.environment_format = EnvironmentFormat::kRaw;
  raw.files[1] = test::make_file("environment", std::string("\7\0\0\0A=1\0\n\\", 10));
  raw.problems = {"environment: count 7, 1 string"};
  raw.complete = false;
  events.push_back(share(raw));
  Event unverified = make_event_value("4");
  unverified.user.verified = false;
  unverified.job.array = JobArray{"4", "7", "0-99%10"};
  unverified.job.het = HetJob{"4", 1, true};
  unverified.supersedes = std::string(64, 'a');
  unverified.redactions = {{"rule", "script", 2}};
  unverified.lossy = {"job.name"};
  unverified.time = Timestamp{test::kJobTime.nanoseconds + 123'456};
  unverified.id = event_id({"4"});
  events.push_back(share(unverified));
  Event hostile = make_event_value("5");
  hostile.job.name = "../../etc/passwd \x1b[2J \"quoted\"\n*?[";
  hostile.id = event_id({"5"});
  events.push_back(share(hostile));
  Event usage = make_event_value("6");
  usage.kind = "usage.sample";
  usage.script.reset();
  usage.files.clear();
  usage.environment_format = EnvironmentFormat::kNone;
  usage.host = "n1";
  usage.extra_json = R"({"usage":{"cpu_seconds":12.5,"cores":[1,2]},"job":{"step":"batch"}})";
  usage.id = event_id({"6", "usage"});
  events.push_back(share(usage));
  usage.kind = "usage.job";
  usage.id = event_id({"6", "job"});
  events.push_back(share(usage));
  return events;
}

// A sink that was down still gets what went out first.
TEST_F(FileArchiveTest, GivesBackTheUnverifiedEventAfterItsJobHasMoved) {
  auto sink = make();
  const Event before = test::make_unverified_event("4711");
  const Event after = test::make_owned_event(before);
  deliver(*sink, {share(before)});
  deliver(*sink, {share(after)});
  const auto first = sink->readable()->fetch(locator_of(before));
  ASSERT_TRUE(first) << first.error().message();
  expect_same(**first, before);
  const auto second = sink->readable()->fetch(locator_of(after));
  ASSERT_TRUE(second) << second.error().message();
  expect_same(**second, after);
  EXPECT_EQ(list_all(*sink, {}, 10), std::vector<std::string>{after.id});
}

// Sees which directories of a directory are opened, or read.
class SeenDirectories {
 public:
  SeenDirectories(const std::string& parent, std::uint32_t what)
      : fd_(::inotify_init1(IN_NONBLOCK)) {
    EXPECT_GE(::inotify_add_watch(fd_.get(), parent.c_str(), what | IN_ONLYDIR), 0);
  }
  // Their names, since the last call.
  std::set<std::string> take() {
    std::set<std::string> seen;
    alignas(inotify_event) std::array<char, 1U << 16> buffer{};
    for (ssize_t size = 0; (size = ::read(fd_.get(), buffer.data(), buffer.size())) > 0;) {
      for (ssize_t at = 0; at < size;) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
        if ((event->mask & IN_ISDIR) != 0 && event->len > 0) seen.insert(event->name);
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
    return seen;
  }

 private:
  UniqueFd fd_;
};

TEST_F(FileArchiveTest, FindsWhatMovedToTheOwnerThatItsJobNamedWithoutLookingIntoOtherFolders) {
  auto sink = make();
  std::vector<Event> first;
  for (const char* user : {"bob", "carol", "dave"}) {
    Event other = make_event_value(std::string("of-") + user);
    other.user.name = user;
    deliver(*sink, {share(other)});
  }
  for (const char* job : {"1", "2", "3", "4"}) {
    first.push_back(test::make_unverified_event(job, test::kScript, {"USER=alice"}));
    first.back().user.name = "alice";
    deliver(*sink, {share(first.back())});
    deliver(*sink, {share(test::make_owned_event(first.back()))});
  }
  SeenDirectories opened(config_.root, IN_OPEN);
  for (const Event& event : first) {
    const auto fetched = sink->readable()->fetch(locator_of(event));
    ASSERT_TRUE(fetched) << fetched.error().message();
    expect_same(**fetched, event);
  }
  const std::set<std::string> names = opened.take();
  for (const char* user : {"bob", "carol", "dave"}) EXPECT_FALSE(names.contains(user)) << user;

  // One that named somebody else is looked for.
  const Event lies = test::make_unverified_event("5");
  deliver(*sink, {share(lies)});
  deliver(*sink, {share(test::make_owned_event(lies))});
  opened.take();
  const auto fetched = sink->readable()->fetch(locator_of(lies));
  ASSERT_TRUE(fetched) << fetched.error().message();
  expect_same(**fetched, lies);
  EXPECT_TRUE(opened.take().contains("alice")) << "this is seen";
}

TEST_F(FileArchiveTest, GivesEveryEventBackAsItWasDelivered) {
  const auto events = assorted_events();
  for (const std::string layout :
       {"user-month", "sarchive-daily", "{cluster}/{scheduler}/{account}/x{job_name}{job_id}/{ext}",
        "{job_id}.{ext}", "{day}/{job_id}-{array_job_id}_{ext}.txt"}) {
    for (const auto style :
         {EnvironmentStyle::kNul, EnvironmentStyle::kLines, EnvironmentStyle::kShell}) {
      SCOPED_TRACE(layout + " style " + std::to_string(static_cast<int>(style)));
      fs::remove_all(config_.root);
      config_.layout = layout;
      config_.environment_format = style;
      auto sink = make();
      ASSERT_TRUE(sink->start());
      for (const auto& event : events) deliver(*sink, {event});
      for (const auto& event : events) {
        SCOPED_TRACE(event->job.id + ' ' + event->kind);
        const auto fetched = sink->readable()->fetch(locator_of(*event));
        ASSERT_TRUE(fetched) << fetched.error().message();
        expect_same(**fetched, *event);
      }
      std::vector<std::string> expected;
      for (const auto& event : events) expected.push_back(event->id);
      for (const std::size_t limit : {1U, 2U, 100U}) {
        EXPECT_THAT(list_all(*sink, {}, limit), ::testing::UnorderedElementsAreArray(expected))
            << limit;
      }
    }
  }
}

TEST_F(FileArchiveTest, GivesATorqueJobBackWithItsRecordNamedAndWithoutItsBytesAlone) {
  auto sink = make();
  Event job = make_event_value("65.server");
  job.scheduler = "torque";
  job.files.push_back(test::make_file("record", "<job/>\n"));
  deliver(*sink, {share(job)});
  const auto fetched = sink->readable()->fetch(locator_of(job));
  ASSERT_TRUE(fetched) << fetched.error().message();
  EXPECT_EQ((*fetched)->id, job.id);
  EXPECT_EQ(event_json(**fetched), event_json(job));
  ASSERT_EQ((*fetched)->files.size(), 3U);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_NE((*fetched)->files[i].bytes, nullptr);
    EXPECT_EQ(*(*fetched)->files[i].bytes, *job.files[i].bytes);
  }
  EXPECT_EQ((*fetched)->files[2].sha256, job.files[2].sha256);
  EXPECT_EQ((*fetched)->files[2].bytes, nullptr);
}

TEST_F(FileArchiveTest, FindsEachOfSeveralEventsOfOnePathByItsId) {
  auto sink = make();
  ASSERT_TRUE(sink->start());
  std::vector<std::shared_ptr<const Event>> events;
  for (int i = 0; i < 20; ++i)
    events.push_back(make_event("4711", "version " + std::to_string(i) + '\n'));
  for (const auto& event : events) deliver(*sink, {event});
  fs::remove(config_.root + "/alice/2026/11/4711-md.3.json");
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto fetched = sink->readable()->fetch(locator_of(*events[i]));
    if (i == 2) {
      ASSERT_FALSE(fetched);
      EXPECT_EQ(fetched.error().kind(), ErrorKind::kVanished);
    } else {
      ASSERT_TRUE(fetched) << fetched.error().message();
      expect_same(**fetched, *events[i]);
    }
  }
}

TEST_F(FileArchiveTest, FindsAnEventThatWasMovedToItsOwner) {
  auto sink = make();
  ASSERT_TRUE(sink->start());
  const auto now = make_event("4711");
  deliver(*sink, {now});
  Event before = locator_of(*now);
  before.user = {};
  before.job.name.reset();
  before.job.account.reset();
  const auto fetched = sink->readable()->fetch(before);
  ASSERT_TRUE(fetched) << fetched.error().message();
  expect_same(**fetched, *now);
}

TEST_F(FileArchiveTest, TellsWhatIsGoneFromWhatWasChangedAndFromWhatCannotBeReadNow) {
  auto sink = make();
  ASSERT_TRUE(sink->start());
  const auto event = make_event("4711");
  deliver(*sink, {event});
  const std::string script = config_.root + "/alice/2026/11/4711-md.sh";
  directory_.write("archive/alice/2026/11/4711-md.sh", "changed\n");
  auto fetched = sink->readable()->fetch(*event);
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().kind(), ErrorKind::kCorrupt);
  fs::remove(script);
  fetched = sink->readable()->fetch(*event);
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().kind(), ErrorKind::kVanished);
  // Not mounted, for instance: its events are not gone.
  fs::rename(config_.root, config_.root + ".away");
  fetched = sink->readable()->fetch(*event);
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().kind(), ErrorKind::kTransient);
  EXPECT_FALSE(sink->readable()->list({}, "", 10));
}

// After the options were changed, what lies there as before is still read.
TEST_F(FileArchiveTest, GivesBackAllThatWasStoredWithOtherLayoutsAndFormats) {
  const std::vector<std::string> layouts{
      "user-month",     "sarchive-daily",        "{account}/{year}/{month}/{job_id}.{ext}",
      "{job_id}.{ext}", "{user}/{job_id}_{ext}", "{cluster}/{year}/{day}/{user}/{job_id}/{ext}"};
  const std::vector<EnvironmentStyle> styles{EnvironmentStyle::kNul, EnvironmentStyle::kLines,
                                             EnvironmentStyle::kShell};
  std::vector<std::shared_ptr<const Event>> events;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    config_.layout = layouts[i];
    config_.environment_format = styles[i % styles.size()];
    auto sink = make();
    ASSERT_TRUE(sink->start());
    for (int job = 0; job < 3; ++job) {
      events.push_back(make_event(std::to_string(10 * i + job), "#!/bin/sh\n", {"A=1", "B=x\ny"}));
      deliver(*sink, {events.back()});
    }
  }
  auto sink = make();
  std::vector<std::string> ids;
  for (const auto& event : events) {
    const auto fetched = sink->readable()->fetch(locator_of(*event));
    ASSERT_TRUE(fetched) << event->job.id << ": " << fetched.error().message();
    expect_same(**fetched, *event);
    ids.push_back(event->id);
  }
  for (const std::size_t limit : {1, 2, 100})
    EXPECT_THAT(list_all(*sink, {}, limit), ::testing::UnorderedElementsAreArray(ids));
  // The place of an event tells the layouts apart, a user that is not known yet does not.
  Event before = locator_of(*events.front());
  before.user = {};
  EXPECT_TRUE(sink->readable()->fetch(before));
  EXPECT_EQ(sink->readable()->fetch(locator_of(*make_event("99"))).error().kind(),
            ErrorKind::kVanished);
}

// Under the archive's mount point lies an empty directory.
TEST_F(FileArchiveTest, WithoutItsMarkerNothingIsGoneAndNothingIsStored) {
  auto sink = make();
  ASSERT_TRUE(sink->start());
  const auto event = make_event("4711");
  deliver(*sink, {event});
  fs::rename(config_.root, config_.root + ".away");
  fs::create_directory(config_.root);
  fs::create_directory(config_.root + "/lost+found");

  const auto is_not_mounted = [](const auto& result) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind(), ErrorKind::kTransient);
    EXPECT_THAT(result.error().message(), HasSubstr("mounted"));
    EXPECT_THAT(result.error().message(), HasSubstr("touch "));
  };
  is_not_mounted(sink->readable()->fetch(locator_of(*event)));
  is_not_mounted(sink->readable()->list({}, "", 10));
  sink->deliver(outbox_.batch({make_event("4712")}));
  EXPECT_EQ(outbox_.outcome("4712"), Outcome::kRetry);
  // As after a restart.
  context_.acknowledged = 1;
  is_not_mounted(make()->start());
  fs::remove_all(config_.root);
  is_not_mounted(make()->start());
  EXPECT_FALSE(fs::exists(config_.root));

  fs::rename(config_.root + ".away", config_.root);
  sink = make();
  ASSERT_TRUE(sink->start());
  EXPECT_TRUE(sink->readable()->fetch(locator_of(*event)));
}

TEST_F(FileArchiveTest, AnArchiveBeginsWhereNothingWasStoredOrAMarkerWasPut) {
  ASSERT_TRUE(make()->start());
  context_.acknowledged = 1;
  config_.root = directory_.make_directory("new");
  EXPECT_FALSE(make()->start());
  directory_.write(std::string("new/") + std::string(kMarkerName), "");
  auto sink = make();
  const auto started = sink->start();
  ASSERT_TRUE(started) << started.error().message();
  deliver(*sink, {make_event("4711")});
  // A tree of an earlier version, or one that was copied without the names that begin with a dot.
  fs::remove(config_.root + '/' + std::string(kMarkerName));
  EXPECT_TRUE(make()->start());
  EXPECT_TRUE(fs::exists(config_.root + '/' + std::string(kMarkerName)));
}

// Rights mean nothing to root, so it becomes somebody else for a while.
class AsNobody {
 public:
  explicit AsNobody(const std::string& directory) {
    if (::geteuid() != 0) return;
    for (const auto& entry : fs::recursive_directory_iterator(directory))
      EXPECT_EQ(::lchown(entry.path().c_str(), kNobody, kNobody), 0);
    EXPECT_EQ(::lchown(directory.c_str(), kNobody, kNobody), 0);
    EXPECT_EQ(::seteuid(kNobody), 0);
  }
  ~AsNobody() { EXPECT_EQ(::seteuid(::getuid()), 0); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
};

TEST_F(FileArchiveTest, ADirectoryThatIsNotOfTheLayoutBlocksNothingAndOneThatIsIsSaid) {
  auto sink = make();
  ASSERT_TRUE(sink->start());
  const auto event = make_event("4711");
  deliver(*sink, {event});
  const auto mode = [&](const char* directory, int rights) {
    fs::permissions(config_.root + directory, static_cast<fs::perms>(rights));
  };
  fs::create_directory(config_.root + "/lost+found");
  const AsNobody nobody(directory_.path());
  mode("/lost+found", 0);
  const Event gone = locator_of(*make_event("4712"));
  auto fetched = sink->readable()->fetch(gone);
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().kind(), ErrorKind::kVanished) << fetched.error().message();
  auto page = sink->readable()->list({}, "", 10);
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_EQ(page->events.size(), 1U);
  EXPECT_EQ(page->skipped, 1U);

  fs::create_directory(config_.root + "/bob");
  mode("/bob", 0);
  fetched = sink->readable()->fetch(gone);
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().kind(), ErrorKind::kTransient);
  EXPECT_THAT(fetched.error().message(), HasSubstr("directory bob: "));
  page = sink->readable()->list({}, "", 10);
  ASSERT_FALSE(page);
  EXPECT_THAT(page.error().message(), HasSubstr("directory bob: "));
  mode("/bob", 0700);
  mode("/lost+found", 0700);
}

TEST_F(FileArchiveTest, ListsByKindAndTimeAndSkipsWhatItDoesNotUnderstand) {
  auto sink = make();
  ASSERT_TRUE(sink->start());
  std::vector<std::string> scripts, late;
  for (int i = 0; i < 40; ++i) {
    Event event = make_event_value(std::to_string(i));
    event.user.name = i % 3 == 0 ? "alice" : "bob";
    event.time = Timestamp{test::kJobTime.nanoseconds + i * std::int64_t{86'400'000'000'000}};
    if (i % 5 == 0) {
      event.kind = "usage.job";
      event.files.clear();
      event.id = event_id({"usage", event.job.id});
    } else {
      scripts.push_back(event.id);
      if (i >= 20) late.push_back(event.id);
    }
    deliver(*sink, {share(event)});
  }
  directory_.write("archive/alice/2026/11/foreign.json", "{}");
  fs::create_symlink("/etc/passwd", config_.root + "/alice/2026/11/link.json");
  fs::create_directories(config_.root + "/alice/2026/11/folder.json");
  const Timestamp since{test::kJobTime.nanoseconds + 20 * std::int64_t{86'400'000'000'000}};
  EXPECT_THAT(list_all(*sink, {{"job.*"}, {}}, 7), ::testing::UnorderedElementsAreArray(scripts));
  EXPECT_THAT(list_all(*sink, {{"job.script"}, since}, 3),
              ::testing::UnorderedElementsAreArray(late));
  const auto page = sink->readable()->list({}, "", 100);
  ASSERT_TRUE(page);
  EXPECT_EQ(page->skipped, 1U);
  EXPECT_EQ(page->events.size(), 40U);
}

TEST_F(FileArchiveTest, ReadsADirectoryOnceForManyPages) {
  auto sink = make();
  ASSERT_TRUE(sink->start());
  std::vector<std::string> ids;
  for (int i = 0; i < 30; ++i) {
    const auto event = make_event(std::to_string(i));
    deliver(*sink, {event});
    ids.push_back(event->id);
  }
  SeenDirectories read(config_.root + "/alice/2026", IN_ACCESS);
  std::string after;
  std::vector<std::string> listed;
  for (int call = 0; call < 6; ++call) {
    const auto page = sink->readable()->list({}, after, 5);
    ASSERT_TRUE(page) << page.error().message();
    for (const auto& event : page->events) listed.push_back(event->id);
    after = page->position;
    EXPECT_EQ(read.take().size(), call == 0 ? 1U : 0U) << call;
  }
  EXPECT_THAT(listed, ::testing::UnorderedElementsAreArray(ids));
  // Another listing in between begins where it was told to.
  EXPECT_THAT(list_all(*sink, {}, 7), ::testing::UnorderedElementsAreArray(ids));
  const auto page = sink->readable()->list({}, after, 5);
  ASSERT_TRUE(page);
  EXPECT_TRUE(page->end);
  EXPECT_TRUE(page->events.empty());
}

// A listing that begins finds all that was stored before, whatever an earlier one found.
TEST_F(FileArchiveTest, AListingThatBeginsUsesNothingOfAnEarlierOne) {
  config_.layout = "{job_id}.{ext}";
  auto sink = make();
  ASSERT_TRUE(sink->start());
  EXPECT_TRUE(list_all(*sink, {}, 5).empty());
  std::vector<std::string> ids;
  for (const char* job : {"5", "6", "4"}) {
    const auto event = make_event(job);
    deliver(*sink, {event});
    ids.push_back(event->id);
    EXPECT_THAT(list_all(*sink, {}, 5), ::testing::UnorderedElementsAreArray(ids));
  }
}

// So many that their names are not all kept.
TEST_F(FileArchiveTest, ListsADirectoryOfVeryManyNames) {
  constexpr std::size_t kForeign = 20'050;
  auto sink = make();
  ASSERT_TRUE(sink->start());
  deliver(*sink, {make_event("1"), make_event("9")});
  for (std::size_t i = 0; i < kForeign; ++i)
    directory_.write("archive/alice/2026/11/5-" + std::to_string(i) + ".json", "");
  std::size_t events = 0;
  std::uint64_t skipped = 0;
  std::string after;
  for (bool end = false; !end;) {
    const auto page = sink->readable()->list({}, after, 5'000);
    ASSERT_TRUE(page) << page.error().message();
    ASSERT_TRUE(page->end || page->position > after);
    events += page->events.size();
    skipped += page->skipped;
    after = page->position;
    end = page->end;
  }
  EXPECT_EQ(events, 2U);
  EXPECT_EQ(skipped, kForeign);
}

TEST_F(FileArchiveTest, IsReadableOnlyWithAllThatAnEventIsMadeOf) {
  EXPECT_NE(make()->readable(), nullptr);
  config_.kinds = {FileKind::kScript, FileKind::kMetadata};
  EXPECT_EQ(make()->readable(), nullptr);
}

}  // namespace
}  // namespace scriptorium::file
