#include "core/delivery/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/event_factory.h"
#include "tests/support/patience.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

SteadyTime in(milliseconds delay) { return std::chrono::steady_clock::now() + delay; }

// A door that a test opens; what waits behind it goes on then.
class Door {
 public:
  ~Door() { open(); }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  bool wait_for_somebody(milliseconds limit = seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

// One journal, and as many sinks with their dispatchers as a test wants.
class DispatcherTest : public testing::Test {
 protected:
  void SetUp() override { open_journal(); }
  void TearDown() override {
    dispatchers_.clear();
    journal_.reset();
  }

  void open_journal() {
    auto journal =
        Journal::open({.directory = directory_.path_to("journal")}, log_, system_clock());
    ASSERT_TRUE(journal) << journal.error().message();
    journal_ = *std::move(journal);
  }

  Dispatcher& dispatch(const std::string& name, Sink& sink, Dispatcher::StartSink start = {}) {
    auto id = journal_->register_sink(name, config_.kinds);
    if (!id) throw std::runtime_error(id.error().message());
    ids_[name] = *id;
    dispatchers_.push_back(std::make_unique<Dispatcher>(name, config_, sink, *journal_, *id, log_,
                                                        system_clock(), seed_, nullptr,
                                                        std::move(start)));
    dispatchers_.back()->start();
    return *dispatchers_.back();
  }

  void append(const std::string& job_id, const std::string& script = test::kScript) {
    ASSERT_TRUE(journal_->append({.source = "slurm", .event = test::make_event(job_id, script)},
                                 std::stop_token{}));
  }
  // Its owner is asked for, and not found yet.
  void append_unverified(const std::shared_ptr<const Event>& event) {
    ASSERT_TRUE(journal_->append({.source = "slurm", .event = event, .resolve_first = true},
                                 std::stop_token{}));
    commit();
    const auto waiting = journal_->unresolved("slurm", 0, 1);
    ASSERT_EQ(waiting.size(), 1U);
    journal_->resolved({{waiting[0].ticket, waiting[0].event}});
  }
  void append_numbered(int first, int last) {
    for (int i = first; i <= last; ++i) append(std::to_string(i));
  }
  // The first batch then holds all that was appended before the dispatcher began.
  void commit() { ASSERT_TRUE(journal_->flush(in(test::kPatience))); }

  // Until `ready`, asked again whenever a little time has passed: what it asks has no other way to
  // be waited for.
  static bool eventually(const std::function<bool()>& ready, milliseconds limit = seconds(20)) {
    std::mutex mutex;
    std::condition_variable never;
    const SteadyTime deadline = in(limit);
    std::unique_lock lock(mutex);
    while (!ready()) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      never.wait_for(lock, milliseconds(2));
    }
    return true;
  }
  static bool becomes_idle(const Dispatcher& dispatcher) {
    return eventually([&] { return dispatcher.idle(); });
  }

  Journal::SinkState sink_state(const std::string& name) const {
    for (const Journal::SinkState& state : journal_->usage().sinks) {
      if (state.name == name) return state;
    }
    return {};
  }
  std::vector<Journal::DeadLetter> dead_letters(const std::string& sink) const {
    auto letters = journal_->dead_letters(sink, 1000);
    if (!letters) throw std::runtime_error(letters.error().message());
    return *letters;
  }
  static std::vector<std::string> jobs(const std::vector<test::ScriptedSink::Attempt>& attempts) {
    std::vector<std::string> ids;
    for (const auto& attempt : attempts) ids.push_back(attempt.job_id);
    return ids;
  }
  static std::vector<std::size_t> batch_sizes(const test::ScriptedSink& sink) {
    std::map<std::size_t, std::size_t> sizes;
    for (const auto& attempt : sink.attempts()) sizes[attempt.batch] = attempt.batch_size;
    std::vector<std::size_t> list;
    for (const auto& [batch, size] : sizes) list.push_back(size);
    return list;
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
  std::unique_ptr<Journal> journal_;
  SinkConfig config_{.batch_max_ms = 5, .retry_max_ms = 20};
  std::uint64_t seed_ = 1;
  std::map<std::string, Journal::SinkId> ids_;
  test::ScriptedSink sink_;
  std::vector<std::unique_ptr<Dispatcher>> dispatchers_;
};

// ---- the ordinary way

TEST_F(DispatcherTest, ASinkGetsTheConfiguredPartsAtEachAttempt) {
  std::vector<std::string> files;
  const auto note_files = [&](Delivery& delivery) {
    for (const EventFile& file : delivery.event().files) files.push_back(file.name);
    delivery.attempt() == 1 ? delivery.retry("503 service unavailable", milliseconds(1))
                            : delivery.acknowledge();
  };
  test::ScriptedSink sink;
  sink.otherwise(test::ScriptedSink::for_each(note_files));
  config_.parts = {"environment"};
  const Dispatcher& dispatcher = dispatch("environments", sink);
  append("4711");
  ASSERT_TRUE(sink.wait_batches(2));
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_THAT(files, ElementsAre("environment", "environment"));
}

TEST_F(DispatcherTest, DeliversEveryEventOnceAndInOrder) {
  append_numbered(1, 200);
  Dispatcher& dispatcher = dispatch("archive", sink_);
  append_numbered(201, 300);
  ASSERT_TRUE(becomes_idle(dispatcher));
  std::vector<std::string> expected;
  for (int i = 1; i <= 300; ++i) expected.push_back(std::to_string(i));
  // idle() knows nothing of what was appended and is not committed yet
  ASSERT_TRUE(sink_.wait_attempts(300));
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(jobs(sink_.attempts()), expected);
  EXPECT_EQ(dispatcher.status().acknowledged, 300U);
  EXPECT_EQ(dispatcher.status().attempts, 300U);
  EXPECT_TRUE(dispatcher.status().last_success.has_value());
  EXPECT_EQ(dispatcher.status().last_error, std::nullopt);
  EXPECT_EQ(sink_state("archive").acknowledged, 300U);
  EXPECT_EQ(log_.text(), "");
}

TEST_F(DispatcherTest, ALoneEventWaitsForOthersNoLongerThanBatchMaxMs) {
  config_.batch_max_ms = 30;
  Dispatcher& dispatcher = dispatch("archive", sink_);
  const SteadyTime before = std::chrono::steady_clock::now();
  append("1");
  ASSERT_TRUE(sink_.wait_batches(1));
  EXPECT_GE(sink_.attempts().front().at - before, milliseconds(30));
  EXPECT_TRUE(becomes_idle(dispatcher));
}

TEST_F(DispatcherTest, EventsThatComeWhileABatchFillsShareIt) {
  config_.batch_max_ms = 60'000;
  config_.batch_max_events = 3;
  dispatch("archive", sink_);
  append("1");
  commit();
  append("2");
  commit();
  append("3");
  ASSERT_TRUE(sink_.wait_batches(1));  // the third one filled it, long before its time was over
  EXPECT_THAT(batch_sizes(sink_), ElementsAre(3));
}

TEST_F(DispatcherTest, ABatchHoldsNoMoreEventsThanConfigured) {
  config_.batch_max_events = 4;
  append_numbered(1, 10);
  commit();
  ASSERT_TRUE(becomes_idle(dispatch("archive", sink_)));
  EXPECT_THAT(batch_sizes(sink_), ElementsAre(4, 4, 2));
}

TEST_F(DispatcherTest, ABatchHoldsNoMoreBytesThanConfiguredUnlessOneEventIsLarger) {
  config_.batch_max_bytes = 3000;
  for (const char* job : {"1", "2", "3"}) append(job, std::string(1200, *job));
  append("4", std::string(9000, '4'));
  append("5", std::string(1200, '5'));
  commit();
  ASSERT_TRUE(becomes_idle(dispatch("archive", sink_)));
  EXPECT_THAT(batch_sizes(sink_), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(jobs(sink_.attempts()), ElementsAre("1", "2", "3", "4", "5"));
}

// ---- answers

TEST_F(DispatcherTest, AsksAgainForTheSameBatchUntilTheDestinationTakesIt) {
  for (int i = 0; i < 5; ++i) sink_.then(test::ScriptedSink::retry_all("503 service unavailable"));
  append_numbered(1, 3);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(sink_.batches(), 6U);
  EXPECT_EQ(sink_.attempts_of("2").back().attempt, 6U);
  EXPECT_EQ(dispatcher.status().retries,
            (std::map<std::string, std::uint64_t>{{"503 service unavailable", 15}}));
  EXPECT_EQ(dispatcher.status().last_error, "503 service unavailable");
  EXPECT_EQ(sink_state("archive").acknowledged, 3U);
}

TEST_F(DispatcherTest, SaysOnceThatADestinationIsDownAndOnceThatItIsBack) {
  for (int i = 0; i < 5; ++i) sink_.then(test::ScriptedSink::retry_all("503 service unavailable"));
  append_numbered(1, 3);
  commit();
  ASSERT_TRUE(becomes_idle(dispatch("archive", sink_)));
  ASSERT_EQ(log_.count("SINK_DOWN"), 1U) << log_.text();
  EXPECT_EQ(log_.last("SINK_DOWN")->level, LogLevel::kWarning);
  EXPECT_EQ(log_.last("SINK_DOWN")->field("sink"), "archive");
  EXPECT_EQ(log_.last("SINK_DOWN")->field("reason"), "503 service unavailable");
  EXPECT_EQ(log_.last("SINK_DOWN")->field("waiting"), "3");
  ASSERT_EQ(log_.count("SINK_BACK"), 1U);
  EXPECT_EQ(log_.last("SINK_BACK")->level, LogLevel::kInfo);
}

TEST_F(DispatcherTest,
       OfAnEventWhoseOwnerBecameKnownMeanwhileADestinationThatIsBackGetsOnlyTheSecond) {
  const auto before = std::make_shared<const Event>(test::make_unverified_event("1"));
  append_unverified(before);
  append("2");
  commit();
  std::atomic<bool> down = true;
  Guarded<std::set<std::string>> taken;
  sink_.otherwise([&](std::vector<Delivery> batch) {
    for (Delivery& delivery : batch) {
      if (down) {
        delivery.retry("503 service unavailable");
        continue;
      }
      taken.with([&](auto& ids) { ids.insert(delivery.event().id); });
      delivery.acknowledge();
    }
  });
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(sink_.wait_attempts(4)) << "the same batch, again and again";
  const auto after = std::make_shared<const Event>(test::make_owned_event(*before));
  ASSERT_TRUE(journal_->replace_unverified(1, "slurm", after));
  // A batch that is in hand now may hold the first event.
  ASSERT_TRUE(sink_.wait_attempts(sink_.attempts().size() + 4));
  EXPECT_FALSE(log_.has("SINK_BACK"));
  down = false;
  ASSERT_TRUE(eventually([&] { return sink_state("archive").acknowledged == 3; }));
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(taken.with([](const auto& ids) { return ids; }),
            (std::set<std::string>{after->id, test::make_event("2")->id}));
}

TEST_F(DispatcherTest, WhatAnotherEventReplacesIsSettledWithoutAskingTheArchiveThatAloneHasIt) {
  const auto before = std::make_shared<const Event>(test::make_unverified_event("1"));
  const auto archive = journal_->register_sink("archive", config_.kinds);
  ASSERT_TRUE(archive && journal_->register_sink("down", config_.kinds));
  append_unverified(before);
  append("2");
  commit();
  const auto items = journal_->read(*archive, 0, 10, 1U << 20);
  ASSERT_TRUE(items && items->size() == 2);
  std::vector<Journal::Settle> settled;
  for (const Journal::Item& item : *items)
    settled.push_back({.sequence = item.sequence, .outcome = Outcome::kAcknowledged});
  journal_->settle(*archive, std::move(settled), items->back().sequence);
  commit();
  std::uint64_t position = 0;
  const auto both = journal_->releasable("archive", position, 10);
  ASSERT_TRUE(both && both->size() == 2 && journal_->release(*both));
  const auto after = std::make_shared<const Event>(test::make_owned_event(*before));
  ASSERT_TRUE(journal_->replace_unverified(1, "slurm", after));
  journal_.reset();  // which had them in memory as well
  open_journal();
  Guarded<std::set<std::string>> fetched;
  journal_->set_archive([&](const Event& locator) -> Result<std::shared_ptr<const Event>> {
    fetched.with([&](auto& ids) { ids.insert(locator.job.id); });
    return test::make_event(locator.job.id);
  });

  Dispatcher& dispatcher = dispatch("down", sink_);
  ASSERT_TRUE(eventually([&] { return sink_state("down").acknowledged == 3; }));
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(fetched.with([](const auto& ids) { return ids; }), std::set<std::string>{"2"});
  EXPECT_THAT(jobs(sink_.attempts()), testing::UnorderedElementsAre("1", "2"));
  EXPECT_EQ(sink_state("down").waiting, 0U);
}

TEST_F(DispatcherTest, ADownDestinationParksNothingAndReadsNoMoreThanABatch) {
  config_.batch_max_events = 10;
  sink_.otherwise(test::ScriptedSink::retry_all("connection refused"));
  append_numbered(1, 100);
  commit();
  dispatch("archive", sink_);
  ASSERT_TRUE(sink_.wait_batches(5));
  EXPECT_EQ(sink_state("archive").parked, 0U);
  EXPECT_EQ(sink_state("archive").waiting, 100U);
  const auto delivered = jobs(sink_.attempts());
  EXPECT_LE(std::set<std::string>(delivered.begin(), delivered.end()).size(), 10U);
}

TEST_F(DispatcherTest, WaitsAtLeastAsLongAsTheDestinationAsks) {
  sink_.then(test::ScriptedSink::retry_all("429 too many requests", milliseconds(150)));
  append("1");
  ASSERT_TRUE(becomes_idle(dispatch("archive", sink_)) && sink_.wait_batches(2));
  const auto attempts = sink_.attempts_of("1");
  ASSERT_EQ(attempts.size(), 2U);
  EXPECT_GE(attempts[1].at - attempts[0].at, milliseconds(150));
}

TEST_F(DispatcherTest, ShowsWhenTheNextAttemptComesAndWakeForgetsIt) {
  sink_.then(test::ScriptedSink::retry_all("429 too many requests", std::chrono::hours(1)));
  append("1");
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(log_.wait_for("SINK_DOWN"));
  const auto status = dispatcher.status();
  ASSERT_TRUE(status.next_attempt_in_ms.has_value());
  EXPECT_GT(*status.next_attempt_in_ms, 3'500'000);
  EXPECT_FALSE(dispatcher.idle());
  dispatcher.wake();
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(dispatcher.status().next_attempt_in_ms, std::nullopt);
}

TEST_F(DispatcherTest, WakeForgetsTheBackOffOfParkedEventsToo) {
  sink_.then(test::ScriptedSink::for_each([](Delivery& delivery) {
    if (delivery.event().job.id == "2") {
      delivery.retry("429 too many requests", std::chrono::hours(1));
    } else {
      delivery.acknowledge();
    }
  }));
  append_numbered(1, 3);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(eventually([&] {
    return sink_state("archive").parked == 1 && dispatcher.status().next_attempt_in_ms.has_value();
  }));
  EXPECT_EQ(sink_.batches(), 1U);
  dispatcher.wake();
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(jobs(sink_.attempts()), (std::vector<std::string>{"1", "2", "3", "2"}));
}

TEST_F(DispatcherTest, ARejectedEventBecomesADeadLetterAndIsNotTriedAgain) {
  sink_.then(test::ScriptedSink::reject_all("413 document\ntoo large"));
  append("1");
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(log_.wait_for("DEAD_LETTER"));
  ASSERT_TRUE(becomes_idle(dispatcher));
  const auto letters = dead_letters("archive");
  ASSERT_EQ(letters.size(), 1U);
  EXPECT_EQ(letters[0].job_id, "1");
  EXPECT_EQ(letters[0].reason, "413 document\\ntoo large");
  EXPECT_EQ(letters[0].attempts, 1U);
  EXPECT_GT(letters[0].last_attempt, Timestamp{});
  EXPECT_EQ(dispatcher.status().rejected, 1U);
  EXPECT_EQ(log_.last("DEAD_LETTER")->level, LogLevel::kError);
  EXPECT_EQ(log_.last("DEAD_LETTER")->field("event_id"), test::make_event("1")->id);
  EXPECT_EQ(sink_.batches(), 1U);
}

TEST_F(DispatcherTest, ADeadLetterThatIsPutBackIsDeliveredWithoutARestart) {
  sink_.then(test::ScriptedSink::reject_all("400 mapping"));
  append("1");
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(log_.wait_for("DEAD_LETTER"));
  ASSERT_TRUE(becomes_idle(dispatcher));
  auto put_back = journal_->retry_dead("archive", "");
  ASSERT_TRUE(put_back) << put_back.error().message();
  EXPECT_EQ(*put_back, 1U);
  ASSERT_TRUE(sink_.wait_batches(2));
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_TRUE(dead_letters("archive").empty());
  EXPECT_EQ(sink_state("archive").acknowledged, 1U);
}

TEST_F(DispatcherTest, APartlyRefusedBatchTriesOnlyTheRefusedAgainWhileOthersGoOn) {
  sink_.then(test::ScriptedSink::for_each([](Delivery& delivery) {
    const std::string& job = delivery.event().job.id;
    if (job == "2") {
      delivery.retry("429", std::chrono::hours(1));
    } else if (job == "4") {
      delivery.reject("400");
    } else {
      delivery.acknowledge();
    }
  }));
  append_numbered(1, 5);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(eventually([&] { return sink_state("archive").acknowledged == 3; }));
  append_numbered(6, 7);
  ASSERT_TRUE(eventually([&] { return sink_state("archive").acknowledged == 5; }));
  EXPECT_EQ(sink_state("archive").waiting, 1U);
  EXPECT_EQ(sink_state("archive").parked, 1U);
  EXPECT_EQ(sink_state("archive").dead, 1U);
  EXPECT_EQ(sink_.attempts_of("2").size(), 1U);
  EXPECT_FALSE(log_.has("SINK_DOWN")) << log_.text();
  dispatcher.wake();
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(sink_.attempts_of("2").back().attempt, 2U);
}

TEST_F(DispatcherTest, OneEventThatIsRefusedForEverHoldsNoLaterOne) {
  sink_.otherwise(test::ScriptedSink::for_each([](Delivery& delivery) {
    if (delivery.event().job.id == "1") {
      delivery.retry("alice: quota exceeded");
    } else {
      delivery.acknowledge();
    }
  }));
  append("1");  // alone in its batch, so it looks as if the destination were down
  dispatch("archive", sink_);
  ASSERT_TRUE(sink_.wait_batches(2));
  append_numbered(2, 20);
  EXPECT_TRUE(eventually([&] { return sink_state("archive").acknowledged == 19; }));
  EXPECT_EQ(sink_state("archive").waiting, 1U);
}

TEST_F(DispatcherTest, AFullBatchThatIsRefusedForEverHoldsNoLaterOne) {
  config_.batch_max_events = 5;
  config_.retry_max_ms = 1;
  sink_.otherwise(test::ScriptedSink::for_each([](Delivery& delivery) {
    if (std::stoi(delivery.event().job.id) <= 10) {
      delivery.retry("alice: quota exceeded");
    } else {
      delivery.acknowledge();
    }
  }));
  append_numbered(1, 20);
  commit();
  dispatch("archive", sink_);
  EXPECT_TRUE(eventually([&] { return sink_state("archive").acknowledged == 10; }));
  EXPECT_EQ(sink_state("archive").waiting, 10U);
}

TEST_F(DispatcherTest, ASinkMaySettleLaterFromAnotherThread) {
  std::jthread other;
  sink_.then([&](std::vector<Delivery> batch) {
    other = std::jthread([kept = std::make_shared<std::vector<Delivery>>(std::move(batch))] {
      for (Delivery& delivery : *kept) delivery.acknowledge();
    });
  });
  append_numbered(1, 50);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(sink_.batches(), 1U);
  EXPECT_EQ(dispatcher.status().acknowledged, 50U);
}

TEST_F(DispatcherTest, HandsOverTheNextBatchOnlyWhenTheLastIsSettled) {
  config_.batch_max_events = 2;
  std::vector<Delivery> kept;
  Door taken;
  sink_.then([&](std::vector<Delivery> batch) {
    kept = std::move(batch);
    std::thread([&] { taken.wait(); }).join();
  });
  append_numbered(1, 4);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(taken.wait_for_somebody());
  EXPECT_EQ(dispatcher.status().in_flight, 2U);
  taken.open();
  EXPECT_FALSE(sink_.wait_batches(2, milliseconds(50)));
  kept[0].acknowledge();
  EXPECT_FALSE(sink_.wait_batches(2, milliseconds(50)));
  kept[1].acknowledge();
  EXPECT_TRUE(sink_.wait_batches(2));
  EXPECT_TRUE(becomes_idle(dispatcher));
}

// ---- bad plugins

TEST_F(DispatcherTest, ADeliveryDroppedUnsettledIsTriedAgainAndNamedAsABug) {
  sink_.then(test::ScriptedSink::for_each([](Delivery& delivery) {
    if (delivery.event().job.id != "2") delivery.acknowledge();
  }));
  append_numbered(1, 3);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(becomes_idle(dispatcher));
  ASSERT_EQ(log_.count("DELIVERY_UNSETTLED"), 1U) << log_.text();
  EXPECT_EQ(log_.last("DELIVERY_UNSETTLED")->field("count"), "1");
  EXPECT_EQ(log_.last("DELIVERY_UNSETTLED")->field("job_id"), "2");
  EXPECT_EQ(sink_.attempts_of("2").size(), 2U);
  EXPECT_EQ(sink_.attempts_of("1").size(), 1U);
}

TEST_F(DispatcherTest,
       OfABatchThatMakesThePluginThrowOnlyThePoisonDiesAndOnlyAfterThreeThrowsAlone) {
  sink_.otherwise(test::ScriptedSink::for_each([](Delivery& delivery) {
    if (delivery.event().job.id == "5") throw std::runtime_error("cannot parse #SBATCH line");
    delivery.acknowledge();
  }));
  append_numbered(1, 10);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(log_.wait_for("DEAD_LETTER"));
  ASSERT_TRUE(becomes_idle(dispatcher));

  const auto letters = dead_letters("archive");
  ASSERT_EQ(letters.size(), 1U);
  EXPECT_EQ(letters[0].job_id, "5");
  EXPECT_EQ(letters[0].reason, "plugin threw: cannot parse #SBATCH line");
  EXPECT_EQ(letters[0].attempts, 4U);
  EXPECT_EQ(sink_state("archive").acknowledged, 9U);

  std::vector<std::size_t> sizes;
  for (const auto& attempt : sink_.attempts_of("5")) sizes.push_back(attempt.batch_size);
  EXPECT_THAT(sizes, ElementsAre(10, 1, 1, 1));
  EXPECT_EQ(log_.count("PLUGIN_THREW"), 4U);
  EXPECT_EQ(log_.last("PLUGIN_THREW")->field("what"), "cannot parse #SBATCH line");
  EXPECT_FALSE(log_.has("DELIVERY_UNSETTLED")) << log_.text();
  EXPECT_EQ(dispatcher.status().retries.at("plugin threw: cannot parse #SBATCH line"), 6U + 3U);
  // Those before the poison were acknowledged and are not delivered again.
  EXPECT_EQ(sink_.attempts_of("4").size(), 1U);
  EXPECT_EQ(sink_.attempts_of("6").size(), 2U);
}

TEST_F(DispatcherTest, APluginThatThrowsAFewTimesLosesNothing) {
  for (int i = 0; i < 2; ++i) sink_.then([](std::vector<Delivery>) { throw 42; });
  append("1");
  ASSERT_TRUE(becomes_idle(dispatch("archive", sink_)) && sink_.wait_batches(3));
  EXPECT_TRUE(eventually([&] { return sink_state("archive").acknowledged == 1; }));
  EXPECT_TRUE(dead_letters("archive").empty());
  EXPECT_EQ(log_.last("PLUGIN_THREW")->field("what"), "something that is not a std::exception");
}

// ---- starting

TEST_F(DispatcherTest, ASinkIsStartedAgainUntilItIsReadyAndGetsNothingBefore) {
  config_.retry_max_ms = 5;
  append_numbered(1, 3);
  std::atomic<int> starts = 0;
  std::atomic<bool> good = false;
  Dispatcher& dispatcher = dispatch("archive", sink_, [&]() -> Result<void> {
    ++starts;
    if (good) return {};
    return Error{ErrorKind::kInvalidConfig, "no such group"};
  });
  EXPECT_EQ(dispatcher.await_start(in(test::kPatience)).error().message(), "no such group");
  ASSERT_TRUE(eventually([&] { return starts >= 3; }));
  const Dispatcher::Status waiting = dispatcher.status();
  EXPECT_FALSE(waiting.ready);
  EXPECT_EQ(waiting.not_ready, "no such group");
  EXPECT_EQ(waiting.last_error, "no such group");
  EXPECT_TRUE(waiting.next_attempt_in_ms);
  EXPECT_EQ(sink_state("archive").waiting, 3U);
  EXPECT_THAT(sink_.attempts(), testing::IsEmpty());
  EXPECT_EQ(log_.count("SINK_NOT_READY"), 1U) << "the same reason is said once";

  good = true;
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_TRUE(dispatcher.await_start(in(test::kPatience)));
  EXPECT_TRUE(dispatcher.status().ready);
  EXPECT_EQ(dispatcher.status().not_ready, std::nullopt);
  EXPECT_EQ(sink_state("archive").acknowledged, 3U);
  EXPECT_EQ(log_.count("SINK_READY"), 1U);
}

TEST_F(DispatcherTest, AWakeStartsASinkAtOnce) {
  std::atomic<int> starts = 0;
  config_.retry_max_ms = 3'600'000;
  seed_ = 7;
  Dispatcher& dispatcher = dispatch("archive", sink_, [&]() -> Result<void> {
    // The back-off of the hundredth failure is hours long.
    return ++starts < 100 ? Result<void>{Error{ErrorKind::kTransient, "not yet"}} : Result<void>{};
  });
  ASSERT_TRUE(eventually([&] {
    dispatcher.wake();
    return dispatcher.status().ready;
  }));
  EXPECT_EQ(starts, 100);
}

TEST_F(DispatcherTest, ASinkThatHangsInItsStartIsNamedAndIsLeftAtAStop) {
  Door door;
  append_numbered(1, 3);
  Dispatcher& stuck = dispatch("archive", sink_, [&]() -> Result<void> {
    door.wait();
    return {};
  });
  ASSERT_TRUE(door.wait_for_somebody());
  EXPECT_EQ(stuck.await_start(in(milliseconds(1))).error().kind(), ErrorKind::kTransient);
  ASSERT_TRUE(stuck.status().call);
  EXPECT_STREQ(stuck.status().call->name, "start");
  EXPECT_FALSE(stuck.stop(in(milliseconds(1))));
  EXPECT_EQ(log_.last("SINK_HANGS")->field("call"), "start");
  door.open();
  EXPECT_TRUE(stuck.stop(in(test::kPatience)));
  EXPECT_EQ(sink_state("archive").waiting, 3U);
}

TEST_F(DispatcherTest, AStopDoesNotWaitForAnArchiveThatHangs) {
  append_numbered(1, 3);
  commit();
  ASSERT_TRUE(journal_->register_sink("search", config_.kinds));
  dispatch("archive", sink_);
  ASSERT_TRUE(eventually([&] { return sink_state("archive").acknowledged == 3; }));
  std::uint64_t after = 0;
  auto released = journal_->releasable("archive", after, 10);
  ASSERT_TRUE(released);
  ASSERT_EQ(released->size(), 3U);
  ASSERT_TRUE(journal_->release(*std::move(released)));
  dispatchers_.clear();
  journal_.reset();  // which has the newest events in memory
  open_journal();
  Door door;
  journal_->set_archive([&](const Event&) -> Result<std::shared_ptr<const Event>> {
    door.wait();
    return Error{ErrorKind::kTransient, "it was stopped"};
  });
  test::ScriptedSink searched;
  Dispatcher& filled = dispatch("search", searched);
  ASSERT_TRUE(door.wait_for_somebody());
  EXPECT_TRUE(eventually([&] {  // a millisecond may be too short for the sink's own stop
    return !filled.stop(in(milliseconds(1))) &&
           log_.last("SINK_HANGS")->field("call") == "read from an archive";
  }));
  door.open();
  EXPECT_TRUE(filled.stop(in(test::kPatience)));
  dispatchers_.clear();  // before the sink of this test
}

// ---- several sinks, several workers

TEST_F(DispatcherTest, ADeadSinkDoesNotHoldAnother) {
  Door door;
  test::ScriptedSink hanging;
  hanging.otherwise([&](std::vector<Delivery> batch) {
    door.wait();
    for (Delivery& delivery : batch) delivery.acknowledge();
  });
  test::ScriptedSink down;
  down.otherwise(test::ScriptedSink::retry_all("connection refused"));
  append_numbered(1, 20);
  commit();
  Dispatcher& stuck = dispatch("hanging", hanging);
  dispatch("down", down);
  Dispatcher& healthy = dispatch("healthy", sink_);
  ASSERT_TRUE(door.wait_for_somebody());
  append_numbered(21, 200);
  EXPECT_TRUE(eventually([&] { return sink_state("healthy").acknowledged == 200; }));
  EXPECT_TRUE(becomes_idle(healthy));
  EXPECT_FALSE(stuck.idle());
  EXPECT_EQ(sink_state("down").waiting, 200U);
  door.open();
  EXPECT_TRUE(eventually([&] { return sink_state("hanging").acknowledged == 200; }));
  dispatchers_.clear();  // before the sinks of this test
}

TEST_F(DispatcherTest, SeveralWorkersDeliverDisjointBatchesAtOnce) {
  config_.workers = 4;
  config_.batch_max_events = 5;
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  int most = 0;
  sink_.otherwise([&](std::vector<Delivery> batch) {
    {
      std::unique_lock lock(mutex);
      most = std::max(most, ++inside);
      changed.notify_all();
      // The first four meet here; later ones pass.
      changed.wait_for(lock, seconds(20), [&] { return most == 4; });
      --inside;
    }
    for (Delivery& delivery : batch) delivery.acknowledge();
  });
  append_numbered(1, 400);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(most, 4);
  const auto delivered = jobs(sink_.attempts());
  EXPECT_EQ(delivered.size(), 400U);
  EXPECT_EQ(std::set<std::string>(delivered.begin(), delivered.end()).size(), 400U);
  dispatchers_.clear();
}

// Settles each batch's deliveries from a thread of its own in random order, with all kinds of
// answers.
class UnrulySink : public Sink {
 public:
  UnrulySink(std::uint32_t seed, std::size_t limit, std::size_t under_way = 1)
      : random_(seed), limit_(limit), under_way_(under_way) {
    settler_ = std::jthread([this](const std::stop_token& stop) { settle(stop); });
  }
  ~UnrulySink() override = default;

  void deliver(std::vector<Delivery> batch) override {
    std::lock_guard lock(mutex_);
    for (Delivery& delivery : batch) held_.push_back(std::move(delivery));
    changed_.notify_all();
  }
  void stop(SteadyTime) override {
    settler_.request_stop();
    settler_.join();
    held_.clear();
  }

  std::size_t batches_under_way() const override { return under_way_; }

  std::multiset<std::string> acknowledged() const {
    std::lock_guard lock(mutex_);
    return acknowledged_;
  }
  std::multiset<std::string> rejected() const {
    std::lock_guard lock(mutex_);
    return rejected_;
  }

 private:
  void settle(const std::stop_token& stop) noexcept {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return !held_.empty() && settled_ < limit_; }) &&
           !stop.stop_requested()) {
      std::swap(held_[random_() % held_.size()], held_.back());
      Delivery delivery = std::move(held_.back());
      held_.pop_back();
      ++settled_;
      const unsigned answer = random_() % 10;
      const std::string job = delivery.event().job.id;
      if (answer == 0) {
        rejected_.insert(job);
      } else if (answer > 3) {
        acknowledged_.insert(job);
      }
      lock.unlock();
      if (answer == 0) {
        delivery.reject("400");
      } else if (answer <= 3) {
        delivery.retry("429");
      } else {
        delivery.acknowledge();
      }
      lock.lock();
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::mt19937 random_;
  std::size_t limit_;
  std::size_t under_way_;
  std::size_t settled_ = 0;
  std::vector<Delivery> held_;
  std::multiset<std::string> acknowledged_;
  std::multiset<std::string> rejected_;
  std::jthread settler_;
};

// Both ways to have four batches under way: as many workers, or a sink that takes them one after
// the other.
class DispatcherAtOnceTest : public DispatcherTest, public testing::WithParamInterface<bool> {};

TEST_P(DispatcherAtOnceTest, RandomAnswersLoseNothingAcrossRestarts) {
  constexpr int kJobs = 600;
  const bool in_order = GetParam();
  config_.workers = in_order ? 1 : 4;
  config_.batch_max_events = 7;
  append_numbered(1, kJobs);
  commit();
  std::map<std::string, int> settled;
  std::uint32_t seed = 1;
  for (std::size_t limit : {100U, 300U, 700U, 1'000'000U}) {
    UnrulySink sink(seed, limit, in_order ? 4 : 1);
    seed_ = seed++;
    Dispatcher& dispatcher = dispatch("archive", sink);
    if (limit == 1'000'000U) {
      ASSERT_TRUE(becomes_idle(dispatcher));
    } else {
      ASSERT_TRUE(eventually([&] { return dispatcher.status().attempts > limit / 2; }));
    }
    ASSERT_TRUE(dispatcher.stop(in(test::kPatience)));
    dispatchers_.clear();
    for (const std::string& job : sink.acknowledged()) ++settled[job];
    for (const std::string& job : sink.rejected()) ++settled[job];
    journal_.reset();
    open_journal();
    ASSERT_FALSE(HasFatalFailure());
  }
  // At least once: what was answered while its batch was not yet told may come again, nothing may
  // be missing.
  for (int i = 1; i <= kJobs; ++i) EXPECT_GE(settled[std::to_string(i)], 1) << i;
  ASSERT_TRUE(journal_->register_sink("archive", config_.kinds));
  const Journal::SinkState state = sink_state("archive");
  EXPECT_EQ(state.waiting, 0U);
  EXPECT_EQ(state.parked, 0U);
  EXPECT_EQ(state.acknowledged + state.dead, static_cast<std::uint64_t>(kJobs));
}

INSTANTIATE_TEST_SUITE_P(Ways, DispatcherAtOnceTest, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "InOrder" : "Workers"; });

// ---- several batches under way, in order

// Takes up to `under_way` batches at once; keeps what it is given until the test says what becomes
// of it.
class OverlappingSink : public Sink {
 public:
  explicit OverlappingSink(std::size_t under_way) : under_way_(under_way) {}

  std::size_t batches_under_way() const override { return under_way_; }
  void deliver(std::vector<Delivery> batch) override {
    std::unique_lock lock(mutex_);
    overlapped_ = overlapped_ || std::exchange(inside_, true);
    for (const Delivery& delivery : batch) {
      order_.push_back(delivery.event().job.id);
      bytes_ += delivery.event().bytes_size();
    }
    most_bytes_ = std::max(most_bytes_, bytes_);
    ++batches_;
    changed_.notify_all();
    const auto act = act_;
    lock.unlock();
    if (act) {
      for (Delivery& delivery : batch) act(delivery);
    }
    lock.lock();
    if (!act) held_.push_back(std::move(batch));
    inside_ = false;
    changed_.notify_all();
  }
  void stop(SteadyTime) override { held_.clear(); }

  // What was given so far as this says, and from now on each at once.
  void settle(const std::function<void(Delivery&)>& act) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !inside_; });
    act_ = act;
    auto held = std::move(held_);
    held_.clear();
    bytes_ = 0;
    lock.unlock();
    for (auto& batch : held) {
      for (Delivery& delivery : batch) act(delivery);
    }
  }
  // Those of the oldest batch that is held.
  void acknowledge_oldest() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !inside_ && !held_.empty(); });
    std::vector<Delivery> batch = std::move(held_.front());
    held_.erase(held_.begin());
    for (const Delivery& delivery : batch) bytes_ -= delivery.event().bytes_size();
    lock.unlock();
    for (Delivery& delivery : batch) delivery.acknowledge();
  }
  bool wait_batches(std::size_t batches, milliseconds limit = seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return batches_ >= batches && !inside_; });
  }
  std::vector<std::string> order() const {
    std::lock_guard lock(mutex_);
    return order_;
  }
  bool overlapped() const {
    std::lock_guard lock(mutex_);
    return overlapped_;
  }
  std::uint64_t most_bytes() const {
    std::lock_guard lock(mutex_);
    return most_bytes_;
  }

 private:
  const std::size_t under_way_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void(Delivery&)> act_;
  std::vector<std::vector<Delivery>> held_;
  std::vector<std::string> order_;
  std::size_t batches_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t most_bytes_ = 0;
  bool inside_ = false;
  bool overlapped_ = false;
};

std::vector<std::string> numbers(int first, int last) {
  std::vector<std::string> list;
  for (int i = first; i <= last; ++i) list.push_back(std::to_string(i));
  return list;
}

// Two events a batch, three batches under way, and all three handed over before a test goes on.
class DispatcherOverlapTest : public DispatcherTest {
 protected:
  Dispatcher& dispatch_numbered(int last) {
    config_.batch_max_events = 2;
    append_numbered(1, last);
    commit();
    Dispatcher& dispatcher = dispatch("archive", overlapping_);
    EXPECT_TRUE(overlapping_.wait_batches(3));
    return dispatcher;
  }
  void TearDown() override {
    dispatchers_.clear();  // before the sink
    DispatcherTest::TearDown();
  }

  static void acknowledge(Delivery& delivery) { delivery.acknowledge(); }

  OverlappingSink overlapping_{3};
};

TEST_F(DispatcherOverlapTest, ASinkThatTakesSeveralBatchesGetsThemInOrderAndNoMoreThanItAskedFor) {
  Dispatcher& dispatcher = dispatch_numbered(20);
  EXPECT_FALSE(overlapping_.wait_batches(4, milliseconds(50)));
  EXPECT_EQ(overlapping_.order(), numbers(1, 6));
  overlapping_.acknowledge_oldest();
  ASSERT_TRUE(overlapping_.wait_batches(4));
  EXPECT_FALSE(overlapping_.wait_batches(5, milliseconds(50)));
  overlapping_.settle(acknowledge);
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(overlapping_.order(), numbers(1, 20));
  EXPECT_FALSE(overlapping_.overlapped()) << "deliver() is called by one thread at a time";
}

TEST_F(DispatcherTest, WithSeveralWorkersASinkIsNotAskedForItsOrder) {
  config_.batch_max_events = 1;
  config_.workers = 2;
  OverlappingSink sink(5);
  append_numbered(1, 9);
  commit();
  dispatch("archive", sink);
  ASSERT_TRUE(sink.wait_batches(2));
  EXPECT_FALSE(sink.wait_batches(3, milliseconds(50)));
  dispatchers_.clear();
}

TEST_F(DispatcherTest, BatchesUnderWayShareTheBytesOfOne) {
  constexpr std::int64_t kBytes = 40'000;
  config_.batch_max_bytes = kBytes;
  OverlappingSink sink(4);
  for (int i = 1; i <= 60; ++i) append(std::to_string(i), std::string(2000, 'x'));
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink);
  ASSERT_TRUE(sink.wait_batches(4));
  EXPECT_FALSE(sink.wait_batches(5, milliseconds(50)));
  EXPECT_LE(sink.most_bytes(), static_cast<std::uint64_t>(kBytes));
  EXPECT_GT(sink.most_bytes(), static_cast<std::uint64_t>(kBytes) / 2);
  sink.settle([](Delivery& delivery) { delivery.acknowledge(); });
  ASSERT_TRUE(becomes_idle(dispatcher));
  dispatchers_.clear();
}

TEST_F(DispatcherOverlapTest, WhenADestinationThatWasDownIsBackTheOrderIsThatOfTheJournal) {
  Dispatcher& dispatcher = dispatch_numbered(30);
  std::mutex mutex;
  std::vector<std::string> taken;
  int refusals = 0;
  overlapping_.settle([&](Delivery& delivery) {
    std::unique_lock lock(mutex);
    // The three batches that it holds, and three more of two events each.
    if (refusals < 12) {
      ++refusals;
      lock.unlock();
      return delivery.retry("503");
    }
    taken.push_back(delivery.event().job.id);
    lock.unlock();
    delivery.acknowledge();
  });
  ASSERT_TRUE(becomes_idle(dispatcher));
  // While it is down one batch tries it, always the first.
  const auto tried = overlapping_.order();
  for (const std::size_t i : {6U, 8U, 10U}) EXPECT_EQ(tried[i], "1");
  EXPECT_EQ(taken, numbers(1, 30));
  EXPECT_EQ(sink_state("archive").acknowledged, 30U);
}

TEST_F(DispatcherOverlapTest, ABatchThatIsRefusedForWhatIsInItHoldsNoneOfThoseBehindIt) {
  Dispatcher& dispatcher = dispatch_numbered(41);
  std::atomic<bool> mended{false};
  overlapping_.settle([&](Delivery& delivery) {
    const std::string& job = delivery.event().job.id;
    const bool poison = job == "3" || job == "4" || job == "41";
    if (poison && !mended) return delivery.retry("422");
    delivery.acknowledge();
  });
  ASSERT_TRUE(eventually([&] { return sink_state("archive").acknowledged == 38; }));
  EXPECT_EQ(sink_state("archive").waiting, 3U);
  mended = true;
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(sink_state("archive").acknowledged, 41U);
}

TEST_F(DispatcherOverlapTest, EveryBatchThatIsRefusedForWhatIsInItIsPutAsideInTheEnd) {
  Dispatcher& dispatcher = dispatch_numbered(7);
  overlapping_.settle([](Delivery& delivery) {
    if (delivery.event().job.id == "7") {
      delivery.acknowledge();
    } else {
      delivery.retry("422");
    }
  });
  ASSERT_TRUE(eventually([&] { return sink_state("archive").acknowledged == 1; }));
  overlapping_.settle(acknowledge);
  ASSERT_TRUE(becomes_idle(dispatcher));
}

TEST_F(DispatcherOverlapTest, StopLeavesAllBatchesUnderWayInTheJournal) {
  Dispatcher& dispatcher = dispatch_numbered(20);
  ASSERT_TRUE(dispatcher.stop(in(test::kPatience)));
  EXPECT_EQ(sink_state("archive").waiting, 20U);
  EXPECT_EQ(overlapping_.order(), numbers(1, 6));
}

TEST_F(DispatcherTest, TheCursorNeverPassesABatchThatIsStillInFlight) {
  config_.workers = 2;
  config_.batch_max_events = 2;
  Door door;
  sink_.otherwise([&](std::vector<Delivery> batch) {
    if (batch.front().event().job.id == "1") door.wait();
    for (Delivery& delivery : batch) delivery.acknowledge();
  });
  append_numbered(1, 20);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(eventually([&] { return sink_state("archive").acknowledged == 18; }));
  EXPECT_EQ(journal_->cursor(ids_["archive"]), 0U);
  door.open();
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_TRUE(eventually([&] { return journal_->cursor(ids_["archive"]) == 20; }));
  dispatchers_.clear();
}

// ---- restart

TEST_F(DispatcherTest, ParkedEventsAreTriedAgainAfterARestartWithTheirAttemptsCounted) {
  sink_.then(test::ScriptedSink::for_each([](Delivery& delivery) {
    if (delivery.event().job.id == "2") {
      delivery.retry("429", std::chrono::hours(1));
    } else {
      delivery.acknowledge();
    }
  }));
  append_numbered(1, 3);
  commit();
  dispatch("archive", sink_);
  ASSERT_TRUE(eventually([&] { return sink_state("archive").parked == 1; }));
  ASSERT_TRUE(dispatchers_[0]->stop(in(test::kPatience)));
  dispatchers_.clear();
  journal_.reset();
  open_journal();

  test::ScriptedSink again;
  ASSERT_TRUE(becomes_idle(dispatch("archive", again)));
  ASSERT_EQ(again.attempts().size(), 1U);
  EXPECT_EQ(again.attempts()[0].job_id, "2");
  EXPECT_EQ(again.attempts()[0].attempt, 2U);
  dispatchers_.clear();
}

TEST_F(DispatcherTest, MoreParkedEventsThanAreFetchedAtOnceAllComeBack) {
  config_.batch_max_events = 100;
  sink_.otherwise(test::ScriptedSink::for_each([](Delivery& delivery) {
    if (delivery.event().job.id == "0") {
      delivery.acknowledge();  // one of each batch, so that the others are parked
    } else {
      delivery.retry("429", std::chrono::hours(1));
    }
  }));
  append("0");
  append_numbered(1, 99);
  commit();
  dispatch("archive", sink_);
  ASSERT_TRUE(eventually([&] { return sink_state("archive").parked == 99; }));
  ASSERT_TRUE(dispatchers_[0]->stop(in(test::kPatience)));
  dispatchers_.clear();
  test::ScriptedSink again;
  ASSERT_TRUE(becomes_idle(dispatch("archive", again)));
  EXPECT_EQ(again.attempts().size(), 99U);
  dispatchers_.clear();
}

// ---- stop

TEST_F(DispatcherTest, StopHandsOverNoNewBatchAndLeavesTheRestInTheJournal) {
  config_.batch_max_events = 1;
  Door door;
  sink_.then([&](std::vector<Delivery> batch) {
    door.wait();
    batch[0].acknowledge();
  });
  append_numbered(1, 3);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(door.wait_for_somebody());
  EXPECT_FALSE(dispatcher.stop(in(seconds(0)))) << "somebody stands at the door";
  door.open();  // only now, when the stop has begun
  EXPECT_TRUE(dispatcher.stop(in(test::kPatience)));
  EXPECT_EQ(sink_.batches(), 1U);
  EXPECT_EQ(sink_.stops(), 1U);
  commit();
  EXPECT_EQ(sink_state("archive").acknowledged, 1U);
  EXPECT_EQ(sink_state("archive").waiting, 2U);
}

TEST_F(DispatcherTest, StopEndsAnyBackOffAtOnce) {
  sink_.otherwise(test::ScriptedSink::retry_all("429", std::chrono::hours(1)));
  append("1");
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(log_.wait_for("SINK_DOWN"));
  const SteadyTime before = std::chrono::steady_clock::now();
  EXPECT_TRUE(dispatcher.stop(in(std::chrono::minutes(30))));
  EXPECT_LT(std::chrono::steady_clock::now() - before, test::kPatience);
  EXPECT_EQ(sink_state("archive").waiting, 1U);
}

TEST_F(DispatcherTest, WhatASinkFlushesInItsStopIsSettled) {
  std::vector<Delivery> kept;
  Door taken;
  sink_.then([&](std::vector<Delivery> batch) {
    kept = std::move(batch);
    taken.open();
  });
  sink_.on_stop([&](SteadyTime) {
    for (Delivery& delivery : kept) delivery.acknowledge();
  });
  append_numbered(1, 3);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  taken.wait();
  EXPECT_TRUE(dispatcher.stop(in(test::kPatience)));
  commit();
  EXPECT_EQ(sink_state("archive").acknowledged, 3U);
}

TEST_F(DispatcherTest, WhatASinkLeavesUnsettledAtItsStopStaysInTheJournal) {
  std::vector<Delivery> kept;
  Door taken;
  sink_.then([&](std::vector<Delivery> batch) {
    batch[0].acknowledge();
    kept = std::move(batch);
    taken.open();
  });
  append_numbered(1, 3);
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  taken.wait();
  EXPECT_TRUE(dispatcher.stop(in(test::kPatience)));
  EXPECT_TRUE(log_.has("DELIVERIES_LEFT"));
  dispatchers_.clear();
  kept.clear();  // settles as retry into what nobody listens to any more: must not crash
  EXPECT_EQ(sink_state("archive").waiting, 3U);
}

TEST_F(DispatcherTest, StopGivesUpOnASinkThatHangsInDeliver) {
  Door door;
  sink_.then([&](std::vector<Delivery> batch) {
    door.wait();
    for (Delivery& delivery : batch) delivery.acknowledge();
  });
  append("1");
  Dispatcher& dispatcher = dispatch("archive", sink_);
  ASSERT_TRUE(door.wait_for_somebody());
  EXPECT_FALSE(dispatcher.stop(in(milliseconds(100))));
  ASSERT_TRUE(log_.has("SINK_HANGS"));
  EXPECT_EQ(log_.last("SINK_HANGS")->field("call"), "deliver");
  EXPECT_EQ(sink_.stops(), 0U);  // never at the same time as deliver()
  door.open();
  dispatchers_.clear();
}

TEST_F(DispatcherTest, StopGivesUpOnASinkThatHangsInStop) {
  Door door;
  sink_.on_stop([&](SteadyTime) { door.wait(); });
  Dispatcher& dispatcher = dispatch("archive", sink_);
  EXPECT_FALSE(dispatcher.stop(in(milliseconds(100))));
  EXPECT_EQ(log_.last("SINK_HANGS")->field("call"), "stop");
  door.open();
  EXPECT_TRUE(
      dispatcher.stop(in(test::kPatience)));  // asked once more, and not a second time of the sink
  EXPECT_EQ(sink_.stops(), 1U);
}

TEST_F(DispatcherTest, ASinkThatThrowsInStopIsStopped) {
  sink_.on_stop([](SteadyTime) { throw std::runtime_error("flush failed"); });
  EXPECT_TRUE(dispatch("archive", sink_).stop(in(test::kPatience)));
  EXPECT_EQ(log_.last("PLUGIN_THREW")->field("call"), "stop");
}

TEST_F(DispatcherTest, IsIdleOnlyWhenEverythingIsSettledAndCommitted) {
  Door door;
  sink_.then([&](std::vector<Delivery> batch) {
    door.wait();
    for (Delivery& delivery : batch) delivery.acknowledge();
  });
  append("1");
  commit();
  Dispatcher& dispatcher = dispatch("archive", sink_);
  EXPECT_FALSE(dispatcher.idle());
  ASSERT_TRUE(door.wait_for_somebody());
  EXPECT_FALSE(dispatcher.idle());
  door.open();
  ASSERT_TRUE(becomes_idle(dispatcher));
  EXPECT_EQ(sink_state("archive").acknowledged, 1U);
}

}  // namespace
}  // namespace scriptorium
