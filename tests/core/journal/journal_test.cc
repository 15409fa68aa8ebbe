#include "core/journal/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
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
  void open(std::uint64_t max_bytes = std::uint64_t{1} << 30, std::uint64_t cache_bytes = 16U << 20) {
    auto opened = Journal::open({.directory = dir_.path_to("journal"), .max_bytes = max_bytes, .cache_bytes = cache_bytes}, log_,
                                system_clock());
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
  // Appends and waits until it is durable; whether it was new.
  bool append(std::shared_ptr<const Event> event, bool resolve_first = false, std::optional<CaptureMark> mark = std::nullopt) {
    auto durable = std::make_shared<std::promise<bool>>();
    auto fresh = durable->get_future();
    EXPECT_TRUE(journal_->append({.source = "slurm",
                                  .event = std::move(event),
                                  .resolve_first = resolve_first,
                                  .mark = std::move(mark),
                                  .durable = [durable](bool is_fresh) { durable->set_value(is_fresh); }},
                                 never_.get_token()));
    return fresh.get();
  }
  void append_jobs(int first, int last) {
    for (int i = first; i <= last; ++i) append(make_event(std::to_string(i)));
  }
  bool flush() { return journal_->flush(std::chrono::steady_clock::now() + 30s); }
  std::vector<Journal::Item> read(Journal::SinkId id, std::uint64_t after, std::size_t events = 1000,
                                  std::uint64_t bytes = 1U << 30) {
    auto items = journal_->read(id, after, events, bytes);
    EXPECT_TRUE(items) << items.error().message();
    return *std::move(items);
  }
  static std::vector<std::string> jobs(const std::vector<Journal::Item>& items) {
    std::vector<std::string> ids;
    for (const auto& item : items) ids.push_back(item.event ? item.event->job.id : "damaged");
    return ids;
  }
  static Journal::Settle settlement(std::uint64_t sequence, Outcome outcome, std::string reason = "") {
    return {.sequence = sequence,
            .outcome = outcome,
            .reason = std::move(reason),
            .attempts = 1,
            .first_attempt = {1000},
            .last_attempt = {2000}};
  }
  void settle(Journal::SinkId id, const std::vector<Journal::Item>& items, Outcome outcome, std::string reason = "") {
    std::vector<Journal::Settle> settlements;
    for (const auto& item : items) settlements.push_back(settlement(item.sequence, outcome, reason));
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

TEST_F(JournalTest, IsForItsOwnerOnly) {
  open();
  append(make_event("1"));
  struct stat s{};
  ASSERT_EQ(::stat(dir_.path_to("journal").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0700U);
  for (const char* name : {"journal/journal.db", "journal/journal.db-wal", "journal/journal.db-shm"}) {
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
                         .device = 7,
                         .inode = ~std::uint64_t{0},
                         .mtime_ns = -5,
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
  EXPECT_EQ(marks[0].inode, mark.inode);
  EXPECT_EQ(marks[0].mtime_ns, mark.mtime_ns);
  EXPECT_EQ(marks[0].event_id, mark.event_id);
  EXPECT_THAT(journal_->marks("torque"), IsEmpty());
  EXPECT_FALSE(append(make_event("1")));
  journal_->forget_marks("slurm", {"hash.1/job.1"});
  EXPECT_TRUE(append(make_event("1")));
}

TEST_F(JournalTest, StoresTheMarkOfAnEventThatItHasAlready) {
  open();
  append(make_event("1"));
  EXPECT_FALSE(append(make_event("1"), false, CaptureMark{.entry = "hash.1/job.1", .event_id = make_event("1")->id}));
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
  open(1U << 30, 0);  // the same from disk
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
  journal_->remove_sink("gone");
  append(make_event("4"));
  EXPECT_EQ(journal_->usage().events, 1U);
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
  EXPECT_THAT(jobs(read(usage, journal_->cursor(usage))), ElementsAre("7")) << "6 was passed before the kinds changed";
  EXPECT_EQ(state("usage").waiting, 1U);
}

TEST_F(JournalTest, ADeadLetterStaysWithItsReasonUntilItIsRetriedOrDiscarded) {
  open();
  auto archive = sink("archive");
  append_jobs(1, 3);
  auto items = read(archive, 0);
  journal_->settle(
      archive,
      {settlement(items[0].sequence, Outcome::kAcknowledged), settlement(items[1].sequence, Outcome::kRejected, "413 too large"),
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
  EXPECT_TRUE(journal_->wait(archive, 1000, generation, never_.get_token(), std::chrono::steady_clock::now() + 30s));
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
  journal_->settle(archive, {settlement(items[0].sequence, Outcome::kRetry, "busy")}, items[0].sequence);
  journal_->settle(archive, {settlement(items[1].sequence, Outcome::kAcknowledged)}, items[1].sequence);
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
  journal_->settle(
      archive, {settlement(items[2].sequence, Outcome::kAcknowledged), settlement(items[3].sequence, Outcome::kRejected, "no")},
      0);
  ASSERT_TRUE(flush());
  EXPECT_EQ(state("archive").waiting, 2U);
  EXPECT_THAT(jobs(read(archive, 0)), ElementsAre("1", "2"));
  reopen();
  archive = sink("archive");
  EXPECT_EQ(state("archive").waiting, 2U);
  EXPECT_THAT(jobs(read(archive, 0)), ElementsAre("1", "2"));
  EXPECT_THAT(read(archive, items[1].sequence), IsEmpty());
  EXPECT_FALSE(journal_->wait(archive, items[1].sequence, journal_->parked_generation(archive), never_.get_token(),
                              std::chrono::steady_clock::now()));
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
  EXPECT_THAT(jobs(read(archive, journal_->cursor(archive))), ElementsAre("3")) << "a cursor from the future is cut";
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
  EXPECT_TRUE(journal_->wait_unresolved("slurm", 0, never_.get_token(), std::chrono::steady_clock::now()));
  auto unresolved = journal_->unresolved("slurm", 0, 10);
  ASSERT_THAT(unresolved, SizeIs(1));
  ASSERT_TRUE(unresolved[0].mark);
  EXPECT_EQ(unresolved[0].mark->size, 5U);
  EXPECT_EQ(*unresolved[0].event->file("script")->bytes, test::kScript);
  EXPECT_THAT(journal_->unresolved("slurm", unresolved[0].ticket, 10), IsEmpty());
  EXPECT_THAT(journal_->unresolved("torque", 0, 10), IsEmpty());
  Event resolved = *unresolved[0].event;
  resolved.user.name = "bob";
  journal_->resolved({{unresolved[0].ticket, std::make_shared<const Event>(resolved)}, {4711, unresolved[0].event}});
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

TEST_F(JournalTest, APositionIsStoredTogetherWithItsEvents) {
  open();
  const auto archive = sink("archive");
  EXPECT_EQ(journal_->position("usage"), std::nullopt);
  const std::string position("a\0b", 3);
  ASSERT_TRUE(journal_->append_all("usage", {make_event("1"), make_event("2"), make_event("1")}, position, never_.get_token()));
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
  const auto one_script = journal_->usage().bytes;
  EXPECT_GT(one_script, big.size());
  EXPECT_LT(one_script, 2 * big.size());
  expect_sound();
  settle(archive, read(archive, 0, 19), Outcome::kAcknowledged);
  EXPECT_GT(journal_->usage().bytes, big.size());
  expect_sound();
  settle(archive, read(archive, journal_->cursor(archive)), Outcome::kAcknowledged);
  EXPECT_LT(journal_->usage().bytes, big.size() / 2);
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
  // An append that waits is stopped as soon as the journal says that it is full.
  std::jthread watcher([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && !log_.wait_for("JOURNAL_FULL", 1, 10ms)) {
    }
    enough.request_stop();
  });
  while (journal_->append({.source = "slurm", .event = noise(accepted), .durable = [&](bool) { ++durable; }}, enough.get_token()))
    ++accepted;
  ASSERT_TRUE(flush());
  EXPECT_TRUE(journal_->full());
  EXPECT_TRUE(journal_->usage().full);
  EXPECT_EQ(durable, accepted);
  std::atomic<bool> went_on{false};
  std::jthread waiting([&] { went_on = journal_->append({.source = "slurm", .event = noise(100'000)}, never_.get_token()); });
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

TEST_F(JournalTest, WaitReturnsWhenAnEventForTheSinkBecomesVisible) {
  open();
  const auto archive = sink("archive");
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  EXPECT_FALSE(journal_->wait(archive, 0, 0, never_.get_token(), std::chrono::steady_clock::now() + 5ms));
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
                   {settlement(items[0].sequence, Outcome::kAcknowledged), settlement(items[1].sequence, Outcome::kRetry)},
                   items[1].sequence);
  ASSERT_TRUE(flush());
  EXPECT_EQ(state("archive").oldest_waiting, Timestamp{2000});
}

TEST_F(JournalTest, CanBeReadWhileAnotherHasItOpen) {
  open();
  sink("archive");
  append_jobs(1, 3);
  auto reading = Journal::open({.directory = dir_.path_to("journal"), .read_only = true}, log_, system_clock());
  ASSERT_TRUE(reading) << reading.error().message();
  EXPECT_EQ((*reading)->usage().events, 3U);
  EXPECT_THAT(*(*reading)->find("2", 10), SizeIs(1));
  EXPECT_FALSE((*reading)->append({.source = "slurm", .event = make_event("9")}, never_.get_token()));
  EXPECT_FALSE((*reading)->register_sink("new", {"*"}));
  EXPECT_TRUE((*reading)->verify());
  reading = Error{ErrorKind::kVanished, ""};
  close();
  auto alone = Journal::open({.directory = dir_.path_to("journal"), .read_only = true}, log_, system_clock());
  ASSERT_TRUE(alone) << alone.error().message();
  EXPECT_EQ((*alone)->usage().events, 3U);
  auto missing = Journal::open({.directory = dir_.path_to("nothing"), .read_only = true}, log_, system_clock());
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
        while (seen[static_cast<std::size_t>(s)].size() < kSources * kEach && !stop.stop_requested()) {
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
          ASSERT_TRUE(journal_->wait_unresolved(source, after, never_.get_token(), std::chrono::steady_clock::now() + 30s));
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
    EXPECT_EQ(state("sink" + std::to_string(s)).acknowledged, static_cast<std::uint64_t>(kSources * kEach));
  }
  expect_sound();
}

}  // namespace
}  // namespace scriptorium
