#include "core/journal/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tests/support/event_factory.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using test::make_event;
using test::make_event_value;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using namespace std::chrono_literals;
using namespace std::string_literals;

class JournalTest : public testing::Test {
 protected:
  void open(std::uint64_t max_bytes = std::uint64_t{1} << 30, std::uint64_t cache_bytes = 16U << 20,
            std::int64_t user_share_percent = 100) {
    auto opened = Journal::open({.directory = dir_.path_to("journal"),
                                 .max_bytes = max_bytes,
                                 .cache_bytes = cache_bytes,
                                 .user_share_percent = user_share_percent},
                                log_, system_clock());
    ASSERT_TRUE(opened) << opened.error().message();
    journal_ = *std::move(opened);
  }
  void close() { journal_.reset(); }
  void reopen() {
    close();
    open();
  }
  Journal::SinkId sink(const std::string& name, std::vector<std::string> kinds = {"job.script"}) {
    auto id = journal_->register_sink(name, std::move(kinds));
    EXPECT_TRUE(id) << id.error().message();
    return *id;
  }
  // Appends and waits until it is durable; returns whether it was new.
  bool append(std::shared_ptr<const Event> event, bool resolve_first = false,
              std::optional<CaptureMark> mark = std::nullopt) {
    auto durable = std::make_shared<std::promise<bool>>();
    auto fresh = durable->get_future();
    EXPECT_TRUE(
        journal_->append({.source = "slurm",
                          .event = std::move(event),
                          .resolve_first = resolve_first,
                          .mark = std::move(mark),
                          .durable = [durable](bool is_fresh) { durable->set_value(is_fresh); }},
                         never_.get_token()));
    return fresh.get();
  }
  // Whether it is full with everything done that was queued. A flush returns before the room is
  // measured; by the answer to a second command that is over.
  bool is_full() {
    EXPECT_TRUE(flush());
    sink("archive");
    sink("archive");
    return journal_->full();
  }
  void append_jobs(int first, int last) {
    for (int i = first; i <= last; ++i) append(make_event(std::to_string(i)));
  }
  bool flush() { return journal_->flush(std::chrono::steady_clock::now() + 30s); }
  std::vector<Journal::Item> read(Journal::SinkId id, std::uint64_t after,
                                  std::size_t events = 1000, std::uint64_t bytes = 1U << 30) {
    auto items = journal_->read(id, after, events, bytes);
    EXPECT_TRUE(items) << items.error().message();
    return *std::move(items);
  }
  static std::vector<std::string> jobs(const std::vector<Journal::Item>& items) {
    std::vector<std::string> ids;
    for (const auto& item : items) ids.push_back(item.event ? item.event->job.id : "damaged");
    return ids;
  }
  static Journal::Settle settlement(std::uint64_t sequence, Outcome outcome,
                                    std::string reason = "") {
    return {.sequence = sequence,
            .outcome = outcome,
            .reason = std::move(reason),
            .attempts = 1,
            .first_attempt = {1000},
            .last_attempt = {2000}};
  }
  void settle(Journal::SinkId id, const std::vector<Journal::Item>& items, Outcome outcome,
              std::string reason = "") {
    std::vector<Journal::Settle> settlements;
    for (const auto& item : items)
      settlements.push_back(settlement(item.sequence, outcome, reason));
    journal_->settle(id, settlements, items.back().sequence);
    ASSERT_TRUE(flush());
  }
  Journal::SinkState state(const std::string& name) {
    for (auto& s : journal_->usage().sinks) {
      if (s.name == name) return s;
    }
    ADD_FAILURE() << "no sink " << name;
    return {};
  }
  void expect_sound() {
    auto result = journal_->verify();
    EXPECT_TRUE(result) << result.error().message();
  }

  test::TempDir dir_;
  test::RecordingLogger log_;
  std::stop_source never_;
  std::unique_ptr<Journal> journal_;
};

class JournalDeadTest : public JournalTest {
 protected:
  // An event without payload that no sink may get.
  static std::shared_ptr<const Event> unsafe(const std::string& job_id) {
    Event event = make_event_value(job_id);
    event.files.clear();
    event.environment_format = EnvironmentFormat::kNone;
    return std::make_shared<const Event>(event);
  }
  void append_dead(const std::shared_ptr<const Event>& event) {
    EXPECT_TRUE(journal_->append(
        {.source = "slurm",
         .event = event,
         .resolve_first = true,
         .mark = CaptureMark{.entry = "hash.1/job." + event->job.id, .event_id = event->id},
         .dead = "redaction: the environment is too large"},
        {}));
    ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + 10s));
  }
  std::vector<Journal::DeadLetter> letters(const std::string& sink) const {
    auto found = journal_->dead_letters(sink, 10);
    EXPECT_TRUE(found);
    return found ? *found : std::vector<Journal::DeadLetter>{};
  }
  // What a sink would be given, now and after a retry.
  std::size_t readable(Journal::SinkId id) const {
    const auto fresh = journal_->read(id, 0, 10, 1U << 20);
    const auto parked = journal_->parked(id, 10);
    EXPECT_TRUE(fresh && parked);
    return fresh->size() + parked->size();
  }
};

TEST_F(JournalDeadTest, WhatNoSinkMayGetIsADeadLetterOfEachThatWouldHaveGotIt) {
  open();
  const auto archive = sink("archive");
  const auto usage = sink("usage", {"job.usage"});
  const auto event = unsafe("1");
  append_dead(event);
  for (int run = 0; run < 2; ++run) {
    SCOPED_TRACE(run == 0 ? "at once" : "after a restart");
    EXPECT_EQ(sink("archive"), archive);
    EXPECT_EQ(sink("usage", {"job.usage"}), usage);
    const auto found = letters("archive");
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].event_id, event->id);
    EXPECT_EQ(found[0].job_id, "1");
    EXPECT_EQ(found[0].reason, "redaction: the environment is too large");
    EXPECT_THAT(letters("usage"), IsEmpty());
    EXPECT_EQ(readable(archive) + readable(usage), 0U);
    const auto late = sink("late" + std::to_string(run));
    EXPECT_EQ(readable(late), 0U) << "a sink that comes later";
    EXPECT_THAT(letters("late" + std::to_string(run)), IsEmpty());
    EXPECT_EQ(journal_->unresolved_count("slurm"), 0U);
    const auto shown = journal_->event(event->id);
    ASSERT_TRUE(shown);
    EXPECT_THAT((*shown)->files, IsEmpty());
    if (run == 0) reopen();
  }
}

TEST_F(JournalDeadTest, ItCannotBeRetriedAndCanBeDiscarded) {
  open();
  const auto archive = sink("archive");
  const auto event = unsafe("1");
  append_dead(event);
  for (const std::string& id : {event->id, std::string()}) {
    const auto refused = journal_->retry_dead(std::nullopt, id);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind(), ErrorKind::kPermanent);
    EXPECT_THAT(refused.error().message(), HasSubstr("could not be freed of secrets"));
  }
  EXPECT_THAT(letters("archive"), SizeIs(1));
  EXPECT_EQ(readable(archive), 0U);
  // Beside one that may be tried again.
  append(make_event("2"));
  journal_->settle(archive, {{.sequence = 2, .outcome = Outcome::kRejected, .reason = "no"}}, 2);
  ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + 10s));
  EXPECT_EQ(*journal_->retry_dead(std::nullopt, ""), 1U);
  EXPECT_THAT(letters("archive"), SizeIs(1));
  EXPECT_EQ(readable(archive), 1U);
  EXPECT_EQ(*journal_->discard_dead(std::nullopt, event->id), 1U);
  EXPECT_THAT(letters("archive"), IsEmpty());
  ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + 10s));
  EXPECT_FALSE(journal_->event(event->id)) << "nobody needs it any more";
  EXPECT_TRUE(journal_->verify());
}

TEST_F(JournalDeadTest, ItIsKnownAsCapturedAndHoldsNobodyUp) {
  open();
  const auto archive = sink("archive");
  append(make_event("1"));
  append_dead(unsafe("2"));
  append(make_event("3"));
  EXPECT_FALSE(append(make_event("2"))) << "the same entry, by its key";
  for (const std::uint64_t after : {0U, 1U}) {
    const auto items = journal_->read(archive, after, 1, 1U << 20);
    ASSERT_TRUE(items);
    ASSERT_THAT(*items, SizeIs(1));
    EXPECT_EQ((*items)[0].event->job.id, after == 0 ? "1" : "3");
  }
  journal_->settle(archive,
                   {{.sequence = 1, .outcome = Outcome::kAcknowledged},
                    {.sequence = 3, .outcome = Outcome::kAcknowledged}},
                   3);
  ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + 10s));
  EXPECT_EQ(journal_->cursor(archive), 3U);
  EXPECT_EQ(journal_->usage().events, 1U) << "the dead letter";
}

TEST_F(JournalTest, AMarksCaptureKeyRecognisesAnEntryWhoseEventWouldBeAnotherNow) {
  open();
  const auto first = make_event("1");
  Event changed = make_event_value("1", "#!/bin/bash\n[redacted:x]\n");
  ASSERT_NE(changed.id, first->id);
  const std::string key = journal_->capture_key("the original id");
  const CaptureMark mark{.entry = "hash.1/job.1", .event_id = first->id};
  const auto offer = [&](const std::shared_ptr<const Event>& event, const CaptureMark& with) {
    std::promise<bool> fresh;
    EXPECT_TRUE(journal_->append({.source = "slurm",
                                  .event = event,
                                  .mark = with,
                                  .capture_key = key,
                                  .durable = [&](bool is_fresh) { fresh.set_value(is_fresh); }},
                                 {}));
    return fresh.get_future().get();
  };
  EXPECT_TRUE(offer(first, mark));
  reopen();
  EXPECT_EQ(journal_->capture_key("the original id"), key);
  // Copied with the spool: another inode, and another event since the rules have changed.
  CaptureMark moved = mark;
  moved.identity.inode = 77;
  moved.event_id = changed.id;
  EXPECT_FALSE(offer(std::make_shared<const Event>(changed), moved));
  const auto marks = journal_->marks("slurm");
  ASSERT_THAT(marks, SizeIs(1));
  EXPECT_EQ(marks[0].identity.inode, 77U);
  EXPECT_EQ(marks[0].capture_key, key);
  EXPECT_EQ(marks[0].event_id, first->id) << "the event that was sent";
  EXPECT_EQ(journal_->usage().events, 1U);
  // Another source is another spool.
  EXPECT_TRUE(journal_->append(
      {.source = "torque", .event = std::make_shared<const Event>(changed), .capture_key = key},
      {}));
  journal_->flush(std::chrono::steady_clock::now() + 10s);
  EXPECT_EQ(journal_->usage().events, 2U);
}

TEST_F(JournalTest, GivesBackExactlyTheBytesThatWereAppended) {
  open();
  const std::string odd = "#!/bin/bash\n\0\xff\xfe caf\xc3\xa9\r\n"s;
  auto event = make_event_value("1", odd, {"A=1\n2", "=x", "B=\xff"});
  event.job.array = JobArray{"1", std::nullopt, "0-9%2"};
  event.time = {1795224382'364'123'456};
  append(std::make_shared<const Event>(event));
  close();
  open(1U << 30, 0);
  const auto items = read(sink("archive"), 0);
  ASSERT_THAT(items, SizeIs(1));
  const Event& back = *items[0].event;
  EXPECT_EQ(*back.file("script")->bytes, odd);
  EXPECT_EQ(*back.file("environment")->bytes, *event.file("environment")->bytes);
  EXPECT_EQ(back.id, event.id);
  EXPECT_EQ(back.time, event.time);
  EXPECT_EQ(back.captured_at, event.captured_at);
  EXPECT_EQ(back.user.verified, true);
  EXPECT_EQ(event_json(back), event_json(event));
  expect_sound();
}

TEST_F(JournalTest, RemembersWhatWentOutUnverifiedUntilItsOwnerIsKnown) {
  open();
  const auto archive = sink("archive");
  std::vector<std::shared_ptr<const Event>> before;
  for (const char* job : {"1", "2", "3"}) {
    before.push_back(std::make_shared<const Event>(test::make_unverified_event(job)));
    append(before.back(), true);
  }
  append(make_event("4"), true);
  std::vector<Journal::Resolved> resolved;
  for (const auto& waiting : journal_->unresolved("slurm", 0, 10))
    resolved.push_back({waiting.ticket, waiting.event});
  journal_->resolved(resolved);
  ASSERT_TRUE(flush());

  const Timestamp later{system_clock().now().nanoseconds + 3600'000'000'000};
  const auto due = [&](Timestamp now) {
    auto found = journal_->unverified("slurm", now, 100);
    EXPECT_TRUE(found) << found.error().message();
    return *std::move(found);
  };
  EXPECT_THAT(due(system_clock().now()), IsEmpty()) << "the scheduler has just been asked";
  reopen();
  ASSERT_EQ(sink("archive"), archive);
  auto waiting = due(later);
  ASSERT_THAT(waiting, SizeIs(3));
  EXPECT_EQ(waiting[0].event->id, before[0]->id);
  EXPECT_EQ(waiting[0].event->user.unverified_reason, before[0]->user.unverified_reason);
  EXPECT_EQ(waiting[0].event->file("script")->size, before[0]->file("script")->size);
  EXPECT_EQ(journal_->unverified_count("slurm"), 3U);
  EXPECT_EQ(journal_->unverified_count("torque"), 0U);
  EXPECT_EQ(journal_->unverified_count("slurm", waiting[0].noted_at), 3U);
  EXPECT_EQ(journal_->unverified_count("slurm", later), 0U) << "noted before";
  EXPECT_THAT(journal_->unverified_numbers("slurm", 0), SizeIs(3));
  EXPECT_THAT(journal_->unverified_numbers("slurm", waiting[1].number),
              ElementsAre(waiting[2].number));

  // Asked without success, given up, found.
  const Timestamp much_later{later.nanoseconds + 1};
  ASSERT_TRUE(journal_->change_unverified(
      {{waiting[0].number, much_later}, {waiting[1].number, std::nullopt}}));
  EXPECT_THAT(due(later), SizeIs(1));
  ASSERT_EQ(*journal_->hasten_unverified("slurm"), 2U);
  EXPECT_THAT(due(system_clock().now()), SizeIs(2));
  const Event after = test::make_owned_event(*before[2]);
  for (int again = 0; again < 2; ++again)
    ASSERT_TRUE(journal_->replace_unverified(waiting[2].number, "slurm",
                                             std::make_shared<const Event>(after)));
  EXPECT_EQ(journal_->unverified_count("slurm"), 1U);

  // A sink that is still to get the first one needs only the second; a sink that does not want that
  // kind needs the first.
  const auto items = read(archive, 0);
  ASSERT_EQ(jobs(items), (std::vector<std::string>{"1", "2", "3", "4", "3"}));
  EXPECT_EQ(event_json(*items.back().event), event_json(after));
  EXPECT_TRUE(journal_->is_replaced(archive, *before[2]));
  EXPECT_FALSE(journal_->is_replaced(archive, *before[0]));
  EXPECT_FALSE(journal_->is_replaced(archive, after));
  EXPECT_FALSE(journal_->is_replaced(sink("samples", {"usage.*"}), *before[2]));
  expect_sound();
  reopen();
  EXPECT_TRUE(journal_->is_replaced(sink("archive"), *before[2])) << "also after a restart";
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  reopen();
  EXPECT_FALSE(journal_->is_replaced(sink("archive"), *before[2]))
      << "and no longer than anybody needs it";
  expect_sound();
}

TEST_F(JournalTest, WhatWaitsForItsOwnerTakesLittleWhateverUsersWrite) {
  constexpr std::uint64_t kLimit = 4U << 20;
  constexpr std::uint64_t kMost = kLimit / 8 / 4096;
  open(kLimit);
  const auto archive = sink("archive");
  const auto send_unverified = [&](const Event& event) {
    append(std::make_shared<const Event>(event), true);
    const auto waiting = journal_->unresolved("slurm", 0, 1);
    ASSERT_THAT(waiting, SizeIs(1));
    journal_->resolved({{waiting[0].ticket, waiting[0].event}});
    ASSERT_TRUE(flush());
    settle(archive, read(archive, journal_->cursor(archive)), Outcome::kAcknowledged);
  };
  Event event = test::make_unverified_event("1");
  event.script->directives.assign(100'000, "--comment=the same again");
  send_unverified(event);
  const Timestamp later{system_clock().now().nanoseconds + 3600'000'000'000};
  const auto waiting = journal_->unverified("slurm", later, 10);
  ASSERT_TRUE(waiting);
  ASSERT_THAT(*waiting, SizeIs(1));
  EXPECT_FALSE((*waiting)[0].event->script);
  EXPECT_EQ((*waiting)[0].event->id, event.id);

  event = test::make_unverified_event("2");
  event.job.work_dir = std::string(100'000, 'x');
  send_unverified(event);
  EXPECT_EQ(journal_->unverified_count("slurm"), 1U);

  for (int i = 3; i < 400; ++i) send_unverified(test::make_unverified_event(std::to_string(i)));
  EXPECT_LE(journal_->unverified_count("slurm"), kMost + 100);
  EXPECT_GE(journal_->unverified_count("slurm"), kMost);
  expect_sound();
}

TEST_F(JournalTest, ASinkThatWasAwayWhenTheOwnerBecameKnownGetsTheFirstEvent) {
  open();
  const auto archive = sink("archive");
  sink("away");
  append(std::make_shared<const Event>(test::make_unverified_event("1")), true);
  const auto unresolved = journal_->unresolved("slurm", 0, 1);
  journal_->resolved({{unresolved.at(0).ticket, unresolved.at(0).event}});
  ASSERT_TRUE(flush());
  ASSERT_TRUE(journal_->retire_other_sinks({"archive"}));
  const Event before = test::make_unverified_event("1");
  ASSERT_TRUE(journal_->replace_unverified(
      1, "slurm", std::make_shared<const Event>(test::make_owned_event(before))));
  EXPECT_TRUE(journal_->is_replaced(archive, before));
  EXPECT_FALSE(journal_->is_replaced(sink("away"), before))
      << "it gets nothing that came while it was away";
}

TEST_F(JournalTest, KeepsAnEventThatCameWithoutBytesAsItIs) {
  open(1U << 30, 0);
  const auto archive = sink("archive");
  const Event event = test::without_bytes(
      test::make_owned_event(test::make_unverified_event("1", std::string(40'000, 'x'))));
  append(std::make_shared<const Event>(event));
  reopen();
  const auto items = read(sink("archive"), 0);
  ASSERT_THAT(items, SizeIs(1));
  ASSERT_NE(items[0].event, nullptr);
  EXPECT_EQ(event_json(*items[0].event), event_json(event));
  EXPECT_EQ(items[0].event->file("script")->bytes, nullptr);
  expect_sound();
  settle(archive, items, Outcome::kAcknowledged);
  expect_sound();
}

TEST_F(JournalTest, IsForItsOwnerOnly) {
  open();
  append(make_event("1"));
  struct stat s{};
  ASSERT_EQ(::stat(dir_.path_to("journal").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0700U);
  for (const char* name :
       {"journal/journal.db", "journal/journal.db-wal", "journal/journal.db-shm"}) {
    ASSERT_EQ(::stat(dir_.path_to(name).c_str(), &s), 0) << name;
    EXPECT_EQ(s.st_mode & 0777, 0600U) << name;
  }
}

TEST_F(JournalTest, AppendsAnEventOnlyOnce) {
  open();
  const auto archive = sink("archive");
  EXPECT_TRUE(append(make_event("1")));
  EXPECT_FALSE(append(make_event("1")));
  EXPECT_EQ(journal_->usage().events, 1U);
  EXPECT_THAT(jobs(read(archive, 0)), ElementsAre("1"));
  reopen();
  EXPECT_FALSE(append(make_event("1")));
}

TEST_F(JournalTest, AMarkKeepsItsEventFromComingAgainUntilItIsForgotten) {
  open();
  const auto archive = sink("archive");
  const CaptureMark mark{.entry = "hash.1/job.1",
                         .identity = {.file = "script",
                                      .device = 7,
                                      .inode = ~std::uint64_t{0},
                                      .mtime_ns = -5,
                                      .size = 10},
                         .size = 9,
                         .event_id = make_event("1")->id};
  EXPECT_TRUE(append(make_event("1"), false, mark));
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 0U);
  EXPECT_FALSE(append(make_event("1"))) << "settled and gone, but its spool entry is still there";
  reopen();
  auto marks = journal_->marks("slurm");
  ASSERT_THAT(marks, SizeIs(1));
  EXPECT_EQ(marks[0].entry, mark.entry);
  EXPECT_EQ(marks[0].identity, mark.identity);
  EXPECT_EQ(marks[0].size, mark.size);
  EXPECT_EQ(marks[0].event_id, mark.event_id);
  EXPECT_THAT(journal_->marks("torque"), IsEmpty());
  EXPECT_FALSE(append(make_event("1")));
  journal_->forget_marks("slurm", {"hash.1/job.1"});
  EXPECT_TRUE(append(make_event("1")));
}

TEST_F(JournalTest, StoresTheMarkOfAnEventThatItHasAlready) {
  open();
  append(make_event("1"));
  EXPECT_FALSE(append(make_event("1"), false,
                      CaptureMark{.entry = "hash.1/job.1", .event_id = make_event("1")->id}));
  EXPECT_THAT(journal_->marks("slurm"), SizeIs(1));
  journal_->set_mark("slurm", {.entry = "hash.1/job.1", .size = 77, .event_id = "other"});
  ASSERT_TRUE(flush());
  ASSERT_THAT(journal_->marks("slurm"), SizeIs(1));
  EXPECT_EQ(journal_->marks("slurm")[0].size, 77U);
}

TEST_F(JournalTest, GivesEachSinkItsOwnPlace) {
  open();
  const auto archive = sink("archive");
  const auto search = sink("search");
  append_jobs(1, 5);
  settle(archive, read(archive, 0, 3), Outcome::kAcknowledged);
  settle(search, read(search, 0, 1), Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 4U) << "the one that both have is gone";
  EXPECT_THAT(jobs(read(archive, journal_->cursor(archive))), ElementsAre("4", "5"));
  EXPECT_THAT(jobs(read(search, journal_->cursor(search))), ElementsAre("2", "3", "4", "5"));
  EXPECT_EQ(state("archive").waiting, 2U);
  EXPECT_EQ(state("search").waiting, 4U);
  EXPECT_EQ(state("search").waiting_bytes, 4 * make_event("1")->bytes_size());
  EXPECT_EQ(state("archive").acknowledged, 3U);
  EXPECT_TRUE(state("archive").last_success);
  reopen();
  EXPECT_EQ(state("search").waiting, 4U);
  EXPECT_FALSE(state("search").registered);
  EXPECT_THAT(jobs(read(sink("archive"), 0)), ElementsAre("4", "5")) << "never before the cursor";
  expect_sound();
}

TEST_F(JournalTest, ReadsAtMostWhatWasAskedButAtLeastOne) {
  open();
  const auto archive = sink("archive");
  append_jobs(1, 5);
  const std::uint64_t size = make_event("1")->bytes_size();
  EXPECT_THAT(read(archive, 0, 2), SizeIs(2));
  EXPECT_THAT(read(archive, 0, 10, 3 * size), SizeIs(3));
  EXPECT_THAT(read(archive, 0, 10, 1), SizeIs(1));
  close();
  open(1U << 30, 0);  // the same, from disk
  const auto again = sink("archive");
  EXPECT_THAT(read(again, 0, 2), SizeIs(2));
  EXPECT_THAT(read(again, 0, 10, 3 * size), SizeIs(3));
  EXPECT_THAT(read(again, 0, 10, 1), SizeIs(1));
}

TEST_F(JournalTest, RemovesNothingWhileNoSinkIsKnown) {
  open();
  append_jobs(1, 3);
  reopen();
  EXPECT_EQ(journal_->usage().events, 3U);
  EXPECT_THAT(jobs(read(sink("late"), 0)), ElementsAre("1", "2", "3"));
}

TEST_F(JournalTest, ASinkThatIsNotRegisteredKeepsItsEventsUntilItIsRemoved) {
  open();
  const auto archive = sink("archive");
  sink("gone");
  append_jobs(1, 3);
  reopen();
  EXPECT_THAT(journal_->unregistered_sinks(), ElementsAre("archive", "gone"));
  ASSERT_EQ(sink("archive"), archive);
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 3U);
  EXPECT_THAT(journal_->unregistered_sinks(), ElementsAre("gone"));
  ASSERT_TRUE(journal_->remove_sink("gone"));
  append(make_event("4"));
  EXPECT_EQ(journal_->usage().events, 1U);
  expect_sound();
}

TEST_F(JournalTest, ASinkThatIsNotConfiguredKeepsWhatWaitsAndGetsNothingNew) {
  open();
  auto archive = sink("archive");
  auto gone = sink("gone");
  append_jobs(1, 3);
  ASSERT_TRUE(journal_->retire_other_sinks({"archive"}));
  EXPECT_THAT(journal_->unregistered_sinks(), ElementsAre("gone"));
  append_jobs(4, 200);
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 3U) << "what the other sink does not want stays";
  EXPECT_EQ(state("gone").waiting, 3U);
  expect_sound();

  // The same after a restart, whether it is retired again or was retired before.
  reopen();
  archive = sink("archive");
  append(make_event("201"));
  ASSERT_TRUE(journal_->retire_other_sinks({"archive"}));
  append(make_event("202"));
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  EXPECT_EQ(state("gone").waiting, 3U);
  EXPECT_EQ(journal_->usage().events, 3U);

  // Once configured again, it gets what waited and what comes from now on, also across another
  // absence.
  gone = sink("gone");
  append(make_event("203"));
  ASSERT_TRUE(journal_->retire_other_sinks({"archive"}));
  append(make_event("204"));
  reopen();
  gone = sink("gone");
  archive = sink("archive");
  append(make_event("205"));
  EXPECT_THAT(jobs(read(archive, journal_->cursor(archive))), ElementsAre("203", "204", "205"));
  EXPECT_THAT(jobs(read(gone, 0)), ElementsAre("1", "2", "3", "203", "205"));
  EXPECT_EQ(state("gone").waiting, 5U);
  settle(gone, read(gone, 0), Outcome::kAcknowledged);
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 0U);
  EXPECT_EQ(state("gone").waiting, 0U);
  expect_sound();
}

TEST_F(JournalTest, WhatIsParkedOrDeadForAnAbsentSinkStaysToo) {
  open();
  const auto archive = sink("archive");
  auto gone = sink("gone");
  append_jobs(1, 4);
  const auto items = read(gone, 0);
  journal_->settle(gone,
                   {settlement(items[0].sequence, Outcome::kRetry, "503"),
                    settlement(items[1].sequence, Outcome::kRejected, "413"),
                    settlement(items[2].sequence, Outcome::kAcknowledged)},
                   items[2].sequence);
  ASSERT_TRUE(flush());
  ASSERT_TRUE(journal_->retire_other_sinks({"archive"}));
  append_jobs(5, 8);
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 3U);
  EXPECT_EQ(state("gone").waiting, 2U);
  EXPECT_EQ(state("gone").dead, 1U);
  gone = sink("gone");
  EXPECT_THAT(jobs(read(gone, journal_->cursor(gone))), ElementsAre("4"));
  EXPECT_THAT(jobs(*journal_->parked(gone, 10)), ElementsAre("1"));
  EXPECT_FALSE(journal_->remove_sink("gone")) << "it is configured";
  ASSERT_TRUE(journal_->retire_other_sinks({"archive"}));
  ASSERT_TRUE(journal_->remove_sink("gone"));
  append(make_event("9"));
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 0U);
  EXPECT_FALSE(journal_->remove_sink("gone")) << "it is forgotten";
  expect_sound();
}

TEST_F(JournalTest, APluginThatHungAnswersForTheForgottenSinkAndNotForTheNextOne) {
  open();
  const auto archive = sink("archive");
  const auto hung = sink("second");
  append(make_event("1"));
  const auto in_hand = read(hung, 0);
  ASSERT_TRUE(journal_->retire_other_sinks({"archive"}));
  ASSERT_TRUE(journal_->remove_sink("second"));
  const auto next = sink("second");
  settle(hung, in_hand, Outcome::kAcknowledged);
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  EXPECT_EQ(state("second").acknowledged, 0U);
  EXPECT_THAT(jobs(read(next, 0)), ElementsAre("1"));
  expect_sound();
}

// A map in the role of an archive such as a file tree.
class JournalReleaseTest : public JournalTest {
 protected:
  void set_archive() {
    journal_->set_archive([this](const Event& locator) -> Result<std::shared_ptr<const Event>> {
      ++fetched_;
      if (unreachable_) return Error{ErrorKind::kTransient, "not mounted"};
      const auto found = stored_.find(locator.id);
      if (found == stored_.end()) return Error{ErrorKind::kVanished, "no file"};
      return found->second;
    });
  }
  void append_stored(int first, int last) {
    for (int i = first; i <= last; ++i) {
      std::mt19937 random(static_cast<std::uint32_t>(i));
      std::string script = "#!/bin/sh\n# ";
      for (int n = i % 3 * 10'000; n > 0; --n) script += static_cast<char>('!' + random() % 90);
      auto event = make_event(std::to_string(i), script);
      stored_[event->id] = event;
      append(event);
    }
  }
  std::size_t release_all(std::size_t at_once = 3) {
    std::size_t count = 0;
    std::uint64_t after = 0;
    while (true) {
      const std::uint64_t before = after;
      auto some = journal_->releasable("archive", after, at_once);
      EXPECT_TRUE(some) << some.error().message();
      count += some->size();
      EXPECT_TRUE(journal_->release(*std::move(some)));
      if (after == before) return count;
    }
  }

  std::map<std::string, std::shared_ptr<const Event>> stored_;
  int fetched_ = 0;
  bool unreachable_ = false;
};

TEST_F(JournalReleaseTest, WhatAnArchiveAcknowledgedIsReadBackFromItInOrder) {
  open(1U << 30, 0);
  auto archive = sink("archive");
  auto down = sink("down");
  set_archive();
  append_stored(1, 50);
  auto items = read(archive, 0);
  items.resize(40);
  settle(archive, items, Outcome::kAcknowledged);
  const auto first = read(down, 0, 1);
  settle(down, first, Outcome::kRetry, "503");  // parked
  const auto pages = [&] { return journal_->usage().bytes - journal_->usage().wal_bytes; };
  const std::uint64_t before = pages();
  EXPECT_EQ(release_all(), 40U);
  EXPECT_EQ(release_all(), 0U);
  EXPECT_LT(pages(), before / 2);
  EXPECT_EQ(state("down").waiting, 50U);
  EXPECT_EQ(state("down").in_archive, 40U) << "the parked one too";
  expect_sound();
  reopen();
  archive = sink("archive");
  down = sink("down");
  EXPECT_EQ(state("down").in_archive, 40U);
  EXPECT_EQ(state("down").waiting, 50U);
  // Without an archive it waits and reports that; nothing becomes a dead letter.
  EXPECT_FALSE(journal_->read(down, journal_->cursor(down), 1000, 1U << 30));
  set_archive();
  unreachable_ = true;
  EXPECT_FALSE(journal_->read(down, journal_->cursor(down), 1000, 1U << 30));
  unreachable_ = false;
  const auto all = read(down, journal_->cursor(down));
  ASSERT_THAT(all, SizeIs(49));
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i].event->job.id, std::to_string(i + 2));
    EXPECT_EQ(event_json(*all[i].event), event_json(*stored_.at(all[i].event->id)));
  }
  const auto parked = journal_->parked(down, 10);
  ASSERT_TRUE(parked);
  EXPECT_THAT(jobs(*parked), ElementsAre("1"));
  settle(down, *parked, Outcome::kAcknowledged);
  settle(down, all, Outcome::kAcknowledged);
  EXPECT_EQ(state("down").in_archive, 0U);
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 0U);
  expect_sound();
}

// The archive has moved it to its owner, and would have to look for it in every folder.
TEST_F(JournalReleaseTest, AnEventThatAnotherReplacesIsNotFetchedForASinkThatNeedsOnlyTheOther) {
  open(1U << 30, 0);
  const auto archive = sink("archive");
  const auto down = sink("down");
  set_archive();
  std::vector<Journal::Resolved> resolved;
  for (const char* job : {"1", "2", "3"}) {
    const auto first = std::make_shared<const Event>(test::make_unverified_event(job));
    stored_[first->id] = first;
    append(first, true);
  }
  for (const auto& waiting : journal_->unresolved("slurm", 0, 10))
    resolved.push_back({waiting.ticket, waiting.event});
  journal_->resolved(resolved);
  ASSERT_TRUE(flush());
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  settle(down, read(down, 0, 1), Outcome::kRetry, "503");
  ASSERT_EQ(release_all(), 3U);
  const Timestamp later{system_clock().now().nanoseconds + 3600'000'000'000};
  const auto due = journal_->unverified("slurm", later, 10);
  ASSERT_TRUE(due);
  for (const auto& item : *due) {
    if (item.event->job.id == "3") continue;  // its owner is still not known
    const auto owned =
        std::make_shared<const Event>(test::make_owned_event(*stored_.at(item.event->id)));
    ASSERT_TRUE(journal_->replace_unverified(item.number, "slurm", owned));
  }
  settle(archive, read(archive, journal_->cursor(archive)), Outcome::kAcknowledged);
  ASSERT_EQ(state("down").waiting, 5U);

  fetched_ = 0;
  const auto items = read(down, journal_->cursor(down));
  EXPECT_THAT(jobs(items), ElementsAre("damaged", "3", "1", "2")) << "the first is needless";
  EXPECT_EQ(fetched_, 1) << "that of job 3";
  const auto parked = journal_->parked(down, 10);
  ASSERT_TRUE(parked);
  EXPECT_THAT(jobs(*parked), ElementsAre("damaged")) << "needless too";
  EXPECT_EQ(fetched_, 1);
  ASSERT_TRUE(flush());
  EXPECT_EQ(state("down").waiting, 3U);
  EXPECT_EQ(state("down").dead, 0U);
  settle(down, items, Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 0U);
  EXPECT_EQ(state("down").acknowledged, 5U);
  EXPECT_FALSE(log_.has("REFILL_IMPOSSIBLE"));
  expect_sound();
}

TEST_F(JournalReleaseTest, WhatIsGoneFromTheArchiveBecomesADeadLetterWithThatReason) {
  open(1U << 30, 0);
  const auto archive = sink("archive");
  const auto down = sink("down");
  set_archive();
  append_stored(1, 5);
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  ASSERT_EQ(release_all(), 5U);
  std::erase_if(stored_, [](const auto& entry) { return entry.second->job.id != "5"; });
  const auto items = read(down, 0);
  EXPECT_THAT(jobs(items), ElementsAre("damaged", "damaged", "damaged", "damaged", "5"));
  ASSERT_TRUE(flush());
  const auto letters = journal_->dead_letters("down", 10);
  ASSERT_TRUE(letters);
  ASSERT_THAT(*letters, SizeIs(4));
  EXPECT_THAT((*letters)[0].reason, HasSubstr("gone from the archive"));
  EXPECT_EQ((*letters)[0].cluster, "lab");
  EXPECT_TRUE(log_.has("REFILL_IMPOSSIBLE"));
  expect_sound();
}

TEST_F(JournalReleaseTest, AFillGivesASinkWhatItDidNotGetAndNothingElse) {
  open(1U << 30, 0);
  auto archive = sink("archive");
  auto late = sink("late", {"job.script"});
  set_archive();
  append_stored(1, 4);
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  settle(late, read(late, 0), Outcome::kAcknowledged);
  ASSERT_EQ(journal_->usage().events, 0U);
  ASSERT_TRUE(journal_->retire_other_sinks({"archive"}));
  append_stored(5, 6);
  settle(archive, {read(archive, 0)[0]}, Outcome::kAcknowledged);  // 6 is still in the journal
  late = sink("late", {"job.script"});
  append_stored(7, 7);  // which it gets anyway
  std::vector<std::shared_ptr<const Event>> page;
  for (const auto& [id, event] : stored_) page.push_back(event);
  Journal::Fill progress{.sink = "late",
                         .archive = "archive",
                         .position = "p",
                         .state = Journal::Fill::State::kFilling};
  ASSERT_TRUE(journal_->set_fill(progress));
  ASSERT_TRUE(journal_->fill(progress, progress, page));
  ASSERT_THAT(journal_->fills(), SizeIs(1));
  EXPECT_EQ(journal_->fills()[0].sent, 6U);
  EXPECT_EQ(journal_->fills()[0].present, 1U);
  EXPECT_FALSE(journal_->fill(progress, progress, page)) << "it is not there any more";
  ASSERT_TRUE(journal_->fill(journal_->fills()[0], journal_->fills()[0], page));
  EXPECT_EQ(journal_->fills()[0].sent, 6U) << "all of them are on their way";
  Journal::Fill stopped = journal_->fills()[0];
  stopped.state = Journal::Fill::State::kStopped;
  ASSERT_TRUE(journal_->set_fill(stopped));
  EXPECT_FALSE(journal_->fill(stopped, stopped, page));
  EXPECT_EQ(state("late").waiting, 7U);
  EXPECT_EQ(state("archive").waiting, 2U);
  expect_sound();
  // One of them is captured again by a journal that has forgotten it: then it is for all sinks.
  append(stored_.begin()->second->job.id == "6" || stored_.begin()->second->job.id == "7"
             ? std::next(stored_.begin())->second
             : stored_.begin()->second);
  reopen();
  archive = sink("archive");
  late = sink("late", {"job.script"});
  set_archive();
  auto got = read(late, journal_->cursor(late));
  const auto parked = journal_->parked(late, 10);
  ASSERT_TRUE(parked);
  EXPECT_THAT(jobs(*parked), ElementsAre("6"));
  EXPECT_THAT(got, SizeIs(6));
  EXPECT_EQ(state("late").waiting, 7U);
  settle(late, *parked, Outcome::kAcknowledged);
  settle(late, got, Outcome::kAcknowledged);
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 0U);
  EXPECT_EQ(state("late").in_archive, 0U);
  EXPECT_FALSE(journal_->fill({.sink = "nobody"}, {.sink = "nobody"}, page));
  expect_sound();
}

// The second sink has the first one's events parked.
class JournalFillsTest : public JournalReleaseTest {
 protected:
  void SetUp() override {
    open();
    const auto archive = sink("archive");
    append_stored(1, 6);
    settle(archive, read(archive, 0), Outcome::kAcknowledged);
    ASSERT_EQ(journal_->usage().events, 0U);
    register_all();
  }
  void register_all() {
    set_archive();
    archive_ = sink("archive");
    first_ = sink("first");
    second_ = sink("second");
  }
  void fill(const std::string& name) {
    std::vector<std::shared_ptr<const Event>> page;
    for (const auto& [id, event] : stored_) page.push_back(event);
    const Journal::Fill progress{
        .sink = name, .archive = "archive", .state = Journal::Fill::State::kFilling};
    ASSERT_TRUE(journal_->set_fill(progress));
    ASSERT_TRUE(journal_->fill(progress, progress, page));
  }
  void append_again(const std::string& job) {
    for (const auto& [id, event] : stored_) {
      if (event->job.id == job) append(event);
    }
  }
  // "waiting/parked/in_archive/dead"
  std::string counts(const std::string& name) {
    const auto now = state(name);
    return std::to_string(now.waiting) + '/' + std::to_string(now.parked) + '/' +
           std::to_string(now.in_archive) + '/' + std::to_string(now.dead);
  }
  // A restart counts everything afresh.
  void expect_counts(const std::string& first, const std::string& second) {
    for (const bool restarted : {false, true}) {
      SCOPED_TRACE(restarted ? "after a restart" : "before a restart");
      if (restarted) {
        reopen();
        register_all();
      }
      EXPECT_EQ(counts("first"), first);
      EXPECT_EQ(counts("second"), second);
    }
  }
  std::vector<Journal::Item> parked(Journal::SinkId id) {
    auto items = journal_->parked(id, 100);
    EXPECT_TRUE(items);
    return *std::move(items);
  }

  Journal::SinkId archive_ = 0, first_ = 0, second_ = 0;
};

TEST_F(JournalFillsTest, TwoFillsAtOnceCountWhatEachSinkIsStillToGet) {
  fill("first");
  expect_counts("6/0/6/0", "0/0/0/0");
  fill("second");
  expect_counts("6/0/6/0", "6/6/6/0");
  settle(first_, read(first_, 0, 2), Outcome::kAcknowledged);
  expect_counts("4/0/4/0", "6/6/6/0");
  auto items = parked(second_);
  settle(second_, {items[0]}, Outcome::kAcknowledged);
  settle(second_, {items[1]}, Outcome::kRetry, "503");
  settle(second_, {items[2]}, Outcome::kRejected, "413");
  expect_counts("4/0/4/0", "4/4/4/1");
  settle(first_, read(first_, 0), Outcome::kAcknowledged);
  settle(second_, parked(second_), Outcome::kAcknowledged);
  expect_counts("0/0/0/0", "0/0/0/1");
  ASSERT_TRUE(journal_->discard_dead("second", ""));
  expect_counts("0/0/0/0", "0/0/0/0");
  EXPECT_EQ(journal_->usage().events, 0U);
  expect_sound();
}

TEST_F(JournalFillsTest, AnEventThatIsForAllSinksNowIsCountedOnceForEachThatWasFilledWithIt) {
  fill("first");
  fill("second");
  const auto items = parked(second_);
  settle(second_, {items[0]}, Outcome::kRejected, "413");
  expect_counts("6/0/6/0", "5/5/5/1");
  // The journal has forgotten them, so they are captured once more.
  append_again(items[0].event->job.id);
  expect_counts("6/0/5/0", "6/5/5/0");
  append_again(items[1].event->job.id);
  expect_counts("6/0/4/0", "6/4/4/0");
  settle(archive_, read(archive_, 0), Outcome::kAcknowledged);
  settle(first_, read(first_, 0), Outcome::kAcknowledged);
  settle(second_, parked(second_), Outcome::kAcknowledged);
  settle(second_, read(second_, 0), Outcome::kAcknowledged);
  expect_counts("0/0/0/0", "0/0/0/0");
  EXPECT_EQ(journal_->usage().events, 0U);
  expect_sound();
}

class JournalAbsentFillTest : public JournalFillsTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(OwnerFirst, JournalAbsentFillTest, testing::Bool());

// What is captured once more is for the sinks that are configured. One that is not configured, and
// was filled with it, is still to get it.
TEST_P(JournalAbsentFillTest, ASinkThatReturnsGetsWhatItWasFilledWith) {
  fill("first");
  fill("second");
  auto items = read(first_, 0);
  settle(first_, {items[0]}, Outcome::kAcknowledged);
  settle(first_, {items[1]}, Outcome::kRetry, "503");
  settle(first_, {items[2]}, Outcome::kRejected, "413");
  ASSERT_TRUE(journal_->retire_other_sinks({"archive", "second"}));
  for (std::size_t i = 0; i < 4; ++i) {
    append(stored_.at(items[i].event->id), GetParam());
    if (GetParam()) {
      const auto unresolved = journal_->unresolved("slurm", 0, 1);
      ASSERT_THAT(unresolved, SizeIs(1));
      journal_->resolved({{unresolved[0].ticket, unresolved[0].event}});
    }
  }
  settle(second_, parked(second_), Outcome::kAcknowledged);
  for (const auto id : {archive_, second_}) settle(id, read(id, 0), Outcome::kAcknowledged);
  if (GetParam()) {
    reopen();
    set_archive();
  }
  register_all();

  EXPECT_EQ(counts("first"), "5/3/2/0");
  const auto again = parked(first_);
  EXPECT_THAT(jobs(again), testing::ElementsAreArray(jobs({items[1], items[2], items[3]})));
  const auto untouched = read(first_, 0);
  EXPECT_THAT(jobs(untouched), testing::ElementsAreArray(jobs({items[4], items[5]})));
  settle(first_, untouched, Outcome::kAcknowledged);
  settle(first_, again, Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 0U);
  expect_sound();
}

TEST_F(JournalFillsTest, ADeadLetterOfAllIsOneOfASinkThatWasFilledAndIsNotConfigured) {
  fill("first");
  const auto items = read(first_, 0);
  ASSERT_TRUE(journal_->retire_other_sinks({"archive", "second"}));
  ASSERT_TRUE(journal_->append(
      {.source = "slurm", .event = stored_.at(items[0].event->id), .dead = "redaction failed"},
      never_.get_token()));
  register_all();
  for (const char* name : {"archive", "first", "second"})
    EXPECT_THAT(*journal_->dead_letters(name, 10), SizeIs(1)) << name;
  EXPECT_EQ(counts("first"), "5/0/5/1");
  expect_sound();
}

class JournalForgottenTest : public JournalFillsTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Restarted, JournalForgottenTest, testing::Bool());

TEST_P(JournalForgottenTest, ANewSinkInheritsNothingFromOneThatWasForgotten) {
  fill("second");
  fill("first");
  auto items = read(second_, 0);
  ASSERT_THAT(items, SizeIs(6));
  settle(second_, {items[0]}, Outcome::kAcknowledged);
  settle(second_, {items[1]}, Outcome::kRetry, "503");
  settle(second_, {items[2]}, Outcome::kRejected, "413");
  EXPECT_EQ(counts("second"), "4/1/4/1");
  ASSERT_TRUE(journal_->retire_other_sinks({"archive", "first"}));
  ASSERT_TRUE(journal_->remove_sink("second"));
  append_stored(7, 7);
  settle(archive_, read(archive_, journal_->cursor(archive_)), Outcome::kAcknowledged);
  if (GetParam()) reopen();
  register_all();

  EXPECT_EQ(counts("second"), "1/0/0/0");
  EXPECT_EQ(state("second").acknowledged, 0U);
  EXPECT_FALSE(state("second").last_success);
  EXPECT_THAT(*journal_->dead_letters("second", 10), testing::IsEmpty());
  EXPECT_THAT(journal_->fills(), SizeIs(1)) << "that of the first sink";
  EXPECT_THAT(parked(second_), testing::IsEmpty());
  EXPECT_THAT(jobs(read(second_, 0)), ElementsAre("7"));

  settle(first_, parked(first_), Outcome::kAcknowledged);
  settle(first_, read(first_, 0), Outcome::kAcknowledged);
  items = read(second_, 0);
  ASSERT_THAT(jobs(items), ElementsAre("7")) << "it is kept for the new one";
  settle(second_, items, Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 0U);
  expect_sound();
}

TEST_F(JournalReleaseTest, ReleasesOnlyWhatTheArchiveHasAndAnotherNeeds) {
  open();
  const auto archive = sink("archive", {"job.script"});
  const auto other = sink("other");
  set_archive();
  append_stored(1, 6);
  EXPECT_EQ(release_all(), 0U) << "the archive has nothing yet";
  auto items = read(archive, 0);
  journal_->settle(archive, {settlement(items[3].sequence, Outcome::kAcknowledged)}, 0);
  ASSERT_TRUE(flush());
  EXPECT_EQ(release_all(), 1U) << "acknowledged ahead of the cursor";
  journal_->settle(archive,
                   {settlement(items[0].sequence, Outcome::kRejected, "413"),
                    settlement(items[1].sequence, Outcome::kRetry, "503"),
                    settlement(items[2].sequence, Outcome::kAcknowledged)},
                   items[3].sequence);
  ASSERT_TRUE(flush());
  EXPECT_EQ(release_all(), 1U) << "neither a dead letter nor a parked one";
  EXPECT_EQ(state("other").in_archive, 2U);
  EXPECT_THAT(jobs(read(other, 0)), ElementsAre("1", "2", "3", "4", "5", "6"));
  ASSERT_TRUE(journal_->retire_other_sinks({"other"}));
  EXPECT_EQ(release_all(), 0U) << "the archive is not configured";
  expect_sound();
}

TEST_F(JournalTest, NumbersGoOnAfterEverythingWasRemoved) {
  open();
  auto archive = sink("archive");
  append_jobs(1, 3);
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  const std::uint64_t before = journal_->cursor(archive);
  reopen();
  archive = sink("archive");
  append(make_event("4"));
  const auto items = read(archive, journal_->cursor(archive));
  EXPECT_THAT(jobs(items), ElementsAre("4"));
  EXPECT_GT(items[0].sequence, before);
}

TEST_F(JournalTest, ASinkGetsOnlyItsKindsAndHoldsNoOthers) {
  open();
  const auto scripts = sink("scripts", {"job.*"});
  const auto usage = sink("usage", {"usage.node"});
  auto sample = make_event_value("node1");
  sample.kind = "usage.node";
  sample.id = event_id({"usage", "1"});
  append_jobs(1, 3);
  append(std::make_shared<const Event>(sample));
  append_jobs(4, 5);
  EXPECT_THAT(jobs(read(usage, 0)), ElementsAre("node1"));
  EXPECT_THAT(jobs(read(scripts, 0)), ElementsAre("1", "2", "3", "4", "5"));
  settle(scripts, read(scripts, 0), Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 3U) << "usage passed 1 to 3, which it does not want";
  settle(usage, read(usage, 0), Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 0U);
  EXPECT_EQ(state("usage").waiting, 0U);
  append(make_event("6"));
  EXPECT_EQ(state("usage").waiting, 0U);
  EXPECT_EQ(sink("usage", {"*"}), usage);
  append(make_event("7"));
  EXPECT_THAT(jobs(read(usage, journal_->cursor(usage))), ElementsAre("7"))
      << "6 was passed before the kinds changed";
  EXPECT_EQ(state("usage").waiting, 1U);
}

TEST_F(JournalTest, ADeadLetterStaysWithItsReasonUntilItIsRetriedOrDiscarded) {
  open();
  auto archive = sink("archive");
  append_jobs(1, 3);
  auto items = read(archive, 0);
  journal_->settle(archive,
                   {settlement(items[0].sequence, Outcome::kAcknowledged),
                    settlement(items[1].sequence, Outcome::kRejected, "413 too large"),
                    settlement(items[2].sequence, Outcome::kRejected, "400 bad")},
                   items[2].sequence);
  ASSERT_TRUE(flush());
  EXPECT_EQ(journal_->usage().events, 2U);
  reopen();
  archive = sink("archive");
  EXPECT_EQ(state("archive").dead, 2U);
  EXPECT_EQ(state("archive").waiting, 0U);
  auto letters = journal_->dead_letters("archive", 10);
  ASSERT_TRUE(letters);
  ASSERT_THAT(*letters, SizeIs(2));
  EXPECT_EQ((*letters)[0].reason, "413 too large");
  EXPECT_EQ((*letters)[0].job_id, "2");
  EXPECT_EQ((*letters)[0].cluster, "lab");
  EXPECT_EQ((*letters)[0].sink, "archive");
  EXPECT_EQ((*letters)[0].event_id, make_event("2")->id);
  EXPECT_EQ((*letters)[0].attempts, 1U);
  EXPECT_EQ((*letters)[0].first_attempt.nanoseconds, 1000);
  EXPECT_EQ((*letters)[0].last_attempt.nanoseconds, 2000);
  EXPECT_THAT(*journal_->dead_letters("other", 10), IsEmpty());
  EXPECT_THAT(*journal_->dead_letters(std::nullopt, 1), SizeIs(1));

  const auto generation = journal_->parked_generation(archive);
  EXPECT_EQ(journal_->retry_dead("archive", make_event("2")->id.substr(0, 8)).value(), 1U);
  EXPECT_NE(journal_->parked_generation(archive), generation);
  EXPECT_TRUE(journal_->wait(archive, 1000, generation, never_.get_token(),
                             std::chrono::steady_clock::now() + 30s));
  const auto parked = journal_->parked(archive, 10);
  ASSERT_TRUE(parked);
  EXPECT_THAT(jobs(*parked), ElementsAre("2"));
  EXPECT_EQ(state("archive").waiting, 1U);
  settle(archive, *parked, Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 1U);

  const auto short_id = journal_->discard_dead("archive", make_event("3")->id.substr(0, 4));
  ASSERT_FALSE(short_id);
  EXPECT_THAT(short_id.error().message(), HasSubstr("8 digits"));
  EXPECT_EQ(journal_->discard_dead(std::nullopt, "").value(), 1U);
  EXPECT_EQ(journal_->usage().events, 0U);
  EXPECT_EQ(state("archive").dead, 0U);
  expect_sound();
}

TEST_F(JournalTest, AParkedEventLetsTheCursorPassAndComesBackAfterARestart) {
  open();
  auto archive = sink("archive");
  append_jobs(1, 3);
  auto items = read(archive, 0);
  journal_->settle(archive, {settlement(items[0].sequence, Outcome::kRetry, "busy")},
                   items[0].sequence);
  journal_->settle(archive, {settlement(items[1].sequence, Outcome::kAcknowledged)},
                   items[1].sequence);
  ASSERT_TRUE(flush());
  EXPECT_EQ(state("archive").parked, 1U);
  EXPECT_EQ(state("archive").waiting, 2U);
  reopen();
  archive = sink("archive");
  EXPECT_THAT(jobs(read(archive, journal_->cursor(archive))), ElementsAre("3"));
  auto parked = journal_->parked(archive, 10);
  ASSERT_TRUE(parked);
  EXPECT_THAT(jobs(*parked), ElementsAre("1"));
  EXPECT_EQ((*parked)[0].attempts, 1U);
  EXPECT_EQ(state("archive").waiting, 2U);
  settle(archive, *parked, Outcome::kRejected, "no more");
  EXPECT_EQ(state("archive").dead, 1U);
  EXPECT_EQ(state("archive").parked, 0U);
  EXPECT_EQ(state("archive").waiting, 1U);
  expect_sound();
}

TEST_F(JournalTest, WhatWasSettledBeyondTheCursorDoesNotComeAgain) {
  open();
  auto archive = sink("archive");
  append_jobs(1, 4);
  const auto items = read(archive, 0);
  journal_->settle(archive,
                   {settlement(items[2].sequence, Outcome::kAcknowledged),
                    settlement(items[3].sequence, Outcome::kRejected, "no")},
                   0);
  ASSERT_TRUE(flush());
  EXPECT_EQ(state("archive").waiting, 2U);
  EXPECT_THAT(jobs(read(archive, 0)), ElementsAre("1", "2"));
  reopen();
  archive = sink("archive");
  EXPECT_EQ(state("archive").waiting, 2U);
  EXPECT_THAT(jobs(read(archive, 0)), ElementsAre("1", "2"));
  EXPECT_THAT(read(archive, items[1].sequence), IsEmpty());
  EXPECT_FALSE(journal_->wait(archive, items[1].sequence, journal_->parked_generation(archive),
                              never_.get_token(), std::chrono::steady_clock::now()));
  settle(archive, read(archive, 0), Outcome::kAcknowledged);
  journal_->settle(archive, {}, items[3].sequence);
  ASSERT_TRUE(flush());
  EXPECT_EQ(journal_->usage().events, 1U) << "the dead letter";
  EXPECT_EQ(state("archive").waiting, 0U);
  expect_sound();
}

TEST_F(JournalTest, ASecondSettlementChangesNothing) {
  open();
  const auto archive = sink("archive");
  const auto other = sink("other");
  static_cast<void>(other);
  append_jobs(1, 2);
  const auto items = read(archive, 0);
  settle(archive, items, Outcome::kAcknowledged);
  settle(archive, items, Outcome::kRejected, "late");
  journal_->settle(archive, {settlement(999, Outcome::kAcknowledged)}, 999);
  ASSERT_TRUE(flush());
  EXPECT_EQ(state("archive").acknowledged, 2U);
  EXPECT_EQ(state("archive").dead, 0U);
  append(make_event("3"));
  EXPECT_THAT(jobs(read(archive, journal_->cursor(archive))), ElementsAre("3"))
      << "a cursor from the future is cut";
}

TEST_F(JournalTest, AnUnresolvedEventIsSeenByNoSinkUntilItIsResolved) {
  open();
  auto archive = sink("archive");
  const CaptureMark mark{.entry = "hash.1/job.1", .size = 5, .event_id = make_event("1")->id};
  append(make_event("1"), true, mark);
  append(make_event("2"));
  EXPECT_FALSE(append(make_event("1"), true));
  EXPECT_THAT(jobs(read(archive, 0)), ElementsAre("2"));
  EXPECT_EQ(journal_->unresolved_count("slurm"), 1U);
  EXPECT_EQ(journal_->unresolved_count("torque"), 0U);
  reopen();
  archive = sink("archive");
  EXPECT_TRUE(
      journal_->wait_unresolved("slurm", 0, never_.get_token(), std::chrono::steady_clock::now()));
  auto unresolved = journal_->unresolved("slurm", 0, 10);
  ASSERT_THAT(unresolved, SizeIs(1));
  ASSERT_TRUE(unresolved[0].mark);
  EXPECT_EQ(unresolved[0].mark->size, 5U);
  EXPECT_EQ(*unresolved[0].event->file("script")->bytes, test::kScript);
  EXPECT_THAT(journal_->unresolved("slurm", unresolved[0].ticket, 10), IsEmpty());
  EXPECT_THAT(journal_->unresolved("torque", 0, 10), IsEmpty());
  Event resolved = *unresolved[0].event;
  resolved.user.name = "bob";
  journal_->resolved({{unresolved[0].ticket, std::make_shared<const Event>(resolved)},
                      {4711, unresolved[0].event}});
  journal_->resolved({{unresolved[0].ticket, unresolved[0].event}});
  ASSERT_TRUE(flush());
  EXPECT_EQ(journal_->unresolved_count("slurm"), 0U);
  const auto items = read(archive, 0);
  EXPECT_THAT(jobs(items), ElementsAre("2", "1")) << "in the order in which they became visible";
  EXPECT_EQ(items[1].event->user.name, "bob");
  EXPECT_FALSE(append(make_event("1")));
  settle(archive, items, Outcome::kAcknowledged);
  EXPECT_EQ(journal_->usage().events, 0U);
  expect_sound();
}

TEST_F(JournalTest, AnAnswerDoesNotBringBackWhatWasRemovedFromATextOfTheSpool) {
  open();
  const auto archive = sink("archive");
  Event captured = make_event_value("1", test::kScript);
  captured.job.name = "run-[redacted:copy]";
  captured.redactions = {{.rule = "copy", .where = "job.name", .count = 1},
                         {.rule = "x", .where = "job.work_dir", .count = 1, .kept = true}};
  append(std::make_shared<const Event>(captured), true);
  const auto unresolved = journal_->unresolved("slurm", 0, 10);
  ASSERT_THAT(unresolved, SizeIs(1));
  Event answer = *unresolved[0].event;
  answer.job.name = "run-Tig3rTig3r";
  answer.job.work_dir = "/home/alice";
  answer.job.account = "[redacted:x]";
  answer.redactions = {{.rule = "x", .where = "job.account", .count = 1}};
  journal_->resolved({{unresolved[0].ticket, std::make_shared<const Event>(answer)}});
  ASSERT_TRUE(flush());
  const auto items = read(archive, 0);
  ASSERT_THAT(items, SizeIs(1));
  EXPECT_EQ(items[0].event->job.name, "run-[redacted:copy]");
  EXPECT_EQ(items[0].event->job.work_dir, "/home/alice") << "what is only reported is replaced";
  EXPECT_EQ(items[0].event->job.account, "[redacted:x]");
  ASSERT_THAT(items[0].event->redactions, SizeIs(3));
  EXPECT_EQ(items[0].event->redactions[2].where, "job.account");
}

TEST_F(JournalTest, WhatWaitsForItsOwnerTakesLittleMemoryAndLosesNothingByIt) {
  open(1U << 30, 0);
  const auto archive = sink("archive");
  constexpr std::size_t kLarge = 2U << 20;
  for (int i = 0; i < 20; ++i) {
    auto event = make_event_value(std::to_string(i),
                                  "#!/bin/bash\n# " + std::to_string(i) + std::string(kLarge, ' '));
    event.script = ScriptInfo{.interpreter = "/bin/bash",
                              .directives = std::vector<std::string>(100, std::string(1000, 'x'))};
    event.job.name = "as captured";
    append(std::make_shared<const Event>(std::move(event)), true);
  }
  append(make_event("20"), true);
  const auto unresolved = journal_->unresolved("slurm", 0, 4096);
  ASSERT_THAT(unresolved, SizeIs(21));
  std::uint64_t memory = 0;
  std::vector<Journal::Resolved> resolved;
  for (const auto& item : unresolved) {
    memory += item.event->memory_size();
    Event answer = *item.event;
    answer.user.id = "1000";
    answer.job.account = "physics";
    resolved.push_back({item.ticket, std::make_shared<const Event>(std::move(answer))});
  }
  EXPECT_LT(memory, 21 * 16'384U) << "neither scripts nor directives";
  EXPECT_EQ(*unresolved.back().event->file("script")->bytes, test::kScript)
      << "a short one comes along: it may be a stub";
  journal_->resolved(std::move(resolved));
  EXPECT_THAT(journal_->unresolved("slurm", 0, 4096), IsEmpty())
      << "resolved already, durable or not";
  ASSERT_TRUE(flush());
  std::uint64_t after = 0;
  for (int i = 0; i < 20; ++i) {
    const auto items = read(archive, after, 100, 1);
    ASSERT_THAT(items, SizeIs(1)) << "one at a time: each is larger than what was asked for";
    after = items[0].sequence;
    const Event& event = *items[0].event;
    EXPECT_EQ(event.job.id, std::to_string(i));
    EXPECT_EQ(event.user.id, "1000");
    EXPECT_EQ(event.job.account, "physics");
    EXPECT_EQ(event.job.name, "as captured");
    ASSERT_TRUE(event.script);
    EXPECT_THAT(event.script->directives, SizeIs(100));
    EXPECT_EQ(*event.file("script")->bytes,
              "#!/bin/bash\n# " + std::to_string(i) + std::string(kLarge, ' '));
  }
  EXPECT_THAT(jobs(read(archive, after)), ElementsAre("20"));
  expect_sound();
}

TEST_F(JournalTest, GivesParkedEventsStepByStepWithinABoundOfBytes) {
  open(1U << 30, 0);
  const auto archive = sink("archive");
  for (int i = 0; i < 10; ++i)
    append(make_event(std::to_string(i), std::string(1U << 20, static_cast<char>('a' + i))));
  settle(archive, read(archive, 0), Outcome::kRetry, "later");
  const auto page = [&](std::uint64_t after, std::uint64_t bytes,
                        const std::function<bool(std::uint64_t)>& skip = {}) {
    auto items = journal_->parked(archive, 100, after, bytes, skip);
    EXPECT_TRUE(items) << items.error().message();
    return *std::move(items);
  };
  EXPECT_THAT(jobs(page(0, 1)), ElementsAre("0"));
  EXPECT_THAT(jobs(page(0, 3U << 20)), ElementsAre("0", "1"));
  EXPECT_THAT(jobs(page(8, 32U << 20)), ElementsAre("8", "9"));
  EXPECT_THAT(jobs(page(0, 32U << 20, [](std::uint64_t sequence) { return sequence < 10; })),
              ElementsAre("9"));
}

TEST_F(JournalTest, APositionIsStoredTogetherWithItsEvents) {
  open();
  const auto archive = sink("archive");
  EXPECT_EQ(journal_->position("usage"), std::nullopt);
  const std::string position("a\0b", 3);
  ASSERT_TRUE(journal_->append_all("usage", {make_event("1"), make_event("2"), make_event("1")},
                                   position, never_.get_token()));
  EXPECT_EQ(journal_->position("usage"), position);
  EXPECT_THAT(jobs(read(archive, 0)), ElementsAre("1", "2"));
  ASSERT_TRUE(journal_->append_all("usage", {}, "next", never_.get_token()));
  reopen();
  EXPECT_EQ(journal_->position("usage"), "next");
}

TEST_F(JournalTest, StoresEqualFilesOnceAndDropsThemWithTheLastEvent) {
  open();
  const auto archive = sink("archive");
  std::string big(1 << 20, '\0');
  std::mt19937_64 random(7);
  for (char& c : big) c = static_cast<char>(random());
  for (int i = 1; i <= 20; ++i) append(make_event(std::to_string(i), big));
  const auto pages = [&] { return journal_->usage().bytes - journal_->usage().wal_bytes; };
  const auto one_script = pages();
  EXPECT_GT(one_script, big.size());
  EXPECT_LT(one_script, 2 * big.size());
  expect_sound();
  settle(archive, read(archive, 0, 19), Outcome::kAcknowledged);
  EXPECT_GT(pages(), big.size());
  expect_sound();
  settle(archive, read(archive, journal_->cursor(archive)), Outcome::kAcknowledged);
  EXPECT_LT(pages(), big.size() / 2);
  expect_sound();
}

TEST_F(JournalTest, WhenFullAppendWaitsAndGoesOnOnceSinksHaveTakenEvents) {
  open(1U << 20);
  const auto archive = sink("archive");
  std::mt19937_64 random(7);
  std::atomic<int> durable{0};
  std::stop_source enough;
  int accepted = 0;
  const auto noise = [&](int i) {
    std::string script(20'000, ' ');
    for (char& c : script) c = static_cast<char>(random());
    return make_event(std::to_string(i), script);
  };
  // A waiting append ends as soon as the journal reports that it is full.
  std::jthread watcher([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && !log_.wait_for("JOURNAL_FULL", 1, 10ms)) {
    }
    enough.request_stop();
  });
  while (journal_->append(
      {.source = "slurm", .event = noise(accepted), .durable = [&](bool) { ++durable; }},
      enough.get_token()))
    ++accepted;
  ASSERT_TRUE(flush());
  EXPECT_TRUE(journal_->full());
  EXPECT_TRUE(journal_->usage().full);
  EXPECT_EQ(durable, accepted);
  std::atomic<bool> went_on{false};
  std::jthread waiting([&] {
    went_on = journal_->append({.source = "slurm", .event = noise(100'000)}, never_.get_token());
  });
  std::uint64_t after = 0;
  for (int taken = 0; taken < accepted;) {
    const auto items = read(archive, after, 10);
    ASSERT_FALSE(items.empty());
    taken += static_cast<int>(items.size());
    after = items.back().sequence;
    settle(archive, items, Outcome::kAcknowledged);
  }
  waiting.join();
  EXPECT_TRUE(went_on);
  EXPECT_TRUE(log_.has("JOURNAL_HAS_ROOM"));
  EXPECT_FALSE(journal_->full());
  struct stat before{}, now{};
  ASSERT_EQ(::stat(dir_.path_to("journal/journal.db").c_str(), &before), 0);
  for (int i = 0; i < 30; ++i) append(noise(200'000 + i));
  ASSERT_EQ(::stat(dir_.path_to("journal/journal.db").c_str(), &now), 0);
  EXPECT_LE(now.st_size, std::max<off_t>(before.st_size, 4 << 20)) << "freed room is used again";
  expect_sound();
}

TEST_F(JournalTest, OfferWaitsForAWriterThatIsBehindAndNotForASink) {
  open(4U << 20);
  sink("archive");
  std::mt19937_64 random(7);
  int taken = 0;
  const auto offer = [&] {
    std::string script(50'000, ' ');
    for (char& c : script) c = static_cast<char>(random());
    Journal::Append item{.source = "slurm", .event = make_event(std::to_string(taken), script)};
    return journal_->offer(item, never_.get_token());
  };
  // Ten times what the queue takes, as fast as possible.
  while (offer() == Journal::Admission::kTaken) ++taken;
  EXPECT_TRUE(journal_->full()) << "refused although the writer had only to catch up, after "
                                << taken;
}

TEST_F(JournalTest, OfferRefusesWhatHasNoRoomAndCallsOnceThereIsSome) {
  open(1U << 20);
  const auto archive = sink("archive");
  std::promise<void> called;
  journal_->on_room("slurm", [&, once = std::make_shared<std::once_flag>()] {
    std::call_once(*once, [&] { called.set_value(); });
  });
  std::mt19937_64 random(7);
  int taken = 0;
  for (; !is_full(); ++taken) {
    std::string script(20'000, ' ');
    for (char& c : script) c = static_cast<char>(random());
    append(make_event(std::to_string(taken), script));
  }
  Journal::Append item{.source = "slurm", .event = make_event("99999")};
  ASSERT_EQ(journal_->offer(item), Journal::Admission::kFull);
  ASSERT_NE(item.event, nullptr) << "what is refused stays the caller's";
  std::uint64_t after = 0;
  for (int settled = 0; settled < taken;) {
    const auto items = read(archive, after, 10);
    settled += static_cast<int>(items.size());
    after = items.back().sequence;
    settle(archive, items, Outcome::kAcknowledged);
  }
  ASSERT_EQ(called.get_future().wait_for(30s), std::future_status::ready);
  EXPECT_EQ(journal_->offer(item), Journal::Admission::kTaken);
  ASSERT_TRUE(flush());
  EXPECT_THAT(jobs(read(archive, after)), ElementsAre("99999"));
  journal_->on_room("slurm", {});
}

// The length of -wal

class JournalWalTest : public JournalTest {
 protected:
  // As `sqlite3 -readonly journal.db | less` does while a user reads a page.
  struct Reader {
    explicit Reader(const std::string& file) {
      EXPECT_EQ(sqlite3_open_v2(file.c_str(), &handle, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
      EXPECT_EQ(
          sqlite3_exec(handle, "BEGIN; SELECT count(*) FROM events", nullptr, nullptr, nullptr),
          SQLITE_OK);
    }
    Reader(const Reader&) = delete;
    ~Reader() { sqlite3_close_v2(handle); }
    sqlite3* handle = nullptr;
  };
  std::shared_ptr<const Event> noise(int i, std::size_t size) {
    std::string script(size, ' ');
    for (char& c : script) c = static_cast<char>(random_());
    return make_event(std::to_string(i), script);
  }
  std::uint64_t wal_size() const {
    return std::filesystem::file_size(dir_.path_to("journal/journal.db-wal"));
  }

  std::mt19937_64 random_{7};
};

TEST_F(JournalWalTest, AReaderThatStaysDelaysNoCommitByMuch) {
  open(16U << 20);
  const auto archive = sink("archive");
  append(noise(0, 1000));
  const Reader reader(dir_.path_to("journal/journal.db"));
  std::chrono::nanoseconds longest{0};
  // Eight times what causes a checkpoint, and each event is removed at once.
  for (int i = 1; i <= 40; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    append(noise(i, 200'000));
    longest = std::max<std::chrono::nanoseconds>(longest, std::chrono::steady_clock::now() - begun);
    const auto items = read(archive, journal_->cursor(archive));
    settle(archive, items, Outcome::kAcknowledged);
  }
  EXPECT_GT(wal_size(), 6U << 20) << "the reader did not hold it";
  EXPECT_LT(longest, 5s) << "it waited for the reader";
}

TEST_F(JournalWalTest, WhatAReaderKeepsInItCountsAndComesBackWhenTheReaderGoes) {
  open(16U << 20);
  const auto archive = sink("archive");
  append(noise(0, 1000));
  std::promise<void> called;
  journal_->on_room("slurm", [&, once = std::make_shared<std::once_flag>()] {
    std::call_once(*once, [&] { called.set_value(); });
  });
  auto reader = std::make_unique<Reader>(dir_.path_to("journal/journal.db"));
  for (int i = 1; !is_full(); ++i) {
    ASSERT_LT(i, 200) << "-wal has " << wal_size() << " bytes and does not count";
    append(noise(i, 200'000));
    settle(archive, read(archive, journal_->cursor(archive)), Outcome::kAcknowledged);
  }
  EXPECT_GT(journal_->usage().wal_bytes, 8U << 20);
  EXPECT_LE(journal_->usage().wal_bytes, wal_size());
  Journal::Append item{.source = "slurm", .event = make_event("9999")};
  ASSERT_EQ(journal_->offer(item), Journal::Admission::kFull);
  reader.reset();
  // Nothing is appended and nothing settled now.
  ASSERT_EQ(called.get_future().wait_for(30s), std::future_status::ready);
  EXPECT_FALSE(journal_->full());
  EXPECT_EQ(journal_->offer(item), Journal::Admission::kTaken);
  ASSERT_TRUE(flush());
  EXPECT_LT(wal_size(), 4U << 20) << "it was cut";
  journal_->on_room("slurm", {});
  expect_sound();
}

// Shares

class JournalShareTest : public JournalTest {
 protected:
  static constexpr std::uint64_t kMost =
      16U << 20;  // so 4 MiB for each user, and the last 3.2 MiB for small events
  void SetUp() override {
    open(kMost, 0, 25);
    archive_ = sink("archive");
  }
  std::shared_ptr<const Event> job(const std::string& id, std::size_t bytes) {
    std::string script(bytes, ' ');
    for (char& c : script) c = static_cast<char>(random_());
    Event event = make_event_value(id, script);
    event.user = {};
    return std::make_shared<const Event>(std::move(event));
  }
  static CaptureMark mark_of(const Event& event) {
    return {.entry = "job." + event.job.id,
            .identity = {.file = "script", .mtime_ns = 7},
            .event_id = event.id};
  }
  Journal::Admission offer(const std::shared_ptr<const Event>& event) {
    Journal::Append item{
        .source = "slurm", .event = event, .resolve_first = true, .mark = mark_of(*event)};
    const auto admission = journal_->offer(item, never_.get_token());
    EXPECT_TRUE(flush());
    return admission;
  }
  static User user(const std::string& id) {
    User user;
    user.id = id;
    user.name = "user-" + id;
    user.verified = true;
    return user;
  }
  void resolve_all(const std::string& id) {
    std::vector<Journal::Resolved> resolved;
    for (const auto& item : journal_->unresolved("slurm", 0, 1000)) {
      Event event = *item.event;
      if (!id.empty()) event.user = user(id);
      resolved.push_back({item.ticket, std::make_shared<const Event>(std::move(event))});
    }
    journal_->resolved(std::move(resolved));
    ASSERT_TRUE(flush());
  }
  // All waiting events are archived.
  void drain() {
    while (true) {
      const auto items = read(archive_, journal_->cursor(archive_), 10);
      if (items.empty()) return;
      settle(archive_, items, Outcome::kAcknowledged);
    }
  }

  Journal::SinkId archive_ = 0;
  std::mt19937_64 random_{7};
};

TEST_F(JournalShareTest, OneUserReachesHisShareAndTheOthersAreCapturedOn) {
  std::vector<std::shared_ptr<const Event>> waiting;
  for (int i = 0; i < 40; ++i) {
    auto event = job(std::to_string(i), 300'000);
    if (offer(event) == Journal::Admission::kOverShare) {
      for (const auto& question : journal_->owner_questions("slurm", 100)) {
        EXPECT_EQ(question.ticket, 0U);
        journal_->answer_owner("slurm", question.event->id, user("1001"));
      }
      if (offer(event) == Journal::Admission::kOverShare) waiting.push_back(event);
    }
    resolve_all("1001");
  }
  const auto usage = journal_->usage();
  EXPECT_GT(waiting.size(), 20U);
  ASSERT_THAT(usage.over_share, SizeIs(1));
  EXPECT_EQ(usage.over_share[0].user_id, "1001");
  EXPECT_EQ(usage.over_share[0].user, "user-1001");
  EXPECT_EQ(usage.over_share[0].waiting, waiting.size());
  EXPECT_LE(usage.over_share[0].bytes, kMost / 4);
  EXPECT_GT(usage.over_share[0].bytes, kMost / 4 - 700'000);
  EXPECT_TRUE(journal_->refuses("slurm", mark_of(*waiting[0]))) << "a scan need not read it again";

  // An event of another user is taken, whatever its size, as soon as the scheduler has named that
  // user.
  for (const auto& [id, bytes] :
       std::vector<std::pair<std::string, std::size_t>>{{"100", 500}, {"101", 300'000}}) {
    const auto event = job(id, bytes);
    if (offer(event) == Journal::Admission::kTaken) continue;
    EXPECT_TRUE(journal_->wait_unresolved("slurm", 1U << 30, never_.get_token(),
                                          std::chrono::steady_clock::now()));
    ASSERT_THAT(journal_->owner_questions("slurm", 100), SizeIs(1));
    journal_->answer_owner("slurm", event->id, user("1002"));
    EXPECT_FALSE(journal_->refuses("slurm", mark_of(*event)));
    EXPECT_EQ(offer(event), Journal::Admission::kTaken) << id;
  }
  resolve_all("1002");

  // The sink works again: all entries of the first user are captured, none is missed.
  std::promise<void> called;
  journal_->on_room("slurm", [&, once = std::make_shared<std::once_flag>()] {
    std::call_once(*once, [&] { called.set_value(); });
  });
  EXPECT_EQ(offer(waiting[0]), Journal::Admission::kOverShare);
  drain();
  EXPECT_EQ(called.get_future().wait_for(30s), std::future_status::ready);
  for (const auto& event : waiting) {
    ASSERT_EQ(offer(event), Journal::Admission::kTaken);
    resolve_all("1001");
    drain();
  }
  EXPECT_THAT(journal_->usage().over_share, IsEmpty());
  EXPECT_EQ(journal_->usage().events, 0U);
  journal_->on_room("slurm", {});
}

TEST_F(JournalShareTest, WithNobodyToAskLargeOnesLeaveTheLastFifthToSmallOnes) {
  int large = 0;
  for (;; ++large) {
    const auto event = job(std::to_string(large), 300'000);
    auto admission = offer(event);
    if (admission == Journal::Admission::kOverShare) {
      journal_->answer_owner("slurm", event->id, User{});
      admission = offer(event);
    }
    if (admission != Journal::Admission::kTaken) break;
    ASSERT_LT(large, 100);
    resolve_all("");
  }
  EXPECT_GE(journal_->usage().bytes, kMost / 5 * 4);
  EXPECT_LT(journal_->usage().bytes, kMost / 10 * 9);
  const auto small = job("1000", 2000);
  if (offer(small) == Journal::Admission::kOverShare)
    journal_->answer_owner("slurm", small->id, User{});
  EXPECT_EQ(offer(small), Journal::Admission::kTaken);
}

TEST_F(JournalShareTest, WhatAUserHoldsOutlastsARestart) {
  for (int i = 0; i < 12; ++i) {
    ASSERT_EQ(offer(job(std::to_string(i), 300'000)), Journal::Admission::kTaken);
    resolve_all("1001");
  }
  close();
  open(kMost, 0, 25);
  archive_ = sink("archive");
  const auto event = job("100", 800'000);
  ASSERT_EQ(offer(event), Journal::Admission::kOverShare);
  journal_->answer_owner("slurm", event->id, user("1001"));
  EXPECT_EQ(offer(event), Journal::Admission::kOverShare);
  ASSERT_THAT(journal_->usage().over_share, SizeIs(1));
  EXPECT_GT(journal_->usage().over_share[0].bytes, 3'600'000U);
  drain();
  EXPECT_EQ(offer(event), Journal::Admission::kTaken);
}

TEST_F(JournalShareTest, OneEventLargerThanTheShareIsTakenAlone) {
  const auto event = job("1", 6U << 20);
  auto admission = offer(event);
  EXPECT_EQ(admission, Journal::Admission::kTaken);
  resolve_all("1001");
  const auto next = job("2", 6U << 20);
  ASSERT_EQ(offer(next), Journal::Admission::kOverShare);
  journal_->answer_owner("slurm", next->id, user("1001"));
  EXPECT_EQ(offer(next), Journal::Admission::kOverShare);
  drain();
  EXPECT_EQ(offer(next), Journal::Admission::kTaken);
}

TEST_F(JournalTest, WaitReturnsWhenAnEventForTheSinkBecomesVisible) {
  open();
  const auto archive = sink("archive");
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  EXPECT_FALSE(
      journal_->wait(archive, 0, 0, never_.get_token(), std::chrono::steady_clock::now() + 5ms));
  std::jthread writer([&] { append(make_event("1")); });
  EXPECT_TRUE(journal_->wait(archive, 0, 0, never_.get_token(), deadline));
  EXPECT_THAT(read(archive, 0), SizeIs(1));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(journal_->wait(archive, 1000, 0, stop.get_token(), deadline));
  EXPECT_FALSE(journal_->append({.source = "slurm", .event = make_event("2")}, stop.get_token()));
}

TEST_F(JournalTest, FindsEventsByJobAndById) {
  open();
  append(make_event("11"));
  append(make_event("11", "#!/bin/sh\n"), true);
  append(make_event("12"));
  EXPECT_THAT(*journal_->find("11", 10), SizeIs(2));
  EXPECT_THAT(*journal_->find("11", 1), SizeIs(1));
  EXPECT_THAT(*journal_->find("nothing", 10), IsEmpty());
  const std::string id = make_event("12")->id;
  EXPECT_EQ((*journal_->event(id))->job.id, "12");
  EXPECT_EQ((*journal_->event(id.substr(0, 9)))->job.id, "12");
  const auto missing = journal_->event(std::string(64, '0'));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind(), ErrorKind::kVanished);
}

TEST_F(JournalTest, TellsTheOldestEventThatASinkWaitsFor) {
  open();
  const auto archive = sink("archive");
  for (int i = 1; i <= 3; ++i) {
    auto event = make_event_value(std::to_string(i));
    event.captured_at = {i * 1000};
    append(std::make_shared<const Event>(event));
  }
  EXPECT_EQ(state("archive").oldest_waiting, Timestamp{1000});
  const auto items = read(archive, 0);
  journal_->settle(archive,
                   {settlement(items[0].sequence, Outcome::kAcknowledged),
                    settlement(items[1].sequence, Outcome::kRetry)},
                   items[1].sequence);
  ASSERT_TRUE(flush());
  EXPECT_EQ(state("archive").oldest_waiting, Timestamp{2000});
  // A fill of what is older is not behind by that.
  auto old = make_event_value("4");
  old.captured_at = {1};
  const Journal::Fill fill{.sink = "archive"};
  ASSERT_TRUE(journal_->set_fill(fill));
  ASSERT_TRUE(journal_->fill(fill, fill, {std::make_shared<const Event>(old)}));
  EXPECT_EQ(state("archive").waiting, 3U);
  EXPECT_EQ(state("archive").oldest_waiting, Timestamp{2000});
}

TEST_F(JournalTest, CanBeReadWhileAnotherHasItOpen) {
  open();
  sink("archive");
  append_jobs(1, 3);
  auto reading = Journal::open({.directory = dir_.path_to("journal"), .read_only = true}, log_,
                               system_clock());
  ASSERT_TRUE(reading) << reading.error().message();
  EXPECT_EQ((*reading)->usage().events, 3U);
  EXPECT_THAT(*(*reading)->find("2", 10), SizeIs(1));
  EXPECT_FALSE(
      (*reading)->append({.source = "slurm", .event = make_event("9")}, never_.get_token()));
  EXPECT_FALSE((*reading)->register_sink("new", {"*"}));
  EXPECT_TRUE((*reading)->verify());
  reading = Error{ErrorKind::kVanished, ""};
  close();
  auto alone = Journal::open({.directory = dir_.path_to("journal"), .read_only = true}, log_,
                             system_clock());
  ASSERT_TRUE(alone) << alone.error().message();
  EXPECT_EQ((*alone)->usage().events, 3U);
  auto missing = Journal::open({.directory = dir_.path_to("nothing"), .read_only = true}, log_,
                               system_clock());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind(), ErrorKind::kVanished);
  EXPECT_FALSE(dir_.exists("nothing"));
}

TEST_F(JournalTest, ManyThreadsAtOnceLoseNothing) {
  constexpr int kSources = 3, kEach = 300, kSinks = 3;
  open(1U << 30, 64U << 10);  // a cache so small that sinks read from disk as well
  std::vector<Journal::SinkId> ids;
  for (int s = 0; s < kSinks; ++s) ids.push_back(sink("sink" + std::to_string(s)));
  std::atomic<int> durable{0};
  std::vector<std::set<std::string>> seen(kSinks);
  {
    std::vector<std::jthread> threads;
    for (int s = 0; s < kSinks; ++s) {
      threads.emplace_back([&, s](const std::stop_token& stop) {
        std::uint64_t after = 0;
        while (seen[static_cast<std::size_t>(s)].size() < kSources * kEach &&
               !stop.stop_requested()) {
          const auto deadline = std::chrono::steady_clock::now() + 30s;
          ASSERT_TRUE(journal_->wait(ids[static_cast<std::size_t>(s)], after, 0, stop, deadline));
          const auto items = read(ids[static_cast<std::size_t>(s)], after, 50);
          if (items.empty()) continue;
          std::vector<Journal::Settle> settlements;
          for (const auto& item : items) {
            ASSERT_TRUE(item.event);
            EXPECT_TRUE(seen[static_cast<std::size_t>(s)].insert(item.event->id).second);
            settlements.push_back(settlement(item.sequence, Outcome::kAcknowledged));
          }
          after = items.back().sequence;
          journal_->settle(ids[static_cast<std::size_t>(s)], settlements, after);
        }
      });
    }
    for (int t = 0; t < kSources; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          const std::string job = std::to_string(t * kEach + i);
          journal_->append({.source = "s" + std::to_string(t),
                            .event = make_event(job),
                            .resolve_first = i % 2 == 0,
                            .mark = CaptureMark{.entry = "job." + job},
                            .durable = [&](bool fresh) { durable += fresh ? 1 : 0; }},
                           never_.get_token());
        }
      });
      threads.emplace_back([&, t] {
        const std::string source = "s" + std::to_string(t);
        std::uint64_t after = 0;
        for (int done = 0; done < kEach / 2;) {
          ASSERT_TRUE(journal_->wait_unresolved(source, after, never_.get_token(),
                                                std::chrono::steady_clock::now() + 30s));
          std::vector<Journal::Resolved> resolved;
          for (const auto& item : journal_->unresolved(source, after, 20)) {
            after = item.ticket;
            resolved.push_back({item.ticket, item.event});
          }
          done += static_cast<int>(resolved.size());
          journal_->resolved(std::move(resolved));
        }
      });
    }
    threads.emplace_back([&](const std::stop_token&) {
      for (int i = 0; i < 50; ++i) {
        const auto usage = journal_->usage();
        EXPECT_EQ(usage.sinks.size(), static_cast<std::size_t>(kSinks));
        EXPECT_TRUE(journal_->find("5", 10));
      }
    });
    for (auto& thread : threads) thread.join();
  }
  ASSERT_TRUE(flush());
  EXPECT_EQ(durable, kSources * kEach);
  for (const auto& each : seen) EXPECT_EQ(each.size(), static_cast<std::size_t>(kSources * kEach));
  EXPECT_EQ(journal_->usage().events, 0U);
  for (int s = 0; s < kSinks; ++s) {
    EXPECT_EQ(state("sink" + std::to_string(s)).waiting, 0U);
    EXPECT_EQ(state("sink" + std::to_string(s)).acknowledged,
              static_cast<std::uint64_t>(kSources * kEach));
  }
  expect_sound();
}

}  // namespace
}  // namespace scriptorium
