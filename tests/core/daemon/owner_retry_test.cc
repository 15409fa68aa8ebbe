#include "core/daemon/owner_retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/api/sink.h"
#include "tests/support/event_factory.h"
#include "tests/support/journal_fixture.h"
#include "tests/support/patience.h"

namespace scriptorium {
namespace {

using std::chrono::seconds;
using test::kPatience;
using testing::HasSubstr;

// What keeps account of jobs: knows some, has not heard of others, or does not answer.
class FakeAccounting final : public LateOwnerResolver {
 public:
  struct State {
    bool down = false;
    bool throws = false;
    std::set<std::string> known, spared;
    OwnerAnswer texts;                                     // of the known ones
    std::map<std::string, int> asked;                      // by job
    std::int64_t script_mtime_ns = 0;                      // of the last query
    std::map<std::string, std::vector<SteadyTime>> since;  // by job
  };
  explicit FakeAccounting(Guarded<State>& state) : state_(state) {}

  Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries,
                                           std::stop_token /*stop*/,
                                           SteadyTime /*deadline*/) override {
    return state_.with_notify([&](State& s) -> Result<std::vector<OwnerAnswer>> {
      if (s.throws) throw std::runtime_error("a bug");
      if (s.down) return Error{ErrorKind::kTransient, "slurmdbd does not answer"};
      std::vector<OwnerAnswer> answers;
      for (const OwnerQuery& query : queries) {
        const std::string& job = query.event->job.id;
        ++s.asked[job];
        s.script_mtime_ns = query.script_mtime_ns;
        s.since[job].push_back(query.since);
        OwnerAnswer& answer = answers.emplace_back();
        answer.state =
            s.spared.contains(job) ? OwnerAnswer::State::kNotAsked : OwnerAnswer::State::kUnknown;
        if (!s.known.contains(job)) continue;
        answer = s.texts;
        answer.state = OwnerAnswer::State::kFound;
        answer.user = test::make_event_value(job).user;
      }
      return answers;
    });
  }

 private:
  Guarded<State>& state_;
};

// Holds some events, or does not answer.
class FakeArchive final : public Sink, public ReadableSink {
 public:
  Result<void> check() override { return {}; }
  void deliver(std::vector<Delivery> batch) override {
    for (Delivery& d : batch) d.acknowledge();
  }
  ReadableSink* readable() override { return this; }
  Result<std::shared_ptr<const Event>> fetch(const Event& locator) override {
    return state_.with([&](const State& s) -> Result<std::shared_ptr<const Event>> {
      if (s.down) return Error{ErrorKind::kTransient, "the file server does not answer"};
      const auto found = s.events.find(locator.id);
      if (found == s.events.end()) return Error{ErrorKind::kVanished, "not there"};
      return found->second;
    });
  }
  Result<Page> list(const Query& /*query*/, const std::string& /*after*/,
                    std::size_t /*limit*/) override {
    return Page{};
  }

  struct State {
    bool down = false;
    std::map<std::string, std::shared_ptr<const Event>> events;
  };
  Guarded<State> state_;
};

class OwnerRetryTest : public test::JournalFixture<testing::Test> {
 protected:
  void TearDown() override {
    if (retry_ != nullptr) {
      EXPECT_TRUE(retry_->stop(std::chrono::steady_clock::now() + kPatience));
    }
    retry_.reset();
    JournalFixture::TearDown();
  }
  // Out to the sinks without an owner, and delivered, so that the journal does not hold them any
  // more.
  void send_unverified(const std::vector<std::string>& jobs) {
    for (const std::string& job : jobs) {
      Journal::Append item;
      item.source = "slurm";
      item.event = std::make_shared<const Event>(test::make_unverified_event(job));
      item.resolve_first = true;
      ASSERT_TRUE(journal_->append(std::move(item), {}));
      archive_->state_.with([&](auto& s) {
        s.events[test::make_unverified_event(job).id] =
            std::make_shared<const Event>(test::make_unverified_event(job));
      });
    }
    ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + kPatience));
    std::vector<Journal::Resolved> resolved;
    for (const auto& waiting : journal_->unresolved("slurm", 0, 2000))
      resolved.push_back({waiting.ticket, waiting.event});
    ASSERT_EQ(resolved.size(), jobs.size());
    journal_->resolved(std::move(resolved));
    ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + kPatience));
    take_all();
  }
  // What the sink gets, which acknowledges it.
  std::vector<std::shared_ptr<const Event>> take_all() {
    auto items = journal_->read(sink_, after_, 2000, 1U << 30);
    EXPECT_TRUE(items) << items.error().message();
    std::vector<std::shared_ptr<const Event>> events;
    std::vector<Journal::Settle> settlements;
    for (const auto& item : *items) {
      events.push_back(item.event);
      settlements.push_back({.sequence = item.sequence, .outcome = Outcome::kAcknowledged});
      after_ = item.sequence;
    }
    journal_->settle(sink_, settlements, after_);
    EXPECT_TRUE(journal_->flush(std::chrono::steady_clock::now() + kPatience));
    return events;
  }
  void start(bool with_archive = true,
             std::shared_ptr<const redact::Redactor> redactor = redact::Redactor::none()) {
    if (with_archive) archives_.put("archive", archive_);
    retry_ = std::make_unique<OwnerRetry>("slurm", std::make_unique<FakeAccounting>(state_),
                                          std::move(redactor), *journal_, archives_, log_,
                                          system_clock());
    retry_->start();
  }
  // One round of questions, from its beginning to its end.
  OwnerRetry::Status ask() {
    const std::uint64_t round = retry_->ask_now();
    const SteadyTime deadline = std::chrono::steady_clock::now() + kPatience;
    while (retry_->status().rounds_done < round) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "the round does not end";
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return retry_->status();
  }
  int asked(const std::string& job) {
    return state_.with([&](auto& s) { return s.asked[job]; });
  }

  std::shared_ptr<FakeArchive> archive_ = std::make_shared<FakeArchive>();
  Archives archives_;
  Guarded<FakeAccounting::State> state_;
  std::unique_ptr<OwnerRetry> retry_;
};

TEST_F(OwnerRetryTest, ANewEventWithTheOwnerReplacesTheFirst) {
  send_unverified({"1", "2"});
  state_.with([](auto& s) { s.known = {"1"}; });
  start();
  const auto status = ask();
  EXPECT_EQ(status.verified, 1U);
  EXPECT_EQ(status.waiting, 1U);
  EXPECT_EQ(status.last_error, "");
  const auto events = take_all();
  ASSERT_EQ(events.size(), 1U);
  const Event expected = test::make_owned_event(test::make_unverified_event("1"));
  EXPECT_EQ(event_json(*events[0]), event_json(expected));
  EXPECT_EQ(*events[0]->file("script")->bytes, *expected.file("script")->bytes);
  EXPECT_EQ(state_.with([](auto& s) { return s.script_mtime_ns; }), expected.time.nanoseconds);
  EXPECT_TRUE(log_.has("OWNERS_FOUND_LATER"));
  // The other one is asked about again, this one is not.
  ask();
  EXPECT_EQ(asked("1"), 1);
  EXPECT_EQ(asked("2"), 2);
}

TEST_F(OwnerRetryTest, WhatTheSchedulerKnowsOfTheJobComesAlong) {
  send_unverified({"1"});
  state_.with([](auto& s) {
    s.known = {"1"};
    s.texts.account = "chem";
    s.texts.qos = "long";
    s.texts.array = JobArray{.job_id = "1", .task_spec = "0-9"};
  });
  start();
  ask();
  const auto events = take_all();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]->job.account, "chem");
  EXPECT_EQ(events[0]->job.qos, "long");
  ASSERT_TRUE(events[0]->job.array);
  EXPECT_EQ(events[0]->job.array->task_spec, "0-9");
  EXPECT_EQ(events[0]->id,
            owned_event_id(test::make_unverified_event("1").id, *events[0]->user.id));
}

TEST_F(OwnerRetryTest, TextsThatCannotBeRedactedAreNotKept) {
  send_unverified({"1"});
  state_.with([](auto& s) {
    s.known = {"1"};
    s.texts.account = "chem";
  });
  start(true, std::make_shared<const redact::Redactor>(nullptr, redact::Mode::kDefault,
                                                       EnvironmentRule{}));
  ask();
  const auto events = take_all();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_TRUE(events[0]->user.verified);
  EXPECT_FALSE(events[0]->job.account);
}

TEST_F(OwnerRetryTest, NobodyIsAskedBeforeItIsTime) {
  send_unverified({"1"});
  start();
  EXPECT_TRUE(retry_->stop(std::chrono::steady_clock::now() + kPatience)) << "after a first look";
  EXPECT_EQ(asked("1"), 0);
}

TEST_F(OwnerRetryTest, WhatIsSparedOrCannotBeAskedWaitsAndLosesNothing) {
  send_unverified({"1", "2"});
  state_.with([](auto& s) { s.down = true; });
  start();
  EXPECT_THAT(ask().last_error, HasSubstr("slurmdbd does not answer"));
  state_.with([](auto& s) { s = {.throws = true}; });
  EXPECT_THAT(ask().last_error, HasSubstr("a bug"));
  state_.with([](auto& s) { s = {.known = {"1"}, .spared = {"2"}}; });
  auto status = ask();
  EXPECT_THAT(status.last_error, HasSubstr("to spare the scheduler")) << "not all were asked about";
  EXPECT_EQ(status.verified, 1U);
  state_.with([](auto& s) { s = {.known = {"1", "2"}}; });
  status = ask();
  EXPECT_EQ(status.verified, 2U);
  EXPECT_EQ(status.waiting, 0U);
  EXPECT_EQ(take_all().size(), 2U);
}

TEST_F(OwnerRetryTest, AnArchiveThatDoesNotAnswerIsWaitedFor) {
  send_unverified({"1"});
  state_.with([](auto& s) { s.known = {"1"}; });
  archive_->state_.with([](auto& s) { s.down = true; });
  start();
  const auto status = ask();
  EXPECT_THAT(status.last_error, HasSubstr("the file server does not answer"));
  EXPECT_EQ(status.waiting, 1U);
  EXPECT_TRUE(take_all().empty());
  archive_->state_.with([](auto& s) { s.down = false; });
  EXPECT_EQ(ask().verified, 1U);
  ASSERT_EQ(take_all().size(), 1U);
}

TEST_F(OwnerRetryTest, WhereNobodyHoldsTheFilesTheEventGoesWithoutTheirBytes) {
  send_unverified({"1", "2"});
  state_.with([](auto& s) { s.known = {"1", "2"}; });
  archive_->state_.with([](auto& s) { s.events.erase(test::make_unverified_event("1").id); });
  start();
  ask();
  const auto events = take_all();
  ASSERT_EQ(events.size(), 2U);
  for (const auto& event : events) {
    EXPECT_TRUE(event->user.verified);
    EXPECT_EQ(event->file("script")->bytes == nullptr, event->job.id == "1");
    EXPECT_EQ(event->file("script")->size, std::string_view(test::kScript).size());
  }
}

TEST_F(OwnerRetryTest, AnAnswerSinceTheJobWasNotedServesItAndALaterOneOnceItHasServed) {
  std::vector<std::string> jobs;
  for (int i = 1; i <= 1100; ++i) jobs.push_back(std::to_string(i));  // more than at once
  send_unverified(jobs);
  state_.with([](auto& s) { s.spared = {"2"}; });
  start();
  ask();
  const SteadyTime between = std::chrono::steady_clock::now();
  ask();
  const auto since = state_.with([](auto& s) { return s.since; });
  for (const std::string& job : jobs) {
    ASSERT_EQ(since.at(job).size(), 2U) << job;
    EXPECT_EQ(since.at(job)[0], since.at("1")[0]) << "one list serves all";
    if (job == "2") {
      EXPECT_EQ(since.at(job)[1], since.at(job)[0]) << "nothing was learnt of it yet";
    } else {
      EXPECT_GT(since.at(job)[1], since.at(job)[0]) << "that list is known";
    }
  }
  EXPECT_LE(since.at("1")[0], between);
}

TEST_F(OwnerRetryTest, HundredsAreAskedAboutInOneRound) {
  std::vector<std::string> jobs;
  for (int i = 1; i <= 900; ++i) jobs.push_back(std::to_string(i));
  send_unverified(jobs);
  state_.with([&](auto& s) { s.known.insert(jobs.begin(), jobs.begin() + 450); });
  start();
  const auto status = ask();
  EXPECT_EQ(status.asked, 900U);
  EXPECT_EQ(status.verified, 450U);
  EXPECT_EQ(status.waiting, 450U);
}

}  // namespace
}  // namespace scriptorium
