#include "checkpoint/migrate/slurm.h"

#include <gtest/gtest.h>

#include <string>

namespace scriptorium::checkpoint {
namespace {

// As Slurm 22.05 writes them.
constexpr const char* kJobs =
    "1|1|5|RUNNING|n1|1|N/A|1|0|1||p|4294901759|0:27|(null)|(null)|10:00|1|1|"
    "cpu=1,mem=200M,node=1,billing=1|N/A|N/A|N/A|(null)|OK|(null)|\n"
    "3|3_[2-3%1]|5|PENDING||1|N/A|1|0|1||p|4294901757|0:00|(null)|(null)|UNLIMITED|1|1|"
    "cpu=1,mem=200M,node=1,billing=1|N/A|N/A|N/A|(null)|OK|(null)|\n"
    "4|3_1|1001|RUNNING|n[1-2]|1|7|0|12|2|n[1-2]|long|5|1-02:03:04|lab|high|2-00:00:00|2|4|"
    "cpu=8,mem=4G,node=2|gres:gpu:a100:1|gres/gpu:2|N/A|avx|NO|res|\n";

TEST(SlurmParseTest, ReadsWhatSqueueShowsOfJobs) {
  const auto jobs = parse_jobs(kJobs);
  ASSERT_EQ(jobs.size(), 3U);
  EXPECT_EQ(jobs[0].id, "1");
  EXPECT_EQ(jobs[0].uid, 5U);
  EXPECT_TRUE(jobs[0].is_running() && jobs[0].is_batch && jobs[0].may_requeue && !jobs[0].is_het);
  EXPECT_EQ(jobs[0].nodes, "n1");
  EXPECT_EQ(jobs[0].node_count, 1);
  EXPECT_EQ(jobs[0].run_seconds, 27);
  EXPECT_EQ(jobs[0].required_nodes, "");
  EXPECT_EQ(jobs[0].request, (std::vector<std::string>{"--time=10:00", "--ntasks=1",
                                                       "--cpus-per-task=1", "--mem=200M"}));
  EXPECT_TRUE(jobs[1].is_pending());
  EXPECT_EQ(jobs[1].display_id, "3_[2-3%1]");
  EXPECT_EQ(jobs[1].nodes, "");
  EXPECT_EQ(jobs[2].display_id, "3_1");
  EXPECT_TRUE(jobs[2].is_het && !jobs[2].may_requeue);
  EXPECT_EQ(jobs[2].restarts, 12);
  EXPECT_EQ(jobs[2].node_count, 2);
  EXPECT_EQ(jobs[2].run_seconds, 93784);
  EXPECT_EQ(jobs[2].request,
            (std::vector<std::string>{"--account=lab", "--qos=high", "--time=2-00:00:00",
                                      "--ntasks=2", "--cpus-per-task=4", "--mem=4G",
                                      "--gres=gpu:a100:1", "--gpus=gpu:2", "--constraint=avx",
                                      "--exclusive", "--reservation=res"}));
}

TEST(SlurmParseTest, SkipsLinesThatAreNotAJob) {
  EXPECT_TRUE(parse_jobs("").empty());
  EXPECT_TRUE(parse_jobs("1|1|5|RUNNING|n1|\nsqueue: error\n").empty());
}

TEST(SlurmParseTest, AJobHasEndedWhenItWillNotRunAgain) {
  SlurmJob job;
  for (const char* state : {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}) {
    job.state = state;
    EXPECT_TRUE(job.has_ended()) << state;
  }
  for (const char* state : {"RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "SUSPENDED"}) {
    job.state = state;
    EXPECT_FALSE(job.has_ended()) << state;
  }
}

TEST(SlurmParseTest, ReadsTheStateAndReasonOfANode) {
  const auto node = parse_node("allocated+drain|own reason|\nallocated+drain|own reason|\n");
  ASSERT_TRUE(node);
  EXPECT_TRUE(node->is_drained());
  EXPECT_EQ(node->reason, "own reason");
  EXPECT_FALSE(parse_node("idle|none|\n")->is_drained());
  EXPECT_EQ(parse_node("idle|none|\n")->reason, "");
  EXPECT_FALSE(parse_node(""));
}

TEST(SlurmParseTest, ReadsTheExcludedNodes) {
  EXPECT_EQ(parse_excluded_nodes("JobId=1 ReqNodeList=(null) ExcNodeList=n[1-2] NodeList=n3"),
            "n[1-2]");
  EXPECT_EQ(parse_excluded_nodes("JobId=1 ReqNodeList=(null) ExcNodeList=(null) NodeList=n3"), "");
  EXPECT_EQ(parse_excluded_nodes("JobId=1"), "");
}

TEST(SlurmParseTest, APlaceIsFreeAtOnceOrLater) {
  constexpr const char* kAnswer =
      "sbatch: Job 5 to start at 2026-11-28T23:36:07 using 1 processors on nodes n2 in partition "
      "p\n";
  const auto at_once = parse_placement(kAnswer, "2026-11-28T23:36:30");
  ASSERT_TRUE(at_once);
  EXPECT_EQ(at_once->nodes, "n2");
  EXPECT_EQ(at_once->start, "");
  EXPECT_EQ(parse_placement(kAnswer, "2026-11-28T22:00:00")->start, "2026-11-28T23:36:07");
}

TEST(SlurmParseTest, SaysInSlurmsWordsWhyThereIsNoPlace) {
  const auto place =
      parse_placement("allocation failure: Requested node configuration is not available\n", "");
  ASSERT_FALSE(place);
  EXPECT_EQ(place.error().message(), "Requested node configuration is not available");
}

// What the kernel and kInspectScript show of one process.
std::string process(int pid, int parent, int start, const std::string& name,
                    const std::string& caught = "0000000000000000", int tracer = 0,
                    const std::string& blocked = "0000000000000000", int uid = 5,
                    const std::string& arguments = "x") {
  const std::string number = std::to_string(pid);
  std::string text = "process\nName:\t" + name + "\nPid:\t" + number + "\nTracerPid:\t" +
                     std::to_string(tracer) + "\nUid:\t";
  for (int i = 0; i < 4; ++i) text += std::to_string(uid) + (i < 3 ? "\t" : "\n");
  text += "SigBlk:\t" + blocked + "\nSigCgt:\t" + caught + "\nCapPrm:\t0000000000000000\n";
  text += "stat " + number + " (" + name + ") S " + std::to_string(parent);
  for (int i = 5; i <= 21; ++i) text += " 0";
  return text + " " + std::to_string(start) + " 0 0 \narguments " + arguments + " \n";
}
constexpr const char* kUsr2 = "0000000000010a02";  // with others
constexpr const char* kOthers = "0000000000010202";

TEST(SlurmParseTest, TheBatchProcessIsTheFirstOfItsOwner) {
  const auto batch = parse_batch_process(process(99, 1, 10, "slurmstepd", kOthers, 0, kOthers, 0) +
                                             process(120, 100, 30, "python3", kUsr2) +
                                             process(100, 99, 20, "bash", kOthers),
                                         5);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->name, "bash");
  EXPECT_FALSE(batch->catches_signal);  // although its child does
  EXPECT_FALSE(batch->has_resumed_program);
  EXPECT_FALSE(parse_batch_process(process(100, 99, 20, "bash", kUsr2), 6));
  EXPECT_FALSE(parse_batch_process("", 5));
}

TEST(SlurmParseTest, ATracerOfTheJobIsNamed) {
  const std::string runner =
      process(110, 100, 30, "scriptorium-run", kOthers, 0, kUsr2, 5, "scriptorium-run ./program");
  const auto batch = parse_batch_process(process(100, 99, 20, "bash", kOthers, 110) + runner, 5);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->tracer, "scriptorium-run");
  EXPECT_FALSE(batch->saves_itself);
  // A debugger from outside of the job.
  EXPECT_EQ(parse_batch_process(process(100, 99, 20, "bash", kOthers, 77) + runner, 5)->tracer, "");
  const auto app = parse_batch_process(process(100, 99, 20, "scriptorium-run", kOthers, 0, kUsr2, 5,
                                               "scriptorium-run --engine=app ./program"),
                                       5);
  ASSERT_TRUE(app);
  EXPECT_TRUE(app->saves_itself && app->blocks_signal);
}

TEST(SlurmParseTest, AProgramOfTheServiceIsResumedOnceCriuIsDone) {
  const std::string script = process(100, 99, 20, "bash", kUsr2);
  const std::string service = process(200, 50, 40, "scriptorium-che");
  const std::string program = process(77, 200, 41, "program");
  EXPECT_TRUE(parse_batch_process(script + service + program, 5)->has_resumed_program);
  EXPECT_FALSE(parse_batch_process(script + service, 5)->has_resumed_program);
  EXPECT_FALSE(parse_batch_process(script + service + process(201, 200, 40, "criu") + program, 5)
                   ->has_resumed_program);
  // A script of the job left it behind.
  EXPECT_FALSE(parse_batch_process(script + process(77, 1, 41, "daemon"), 5)->has_resumed_program);
}

}  // namespace
}  // namespace scriptorium::checkpoint
