#include "core/cli/user_summaries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace scriptorium::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

const mail::CalendarPeriod kW46 =
    *mail::read_period("2026-W46", *parse_rfc3339("2026-11-27T00:00:00Z"), kUtc);
const Person kAlice{"lab", "alice"};

// A run in the middle of the week, of a core for so many hours.
JobRun a_run(std::uint64_t hours, std::uint64_t unused, std::vector<std::string> findings = {}) {
  static int number = 0;
  return {.user = "alice",
          .verified = true,
          .ended_at = Timestamp{kW46.from.nanoseconds + 3 * 86'400 * kSecond},
          .core_seconds = hours * 3600,
          .unused_core_seconds = unused * 3600,
          .findings = std::move(findings),
          .cluster = "lab",
          .key = std::to_string(++number)};
}

class UserSummariesTest : public ::testing::Test {
 protected:
  mail::Summary alice() const { return summaries_.summary(kAlice); }

  UserSummaries summaries_{kW46};
};

TEST_F(UserSummariesTest, TheFirstInstantBelongsToThePeriodAndTheLastDoesNot) {
  const auto add = [&](Timestamp ended, std::uint64_t hours) {
    JobRun run = a_run(hours, 0);
    run.ended_at = ended;
    summaries_.add(run);
  };
  add({kW46.before.nanoseconds - kSecond}, 1);
  add(kW46.before, 2);
  add({kW46.from.nanoseconds - kSecond}, 4);
  add(kW46.from, 8);
  add({kW46.until.nanoseconds - kSecond}, 16);
  add(kW46.until, 32);
  EXPECT_EQ(alice().before.core_seconds / 3600, 2U + 4U);
  EXPECT_EQ(alice().now.core_seconds / 3600, 8U + 16U);
  EXPECT_EQ(alice().before.jobs, 2U);
  EXPECT_EQ(alice().now.jobs, 2U);
}

TEST_F(UserSummariesTest, OnlyJobsWhoseOwnerIsConfirmed) {
  JobRun run = a_run(10, 5);
  run.verified = false;
  summaries_.add(run);
  run = a_run(10, 5);
  run.user.reset();
  summaries_.add(run);
  EXPECT_THAT(summaries_.people(), IsEmpty());
}

TEST_F(UserSummariesTest, WhoRanOnlyBeforeHasNoMail) {
  JobRun run = a_run(10, 5);
  run.ended_at = kW46.before;
  summaries_.add(run);
  EXPECT_TRUE(summaries_.empty());
}

TEST_F(UserSummariesTest, AUserHasASummaryOfEachCluster) {
  for (const char* cluster : {"lab", "old", "lab"}) {
    JobRun run = a_run(10, 5);
    run.cluster = cluster;
    summaries_.add(run);
  }
  JobRun of_bob = a_run(10, 5);
  of_bob.user = "bob";
  summaries_.add(of_bob);
  EXPECT_THAT(summaries_.people(),
              ElementsAre(Pair("lab", "alice"), Pair("lab", "bob"), Pair("old", "alice")));
  EXPECT_EQ(alice().now.jobs, 2U);
  EXPECT_EQ(alice().cluster, "lab");
  EXPECT_EQ(alice().user, "alice");
}

TEST_F(UserSummariesTest, WhatWasNotMeasuredIsNotWasted) {
  JobRun run = a_run(10, 0);
  run.unused_core_seconds.reset();
  summaries_.add(run);
  summaries_.add(a_run(4, 1));
  JobRun gpu = a_run(4, 0);
  gpu.unused_core_seconds.reset();
  gpu.gpu_seconds = 7200;
  gpu.unused_gpu_seconds = 3600;
  summaries_.add(gpu);
  EXPECT_EQ(alice().unmeasured_jobs, 1U);
  EXPECT_EQ(alice().now.jobs, 3U);
  EXPECT_EQ(alice().now.core_seconds, 18U * 3600);
  EXPECT_EQ(alice().now.unused_core_seconds, 3600U);
  EXPECT_EQ(alice().now.unused_gpu_seconds, 3600U);
  EXPECT_DOUBLE_EQ(alice().now.wasted_core_hours(), 1 + 10);
}

TEST_F(UserSummariesTest, TheThreeFindingsThatCostMost) {
  summaries_.add(a_run(10, 9, {"cpu_low"}));
  summaries_.add(a_run(10, 6, {"idle_tail", "mem_over"}));
  summaries_.add(a_run(10, 6, {"idle_tail"}));
  summaries_.add(a_run(10, 7, {"system_time"}));
  std::vector<std::string> ids;
  for (const auto& finding : alice().findings)
    ids.push_back(finding.id + " " + std::to_string(finding.sum.unused_core_seconds / 3600) + " " +
                  std::to_string(finding.sum.jobs));
  EXPECT_THAT(ids, ElementsAre("idle_tail 12 2", "cpu_low 9 1", "system_time 7 1"));
}

TEST_F(UserSummariesTest, OfEqualCostTheMoreFrequentOneComesFirst) {
  summaries_.add(a_run(10, 0, {"time_over", "short_job"}));
  summaries_.add(a_run(10, 0, {"short_job"}));
  ASSERT_EQ(alice().findings.size(), 2U);
  EXPECT_EQ(alice().findings[0].id, "short_job");
}

TEST_F(UserSummariesTest, TheExampleIsTheMostWastefulRun) {
  JobRun least = a_run(10, 1, {"cpu_low"});
  JobRun most = a_run(10, 8, {"cpu_low", "time_over"});
  JobRun gpu = a_run(10, 0, {"time_over"});
  gpu.gpu_seconds = 7200;
  gpu.unused_gpu_seconds = 3600;
  for (const JobRun& run : {least, most, gpu}) summaries_.add(run);
  // time_over: 8 and 10 core hours; cpu_low: 9.
  EXPECT_THAT(summaries_.examples(kAlice), ElementsAre(gpu.key, most.key));
}

TEST_F(UserSummariesTest, WithoutFindingsThereIsNoExample) {
  summaries_.add(a_run(10, 8));
  EXPECT_THAT(alice().findings, IsEmpty());
  EXPECT_THAT(summaries_.examples(kAlice), IsEmpty());
}

TEST_F(UserSummariesTest, OfAClusterEachJobCountsWhoeverOwnsIt) {
  JobRun run = a_run(10, 4, {"cpu_low"});
  run.account = "chem";
  summaries_.add(run);
  run.verified = false;
  run.account = "bio";
  summaries_.add(run);
  run.user.reset();
  run.account.reset();
  summaries_.add(run);
  run.ended_at = kW46.before;
  summaries_.add(run);
  run.cluster = "old";
  summaries_.add(run);
  EXPECT_THAT(summaries_.clusters(), ElementsAre("lab"));
  const mail::Summary lab = summaries_.of_cluster("lab");
  EXPECT_EQ(lab.user, "");
  EXPECT_EQ(lab.now.jobs, 3U);
  EXPECT_EQ(lab.before.jobs, 1U);
  ASSERT_EQ(lab.findings.size(), 1U);
  EXPECT_EQ(lab.findings[0].sum.jobs, 3U);
  std::vector<std::string> names;
  for (const mail::Part& account : lab.accounts) {
    names.push_back(account.name);
    EXPECT_EQ(account.sum.jobs, 1U);
  }
  EXPECT_THAT(names, ElementsAre("", "bio", "chem"));
}

TEST_F(UserSummariesTest, TheTenMostWastefulAccounts) {
  for (std::uint64_t i = 0; i < 12; ++i) {
    JobRun run = a_run(20, i);
    run.account = "a" + std::to_string(i);
    summaries_.add(run);
  }
  const auto accounts = summaries_.of_cluster("lab").accounts;
  ASSERT_EQ(accounts.size(), 10U);
  EXPECT_EQ(accounts.front().name, "a11");
  EXPECT_EQ(accounts.back().name, "a2");
}

// "chem 2 jobs 8 hours"
std::vector<std::string> parts_of(const std::vector<mail::Part>& parts) {
  std::vector<std::string> texts;
  for (const mail::Part& part : parts) {
    texts.push_back(part.name + " " + std::to_string(part.sum.jobs) + " jobs " +
                    std::to_string(part.sum.unused_core_seconds / 3600) + " hours");
  }
  return texts;
}

TEST_F(UserSummariesTest, OfAccountsTheirConfirmedJobs) {
  const auto add = [&](const std::string& account, const std::string& user, std::uint64_t unused) {
    JobRun run = a_run(10, unused, {"cpu_low"});
    run.account = account;
    run.user = user;
    summaries_.add(run);
    return run;
  };
  add("chem", "alice", 1);
  add("chem", "bob", 2);
  add("org", "bob", 4);
  JobRun run = add("bio", "bob", 8);
  run.account = "chem";
  run.verified = false;  // may be of anybody
  summaries_.add(run);
  run.verified = true;
  run.cluster = "old";
  summaries_.add(run);
  run.cluster = "lab";
  run.ended_at = kW46.before;
  summaries_.add(run);
  run.account.reset();
  summaries_.add(run);

  const Person prof{"lab", "prof"};
  const mail::Summary both = summaries_.of_accounts(prof, {"chem", "org", "empty"}, true);
  EXPECT_EQ(both.audience, mail::Audience::kCoordinator);
  EXPECT_EQ(both.user, "prof");
  EXPECT_EQ(both.now.jobs, 3U);
  EXPECT_EQ(both.now.core_seconds / 3600, 30U);
  EXPECT_EQ(both.now.unused_core_seconds / 3600, 1U + 2U + 4U);
  EXPECT_EQ(both.before.jobs, 1U);
  ASSERT_EQ(both.findings.size(), 1U);
  EXPECT_EQ(both.findings[0].sum.jobs, 3U);
  EXPECT_EQ(both.findings[0].sum.unused_core_seconds / 3600, 1U + 2U + 4U);
  EXPECT_THAT(parts_of(both.accounts), ElementsAre("org 1 jobs 4 hours", "chem 2 jobs 3 hours"));
  EXPECT_THAT(parts_of(both.users), ElementsAre("bob 2 jobs 6 hours", "alice 1 jobs 1 hours"));
  EXPECT_THAT(summaries_.of_accounts(prof, {"chem"}, false).users, IsEmpty());
  EXPECT_EQ(summaries_.of_accounts({"old", "prof"}, {"chem"}, true).now.jobs, 1U);
  EXPECT_EQ(summaries_.of_accounts(prof, {"empty"}, true).now.jobs, 0U);
}

TEST_F(UserSummariesTest, AUserWithoutANameIsNobody) {
  JobRun run = a_run(10, 5);
  run.user = "";
  summaries_.add(run);
  EXPECT_THAT(summaries_.people(), IsEmpty());
}

}  // namespace
}  // namespace scriptorium::cli
