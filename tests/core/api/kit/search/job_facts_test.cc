#include "core/api/kit/search/job_facts.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace scriptorium {
namespace {

constexpr std::string_view kUsageJob = R"({"schema":"scriptorium.event/1","id":"u1",
"kind":"usage.job","time":"2026-11-14T08:00:00.000Z","captured_at":"2026-11-14T10:00:00.000000Z",
"capture":"cgroup2","complete":true,"cluster":"lab","scheduler":"slurm","host":{"name":"n1"},
"job":{"id":"4711","name":"md","account":"chem","partition":"gpu","state":"TIMEOUT",
"exit_code":"3:15","started_at":"2026-11-14T08:10:00Z","ended_at":"2026-11-14T09:10:00Z",
"restarts":1},"user":{"name":"alice","id":"1001","verified":true},
"usage":{"elapsed_seconds":3600.5,"started_at":"2026-11-14T08:10:00Z",
"ended_at":"2026-11-14T09:10:00Z",
"request":{"nodes":1,"cpus":16,"memory_bytes":4096,"gpus":2,"time_limit_seconds":7200},
"cpu":{"time_seconds":1234.5,"allocated":16,"efficiency_ratio":0.29},
"memory":{"peak_bytes":1024,"limit_bytes":2048},"gpu":{"count":2,"utilization_ratio":0.5},
"nodes":[{"host":{"name":"n1"}},{"host":{"name":"n2"}}],"quality":{"status":"ok","nodes_reporting":2},
"findings":[{"id":"cpu_low","severity":"warning","value":0.29,"unit":"ratio","scope":"job",
"text":"x"},{"id":"memory_low","severity":"notice","value":0.5,"unit":"ratio","scope":"job",
"text":"y"}]}})";

Event usage_event() { return std::move(*event_from_json(kUsageJob)); }

// `start` and `end` as times of one day.
Event life_event(const std::string& state, const std::string& start, const std::string& end) {
  Event event = usage_event();
  event.kind = "job.life";
  event.extra_json = R"({"job":{"state":")" + state +
                     R"(","exit_code":"0:0","started_at":"2026-11-14T)" + start +
                     R"(Z","ended_at":"2026-11-14T)" + end + R"(Z"}})";
  return event;
}

Event submission() {
  Event event;
  event.id = "s1";
  event.kind = "job.script";
  event.time = *parse_rfc3339("2026-11-14T08:00:00Z");
  event.cluster = "lab";
  event.scheduler = "slurm";
  event.job.id = "4711";
  event.job.name = "md";
  event.job.array = JobArray{.job_id = "4700", .task_id = std::nullopt, .task_spec = "0-9"};
  event.job.het = HetJob{.job_id = "4699", .component = 0, .synthetic = false};
  event.job.account = "chem";
  event.job.partition = "gpu";
  event.job.qos = "normal";
  event.job.work_dir = "/home/alice";
  event.user = {.name = "alice", .id = "1001", .group_name = "chem", .verified = true};
  event.script = ScriptInfo{.interpreter = "/bin/bash",
                            .directives = {"--time=1:00"},
                            .modules = {"GROMACS/2023", "CUDA", "CUDA"},
                            .software = {{"conda", "torch"}, {"spack", "hdf5 +mpi"}}};
  event.environment_format = EnvironmentFormat::kNulEnded;
  event.files.push_back({"script", 7, "beef", make_bytes("#!/x\nab")});
  const std::string environment("A=1\0LOADEDMODULES=GCC/12:CUDA::GROMACS/2023\0", 45);
  event.files.push_back({"environment", environment.size(), "cafe", make_bytes(environment)});
  event.redactions.push_back({.rule = "r", .where = "script", .count = 1});
  return event;
}

TEST(RowOfTest, WhatAPartOfAJobUsedIsNotTakenForTheJob) {
  Event event = usage_event();
  for (const auto& [from, to] : {std::pair{R"("status":"ok")", R"("status":"partial")"},
                                 std::pair{R"(,"efficiency_ratio":0.29)", ""}}) {
    event.extra_json.replace(event.extra_json.find(from), std::string_view(from).size(), to);
  }
  JobRow row;
  join(row, event);
  EXPECT_FALSE(row.cpu_seconds);
  EXPECT_FALSE(row.memory_peak_bytes);
  EXPECT_EQ(row.cpus, 16U) << "what it had is known";
}

TEST(RowOfTest, HoldsWhatTheSubmissionSays) {
  const JobRow row = row_of(submission());
  EXPECT_EQ(row.cluster, "lab");
  EXPECT_EQ(row.scheduler, "slurm");
  EXPECT_EQ(row.id, "4711");
  EXPECT_EQ(row.time, submission().time);
  EXPECT_EQ(row.event_id, "s1");
  EXPECT_EQ(row.name, "md");
  EXPECT_EQ(row.array_job_id, "4700");
  EXPECT_EQ(row.array_task_spec, "0-9");
  EXPECT_EQ(row.het_job_id, "4699");
  EXPECT_EQ(row.user, "alice");
  EXPECT_EQ(row.uid, "1001");
  EXPECT_EQ(row.group, "chem");
  EXPECT_TRUE(row.verified);
  EXPECT_EQ(row.account, "chem");
  EXPECT_EQ(row.partition, "gpu");
  EXPECT_EQ(row.qos, "normal");
  EXPECT_EQ(row.work_dir, "/home/alice");
  EXPECT_EQ(row.interpreter, "/bin/bash");
  EXPECT_EQ(row.directives, std::vector<std::string>{"--time=1:00"});
  EXPECT_EQ(row.modules, (std::vector<std::string>{"GROMACS/2023", "CUDA", "GCC/12"}));
  EXPECT_EQ(row.software, (std::vector<std::string>{"conda torch", "spack hdf5 +mpi"}));
  EXPECT_EQ(row.script_sha256, "beef");
  EXPECT_EQ(row.script_size, 7u);
  EXPECT_EQ(row.environment_size, 45u);
  EXPECT_TRUE(row.redacted);
  EXPECT_TRUE(row.complete);
  EXPECT_EQ(row.family, std::nullopt);
  EXPECT_EQ(row.lives, 0u);
}

TEST(RowOfTest, TakesNoModulesFromAnEnvironmentThatWasNotUnderstood) {
  Event event = submission();
  event.environment_format = EnvironmentFormat::kRaw;
  EXPECT_EQ(row_of(event).modules, (std::vector<std::string>{"GROMACS/2023", "CUDA"}));
  event.environment_format = EnvironmentFormat::kNulEnded;
  event.files[1].bytes = nullptr;
  EXPECT_EQ(row_of(event).modules, (std::vector<std::string>{"GROMACS/2023", "CUDA"}));
}

TEST(JoinTest, GivesTheRunOfAUsageJob) {
  Event event = usage_event();
  JobRow row;
  const auto run = join(row, event);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->user, event.user.name);
  EXPECT_EQ(run->verified, event.user.verified);
  EXPECT_EQ(run->account, event.job.account);
  EXPECT_EQ(run->partition, event.job.partition);
  EXPECT_EQ(run->ended_at, parse_rfc3339("2026-11-14T09:10:00Z"));
  EXPECT_EQ(run->core_seconds, 57'608U);         // 3600.5 s of 16
  EXPECT_EQ(run->unused_core_seconds, 40'902U);  // 71 % of that: 40,901.68
  EXPECT_EQ(run->gpu_seconds, 7'201U);
  EXPECT_EQ(run->unused_gpu_seconds, 3'601U);
  EXPECT_EQ(run->nodes, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(run->findings, (std::vector<std::string>{"cpu_low", "memory_low"}));
  EXPECT_TRUE(run->programs.empty());

  // What says nothing of the whole job is not what it wasted; what only informs is not counted.
  for (const auto& [from, to] :
       {std::pair{R"("status":"ok")", R"("status":"partial")"},
        std::pair{R"(,"efficiency_ratio":0.29)", R"(,"efficiency_ratio":1.5)"},
        std::pair{R"("severity":"notice")", R"("severity":"info")"},
        std::pair{R"("quality")",
                  R"("programs":[{"name":"python3","cpu_ratio":0.98765},{"name":7},{"name":"sh"}],)"
                  R"("programs_other":{"cpu_ratio":0.01},"programs_unseen":{},"quality")"}})
    event.extra_json.replace(event.extra_json.find(from), std::string_view(from).size(), to);
  event.user = {.id = "1007"};
  const auto part = join(row, event);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->user, "1007");
  EXPECT_FALSE(part->verified);
  EXPECT_EQ(part->unused_core_seconds, 0U);
  EXPECT_EQ(part->unused_gpu_seconds, std::nullopt);
  EXPECT_EQ(part->findings, std::vector<std::string>{"cpu_low"});
  EXPECT_EQ(part->programs,
            (std::vector<JobRun::Program>{
                {"python3", 9'877}, {"sh", 0}, {kOtherPrograms, 100}, {kUnseenPrograms, 0}}));
}

TEST(JoinTest, GivesNoRunOfWhatHasNoEndOrIsNoUsage) {
  JobRow row;
  EXPECT_FALSE(join(row, life_event("COMPLETED", "10:00:00", "10:30:00")));
  Event event = usage_event();
  for (std::size_t at; (at = event.extra_json.find("ended_at")) != std::string::npos;)
    event.extra_json[at] = 'x';
  EXPECT_FALSE(join(row, event));
  event.kind = "usage.node";
  EXPECT_FALSE(join(row, event));
}

TEST(JoinTest, AddsOutcomeAndUse) {
  JobRow row = row_of(submission());
  join(row, usage_event());
  EXPECT_EQ(row.state, "TIMEOUT");
  EXPECT_EQ(row.exit_code, 3);
  EXPECT_EQ(row.exit_signal, 15);
  EXPECT_EQ(row.started_at, parse_rfc3339("2026-11-14T08:10:00Z"));
  EXPECT_EQ(row.ended_at, parse_rfc3339("2026-11-14T09:10:00Z"));
  EXPECT_EQ(row.elapsed_seconds, 3600.5);
  EXPECT_EQ(row.cpu_seconds, 1234.5);
  EXPECT_EQ(row.cpus, 16u);
  EXPECT_EQ(row.cpu_ratio, 0.29);
  EXPECT_EQ(row.memory_peak_bytes, 1024u);
  EXPECT_EQ(row.memory_limit_bytes, 2048u);
  EXPECT_EQ(row.gpus, 2u);
  EXPECT_EQ(row.gpu_ratio, 0.5);
  EXPECT_EQ(row.time_limit_seconds, 7200u);
  EXPECT_EQ(row.nodes, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(row.findings, (std::vector<std::string>{"cpu_low", "memory_low"}));
  EXPECT_EQ(row.lives, 1u);
  EXPECT_EQ(row.event_id, "s1");
}

TEST(JoinTest, LetsTheNewestLifeCountInAnyOrder) {
  const Event first = life_event("REQUEUED", "08:00:00", "08:30:00");
  const Event second = life_event("COMPLETED", "09:00:00", "09:30:00");
  for (const bool reversed : {false, true}) {
    JobRow row = row_of(submission());
    join(row, reversed ? second : first);
    join(row, reversed ? first : second);
    EXPECT_EQ(row.state, "COMPLETED");
    EXPECT_EQ(row.ended_at, parse_rfc3339("2026-11-14T09:30:00Z"));
    EXPECT_EQ(row.elapsed_seconds, 1800.0);
    EXPECT_EQ(row.lives, 2u);
  }
}

TEST(JoinTest, ForgetsTheUseOfAnEarlierLife) {
  JobRow row = row_of(submission());
  join(row, usage_event());
  join(row, life_event("FAILED", "10:00:00", "10:30:00"));
  EXPECT_EQ(row.memory_peak_bytes, std::nullopt);
  EXPECT_TRUE(row.findings.empty());
}

TEST(JoinTest, TakesTheEndAndTheUseOfOneLifeForOne) {
  JobRow row = row_of(submission());
  join(row, life_event("TIMEOUT", "08:10:00", "09:10:00"));
  join(row, usage_event());
  join(row, usage_event());
  EXPECT_EQ(row.lives, 1u);
  EXPECT_EQ(row.memory_peak_bytes, 1024u);
  EXPECT_EQ(row.state, "TIMEOUT");
}

TEST(JoinTest, TakesTheStartAndTheEndOfOneLifeForOneInAnyOrder) {
  Event start = life_event("RUNNING", "08:09:59", "08:09:59");
  start.extra_json = R"({"job":{"state":"RUNNING","started_at":"2026-11-14T08:09:59Z"}})";
  for (const bool reversed : {false, true}) {
    JobRow row = row_of(submission());
    join(row, reversed ? usage_event() : start);
    EXPECT_EQ(row.state, reversed ? "TIMEOUT" : "RUNNING");
    join(row, reversed ? start : usage_event());
    EXPECT_EQ(row.lives, 1u);
    EXPECT_EQ(row.state, "TIMEOUT");
    EXPECT_EQ(row.started_at, parse_rfc3339("2026-11-14T08:10:00Z"));
    EXPECT_EQ(row.memory_peak_bytes, 1024u);
  }
  JobRow again = row_of(submission());
  join(again, life_event("REQUEUED", "08:00:00", "08:05:00"));
  join(again, start);
  EXPECT_EQ(again.lives, 2u);
  EXPECT_EQ(again.state, "RUNNING");
  EXPECT_EQ(again.ended_at, std::nullopt);
}

TEST(JoinTest, TakesNameAndOwnerWhereTheSubmissionIsNotKnown) {
  JobRow row;
  join(row, usage_event());
  EXPECT_EQ(row.id, "4711");
  EXPECT_EQ(row.cluster, "lab");
  EXPECT_EQ(row.time, usage_event().time);
  EXPECT_EQ(row.user, "alice");
  EXPECT_TRUE(row.verified);
  EXPECT_EQ(row.account, "chem");
  EXPECT_EQ(row.event_id, "");
  JobRow known = row_of(submission());
  Event other = usage_event();
  other.user.name = "mallory";
  join(known, other);
  EXPECT_EQ(known.user, "alice");
}

TEST(JoinTest, LeavesTheRowWhereAnEventSaysNothing) {
  const JobRow before = row_of(submission());
  for (const char* kind : {"usage.sample", "usage.node", "job.checkpoint", "job.script"}) {
    JobRow row = before;
    Event event = usage_event();
    event.kind = kind;
    join(row, event);
    EXPECT_EQ(row.lives, 0u) << kind;
    EXPECT_EQ(row.state, std::nullopt) << kind;
  }
}

TEST(JoinTest, SkipsMembersOfAnotherType) {
  for (const char* extra :
       {"", "[]", "{", "7", R"({"job":[],"usage":"x"})",
        R"({"job":{"state":7,"exit_code":0,"started_at":"x","ended_at":null},"usage":
{"elapsed_seconds":"1","request":{"cpus":-1},"cpu":{"time_seconds":-5,"allocated":1e300},
"memory":{"peak_bytes":"x"},"nodes":{"host":"n"},"findings":[1,{"id":2},{}]}})",
        R"({"job":{"exit_code":"x:y"}})"}) {
    JobRow row = row_of(submission());
    Event event = usage_event();
    event.extra_json = extra;
    join(row, event);
    EXPECT_EQ(row.lives, 1u) << extra;
    EXPECT_EQ(row.state, std::nullopt) << extra;
    EXPECT_EQ(row.exit_code, std::nullopt) << extra;
    EXPECT_EQ(row.cpus, std::nullopt) << extra;
    EXPECT_EQ(row.cpu_seconds, std::nullopt) << extra;
    EXPECT_TRUE(row.nodes.empty()) << extra;
    EXPECT_TRUE(row.findings.empty()) << extra;
  }
}

TEST(EnvironmentValueTest, GivesTheLastOfAName) {
  const std::string environment("A=1\0B=x=y\0A=2\0C\0", 17);
  EXPECT_EQ(environment_value(environment, "A"), "2");
  EXPECT_EQ(environment_value(environment, "B"), "x=y");
  EXPECT_EQ(environment_value(environment, "C"), "");
  EXPECT_EQ(environment_value(environment, "D"), "");
  EXPECT_EQ(environment_value("A=1", "A"), "");
}

}  // namespace
}  // namespace scriptorium
