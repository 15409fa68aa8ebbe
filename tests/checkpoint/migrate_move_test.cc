#include "checkpoint/migrate/move.h"

#include <gtest/gtest.h>

#include <string>

namespace scriptorium::checkpoint {
namespace {

using Order = Move::Order;
using std::chrono::seconds;

Timestamp at(std::int64_t second) { return {second * kSecond}; }

class MoveTest : public testing::Test {
 protected:
  MoveTest() {
    job_.id = "7";
    show("RUNNING", 0, "n1");
  }

  static MoveState planned() {
    MoveState state;
    state.job = "7";
    state.from = "n1";
    state.method = MoveMethod::kRun;
    return state;
  }
  void show(const std::string& state, int restarts, const std::string& nodes) {
    job_.state = state;
    job_.restarts = restarts;
    job_.nodes = nodes;
  }
  Order next(std::int64_t second) { return move_.next(job_, at(second)); }
  static std::optional<BatchProcess> resumed() {
    return BatchProcess{.name = "bash", .tracer = "scriptorium-run", .has_resumed_program = true};
  }

  SlurmJob job_;
  Move move_{planned(), seconds(60), false};
};

TEST_F(MoveTest, SignalsReleasesAndWaitsForTheResume) {
  EXPECT_EQ(next(0), Order::kSignal);
  EXPECT_EQ(next(1), Order::kWait);
  show("COMPLETING", 1, "n1");
  EXPECT_EQ(next(2), Order::kWait);
  show("PENDING", 1, "");
  EXPECT_EQ(next(3), Order::kWait);
  EXPECT_EQ(next(4), Order::kWait);  // slurmd would refuse it in the second of its end
  EXPECT_EQ(next(5), Order::kRelease);
  EXPECT_EQ(next(6), Order::kWait);
  show("RUNNING", 1, "n2");
  EXPECT_EQ(next(7), Order::kInspect);
  BatchProcess begun = *resumed();
  begun.has_resumed_program = false;
  move_.inspected(std::optional(begun), at(7));
  EXPECT_EQ(next(8), Order::kInspect);
  move_.inspected(resumed(), at(8));
  EXPECT_EQ(next(9), Order::kEnd);
  EXPECT_EQ(move_.outcome(), MoveOutcome::kMoved);
  EXPECT_EQ(move_.state().to, "n2");
  EXPECT_EQ(move_.downtime_seconds(), 8);
}

TEST_F(MoveTest, LeavesAJobThatIsNotSavedInTime) {
  next(0);
  EXPECT_EQ(next(59), Order::kWait);
  EXPECT_EQ(next(60), Order::kEnd);
  EXPECT_EQ(move_.outcome(), MoveOutcome::kNotMoved);
  EXPECT_NE(move_.reason().find("was not saved within"), std::string::npos);
}

TEST_F(MoveTest, SaysHowAJobEndedInstead) {
  next(0);
  show("FAILED", 0, "n1");
  EXPECT_EQ(next(1), Order::kEnd);
  EXPECT_EQ(move_.outcome(), MoveOutcome::kEnded);
  EXPECT_NE(move_.reason().find("was not run again (FAILED)"), std::string::npos);
  Move unknown(planned(), seconds(60), false);
  EXPECT_EQ(unknown.next(std::nullopt, at(0)), Order::kEnd);
  EXPECT_EQ(unknown.outcome(), MoveOutcome::kEnded);
}

TEST_F(MoveTest, DoesNotSignalAnotherLife) {
  show("RUNNING", 1, "n1");
  EXPECT_EQ(next(0), Order::kEnd);
  EXPECT_EQ(move_.outcome(), MoveOutcome::kNotMoved);
}

TEST_F(MoveTest, AJobThatCameBackOnItsOldNodeIsNotMoved) {
  next(0);
  show("PENDING", 1, "");
  next(1);
  next(3);
  show("RUNNING", 1, "n1");
  EXPECT_EQ(next(4), Order::kEnd);
  EXPECT_EQ(move_.outcome(), MoveOutcome::kNotMoved);
  EXPECT_NE(move_.reason().find("came back on its old node"), std::string::npos);
}

TEST_F(MoveTest, ReleasesAJobAgainThatCouldNotBeResumedOnANode) {
  next(0);
  show("PENDING", 1, "");
  next(1);
  EXPECT_EQ(next(3), Order::kRelease);
  show("RUNNING", 1, "n2");
  EXPECT_EQ(next(4), Order::kInspect);
  show("PENDING", 2, "");
  EXPECT_EQ(next(5), Order::kWait);
  EXPECT_EQ(next(7), Order::kRelease);
  show("RUNNING", 2, "n3");
  EXPECT_EQ(next(8), Order::kInspect);
  move_.inspected(resumed(), at(8));
  EXPECT_EQ(move_.outcome(), MoveOutcome::kMoved);
  EXPECT_EQ(move_.state().to, "n3");
}

TEST_F(MoveTest, AJobThatFindsNoRoomWaitsInTheQueue) {
  next(0);
  show("PENDING", 1, "");
  next(1);
  next(3);
  EXPECT_EQ(next(63), Order::kEnd);
  EXPECT_EQ(move_.outcome(), MoveOutcome::kWaiting);
}

TEST_F(MoveTest, AJobThatWasNotSeenToBeResumedIsNotMoved) {
  next(0);
  show("PENDING", 1, "");
  next(1);
  next(3);
  show("RUNNING", 1, "n2");
  EXPECT_EQ(next(4), Order::kInspect);
  move_.inspected(Error{ErrorKind::kTransient, "srun: timed out"}, at(4));
  EXPECT_EQ(next(64), Order::kEnd);
  EXPECT_EQ(move_.outcome(), MoveOutcome::kNotMoved);
  EXPECT_NE(move_.reason().find("not seen to be resumed"), std::string::npos);
}

TEST_F(MoveTest, AHeldJobIsLeftInTheQueue) {
  Move held(planned(), seconds(60), true);
  held.next(job_, at(0));
  show("PENDING", 1, "");
  held.next(job_, at(1));
  EXPECT_EQ(held.next(job_, at(3)), Order::kRelease);
  EXPECT_EQ(held.next(job_, at(4)), Order::kEnd);
  EXPECT_EQ(held.outcome(), MoveOutcome::kHeld);
}

TEST_F(MoveTest, AScriptWithATrapCountsAsStartedAfterAWhile) {
  next(0);
  show("PENDING", 1, "");
  next(1);
  next(3);
  show("RUNNING", 1, "n2");
  next(5);
  const std::optional<BatchProcess> script = BatchProcess{.catches_signal = true, .name = "bash"};
  move_.inspected(script, at(24));
  EXPECT_EQ(next(24), Order::kInspect);
  move_.inspected(script, at(25));
  EXPECT_EQ(move_.outcome(), MoveOutcome::kMoved);
  EXPECT_EQ(move_.downtime_seconds(), 5);
  EXPECT_NE(move_.reason().find("cannot be seen from outside"), std::string::npos);
}

TEST_F(MoveTest, AnInterruptStartsAJobThatIsSaved) {
  EXPECT_EQ(move_.broken_off(), Order::kWait);
  next(0);
  EXPECT_EQ(move_.broken_off(), Order::kWait);
  show("PENDING", 1, "");
  next(1);
  EXPECT_EQ(move_.broken_off(), Order::kRelease);
}

}  // namespace
}  // namespace scriptorium::checkpoint
