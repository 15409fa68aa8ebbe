#include "checkpoint/migrate/migration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace scriptorium::checkpoint {
namespace {

struct Killed {};

// A Slurm of two nodes, n1 and n2. A job that is signalled is saved, and starts on n2 once it is
// released, or on n1 if that is neither drained nor excluded.
class FakeSlurm : public Slurm {
 public:
  SlurmJob& add(const std::string& id, bool is_checkpointable) {
    SlurmJob job;
    job.id = id;
    job.display_id = id;
    job.uid = 5;
    job.state = "RUNNING";
    job.nodes = "n1";
    job.node_count = 1;
    job.is_batch = true;
    job.may_requeue = true;
    job.run_seconds = 100;
    job.partition = "p";
    checkpointable[id] = is_checkpointable;
    return jobs_[id] = job;
  }
  SlurmJob& job(const std::string& id) { return jobs_.at(id); }

  // The process is killed before or after that change (from 1 on).
  int killed_at = 0;
  bool is_killed_before = false;
  int changes = 0;
  std::vector<std::string> done;  // the changes
  std::map<std::string, bool> checkpointable;
  std::map<std::string, std::string> excluded;
  SlurmNode n1{"idle", ""};
  bool has_room = true;
  std::string unreadable;  // a job whose batch process cannot be inspected

  Result<std::string> requeue_exit() override { return std::string("99"); }
  Result<std::vector<SlurmJob>> jobs(const std::vector<std::string>& ids) override {
    std::vector<SlurmJob> found;
    for (const auto& [id, job] : jobs_) {
      if (std::ranges::find(ids, id) != ids.end()) found.push_back(job);
    }
    return found;
  }
  Result<std::vector<SlurmJob>> jobs_on(const std::string& node) override {
    std::vector<SlurmJob> found;
    for (const auto& [id, job] : jobs_) {
      if (job.nodes == node) found.push_back(job);
    }
    return found;
  }
  Result<SlurmNode> node(const std::string& name) override {
    return name == "n1" ? n1 : SlurmNode{"idle", ""};
  }
  Result<std::string> excluded_nodes(const std::string& job) override { return excluded[job]; }
  Result<std::optional<BatchProcess>> inspect(const SlurmJob& job) override {
    if (job.id == unreadable) return Error{ErrorKind::kTransient, "srun: no answer"};
    return std::optional(BatchProcess{.name = "bash",
                                      .tracer = checkpointable[job.id] ? "scriptorium-run" : "",
                                      .has_resumed_program = job.restarts > 0});
  }
  Result<Placement> place(const SlurmJob& /*job*/, const SlurmChanges& /*changes*/) override {
    if (has_room) return Placement{"n2", ""};
    return Error{ErrorKind::kPermanent, "no node"};
  }
  Result<void> signal(const std::string& id) override {
    return change_to("signal " + id, [&] { requeue_life(id); });
  }
  Result<void> requeue(const std::string& id) override {
    return change_to("requeue " + id, [&] { requeue_life(id); });
  }
  Result<void> hold(const std::string& id) override {
    return change_to("hold " + id, [] {});
  }
  Result<void> change(const std::string& id, const SlurmChanges& wanted) override {
    return change_to("change " + id, [&] {
      if (!wanted.excluded_nodes.empty())
        excluded[id] = wanted.excluded_nodes == "-" ? "" : wanted.excluded_nodes;
      if (wanted.start.empty()) return;
      job(id).state = "RUNNING";
      job(id).nodes = n1.is_drained() || excluded[id].find("n1") != std::string::npos ? "n2" : "n1";
    });
  }
  Result<void> drain(const std::string& node, const std::string& reason) override {
    return change_to("drain " + node, [&] { n1 = {"idle+drain", reason}; });
  }
  Result<void> resume(const std::string& node) override {
    return change_to("resume " + node, [&] { n1 = {"idle", ""}; });
  }

 private:
  template <typename Effect>
  Result<void> change_to(const std::string& what, Effect effect) {
    const bool is_last = ++changes == killed_at;
    if (is_last && is_killed_before) throw Killed{};
    done.push_back(what);
    effect();
    if (is_last) throw Killed{};
    return {};
  }
  void requeue_life(const std::string& id) {
    SlurmJob& life = job(id);
    if (life.state != "RUNNING") return;
    life.state = "PENDING";
    life.nodes = "";
    ++life.restarts;
  }
  std::map<std::string, SlurmJob> jobs_;
};

class MigrationTest : public testing::Test {
 protected:
  MigrationTest() { options_.drain_node = "n1"; }

  // A process: true if it came to its end.
  bool run() {
    reports_.clear();
    Migration migration(slurm_, *folder_, options_, [](const std::string&) {});
    try {
      const auto prepared = migration.prepare({now_ += kSecond});
      if (!prepared) ADD_FAILURE() << prepared.error().message();
      for (int steps = 0; steps < 1000; ++steps) {
        const auto continues = migration.step({now_ += kSecond});
        if (!continues) ADD_FAILURE() << continues.error().message();
        if (!continues || !*continues) break;
      }
    } catch (const Killed&) {
      return false;
    }
    for (const MoveReport& report : migration.reports()) reports_[report.job] = report;
    return true;
  }
  Result<void> undo() {
    reports_.clear();
    Migration migration(slurm_, *folder_, options_, [](const std::string&) {});
    auto undone = migration.undo();
    for (const MoveReport& report : migration.reports()) reports_[report.job] = report;
    return undone;
  }
  std::ptrdiff_t times(const std::string& what) const {
    return std::ranges::count(slurm_.done, what);
  }

  test::TempDir dir_;
  Result<StateFolder> folder_ = StateFolder::open(dir_.path());
  FakeSlurm slurm_;
  MigrateOptions options_;
  std::int64_t now_ = 0;
  std::map<std::string, MoveReport> reports_;
};

TEST_F(MigrationTest, ADrainMovesJobsThatCanBeSavedAndLeavesTheOthers) {
  for (const char* id : {"1", "2", "3", "4", "5", "6"}) slurm_.add(id, true);
  slurm_.add("7", false);
  ASSERT_TRUE(run());
  ASSERT_EQ(reports_.size(), 7U);
  for (const char* id : {"1", "2", "3", "4", "5", "6"}) {
    EXPECT_EQ(reports_[id].outcome, MoveOutcome::kMoved) << id << reports_[id].reason;
    EXPECT_EQ(slurm_.job(id).nodes, "n2");
    EXPECT_EQ(slurm_.excluded[id], "");
    EXPECT_EQ(times(std::string("signal ") + id), 1);
  }
  EXPECT_EQ(reports_["7"].outcome, MoveOutcome::kLeft);
  EXPECT_FALSE(reports_["7"].is_as_asked);
  EXPECT_EQ(slurm_.job("7").nodes, "n1");
  EXPECT_EQ(times("signal 7"), 0);
  EXPECT_TRUE(folder_->moves().empty());
}

TEST_F(MigrationTest, ContinuesFromEachStepAtWhichItWasKilled) {
  int killed = 0;
  for (const bool is_killed_before : {true, false}) {
    for (int at = 1;; ++at) {
      slurm_ = FakeSlurm{};
      slurm_.add("1", true);
      slurm_.add("2", false);
      slurm_.killed_at = at;
      slurm_.is_killed_before = is_killed_before;
      if (run()) break;
      ++killed;
      slurm_.killed_at = 0;
      ASSERT_TRUE(run());
      const std::string where = "killed at change " + std::to_string(at);
      EXPECT_EQ(slurm_.job("1").nodes, "n2") << where;
      EXPECT_EQ(slurm_.job("1").state, "RUNNING") << where;
      EXPECT_EQ(times("signal 1"), 1) << where;
      EXPECT_EQ(times("signal 2"), 0) << where;
      EXPECT_EQ(times("drain n1"), 1) << where;
      EXPECT_TRUE(folder_->moves().empty()) << where;
      ASSERT_TRUE(undo()) << where;
      EXPECT_FALSE(slurm_.n1.is_drained()) << where;
    }
  }
  EXPECT_EQ(killed, 6);  // drain, signal, change
}

TEST_F(MigrationTest, ATestChangesNothing) {
  slurm_.add("1", true);
  slurm_.add("2", false);
  options_.only_tests = true;
  options_.no_checkpoint = NoCheckpoint::kRequeue;
  ASSERT_TRUE(run());
  EXPECT_EQ(reports_["1"].outcome, MoveOutcome::kMovable);
  EXPECT_EQ(reports_["2"].method, "requeue");
  EXPECT_TRUE(slurm_.done.empty());
}

TEST_F(MigrationTest, AnInterruptBeforeTheFirstMoveChangesNothing) {
  slurm_.add("1", true);
  Migration migration(slurm_, *folder_, options_, [](const std::string&) {});
  migration.stop_when([] { return true; });
  ASSERT_TRUE(migration.prepare({kSecond}));
  migration.break_off();
  EXPECT_TRUE(slurm_.done.empty());
}

TEST_F(MigrationTest, AJobWithoutAPlaceIsNotSignalled) {
  slurm_.add("1", true);
  slurm_.add("2", true);
  slurm_.excluded["2"] = "n7";
  slurm_.has_room = false;
  ASSERT_TRUE(run());
  EXPECT_NE(reports_["1"].reason.find("no place for it: no node"), std::string::npos);
  EXPECT_NE(reports_["2"].reason.find("no place for it (it excludes the nodes n7): no node"),
            std::string::npos)
      << reports_["2"].reason;
  for (const char* const signal : {"signal 1", "signal 2"}) EXPECT_EQ(times(signal), 0);
}

TEST_F(MigrationTest, AJobThatCanNoLongerBeSavedIsNotSignalled) {
  slurm_.add("1", true);
  Migration migration(slurm_, *folder_, options_, [](const std::string&) {});
  ASSERT_TRUE(migration.prepare({kSecond}));
  slurm_.checkpointable["1"] = false;
  ASSERT_TRUE(migration.step({2 * kSecond}));
  ASSERT_EQ(migration.reports().size(), 1U);
  EXPECT_EQ(migration.reports()[0].outcome, MoveOutcome::kNotMoved);
  EXPECT_EQ(times("signal 1"), 0);
}

TEST_F(MigrationTest, WorkIsGivenUpOnlyWhenThatIsAskedFor) {
  slurm_.add("1", false);
  slurm_.add("2", true).node_count = 2;
  ASSERT_TRUE(run());
  EXPECT_EQ(times("requeue 1") + times("requeue 2"), 0);
  options_.no_checkpoint = NoCheckpoint::kRequeue;
  ASSERT_TRUE(run());
  EXPECT_EQ(times("requeue 2"), 0);
  EXPECT_EQ(reports_["1"].outcome, MoveOutcome::kRequeued);
  EXPECT_EQ(reports_["1"].lost_seconds, 100);
  options_.requeues_parallel_jobs = true;
  ASSERT_TRUE(run());
  slurm_.add("3", true).node_count = 2;
  ASSERT_TRUE(run());
  EXPECT_EQ(times("requeue 3"), 1);
  EXPECT_EQ(times("signal 3"), 0);
}

TEST_F(MigrationTest, AJobThatCanBeSavedOrIsUnknownIsNeverRequeued) {
  slurm_.add("1", true);
  slurm_.add("2", false);
  slurm_.unreadable = "2";
  options_.no_checkpoint = NoCheckpoint::kRequeue;
  ASSERT_TRUE(run());
  EXPECT_EQ(reports_["1"].outcome, MoveOutcome::kMoved);
  EXPECT_EQ(reports_["2"].outcome, MoveOutcome::kLeft);
  EXPECT_EQ(times("requeue 1") + times("requeue 2"), 0);
}

TEST_F(MigrationTest, WaitsForJobsThatCannotBeSaved) {
  slurm_.add("1", false);
  slurm_.add("2", false);
  options_.no_checkpoint = NoCheckpoint::kWait;
  options_.timeout = std::chrono::seconds(60);
  Migration migration(slurm_, *folder_, options_, [](const std::string&) {});
  ASSERT_TRUE(migration.prepare({kSecond}));
  EXPECT_TRUE(*migration.step({2 * kSecond}));
  slurm_.job("1").state = "COMPLETED";
  EXPECT_TRUE(*migration.step({3 * kSecond}));
  EXPECT_FALSE(*migration.step({61 * kSecond}));
  ASSERT_EQ(migration.reports().size(), 2U);
  EXPECT_TRUE(migration.reports()[0].is_as_asked);
  EXPECT_NE(migration.reports()[1].reason.find("has not ended within"), std::string::npos);
}

TEST_F(MigrationTest, ANamedJobExcludesItsNodeUntilThatCanBeTakenBack) {
  slurm_.add("1", true);
  slurm_.excluded["1"] = "n9";
  options_.drain_node.clear();
  options_.jobs = {"1", "8"};
  ASSERT_TRUE(run());
  EXPECT_EQ(reports_["1"].outcome, MoveOutcome::kMoved);
  EXPECT_EQ(slurm_.excluded["1"], "n9,n1");
  EXPECT_NE(reports_["8"].reason.find("does not know this job"), std::string::npos);
  ASSERT_TRUE(undo());
  EXPECT_FALSE(reports_["1"].is_as_asked);
  slurm_.job("1").state = "PENDING";
  ASSERT_TRUE(undo());
  EXPECT_EQ(slurm_.excluded["1"], "n9");
  EXPECT_TRUE(folder_->moves().empty());
  ASSERT_TRUE(undo());
  EXPECT_NE(reports_["8"].reason.find("nothing is left"), std::string::npos);
}

TEST_F(MigrationTest, OnlyANodeThatItHasDrainedIsGivenBack) {
  slurm_.n1 = {"idle+drain", "of another"};
  ASSERT_TRUE(run());
  EXPECT_EQ(slurm_.n1.reason, "of another");
  EXPECT_FALSE(undo());
  slurm_.n1 = {"idle", ""};
  ASSERT_TRUE(run());
  slurm_.n1.reason = "of another since";
  EXPECT_FALSE(undo());
  EXPECT_EQ(times("resume n1"), 0);
}

TEST_F(MigrationTest, AnInterruptStartsWhatIsSavedAndTheNextRunContinues) {
  slurm_.add("1", true);
  slurm_.add("2", true);
  options_.moves_at_a_time = 1;
  {
    Migration migration(slurm_, *folder_, options_, [](const std::string&) {});
    ASSERT_TRUE(migration.prepare({kSecond}));
    ASSERT_TRUE(migration.step({2 * kSecond}));
    ASSERT_TRUE(migration.step({3 * kSecond}));
    migration.break_off();
    EXPECT_EQ(migration.reports().size(), 2U);
  }
  EXPECT_EQ(slurm_.job("1").nodes, "n2");
  EXPECT_EQ(slurm_.job("2").nodes, "n1");
  ASSERT_TRUE(run());
  EXPECT_EQ(reports_["1"].outcome, MoveOutcome::kMoved);
  EXPECT_EQ(reports_["2"].outcome, MoveOutcome::kMoved);
  EXPECT_EQ(times("signal 1"), 1);
}

}  // namespace
}  // namespace scriptorium::checkpoint
