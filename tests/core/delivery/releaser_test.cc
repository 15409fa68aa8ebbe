#include "core/delivery/releaser.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/delivery/listed_events.h"
#include "tests/support/event_factory.h"
#include "tests/support/patience.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

constexpr std::uint64_t kMost = 16U << 20;  // so a share is 4 MiB

class ReleaserTest : public testing::Test {
 protected:
  void SetUp() override {
    auto journal = Journal::open(
        {.directory = directory_.path(), .max_bytes = kMost, .user_share_percent = 25}, log_,
        system_clock());
    ASSERT_TRUE(journal) << journal.error().message();
    journal_ = *std::move(journal);
    archive_ = *journal_->register_sink("archive", {"*"});
    down_ = *journal_->register_sink("down", {"*"});
    journal_->set_archive([&](const Event& locator) { return archives_.fetch(locator); });
    releaser_ = std::make_unique<Releaser>(*journal_, archives_, log_, kMost);
  }
  static std::shared_ptr<const Event> job(int number, const std::string& uid) {
    std::mt19937 random(static_cast<unsigned>(number));
    std::string script = uid;
    while (script.size() < 300'000) script += static_cast<char>(random());
    Event event = test::make_event_value(uid + "-" + std::to_string(number), script);
    event.user.id = uid;
    event.user.verified = true;
    return std::make_shared<const Event>(std::move(event));
  }
  static CaptureMark mark_of(const Event& event) {
    return {.entry = "job." + event.job.id, .event_id = event.id};
  }
  Journal::Admission offer(const std::shared_ptr<const Event>& event) {
    Journal::Append item{.source = "slurm", .event = event, .mark = mark_of(*event)};
    const auto admission = journal_->offer(item, never_.get_token());
    EXPECT_TRUE(journal_->flush(std::chrono::steady_clock::now() + std::chrono::minutes(1)));
    return admission;
  }
  // What the journal took, of all that was offered.
  std::size_t offer_until_refused(const std::string& uid) {
    std::size_t taken = 0;
    for (int number = 0; number < 100; ++number) {
      const auto event = job(number, uid);
      if (offer(event) != Journal::Admission::kTaken) break;
      events_.push_back(event);
      ++taken;
    }
    return taken;
  }
  void archive_all() {
    archives_.put("archive", std::make_shared<test::ListedEvents>(events_));
    std::uint64_t after = journal_->cursor(archive_);
    std::vector<Journal::Settle> settled;
    const auto items = journal_->read(archive_, after, 1000, std::uint64_t{1} << 30);
    ASSERT_TRUE(items);
    for (const Journal::Item& item : *items) {
      settled.push_back({.sequence = item.sequence, .outcome = Outcome::kAcknowledged});
      after = item.sequence;
    }
    journal_->settle(archive_, std::move(settled), after);
    ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + std::chrono::minutes(1)));
  }
  // Of the events that the second sink is still to get, those that only the archive holds.
  std::uint64_t released() {
    for (const auto& sink : journal_->usage().sinks) {
      if (sink.name == "down") return sink.in_archive;
    }
    return 0;
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
  Archives archives_;
  std::unique_ptr<Journal> journal_;
  Journal::SinkId archive_ = 0, down_ = 0;
  std::vector<std::shared_ptr<const Event>> events_;
  std::unique_ptr<Releaser> releaser_;
  std::stop_source never_;
};

TEST_F(ReleaserTest, AUserWhoHoldsAFullShareGetsRoomFromTheArchiveLongBeforeTheJournalIsFull) {
  const std::size_t others = 3;
  for (int number = 0; number < 3; ++number) {
    events_.push_back(job(number, "1002"));
    ASSERT_EQ(offer(events_.back()), Journal::Admission::kTaken);
  }
  const std::size_t of_user = offer_until_refused("1001");
  ASSERT_GT(of_user, 8U);
  ASSERT_LT(journal_->used_bytes(), kMost / 10 * 8);
  const auto waiting = job(200, "1001");
  ASSERT_EQ(offer(waiting), Journal::Admission::kOverShare);

  // What was offered when the archive had nothing yet is not what wakes the releaser.
  ASSERT_TRUE(journal_->wait_for_release(kMost, never_.get_token()));
  releaser_->start();
  archive_all();
  // As capture does: it offers nothing again before the journal would take it.
  while (journal_->refuses("slurm", mark_of(*waiting)))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(offer(waiting), Journal::Admission::kTaken);
  ASSERT_TRUE(releaser_->stop(std::chrono::steady_clock::now() + std::chrono::minutes(1)));
  EXPECT_GT(released(), 0U);
  EXPECT_LE(released(), of_user) << "the other users' events stay";
  EXPECT_TRUE(log_.has("JOURNAL_RELEASES"));
  // The sink that was down gets all of them all the same.
  std::uint64_t after = 0;
  std::size_t got = 0;
  for (bool more = true; more;) {
    const auto items = journal_->read(down_, after, 100, std::uint64_t{1} << 30);
    ASSERT_TRUE(items) << items.error().message();
    more = !items->empty();
    for (const Journal::Item& item : *items) {
      ++got;
      after = item.sequence;
    }
  }
  EXPECT_EQ(got, others + of_user + 1);
}

TEST_F(ReleaserTest, AStopDoesNotWaitForRoomInAJournalOfWhichNoArchiveHasAnything) {
  for (int number = 0; number < 46; ++number)
    ASSERT_TRUE(
        journal_->append({.source = "slurm", .event = job(number, "1001")}, never_.get_token()));
  ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + test::kPatience));
  ASSERT_GT(journal_->used_bytes(), kMost / 10 * 8);
  releaser_->start();
  EXPECT_TRUE(releaser_->stop(std::chrono::steady_clock::now() + test::kPatience));
}

// They are in the archive under their owners by now, and as the events that replaced them.
TEST_F(ReleaserTest, EventsWhoseOwnersBecameKnownAreAskedForAsWhatReplacedThem) {
  const std::uint64_t count = 46;
  for (int number = 0; number < static_cast<int>(count); ++number) {
    Event event = *job(number, "1001");
    event.user = {.name = "mallory", .unverified_reason = "the scheduler does not answer"};
    ASSERT_TRUE(journal_->append({.source = "slurm",
                                  .event = std::make_shared<const Event>(std::move(event)),
                                  .resolve_first = true},
                                 never_.get_token()));
  }
  ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + test::kPatience));
  std::vector<Journal::Resolved> resolved;
  for (const auto& waiting : journal_->unresolved("slurm", 0, 100))
    resolved.push_back({waiting.ticket, waiting.event});
  journal_->resolved(resolved);
  ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + test::kPatience));
  const Timestamp later{system_clock().now().nanoseconds + 3600 * kSecond};
  const auto due = journal_->unverified("slurm", later, 100);
  ASSERT_TRUE(due && due->size() == count);
  for (const auto& item : *due) {
    const auto whole = journal_->event(item.event->id);
    ASSERT_TRUE(whole);
    events_.push_back(std::make_shared<const Event>(test::make_owned_event(**whole)));
    ASSERT_TRUE(journal_->replace_unverified(item.number, "slurm", events_.back()));
  }
  archive_all();
  ASSERT_GT(journal_->used_bytes(), kMost / 10 * 8);
  releaser_->start();
  const auto limit = std::chrono::steady_clock::now() + test::kPatience;
  while (released() <= count && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_TRUE(releaser_->stop(std::chrono::steady_clock::now() + std::chrono::minutes(1)));
  EXPECT_GT(released(), count) << "the first ones, and some of the others";
}

}  // namespace
}  // namespace scriptorium
