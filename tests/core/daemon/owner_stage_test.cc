#include "core/daemon/owner_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "tests/support/event_factory.h"
#include "tests/support/journal_fixture.h"
#include "tests/support/patience.h"

namespace scriptorium {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::kPatience;

// A scheduler that knows some jobs, or does not answer.
class FakeResolver final : public OwnerResolver {
 public:
  struct State {
    bool down = false;
    bool throws = false;
    std::set<std::string> known;        // answered with kFound
    std::set<std::string> unknown;      // answered with kUnknown; the rest with kNotYet
    std::set<std::string> unsure;       // answered with kFound, and not verified
    std::optional<std::string> reason;  // for `unknown` and `unsure`
    std::set<std::string> spared;       // not asked about, to spare the scheduler
    std::set<std::string> asked;        // ever asked about, by job
    std::size_t questions = 0;
    std::size_t most_at_once = 0;
  };
  explicit FakeResolver(Guarded<State>& state) : state_(state) {}

  milliseconds min_interval() const override { return milliseconds{20}; }

  Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries,
                                           std::stop_token /*stop*/,
                                           SteadyTime /*deadline*/) override {
    return state_.with([&](State& s) -> Result<std::vector<OwnerAnswer>> {
      ++s.questions;
      s.most_at_once = std::max(s.most_at_once, queries.size());
      if (s.throws) throw std::runtime_error("a bug");
      if (s.down) return Error{ErrorKind::kTransient, "slurmctld does not answer"};
      std::vector<OwnerAnswer> answers;
      for (const OwnerQuery& query : queries) {
        OwnerAnswer& answer = answers.emplace_back();
        s.asked.insert(query.event->job.id);
        if (s.spared.contains(query.event->job.id)) {
          answer.state = OwnerAnswer::State::kNotAsked;
        } else if (s.known.contains(query.event->job.id)) {
          answer.state = OwnerAnswer::State::kFound;
          answer.user = {.name = "bob",
                         .id = "1002",
                         .group_name = std::nullopt,
                         .group_id = "1002",
                         .verified = true};
          answer.name = "bad\xff";
        } else if (s.unknown.contains(query.event->job.id)) {
          answer.state = OwnerAnswer::State::kUnknown;
          answer.user.unverified_reason = s.reason;
        } else if (s.unsure.contains(query.event->job.id)) {
          answer.state = OwnerAnswer::State::kFound;
          answer.user = {.name = "bob", .unverified_reason = s.reason};
        }
      }
      return answers;
    });
  }

 private:
  Guarded<State>& state_;
};

class OwnerStageTest : public test::JournalFixture<testing::Test> {
 protected:
  void TearDown() override {
    stage_.reset();
    JournalFixture::TearDown();
  }

  void start(seconds timeout) {
    stage_ = std::make_unique<OwnerStage>(
        OwnerStage::Options{"slurm", timeout, [](const CaptureMark&) { return true; }},
        std::make_unique<FakeResolver>(state_), *journal_, log_, system_clock());
    stage_->start();
  }

  void capture(const std::string& job) {
    Event event = test::make_event_value(job);
    event.user = {};
    event.captured_at = system_clock().now();
    Journal::Append item;
    item.source = "slurm";
    item.event = std::make_shared<const Event>(std::move(event));
    item.resolve_first = true;
    ASSERT_TRUE(journal_->append(std::move(item), {}));
  }

  // The next event that the sink sees.
  std::shared_ptr<const Event> next() {
    const SteadyTime deadline = std::chrono::steady_clock::now() + kPatience;
    if (!journal_->wait(sink_, after_, journal_->parked_generation(sink_), {}, deadline))
      return nullptr;
    auto items = journal_->read(sink_, after_, 1, 1U << 20);
    if (!items || items->empty()) return nullptr;
    after_ = items->front().sequence;
    return items->front().event;
  }

  Guarded<FakeResolver::State> state_;
  std::unique_ptr<OwnerStage> stage_;
};

TEST_F(OwnerStageTest, EventGoesOnWithTheOwnerThatTheSchedulerNames) {
  state_.with([](auto& s) { s.known = {"1"}; });
  start(seconds{60});
  capture("1");
  const auto event = next();
  ASSERT_NE(event, nullptr);
  EXPECT_TRUE(event->user.verified);
  EXPECT_EQ(event->user.name, "bob");
  EXPECT_EQ(event->job.name, "bad\xEF\xBF\xBD") << "the answer's text is made UTF-8 as well";
  EXPECT_FALSE(event->user.unverified_reason);
  EXPECT_EQ(stage_->status().verified, 1U);
}

TEST_F(OwnerStageTest, UnknownJobGoesOutUnverifiedAtOnce) {
  state_.with([](auto& s) { s.unknown = {"1"}; });
  start(seconds{3600});
  capture("1");
  const auto event = next();
  ASSERT_NE(event, nullptr);
  EXPECT_FALSE(event->user.verified);
  EXPECT_EQ(event->user.unverified_reason, "the scheduler knows no such job");
  EXPECT_THAT(stage_->status().unverified,
              testing::ElementsAre(testing::Pair("the scheduler knows no such job", 1)));
}

TEST_F(OwnerStageTest, ReasonStandsInTheEventAndTheJournalKeepsIt) {
  state_.with([](auto& s) {
    s.unknown = {"1"};
    s.unsure = {"2"};
    s.known = {"3"};
    s.reason = "hidden\xff";
  });
  start(seconds{3600});
  for (const char* job : {"1", "2", "3"}) {
    capture(job);
    ASSERT_NE(next(), nullptr);
  }
  EXPECT_EQ(stage_->status().last_hour.decided, 3U);
  EXPECT_EQ(stage_->status().last_hour.unverified, 2U);
  EXPECT_THAT(stage_->status().unverified,
              testing::ElementsAre(testing::Pair("hidden\xEF\xBF\xBD", 2)));
  TearDown();
  open_journal();
  after_ = 0;
  for (const char* job : {"1", "2"}) {
    const auto event = next();
    ASSERT_NE(event, nullptr);
    EXPECT_EQ(event->id, test::make_event_value(job).id) << "an owner is no part of the id";
    EXPECT_FALSE(event->user.verified);
    EXPECT_EQ(event->user.unverified_reason, "hidden\xEF\xBF\xBD");
  }
  const auto verified = next();
  ASSERT_NE(verified, nullptr);
  EXPECT_TRUE(verified->user.verified);
  EXPECT_FALSE(verified->user.unverified_reason);
}

TEST_F(OwnerStageTest, ReasonsOfAPluginAreCountedUnderAFewNames) {
  start(seconds{3600});
  for (int job = 1; job <= 20; ++job) {
    state_.with([&](auto& s) {
      s.unknown = {std::to_string(job)};
      s.reason = "job " + std::to_string(job);
    });
    capture(std::to_string(job));
    ASSERT_NE(next(), nullptr);
  }
  const auto counts = stage_->status().unverified;
  EXPECT_EQ(counts.size(), 17U);
  EXPECT_EQ(counts.at("another reason"), 4U);
}

TEST(LastHourTest, ForgetsWhatIsOlderThanAnHour) {
  LastHour hour;
  const SteadyTime begin{std::chrono::hours{1000}};
  hour.add(begin, {.decided = 5, .unverified = 1});
  hour.add(begin + seconds{59}, {.decided = 5, .unverified = 1});
  hour.add(begin + std::chrono::minutes{30}, {.decided = 10, .unverified = 0});
  EXPECT_EQ(hour.counts(begin + std::chrono::minutes{30}).decided, 20U);
  EXPECT_EQ(hour.counts(begin + std::chrono::minutes{30}).unverified, 2U);
  EXPECT_EQ(hour.counts(begin + std::chrono::minutes{60}).decided, 10U);
  EXPECT_EQ(hour.counts(begin + std::chrono::minutes{60}).unverified, 0U);
  hour.add(begin + std::chrono::minutes{95}, {.decided = 1, .unverified = 1});
  EXPECT_EQ(hour.counts(begin + std::chrono::minutes{95}).decided, 1U);
}

TEST_F(OwnerStageTest, NothingWaitsLongerThanTheTimeoutWhileTheSchedulerIsDown) {
  state_.with([](auto& s) { s.down = true; });
  start(seconds{1});
  for (int job = 1; job <= 20; ++job) capture(std::to_string(job));
  for (int job = 1; job <= 20; ++job) {
    const auto event = next();
    ASSERT_NE(event, nullptr);
    EXPECT_FALSE(event->user.verified);
  }
  EXPECT_EQ(log_.count("OWNER_UNKNOWN"), 1U) << "said once, not at every question";
  EXPECT_EQ(stage_->status().last_error, "slurmctld does not answer");
}

TEST_F(OwnerStageTest, JobThatTheSchedulerListsOnlyLaterIsAskedForAgain) {
  start(seconds{3600});
  capture("1");
  const SteadyTime deadline = std::chrono::steady_clock::now() + kPatience;
  ASSERT_TRUE(state_.wait_until({}, deadline, [](const auto&) { return true; }));
  while (state_.with([](const auto& s) { return s.questions; }) < 2 &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  state_.with([](auto& s) { s.known = {"1"}; });
  const auto event = next();
  ASSERT_NE(event, nullptr);
  EXPECT_TRUE(event->user.verified);
}

TEST_F(OwnerStageTest, ManyNewJobsAreOneQuestion) {
  state_.with([](auto& s) {
    for (int job = 1; job <= 500; ++job) s.known.insert(std::to_string(job));
  });
  for (int job = 1; job <= 500; ++job) capture(std::to_string(job));
  ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + kPatience));
  start(seconds{60});
  for (int job = 1; job <= 500; ++job) ASSERT_NE(next(), nullptr);
  EXPECT_EQ(state_.with([](const auto& s) { return s.most_at_once; }), 500U);
  EXPECT_EQ(stage_->status().queries, 1U);
}

TEST_F(OwnerStageTest, WhatTheSchedulerWasNotAskedAboutWaitsBeyondTheTimeout) {
  state_.with([](auto& s) { s.spared = {"1"}; });
  start(seconds{1});
  capture("1");
  capture("2");  // asked about, and not named
  const auto second = next();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->job.id, "2");
  EXPECT_FALSE(second->user.verified);
  EXPECT_EQ(journal_->unresolved_count("slurm"), 1U);
  state_.with([](auto& s) {
    s.spared.clear();
    s.known = {"1"};
  });
  const auto first = next();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->job.id, "1");
  EXPECT_TRUE(first->user.verified);
}

TEST_F(OwnerStageTest, NoneStarvesBehindThousandsThatTheSchedulerDoesNotNameYet) {
  constexpr int kOld = 4200;  // more than one page of those that wait
  state_.with([](auto& s) { s.known = {"young"}; });
  for (int job = 1; job <= kOld; ++job) capture(std::to_string(job));
  capture("young");
  ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + kPatience));
  start(seconds{3600});
  const auto event = next();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->job.id, "young");
  EXPECT_TRUE(event->user.verified);
  EXPECT_EQ(journal_->unresolved_count("slurm"), static_cast<std::uint64_t>(kOld));
}

TEST_F(OwnerStageTest, ResolverThatThrowsIsASchedulerThatDoesNotAnswer) {
  state_.with([](auto& s) { s.throws = true; });
  start(seconds{1});
  capture("1");
  const auto event = next();
  ASSERT_NE(event, nullptr);
  EXPECT_FALSE(event->user.verified);
}

TEST_F(OwnerStageTest, WhatIsUnresolvedAtTheEndIsAskedForAtTheNextStart) {
  start(seconds{3600});
  capture("1");
  ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + kPatience));
  stage_.reset();
  EXPECT_EQ(journal_->unresolved_count("slurm"), 1U);
  state_.with([](auto& s) { s.known = {"1"}; });
  start(seconds{3600});
  ASSERT_NE(next(), nullptr);
  EXPECT_EQ(journal_->unresolved_count("slurm"), 0U);
}

}  // namespace
}  // namespace scriptorium
