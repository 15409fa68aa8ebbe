#include "core/journal/sink_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace scriptorium::journal {
namespace {

using Change = SinkLedger::ExceptionChange;

EventSummary event(std::uint64_t seq, std::uint64_t bytes = 10, std::string kind = "job.script") {
  return {.seq = seq, .bytes = bytes, .kind = std::move(kind)};
}

class SinkLedgerTest : public testing::Test {
 protected:
  SinkId add_sink(const std::string& name, std::vector<std::string> kinds = {"*"}) {
    return ledger_.register_sink(name, kinds, ++last_id_).id;
  }
  void add_events(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) ledger_.count_pending(event(ledger_.next_seq()));
  }
  SinkLedger::Settled settle(SinkId sink, std::uint64_t seq, Outcome outcome,
                             std::optional<State> stored = std::nullopt) {
    return ledger_.settle(sink, event(seq), outcome, stored, Timestamp{7});
  }
  const SinkRow& row(SinkId sink) const { return *ledger_.find(sink); }

  SinkLedger ledger_;
  SinkId last_id_ = 0;
};

TEST_F(SinkLedgerTest, WhatASinkAcknowledgesLeavesItsCounters) {
  const SinkId sink = add_sink("a");
  add_events(2);
  EXPECT_EQ(row(sink).pending, 2U);
  EXPECT_EQ(row(sink).pending_bytes, 20U);
  const auto settled = settle(sink, 1, Outcome::kAcknowledged);
  EXPECT_TRUE(settled.acknowledged);
  EXPECT_EQ(settled.exception, Change::kNone);
  const auto passed = ledger_.pass(sink, 1);
  EXPECT_FALSE(passed.erase_after);
  EXPECT_TRUE(passed.to_store.empty());
  EXPECT_EQ(row(sink).cursor, 1U);
  EXPECT_EQ(row(sink).pending, 1U);
  EXPECT_EQ(row(sink).acknowledged, 1U);
  EXPECT_EQ(row(sink).last_success, Timestamp{7});
}

TEST_F(SinkLedgerTest, WhatIsAcknowledgedBeyondTheCursorGetsARowUntilTheCursorPasses) {
  const SinkId sink = add_sink("a");
  add_events(3);
  settle(sink, 3, Outcome::kAcknowledged);
  EXPECT_EQ(ledger_.pass(sink, 0).to_store, std::vector<std::uint64_t>{3});
  EXPECT_TRUE(ledger_.pass(sink, 0).to_store.empty()) << "stored once";
  settle(sink, 1, Outcome::kAcknowledged);
  settle(sink, 2, Outcome::kAcknowledged);
  const auto passed = ledger_.pass(sink, 3);
  EXPECT_EQ(passed.erase_after, 0U);
  EXPECT_EQ(passed.upto, 3U);
  EXPECT_TRUE(row(sink).ahead.empty());
}

TEST_F(SinkLedgerTest, SettlingTwiceChangesNothingTheSecondTime) {
  const SinkId sink = add_sink("a");
  add_events(1);
  for (int i = 0; i < 2; ++i) settle(sink, 1, Outcome::kRejected);
  EXPECT_EQ(row(sink).dead, 1U);
  ledger_.pass(sink, 1);
  EXPECT_EQ(settle(sink, 1, Outcome::kAcknowledged, State::kDead).exception, Change::kNone);
  EXPECT_EQ(settle(sink, 1, Outcome::kAcknowledged).exception, Change::kNone);
  EXPECT_EQ(row(sink).acknowledged, 0U);
}

TEST_F(SinkLedgerTest, AParkedEventIsCountedOnceUntilItIsSettled) {
  const SinkId sink = add_sink("a");
  add_events(1);
  EXPECT_EQ(settle(sink, 1, Outcome::kRetry).exception, Change::kPark);
  ledger_.pass(sink, 1);
  settle(sink, 1, Outcome::kRetry, State::kParked);
  EXPECT_EQ(row(sink).parked, 1U);
  EXPECT_EQ(row(sink).pending, 0U);
  EXPECT_EQ(settle(sink, 1, Outcome::kAcknowledged, State::kParked).exception, Change::kErase);
  EXPECT_EQ(row(sink).parked, 0U);
  EXPECT_EQ(row(sink).parked_bytes, 0U);
}

TEST_F(SinkLedgerTest, TheCursorNeverGoesBackOrBeyondTheLastEvent) {
  const SinkId sink = add_sink("a");
  add_events(3);
  const std::pair<std::uint64_t, std::uint64_t> steps[] = {{2, 2}, {1, 2}, {99, 3}};
  for (const auto& [cursor, expected] : steps) {
    ledger_.pass(sink, cursor);
    EXPECT_EQ(row(sink).cursor, expected);
  }
}

TEST_F(SinkLedgerTest, AnAbsentSinkKeepsWhatWaitedAndWantsNothingNew) {
  const SinkId sink = add_sink("a");
  add_sink("b");
  add_events(2);
  EXPECT_EQ(ledger_.retire_others({"b"}), std::vector<SinkId>{sink});
  EXPECT_TRUE(ledger_.retire_others({"b"}).empty()) << "it was absent before";
  add_events(1);
  EXPECT_EQ(row(sink).pending, 2U);
  EXPECT_TRUE(ledger_.is_kept_for_absent(event(2)));
  EXPECT_FALSE(ledger_.is_kept_for_absent(event(3)));
  const auto back = ledger_.register_sink("a", {"*"}, 99);
  EXPECT_EQ(back.id, sink);
  EXPECT_TRUE(back.returned);
  EXPECT_FALSE(back.kinds_changed);
  add_events(1);
  EXPECT_EQ(row(sink).pending, 3U) << "1, 2 and 4";
  EXPECT_FALSE(row(sink).wants("job.script", 3, 0));
}

TEST_F(SinkLedgerTest, OnlyConfiguredSinksHoldTheLowestCursor) {
  EXPECT_EQ(ledger_.lowest_cursor(), 0U) << "without any sink everything stays";
  const SinkId slow = add_sink("slow"), fast = add_sink("fast");
  add_events(5);
  ledger_.pass(fast, 4);
  ledger_.pass(slow, 1);
  EXPECT_EQ(ledger_.lowest_cursor(), 1U);
  ledger_.retire_others({"fast"});
  EXPECT_EQ(ledger_.lowest_cursor(), 4U);
  EXPECT_EQ(ledger_.passed_by_all(), 1U);
}

TEST_F(SinkLedgerTest, OnlySinksThatWaitForNothingAreIdle) {
  const SinkId all = add_sink("all"), other = add_sink("other", {"usage.*"});
  add_events(2);
  EXPECT_EQ(ledger_.idle(), std::vector<SinkId>{other});
  ledger_.pass_idle(other);
  EXPECT_TRUE(ledger_.idle().empty());
  EXPECT_EQ(row(other).cursor, 2U);
  EXPECT_EQ(row(all).cursor, 0U);
}

TEST_F(SinkLedgerTest, AnEventForOneSinkIsWantedByThatOneAlone) {
  const SinkId a = add_sink("a"), b = add_sink("b", {"usage.*"});
  EventSummary filled = event(ledger_.next_seq());
  filled.target = b;
  filled.in_archive = true;
  ledger_.count_pending(filled);
  EXPECT_EQ(row(a).pending, 0U);
  EXPECT_EQ(row(b).pending, 1U);
  EXPECT_EQ(row(b).in_archive, 1U);
  ledger_.withdrawn(filled, {});
  EXPECT_EQ(row(b).pending, 0U);
  EXPECT_EQ(row(b).in_archive, 0U);
}

TEST_F(SinkLedgerTest, WhatMovesToAnArchiveIsCountedForThoseThatStillNeedIt) {
  const SinkId pending = add_sink("pending"), parked = add_sink("parked"), done = add_sink("done");
  add_events(1);
  settle(parked, 1, Outcome::kRetry);
  ledger_.pass(parked, 1);
  settle(done, 1, Outcome::kAcknowledged);
  ledger_.pass(done, 1);
  ledger_.moved_to_archive(event(1), {parked});
  EXPECT_EQ(row(pending).in_archive, 1U);
  EXPECT_EQ(row(parked).in_archive, 1U);
  EXPECT_EQ(row(done).in_archive, 0U);
}

TEST_F(SinkLedgerTest, ADeadLetterIsRetriedOrDiscarded) {
  const SinkId sink = add_sink("a");
  add_events(3);
  for (const std::uint64_t seq : {1, 2, 3}) settle(sink, seq, Outcome::kRejected);
  ledger_.pass(sink, 2);
  const std::uint64_t generation = row(sink).generation;
  ledger_.retry_dead(sink, event(1));
  EXPECT_NE(row(sink).generation, generation);
  EXPECT_EQ(row(sink).parked, 1U);
  EXPECT_FALSE(ledger_.discard_dead(sink, 2)) << "up to the cursor no row is needed";
  EXPECT_TRUE(ledger_.discard_dead(sink, 3)) << "beyond it the row says that the cursor may pass";
  EXPECT_EQ(row(sink).dead, 0U);
}

TEST_F(SinkLedgerTest, ARollbackRestoresEverythingAndPublishedRowsNeverChange) {
  const SinkId sink = add_sink("a");
  add_events(2);
  ledger_.begin();
  const SinkRows published = ledger_.rows();
  add_events(1);
  settle(sink, 1, Outcome::kAcknowledged);
  ledger_.pass(sink, 1);
  add_sink("b");
  EXPECT_EQ(row(sink).cursor, 1U);
  EXPECT_EQ(published.at(sink)->cursor, 0U);
  EXPECT_EQ(published.at(sink)->pending, 2U);
  EXPECT_EQ(ledger_.to_store().size(), 1U) << "the new one has its own statement";
  ledger_.rollback();
  EXPECT_EQ(row(sink).cursor, 0U);
  EXPECT_EQ(row(sink).pending, 2U);
  EXPECT_EQ(ledger_.last_seq(), 2U);
  EXPECT_EQ(ledger_.find_named("b"), nullptr);
  EXPECT_TRUE(ledger_.to_store().empty());
}

TEST(SinkRowTest, AbsencesAreStoredAsText) {
  const std::vector<Absence> absences = {{.after = 120, .upto = 450}, {.after = 900}};
  const std::string text = encode_absences(absences);
  EXPECT_EQ(text, "120-450 900-");
  const auto back = decode_absences(text);
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].upto, 450U);
  EXPECT_EQ(back[1].upto, Absence::kOpen);
  EXPECT_TRUE(decode_absences("").empty());
}

// A simple model: for each sink and event one state. The ledger must count the same, and together
// with the rows of `exceptions` that it asks for it must remember every event that is not done.
class Model {
 public:
  explicit Model(std::uint64_t seed) : random_(seed) {
    for (const char* name : {"a", "b", "c"}) ids_.push_back(register_sink(name));
  }

  void run() {
    for (int transaction = 0; transaction < 30; ++transaction) {
      const Kept before = kept_;
      ledger_.begin();
      for (int steps = static_cast<int>(random_() % 6); steps >= 0; --steps) step();
      if (random_() % 4 == 0) {
        ledger_.rollback();
        kept_ = before;
      }
      ASSERT_NO_FATAL_FAILURE(compare());
    }
  }

 private:
  enum class Status { kPending, kParked, kDead, kDone };
  struct Kept {  // what a database would hold, and the model's view
    std::map<SinkId, std::map<std::uint64_t, Status>> status;
    std::map<SinkId, std::map<std::uint64_t, State>> exceptions;
  };

  SinkId register_sink(const std::string& name) {
    const SinkId id = ledger_.register_sink(name, {"*"}, static_cast<SinkId>(ids_.size() + 1)).id;
    kept_.status[id];
    return id;
  }

  void step() {
    const SinkId sink = ids_[random_() % ids_.size()];
    switch (random_() % 6) {
      case 0:
      case 1: {
        const std::uint64_t seq = ledger_.next_seq();
        ledger_.count_pending(event(seq));
        for (const SinkId id : ids_) kept_.status[id][seq] = Status::kPending;
        break;
      }
      case 2: change_dead(sink); break;
      default: settle_some(sink);
    }
  }

  void settle_some(SinkId sink) {
    auto& status = kept_.status[sink];
    for (auto& [seq, state] : status) {
      if (random_() % 3 != 0) continue;
      const auto outcome =
          std::array{Outcome::kAcknowledged, Outcome::kRetry, Outcome::kRejected}[random_() % 3];
      const auto stored = kept_.exceptions[sink].find(seq);
      const bool beyond = seq > ledger_.find(sink)->cursor;
      const auto settled = ledger_.settle(sink, event(seq), outcome,
                                          beyond || stored == kept_.exceptions[sink].end()
                                              ? std::nullopt
                                              : std::optional(stored->second),
                                          Timestamp{1});
      apply(sink, seq, settled.exception);
      if (state == Status::kDone || state == Status::kDead) {
        EXPECT_FALSE(settled.acknowledged);
        continue;
      }
      state = outcome == Outcome::kAcknowledged ? Status::kDone
              : outcome == Outcome::kRetry      ? Status::kParked
                                                : Status::kDead;
    }
    // As a dispatcher does: up to the first that is still pending.
    std::uint64_t cursor = ledger_.find(sink)->cursor;
    for (const auto& [seq, state] : status) {
      if (state == Status::kPending) break;
      cursor = std::max(cursor, seq);
    }
    const auto passed = ledger_.pass(sink, cursor);
    auto& exceptions = kept_.exceptions[sink];
    if (passed.erase_after) {
      std::erase_if(exceptions, [&](const auto& row) {
        return row.first > *passed.erase_after && row.first <= passed.upto &&
               row.second == State::kSettled;
      });
    }
    for (const std::uint64_t seq : passed.to_store) exceptions[seq] = State::kSettled;
  }

  void change_dead(SinkId sink) {
    for (auto& [seq, state] : kept_.status[sink]) {
      if (state != Status::kDead || random_() % 2 == 0) continue;
      if (random_() % 2 == 0) {
        ledger_.retry_dead(sink, event(seq));
        kept_.exceptions[sink][seq] = State::kParked;
        state = Status::kParked;
      } else {
        if (ledger_.discard_dead(sink, seq)) {
          kept_.exceptions[sink][seq] = State::kSettled;
        } else {
          kept_.exceptions[sink].erase(seq);
        }
        state = Status::kDone;
      }
    }
  }

  void apply(SinkId sink, std::uint64_t seq, Change change) {
    auto& exceptions = kept_.exceptions[sink];
    switch (change) {
      case Change::kNone: break;
      case Change::kPark: exceptions[seq] = State::kParked; break;
      case Change::kBury: exceptions[seq] = State::kDead; break;
      case Change::kErase: exceptions.erase(seq); break;
    }
  }

  void compare() {
    for (const SinkId sink : ids_) {
      SCOPED_TRACE("sink " + std::to_string(sink));
      const SinkRow& row = *ledger_.find(sink);
      std::map<Status, std::uint64_t> counts;
      for (const auto& [seq, status] : kept_.status[sink]) {
        ++counts[status];
        ASSERT_EQ(row.is_pending(event(seq)), status == Status::kPending) << "event " << seq;
        ASSERT_EQ(state_after_restart(sink, seq, row.cursor), status) << "event " << seq;
      }
      ASSERT_EQ(row.pending, counts[Status::kPending]);
      ASSERT_EQ(row.pending_bytes, 10 * counts[Status::kPending]);
      ASSERT_EQ(row.parked, counts[Status::kParked]);
      ASSERT_EQ(row.parked_bytes, 10 * counts[Status::kParked]);
      ASSERT_EQ(row.dead, counts[Status::kDead]);
    }
  }

  // What only the cursor and the rows of `exceptions` say.
  Status state_after_restart(SinkId sink, std::uint64_t seq, std::uint64_t cursor) {
    const auto& exceptions = kept_.exceptions[sink];
    const auto found = exceptions.find(seq);
    if (found == exceptions.end()) return seq <= cursor ? Status::kDone : Status::kPending;
    if (found->second == State::kParked) return Status::kParked;
    return found->second == State::kDead ? Status::kDead : Status::kDone;
  }

  std::mt19937_64 random_;
  SinkLedger ledger_;
  std::vector<SinkId> ids_;
  Kept kept_;
};

TEST(SinkLedgerModelTest, CountsAndRemembersAsASimpleModelDoes) {
  constexpr std::uint64_t kInterleavings = 3000;
  for (std::uint64_t seed = 1; seed <= kInterleavings; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_NO_FATAL_FAILURE(Model(seed).run());
  }
}

}  // namespace
}  // namespace scriptorium::journal
