#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/api/kit/search/job_facts.h"
#include "core/api/searchable.h"
#include "core/query/visible_store.h"
#include "tests/support/event_factory.h"

// Who may see a job, as one table: alice is uid 1001 here.
namespace scriptorium {
namespace {

const Visibility kAlice{.all = false, .users = {{.name = "alice", .uid = "1001"}}, .accounts = {}};
const Visibility kAliceOfAnyUid{.all = false, .users = {{.name = "alice"}}, .accounts = {}};
const Visibility kChem{.all = false, .users = {}, .accounts = {{"lab", "chem"}}};
const Visibility kNobody{.all = false, .users = {}, .accounts = {}};

const Visibility kOldChem{.all = false, .users = {}, .accounts = {{"old", "chem"}}};

struct Case {
  const char* what;
  std::optional<std::string> user;
  std::optional<std::string> uid;
  bool verified;
  std::optional<std::string> account;
  bool alice;
  bool alice_of_any_uid;
  bool chem;
};

const std::vector<Case> kCases{
    {"her own", "alice", "1001", true, "chem", true, true, true},
    {"claimed by its environment", "alice", "1001", false, std::nullopt, false, false, false},
    {"claimed, with an account", "alice", "1001", false, "chem", false, false, false},
    {"a uid that is unknown", "alice", std::nullopt, true, "bio", true, true, false},
    {"the name on another cluster, or of a user who left", "alice", "999", true, "bio", false, true,
     false},
    {"the same, in the account", "alice", "999", true, "chem", false, true, true},
    {"her uid under a former name", "alicia", "1001", true, "bio", false, false, false},
    {"another's", "bob", "1002", true, "bio", false, false, false},
    {"another's in the account", "bob", "1002", true, "chem", false, false, true},
    {"a name in another case", "Alice", "1001", true, "CHEM", false, false, false},
    {"without a name", std::nullopt, "1001", true, std::nullopt, false, false, false},
    {"without anything", std::nullopt, std::nullopt, true, std::nullopt, false, false, false},
};

TEST(VisibilityTest, AJobAndItsRunsAreSeenByTheSamePeople) {
  for (const Case& c : kCases) {
    JobRow job;
    job.cluster = "lab";
    job.user = c.user;
    job.uid = c.uid;
    job.verified = c.verified;
    job.account = c.account;
    const JobRun run{.user = c.user,
                     .uid = c.uid,
                     .verified = c.verified,
                     .account = c.account,
                     .cluster = "lab"};
    const auto expect = [&](const Visibility& who, bool sees) {
      EXPECT_EQ(is_visible(job, who), sees) << c.what;
      EXPECT_EQ(is_visible(run, who), sees) << c.what;
    };
    expect(kAlice, c.alice);
    expect(kAliceOfAnyUid, c.alice_of_any_uid);
    expect(kChem, c.chem);
    expect(kOldChem, false);  // an account of that name on another cluster
    expect(kNobody, false);
    expect({}, true);
  }
}

TEST(VisibilityTest, OfUseWithoutAScriptTheUseSaysWhoseItIs) {
  Event use = test::make_event_value("4711");
  use.kind = "usage.job";
  use.files.clear();
  use.extra_json = R"({"job":{"ended_at":"2026-11-21T02:00:00Z"}})";
  JobRow job;
  const auto run = join(job, use);
  ASSERT_TRUE(run);
  EXPECT_TRUE(is_visible(job, kAlice));
  EXPECT_TRUE(is_visible(*run, kAlice));
  use.user.verified = false;
  JobRow claimed;
  const auto claimed_run = join(claimed, use);
  EXPECT_FALSE(is_visible(claimed, kAlice));
  EXPECT_FALSE(is_visible(*claimed_run, kAlice));
}

TEST(VisibilityTest, WhatTheSchedulerSaysLastOfARunsAccountDecidesWhoSeesTheRunAndTheJob) {
  Event use = test::make_event_value("4711");
  JobRow job = row_of(use);
  use.kind = "usage.job";
  use.job.account = "bio";
  use.extra_json = R"({"job":{"ended_at":"2026-11-21T02:00:00Z"}})";
  auto run = join(job, use);
  ASSERT_TRUE(run);
  run->cluster = "lab";
  EXPECT_FALSE(is_visible(*run, kChem));
  const Visibility bio{.all = false, .users = {}, .accounts = {{"lab", "bio"}}};
  EXPECT_TRUE(is_visible(*run, bio));
  EXPECT_FALSE(is_visible(job, kChem));
  EXPECT_TRUE(is_visible(job, bio));
}

// Keeps the visibility of the last call.
class AskedStore : public Searchable {
 public:
  Speed speed() const noexcept override { return Speed::kIndexed; }
  Result<Answer> search(const Request& request) override {
    asked = request.visibility;
    return Answer{};
  }
  Result<std::vector<Record>> get(const Selector&, const Visibility& visibility,
                                  std::size_t) override {
    asked = visibility;
    return std::vector<Record>{};
  }
  Result<std::vector<JobRow>> family(std::uint64_t, const Visibility& visibility,
                                     std::optional<Timestamp>, std::size_t) override {
    asked = visibility;
    return std::vector<JobRow>{};
  }
  Result<RunAnswer> runs(const RunRequest& request,
                         const std::function<void(const JobRun&)>&) override {
    asked = request.visibility;
    return RunAnswer{};
  }
  Result<std::uint64_t> unfinished(Timestamp, Timestamp, const Visibility& visibility) override {
    asked = visibility;
    return std::uint64_t{0};
  }
  std::optional<Visibility> asked;
};

// Gives all its runs to everybody, as a store behind the query service does to its caller.
class RunsOfAll final : public AskedStore {
 public:
  Result<RunAnswer> runs(const RunRequest&,
                         const std::function<void(const JobRun&)>& use) override {
    for (const char* user : {"alice", "bob"})
      use({.user = user, .verified = true, .core_seconds = 1, .unused_core_seconds = 0});
    return RunAnswer{};
  }
};

class SummingStore final : public AskedStore {
 public:
  Result<RunAnswer> sums(const SumRequest& request,
                         const std::function<void(const RunSumRow&)>& use) override {
    asked = request.visibility;
    RunTotals seven;
    seven.jobs = 7;
    use({.name = std::nullopt, .time = {}, .sum = seven});
    return RunAnswer{};
  }
};

TEST(VisibilityTest, AStoreForOneReaderAsksEachCallWithThatReadersVisibility) {
  AskedStore all;
  query::VisibleStore alices(all, kAlice);
  const auto is_alices = [&] {
    const auto asked = std::exchange(all.asked, std::nullopt);
    return asked && !asked->all && asked->users.size() == 1 && asked->users[0].name == "alice";
  };
  EXPECT_TRUE(alices.search({.visibility = kChem}) && is_alices());
  EXPECT_TRUE(alices.get({}, {}, 1) && is_alices());
  EXPECT_TRUE(alices.family(1, {}, std::nullopt, 1) && is_alices());
  EXPECT_TRUE(alices.runs({}, [](const JobRun&) {}) && is_alices());
  EXPECT_TRUE(alices.sums({.by = {}, .bounds = {{0}, {1}}, .stop = {}, .visibility = kChem},
                          [](const RunSumRow&) {}) &&
              is_alices());
  EXPECT_TRUE(alices.unfinished({}, {}, kChem) && is_alices());
}

TEST(VisibilityTest, AStoreThatGivesTooManyRunsAddsUpThoseOfTheReaderAlone) {
  RunsOfAll all;
  query::VisibleStore alices(all, kAlice);
  std::uint64_t jobs = 0;
  const auto add = [&](const RunSumRow& row) { jobs += row.sum.jobs; };
  const Searchable::SumRequest request{
      .by = {}, .bounds = {{0}, {1}}, .stop = {}, .visibility = {}};
  EXPECT_TRUE(alices.sums(request, add));
  EXPECT_EQ(jobs, 1U);
  EXPECT_TRUE(all.sums(request, add));
  EXPECT_EQ(jobs, 1U + 2U);
}

TEST(VisibilityTest, AStoreWithSumsOfItsOwnIsAskedForThoseOfOneReader) {
  SummingStore sums;
  query::VisibleStore alices(sums, kAlice);
  std::uint64_t jobs = 0;
  EXPECT_TRUE(alices.sums({.by = {}, .bounds = {{0}, {1}}, .stop = {}, .visibility = {}},
                          [&](const RunSumRow& row) { jobs += row.sum.jobs; }));
  EXPECT_EQ(jobs, 7U);
  EXPECT_TRUE(sums.asked && !sums.asked->all);
}

}  // namespace
}  // namespace scriptorium
