#include "schedulers/slurm/late.h"
#include "core/base/time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "schedulers/slurm/owner.h"
#include "tests/schedulers/slurm/commands_fixture.h"
#include "tests/support/patience.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using State = OwnerAnswer::State;

class LateResolverTest : public CommandsFixture {
 protected:
  struct Asked {
    std::string id;
    std::int64_t mtime_ns = 100 * kSecond;
    std::optional<std::string> reason = std::nullopt;  // why it went out unverified
    std::string event_id = "e";
    std::optional<std::string> supersedes = std::nullopt;
    std::optional<SteadyTime> since = std::nullopt;  // when it was captured; nothing: just now
  };

  LateResolverTest() {
    set_squeue("answer");
    set_sacct("answer");
    set_queue("");
    set_accounting("");
  }
  void set_sacct(const std::string& body) {
    set_program("sacct", "answer() { cat \"$D/accounting\"; }\n" + body);
  }
  void set_accounting(std::string_view rows) { directory_.write("accounting", std::string(rows)); }
  std::vector<std::string> calls(const std::string& program) const {
    std::vector<std::string> result;
    if (!directory_.exists(program + ".calls")) return result;
    std::istringstream in(directory_.read(program + ".calls"));
    for (std::string line; std::getline(in, line);) result.push_back(line);
    return result;
  }

  Result<std::vector<OwnerAnswer>> ask(const std::vector<Asked>& jobs,
                                       std::chrono::milliseconds patience = 60s) {
    std::vector<Event> events(jobs.size());
    std::vector<OwnerQuery> queries(jobs.size());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      events[i].id = jobs[i].event_id + (jobs[i].event_id == "e" ? std::to_string(i) : "");
      events[i].job.id = jobs[i].id;
      events[i].user.unverified_reason = jobs[i].reason;
      events[i].supersedes = jobs[i].supersedes;
      queries[i] = {&events[i], jobs[i].mtime_ns, {}, jobs[i].since.value_or(clock_.steady())};
    }
    return resolver_->resolve(queries, stop_.get_token(), clock_.steady() + patience);
  }
  // "found 1002", "unknown", "not asked" for each.
  std::vector<std::string> say(const std::vector<Asked>& jobs) {
    const auto answers = ask(jobs);
    if (!answers) return {"error: " + answers.error().message()};
    std::vector<std::string> result;
    for (const OwnerAnswer& answer : *answers) {
      EXPECT_EQ(answer.user.verified, answer.state == State::kFound);
      if (answer.state == State::kFound) {
        result.push_back("found " + answer.user.id.value_or("nobody"));
      } else {
        EXPECT_NE(answer.state, State::kNotYet);
        result.emplace_back(answer.state == State::kUnknown ? "unknown" : "not asked");
      }
    }
    return result;
  }
  // Until accounting may be asked again.
  void wait_out_the_pause() { clock_.advance(LateResolver::kLongestPause); }

  std::optional<LateResolver> resolver_{std::in_place, queue_, config_, log_, clock_, names_};
};

constexpr const char* kUnknownToSlurmctld =
    "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1";
constexpr const char* kSlurmctldIsDown =
    "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit "
    "1";
constexpr const char* kSlurmdbdIsDown =
    "echo 'sacct: error: slurm_persist_conn_open_without_init: failed to open persistent "
    "connection to host:dbd:6819: Connection "
    "refused' >&2; echo 'sacct: error: Problem talking to the database: Connection refused' >&2; "
    "exit 1";

TEST_F(LateResolverTest, WhomSlurmctldStillKnowsAccountingIsNotAskedAbout) {
  set_queue("7|7|N/A|1002|2001|100|N/A|N/A|0|PD|\n");
  const auto answers = ask({{"7"}});
  ASSERT_TRUE(answers) << answers.error().message();
  const OwnerAnswer& answer = answers->at(0);
  EXPECT_EQ(answer.state, State::kFound);
  EXPECT_TRUE(answer.user.verified);
  EXPECT_EQ(answer.user.name, "bob");
  EXPECT_EQ(answer.user.id, "1002");
  EXPECT_EQ(answer.user.group_name, "chem");
  EXPECT_EQ(answer.user.group_id, "2001");
  EXPECT_THAT(calls("sacct"), ElementsAre());
  EXPECT_EQ(queue_->load().questions.at("one job"), 1U)
      << "it counts into our share of slurmctld's time";
}

TEST_F(LateResolverTest, WhatSlurmctldHasForgottenAccountingKnows) {
  set_squeue(kUnknownToSlurmctld);
  set_accounting("7|7|1002|2001|100|lab\n8|8|4242|4242|100|lab\n");
  const auto answers = ask({{"7"}, {"8"}, {"9"}});
  ASSERT_TRUE(answers) << answers.error().message();
  EXPECT_EQ(answers->at(0).user.name, "bob");
  EXPECT_EQ(answers->at(0).user.group_name, "chem");
  EXPECT_EQ(answers->at(1).state, State::kFound);
  EXPECT_TRUE(answers->at(1).user.verified) << "a uid without a name is an owner as well";
  EXPECT_EQ(answers->at(1).user.id, "4242");
  EXPECT_EQ(answers->at(1).user.name, std::nullopt);
  EXPECT_EQ(answers->at(2).state, State::kUnknown) << "neither knows it";
  EXPECT_THAT(
      calls("sacct"),
      ElementsAre(
          "-a -X -D -n --parsable2 --noconvert --local -o JobIDRaw,JobID,UID,GID,Submit,Cluster "
          "-j 7,8,9"))
      << "one question for all of them";
  EXPECT_TRUE(no_child_left());
}

TEST_F(LateResolverTest, AnotherJobOfTheSameIdLendsItsOwnerToNobody) {
  set_queue("7|7|N/A|1003|2001|500|N/A|N/A|0|R|\n");
  set_accounting("7|7|1004|2001|98|lab\n7|7|1003|2001|500|lab\n");
  EXPECT_THAT(say({{"7"}}), ElementsAre("unknown"));
  wait_out_the_pause();
  set_accounting("7|7|1002|2001|100|lab\n7|7|1003|2001|500|lab\n");
  EXPECT_THAT(say({{"7"}}), ElementsAre("found 1002"));
}

TEST_F(LateResolverTest, ARequeuedJobIsFoundByItsFirstLife) {
  set_queue("7|7|N/A|1002|2001|300|N/A|N/A|2|PD|\n");
  set_accounting("7|7|1002|2001|100|lab\n7|7|1002|2001|200|lab\n7|7|1002|2001|300|lab\n");
  EXPECT_THAT(say({{"7"}}), ElementsAre("found 1002"));
  EXPECT_THAT(calls("sacct"), ElementsAre(HasSubstr("-j 7")));
}

TEST_F(LateResolverTest, AnArrayIsFoundUnderItsOwnNumberOnly) {
  set_squeue(kUnknownToSlurmctld);
  set_accounting("8|7_0|1002|2001|100|lab\n9|7_1|1002|2001|100|lab\n7|7_2|1002|2001|100|lab\n");
  EXPECT_THAT(say({{"7"}, {"8"}}), ElementsAre("found 1002", "unknown"));
  wait_out_the_pause();
  set_squeue("answer");
  set_queue("8|7|0|1002|2001|100|N/A|N/A|0|R|\n7|7|1-2|1002|2001|100|N/A|N/A|0|PD|\n");
  set_accounting("");
  EXPECT_THAT(say({{"7"}, {"8"}}), ElementsAre("found 1002", "unknown"));
}

TEST_F(LateResolverTest, RowsThatDisagreeLeaveTheOwnerUnknown) {
  set_queue("7|7|1-2|1003|2001|100|N/A|N/A|0|PD|\n8|7|0|1002|2001|100|N/A|N/A|0|R|\n");
  set_accounting("8|7_0|1002|2001|100|lab\n9|7_1|1003|2001|100|lab\n");
  EXPECT_THAT(say({{"7"}}), ElementsAre("unknown"));
}

TEST_F(LateResolverTest, TwoJobsOfOneIdWithinASecondStayWithoutAnOwner) {
  set_squeue(kUnknownToSlurmctld);
  set_accounting("7|7|1002|2001|100|lab\n8|8|1002|2001|100|lab\n9|9|1002|2001|100|lab\n");
  const std::int64_t written = 100 * kSecond;
  EXPECT_THAT(say({{"7", written + 1},
                   {"7", written + 2},
                   {"8", written},
                   {"8", written + kSecond},
                   {"9"},
                   {"9", 102 * kSecond}}),
              ElementsAre("unknown", "unknown", "unknown", "unknown", "found 1002", "unknown"));
  wait_out_the_pause();
  EXPECT_THAT(say({{"7", written, kIdCameAgain}, {"9", written, "slurmctld lists another job"}}),
              ElementsAre("unknown", "found 1002"))
      << "what was seen when the event was made is remembered in it";
  EXPECT_THAT(calls("sacct").back(), EndsWith("-j 9"));
}

TEST_F(LateResolverTest, AShorterCaptureOfTheSameJobIsNoOtherJob) {
  set_squeue(kUnknownToSlurmctld);
  set_accounting("7|7|1002|2001|100|lab\n");
  EXPECT_THAT(
      say({{"7", 100 * kSecond, {}, "first"}, {"7", 100 * kSecond + 5, {}, "second", "first"}}),
      ElementsAre("found 1002", "found 1002"));
}

TEST_F(LateResolverTest, ManyJobsAreReadFromOneListWhichIsNotForced) {
  std::string rows;
  std::string accounts;
  std::vector<Asked> many;
  for (int i = 1; i <= 60; ++i) {
    const std::string id = std::to_string(i);
    if (i <= 50) rows += id + "|" + id + "|N/A|1002|2001|100|N/A|N/A|0|PD|\n";
    if (i <= 58) accounts += id + "|" + id + "|1003|2001|100|lab\n";
    many.push_back({id});
  }
  set_queue(rows);
  set_accounting(accounts);
  auto answers = say(many);
  ASSERT_EQ(answers.size(), 60U);
  EXPECT_EQ(std::count(answers.begin(), answers.end(), "found 1002"), 50);
  EXPECT_EQ(std::count(answers.begin(), answers.end(), "found 1003"), 8);
  EXPECT_EQ(std::count(answers.begin(), answers.end(), "unknown"), 2);
  EXPECT_THAT(calls("squeue"), ElementsAre("-h -a --local -t all"));

  // The next list must wait, and the last one is too old to say that a job is not there.
  clock_.advance(1ms);
  set_accounting("");
  answers = say(many);
  EXPECT_EQ(std::count(answers.begin(), answers.end(), "not asked"), 60);
  EXPECT_EQ(calls("squeue").size(), 1U);

  // What was captured before that list can be told from it, whatever was captured since.
  for (Asked& job : many) job.since = SteadyTime{};
  many.at(0).since = many.at(55).since = clock_.steady();
  resolver_.emplace(queue_, config_, log_, clock_,
                    names_);  // one that need not spare accounting yet
  answers = say(many);
  EXPECT_EQ(std::count(answers.begin(), answers.end(), "found 1002"), 50)
      << "a list that names a job is never too old";
  EXPECT_EQ(std::count(answers.begin(), answers.end(), "unknown"), 9);
  EXPECT_EQ(answers.at(55), "not asked") << "it came after the list";
  EXPECT_EQ(calls("squeue").size(), 1U);
}

TEST_F(LateResolverTest, WhoMustWaitForAListIsAskedForInAccountingMeanwhile) {
  std::string rows;
  std::string accounts;
  std::vector<Asked> first;
  std::vector<Asked> second;
  for (int i = 1; i <= 60; ++i) {
    const std::string id = std::to_string(i);
    const std::string later = std::to_string(i + 100);
    rows += id + "|" + id + "|N/A|1002|2001|100|N/A|N/A|0|PD|\n";
    if (i <= 50) accounts += later + "|" + later + "|1003|2001|100|lab\n";
    first.push_back({id});
    second.push_back({later});
  }
  set_queue(rows);
  set_accounting(accounts);
  ASSERT_THAT(say(first), ::testing::Each("found 1002"));
  clock_.advance(1ms);
  const auto answers = say(second);
  EXPECT_EQ(std::count(answers.begin(), answers.end(), "found 1003"), 50);
  EXPECT_EQ(std::count(answers.begin(), answers.end(), "not asked"), 10)
      << "slurmctld may know them";
  EXPECT_EQ(calls("squeue").size(), 1U);
}

TEST_F(LateResolverTest, ManyHundredAreAskedForAHundredAtATime) {
  std::string accounts;
  std::vector<Asked> many;
  for (int i = 1; i <= 250; ++i) {
    const std::string id = std::to_string(i);
    accounts += id + "|" + id + "|1002|2001|100|lab\n";
    many.push_back({id});
  }
  set_accounting(accounts);
  EXPECT_THAT(say(many), ::testing::Each("found 1002"));
  ASSERT_EQ(calls("sacct").size(), 3U);
  EXPECT_THAT(calls("sacct").at(1), HasSubstr("-j 101,102,"));
}

TEST_F(LateResolverTest, AccountingIsSparedBetweenTwoRounds) {
  set_squeue(kUnknownToSlurmctld);
  set_accounting("7|7|1002|2001|100|lab\n");
  ASSERT_THAT(say({{"7"}}), ElementsAre("found 1002"));
  EXPECT_THAT(say({{"7"}}), ElementsAre("not asked"));
  EXPECT_EQ(calls("sacct").size(), 1U);
  wait_out_the_pause();
  EXPECT_THAT(say({{"7"}}), ElementsAre("found 1002"));
  EXPECT_EQ(calls("sacct").size(), 2U);
}

TEST_F(LateResolverTest, WithoutAccountingSlurmctldsWordIsAllThereIsAndThatIsSaidOnce) {
  set_sacct("echo 'Slurm accounting storage is disabled' >&2; exit 1");
  set_queue("7|7|N/A|1002|2001|100|N/A|N/A|0|PD|\n");
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(say({{"7"}, {"8"}}), ElementsAre("found 1002", "unknown"));
    wait_out_the_pause();
  }
  std::filesystem::remove(directory_.path_to("sacct"));
  EXPECT_THAT(say({{"7"}, {"8"}}), ElementsAre("found 1002", "unknown"));
  EXPECT_EQ(log_.count("SLURM_NO_ACCOUNTING"), 1U);
  EXPECT_EQ(log_.last("SLURM_NO_ACCOUNTING")->level, LogLevel::kInfo);
  EXPECT_EQ(log_.messages().size(), 1U) << log_.text();
}

TEST_F(LateResolverTest, ADeadAccountingLeavesTheRestForLater) {
  set_queue("7|7|N/A|1002|2001|100|N/A|N/A|0|PD|\n");
  set_sacct(kSlurmdbdIsDown);
  EXPECT_THAT(say({{"7"}, {"8"}}), ElementsAre("found 1002", "not asked"));
  ASSERT_TRUE(log_.has("SLURM_SACCT_FAILED"));
  EXPECT_EQ(
      log_.last("SLURM_SACCT_FAILED")->field("reason"),
      "sacct: exit status 1: sacct: error: Problem talking to the database: Connection refused");
  wait_out_the_pause();
  EXPECT_THAT(say({{"8"}}), ElementsAre("not asked"));
  EXPECT_EQ(log_.count("SLURM_SACCT_FAILED"), 1U) << "said once for an outage";
  wait_out_the_pause();
  set_sacct("answer");
  set_accounting("8|8|1002|2001|100|lab\n");
  EXPECT_THAT(say({{"8"}}), ElementsAre("found 1002"));
  wait_out_the_pause();
  set_sacct(kSlurmdbdIsDown);
  EXPECT_THAT(say({{"8"}}), ElementsAre("not asked"));
  EXPECT_EQ(log_.count("SLURM_SACCT_FAILED"), 2U) << "and again for the next";
}

TEST_F(LateResolverTest, ADeadSlurmctldKeepsNobodyFromAccounting) {
  set_squeue(kSlurmctldIsDown);
  set_accounting("7|7|1002|2001|100|lab\n");
  EXPECT_THAT(say({{"7"}, {"8"}}), ElementsAre("found 1002", "not asked"))
      << "slurmctld may know it when it is back";
  EXPECT_EQ(calls("squeue").size(), 1U) << "it is not asked for the others then";
}

TEST_F(LateResolverTest, ItIsAnErrorOnlyIfNeitherAnswers) {
  set_squeue(kSlurmctldIsDown);
  set_sacct(kSlurmdbdIsDown);
  const auto both = ask({{"7"}});
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().kind(), ErrorKind::kTransient);
  EXPECT_THAT(both.error().message(), HasSubstr("Unable to contact slurm controller"));
  EXPECT_THAT(both.error().message(), HasSubstr("Problem talking to the database"));
  wait_out_the_pause();
  set_sacct("echo 'Slurm accounting storage is disabled' >&2; exit 1");
  const auto alone = ask({{"7"}});
  ASSERT_FALSE(alone);
  EXPECT_THAT(alone.error().message(),
              EndsWith("Unable to contact slurm controller (connect failure)"));
}

TEST_F(LateResolverTest, AMalformedAnswerOfAccountingIsRefusedWhole) {
  set_squeue(kUnknownToSlurmctld);
  set_accounting("7|7|1002|2001|100|lab\n8|8|root|0|100|lab\n");
  EXPECT_THAT(say({{"7"}}), ElementsAre("not asked"));
  EXPECT_THAT(log_.last("SLURM_SACCT_FAILED").value().field("reason"),
              HasSubstr("not as Slurm writes it"));
}

TEST_F(LateResolverTest, AnAnswerThatIsTooLargeIsAskedForInParts) {
  set_squeue(kUnknownToSlurmctld);
  // Job 3 is an array of very many tasks.
  set_sacct(
      "case \",${*##*-j },\" in *,3,*) yes '3|3_1|1002|2001|100|lab' | head -c 17000000;; *) "
      "answer;; esac");
  set_accounting("2|2|1002|2001|100|lab\n4|4|1002|2001|100|lab\n");
  EXPECT_THAT(say({{"1"}, {"2"}, {"3"}, {"4"}}),
              ElementsAre("unknown", "found 1002", "unknown", "found 1002"));
  EXPECT_FALSE(log_.has("SLURM_SACCT_FAILED")) << log_.text();
}

TEST_F(LateResolverTest, AnArrayOfVeryManyTasksIsOneRow) {
  set_squeue(kUnknownToSlurmctld);
  set_sacct("yes '3|3_1|1002|2001|100|lab' | head -n 300000");
  EXPECT_THAT(say({{"3"}}), ElementsAre("found 1002"));
}

TEST_F(LateResolverTest,
       AHangingAccountingIsKilledInTimeAndTheNextRoundAsksForFewerAndForOthersFirst) {
  set_squeue(kUnknownToSlurmctld);
  const std::string heavy = "case \",${*##*-j },\" in *,1,*) ";
  set_sacct(heavy + "sleep 1000 & wait;; *) answer;; esac");
  set_accounting("2|2|1002|2001|100|lab\n3|3|1002|2001|100|lab\n");
  // A round lasts until its deadline here, so that this is short; but sacct must have begun by
  // then.
  for (auto patience = 500ms; patience < test::kPatience; patience *= 2) {
    resolver_.emplace(queue_, config_, log_, clock_, names_);
    std::filesystem::remove(directory_.path_to("sacct.calls"));
    const auto begin = std::chrono::steady_clock::now();
    const auto first = ask({{"1"}, {"2"}, {"3"}}, patience);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, patience + test::kPatience);
    ASSERT_TRUE(first) << first.error().message();
    EXPECT_EQ(first->at(1).state, State::kNotAsked);
    EXPECT_TRUE(no_child_left());
    wait_out_the_pause();
    ASSERT_TRUE(ask({{"1"}, {"2"}, {"3"}}, patience));
    wait_out_the_pause();
    if (calls("sacct").size() == 2) break;
  }
  EXPECT_EQ(log_.last("SLURM_SACCT_FAILED").value().field("reason"),
            "sacct: no answer in time; killed");
  ASSERT_THAT(calls("sacct"), ElementsAre(EndsWith("-j 1,2,3"), EndsWith("-j 1"))) << "fewer";
  set_sacct(heavy + kSlurmdbdIsDown + ";; *) answer;; esac");
  const auto third = ask({{"1"}, {"2"}, {"3"}});
  ASSERT_TRUE(third);
  EXPECT_EQ(third->at(1).state, State::kFound) << "the others first";
  EXPECT_EQ(third->at(2).state, State::kFound);
  EXPECT_EQ(third->at(0).state, State::kNotAsked);
}

TEST_F(LateResolverTest, AHangingSlurmctldLeavesTimeForAccounting) {
  set_squeue("sleep 1000 & wait");
  set_accounting("7|7|1002|2001|100|lab\n");
  const Clock& clock = system_clock();  // a fake one stands still meanwhile
  const Event event{.job = {.id = "7"}};
  auto state = State::kNotAsked;
  // Half of the time is accounting's, which must do for a shell on this machine.
  for (auto patience = 1s; state != State::kFound && patience < test::kPatience; patience *= 2) {
    LateResolver resolver(std::make_shared<Queue>(config_, log_, clock), config_, log_, clock,
                          names_);
    const std::vector<OwnerQuery> queries{{&event, 100 * kSecond, {}, clock.steady()}};
    const SteadyTime deadline = clock.steady() + patience;
    const auto answers = resolver.resolve(queries, {}, deadline);
    EXPECT_LT(clock.steady(), deadline + test::kPatience);
    if (answers) state = answers->at(0).state;
    EXPECT_TRUE(no_child_left());
  }
  EXPECT_EQ(state, State::kFound);
}

TEST_F(LateResolverTest, AStopIsHonoured) {
  set_squeue(kUnknownToSlurmctld);
  set_sacct("sleep 1000 & wait");
  stop_.request_stop();
  const auto begin = std::chrono::steady_clock::now();
  const auto answers = ask({{"7"}});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, test::kPatience);
  ASSERT_FALSE(answers);
  EXPECT_EQ(answers.error().message(), "squeue: stopped; sacct: stopped");
  EXPECT_FALSE(log_.has("SLURM_SACCT_FAILED")) << "nothing failed";
  EXPECT_TRUE(no_child_left());
}

TEST_F(LateResolverTest, AnIdThatIsNoNumberIsNeverAskedFor) {
  EXPECT_THAT(say({{"7; rm -rf /"}, {"-j"}, {""}, {"7_1"}}), ::testing::Each("unknown"));
  EXPECT_THAT(calls("squeue"), ElementsAre());
  EXPECT_THAT(calls("sacct"), ElementsAre());
}

TEST_F(LateResolverTest, GivesSacctNothingOfOurEnvironmentButWhichSlurmIsMeant) {
  ASSERT_EQ(setenv("SACCT_FORMAT", "User", 1), 0);
  ASSERT_EQ(setenv("SLURM_CONF", "/etc/slurm/ours.conf", 1), 0);
  set_squeue(kUnknownToSlurmctld);
  ASSERT_TRUE(ask({{"7"}}));
  ASSERT_EQ(unsetenv("SACCT_FORMAT"), 0);
  ASSERT_EQ(unsetenv("SLURM_CONF"), 0);
  std::istringstream in(directory_.read("sacct.environments"));
  std::set<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("PWD=") && !line.starts_with("SHLVL=") && !line.starts_with("_="))
      lines.insert(line);  // the shell's own
  }
  EXPECT_THAT(lines, ::testing::UnorderedElementsAre("PATH=/usr/bin:/bin", "SLURM_TIME_FORMAT=%s",
                                                     "TZ=UTC", "SLURM_CONF=/etc/slurm/test.conf"));
}

}  // namespace
}  // namespace scriptorium::slurm
