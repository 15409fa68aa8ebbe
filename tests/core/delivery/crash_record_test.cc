#include "core/delivery/crash_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using Verdict = CrashRecord::Verdict;
using std::chrono::seconds;

// Lives that end in the middle of something, one after the other, each in a child process.
class CrashRecordTest : public testing::Test {
 protected:
  static bool known(const std::string& id) { return id != "gone"; }
  std::unique_ptr<CrashRecord> open() {
    auto record = CrashRecord::open(directory_.path(), log_, clock_, &CrashRecordTest::known);
    EXPECT_TRUE(record) << record.error().message();
    return record ? *std::move(record) : nullptr;
  }
  // The signal that ended it.
  int die(const std::function<void(CrashRecord&)>& act) {
    const pid_t child = ::fork();
    if (child == 0) {
      // A sanitizer's own handler would exit instead of dying by the signal.
      ::signal(SIGSEGV, SIG_DFL);
      const auto record = open();
      if (record == nullptr || !record->watch_signals()) ::_exit(1);
      act(*record);
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  static void crash() { ::raise(SIGSEGV); }
  static void killed() { ::raise(SIGKILL); }

  static CrashRecord::InHand hand_over(CrashRecord& record, const char* sink,
                                       const std::vector<std::string>& ids, bool suspect = false) {
    return record.hand_over(sink, ids, suspect, std::stop_token{});
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
  test::FakeClock clock_;
};

TEST_F(CrashRecordTest, ABatchInHandAtACrashIsSuspectAndWhatIsAloneTwiceIsGuilty) {
  EXPECT_EQ(die([](CrashRecord& r) {
              const auto batch = hand_over(r, "bad", {"a", "b", "c"});
              crash();
            }),
            SIGSEGV);
  for (const Verdict expected : {Verdict::kSuspect, Verdict::kSuspect}) {
    die([&](CrashRecord& r) {
      if (r.verdict("bad", "b") != expected) ::_exit(2);
      const auto alone = hand_over(r, "bad", {"b"}, true);
      crash();
    });
  }
  const auto record = open();
  EXPECT_EQ(record->verdict("bad", "b"), Verdict::kGuilty);
  EXPECT_EQ(record->verdict("bad", "a"), Verdict::kSuspect);
  EXPECT_EQ(record->verdict("good", "b"), Verdict::kInnocent);
  EXPECT_EQ(record->verdict("bad", "d"), Verdict::kInnocent);
}

TEST_F(CrashRecordTest, TheBatchWhosePluginTheThreadWasInTakesTheWholeBlame) {
  die([](CrashRecord& r) {
    const auto other = hand_over(r, "good", {"a", "b"});
    const auto batch = hand_over(r, "bad", {"a"});
    const CrashRecord::Inside inside(batch);
    crash();
  });
  const auto record = open();
  EXPECT_EQ(record->verdict("good", "a"), Verdict::kInnocent);
  EXPECT_EQ(record->verdict("bad", "a"), Verdict::kSuspect);
}

TEST_F(CrashRecordTest, WhatIsSettledOrWaitsForLongIsNotBlamed) {
  die([this](CrashRecord& r) {
    {
      const auto settled = hand_over(r, "bad", {"a", "b"});
    }
    const auto waits = hand_over(r, "slow", {"c", "d"});
    clock_.advance(seconds(31));
    r.tick();
    crash();
  });
  const auto record = open();
  EXPECT_EQ(record->verdict("bad", "a"), Verdict::kInnocent);
  EXPECT_EQ(record->verdict("slow", "c"), Verdict::kInnocent);
  EXPECT_EQ(log_.text(), "");
}

TEST_F(CrashRecordTest, DeathsThatAreNoCrashNeedFive) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(die([](CrashRecord& r) {
                if (r.verdict("bad", "a") == Verdict::kGuilty) ::_exit(2);
                const auto alone = hand_over(r, "bad", {"a"}, true);
                killed();
              }),
              SIGKILL);
  }
  EXPECT_EQ(open()->verdict("bad", "a"), Verdict::kGuilty);
}

TEST_F(CrashRecordTest, ASignalThatSomebodyElseSentIsNoCrash) {
  for (int i = 0; i < 3; ++i) {
    die([](CrashRecord& r) {
      const auto alone = hand_over(r, "bad", {"a"}, true);
      const pid_t parent = ::getpid();
      if (::fork() == 0) {
        ::kill(parent, SIGABRT);  // as systemd's watchdog does
        ::_exit(0);
      }
      ::pause();
    });
  }
  EXPECT_EQ(open()->verdict("bad", "a"), Verdict::kSuspect);
}

TEST_F(CrashRecordTest, WhatIsSettledOrNoLongerInTheJournalIsForgotten) {
  die([](CrashRecord& r) {
    const auto batch = hand_over(r, "bad", {"a", "gone"});
    crash();
  });
  {
    const auto record = open();
    EXPECT_EQ(record->verdict("bad", "gone"), Verdict::kInnocent);
    ASSERT_EQ(record->verdict("bad", "a"), Verdict::kSuspect);
    record->settled("bad", "a");
    EXPECT_EQ(record->verdict("bad", "a"), Verdict::kInnocent);
    clock_.advance(seconds(6));
    record->tick();
  }
  EXPECT_EQ(open()->verdict("bad", "a"), Verdict::kInnocent);
}

TEST_F(CrashRecordTest, AFileThatAPowerCutHasTornSaysNothing) {
  die([](CrashRecord& r) {
    const auto batch = hand_over(r, "bad", {"a", "b"});
    crash();
  });
  const std::string file = directory_.path_to("in-flight/0");
  std::string bytes = directory_.read("in-flight/0");
  bytes[130] = '\0';
  directory_.write("in-flight/0", bytes);
  EXPECT_EQ(open()->verdict("bad", "a"), Verdict::kInnocent);
}

TEST_F(CrashRecordTest, OneSuspectOfTheWholeProcessIsInHandAtATime) {
  const auto record = open();
  auto first = hand_over(*record, "bad", {"a"}, true);
  std::stop_source stop;
  bool second_has_it = false;
  std::jthread second([&] {
    const std::vector<std::string> ids{"b"};
    second_has_it = static_cast<bool>(record->hand_over("worse", ids, true, stop.get_token()));
  });
  EXPECT_TRUE(hand_over(*record, "good", {"c", "d"}));  // what is not suspect waits for nobody
  first.release();
  second.join();
  EXPECT_TRUE(second_has_it);
}

TEST_F(CrashRecordTest, ASuspectThatADestinationKeepsDoesNotHoldTheNextOneForever) {
  const auto record = open();
  const auto first = hand_over(*record, "slow", {"a"}, true);
  clock_.advance(seconds(31));
  record->tick();
  EXPECT_TRUE(hand_over(*record, "bad", {"b"}, true));
}

TEST_F(CrashRecordTest, AStopEndsTheWaitForOnesTurn) {
  const auto record = open();
  const auto first = hand_over(*record, "slow", {"a"}, true);
  std::stop_source stop;
  stop.request_stop();
  const std::vector<std::string> ids{"b"};
  EXPECT_FALSE(record->hand_over("bad", ids, true, stop.get_token()));
}

}  // namespace
}  // namespace scriptorium
