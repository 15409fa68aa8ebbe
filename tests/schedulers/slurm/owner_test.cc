#include "schedulers/slurm/owner.h"
#include "core/base/time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "tests/schedulers/slurm/commands_fixture.h"
#include "tests/support/patience.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;
using ::testing::HasSubstr;
using State = OwnerAnswer::State;

class SqueueResolverTest : public CommandsFixture {
 protected:
  struct Asked {
    std::string id;
    std::int64_t mtime_ns = 100 * kSecond;
    bool unchanged = true;
  };

  SqueueResolverTest() {
    set_squeue("exit 9");
    set_numbers("");
  }
  void set_numbers(std::string_view rows, std::string_view texts = "(null)@(null)@main@/w@job@") {
    set_queue(rows, texts);
  }
  // So many jobs, which squeue knows from now on.
  std::vector<Asked> waiting_jobs(int count) {
    std::string rows;
    std::vector<Asked> jobs;
    for (int i = 1; i <= count; ++i) {
      rows += std::to_string(i) + "|" + std::to_string(i) + "|N/A|1002|2001|100|N/A|N/A|0|PD|\n";
      jobs.push_back({std::to_string(i)});
    }
    set_numbers(rows);
    return jobs;
  }
  std::size_t calls() const {
    if (!directory_.exists("squeue.calls")) return 0;
    const std::string text = directory_.read("squeue.calls");
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  Result<std::vector<OwnerAnswer>> ask(const std::vector<Asked>& jobs,
                                       std::chrono::milliseconds patience = 60s) {
    std::vector<Event> events(jobs.size());
    std::vector<OwnerQuery> queries(jobs.size());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      events[i].job.id = jobs[i].id;
      if (!script_.empty())
        events[i].files.push_back({.name = "script", .bytes = make_bytes(script_)});
      queries[i] = {&events[i], jobs[i].mtime_ns,
                    [&, unchanged = jobs[i].unchanged] {
                      calls_when_asked_ = calls();
                      return unchanged;
                    },
                    since_.value_or(clock_.steady())};
    }
    return resolver_.resolve(queries, stop_.get_token(), clock_.steady() + patience);
  }
  std::vector<State> states(const std::vector<Asked>& jobs) {
    auto answers = ask(jobs);
    if (!answers) {
      ADD_FAILURE() << answers.error().message();
      return {};
    }
    std::vector<State> result;
    for (const OwnerAnswer& answer : *answers) result.push_back(answer.state);
    return result;
  }
  std::string script_;
  std::optional<SteadyTime> since_;  // when the jobs were captured; nothing: just now
  std::size_t calls_when_asked_ = 0;
  SqueueResolver resolver_{queue_, config_, log_, clock_, names_};
};

TEST_F(SqueueResolverTest, AJobGetsOwnerNamesAndTexts) {
  set_squeue("answer");
  set_numbers("7|7|N/A|1002|2001|100|N/A|N/A|0|PD|\n", "physics@normal@batch@/home/bob@my job@");
  const auto answers = ask({{"7"}});
  ASSERT_TRUE(answers) << answers.error().message();
  const OwnerAnswer& answer = answers->at(0);
  EXPECT_EQ(answer.state, State::kFound);
  EXPECT_TRUE(answer.user.verified);
  EXPECT_EQ(answer.user.name, "bob");
  EXPECT_EQ(answer.user.id, "1002");
  EXPECT_EQ(answer.user.group_name, "chem");
  EXPECT_EQ(answer.user.group_id, "2001");
  EXPECT_EQ(answer.name, "my job");
  EXPECT_EQ(answer.account, "physics");
  EXPECT_EQ(answer.qos, "normal");
  EXPECT_EQ(answer.partition, "batch");
  EXPECT_EQ(answer.work_dir, "/home/bob");
  EXPECT_TRUE(no_child_left());
}

TEST_F(SqueueResolverTest, AsksForAFewJobsOneByOneAndForManyAtOnce) {
  set_squeue("answer");
  const std::vector<Asked> many = waiting_jobs(60);
  EXPECT_EQ(states({{"7"}, {"8"}}), (std::vector{State::kFound, State::kFound}));
  EXPECT_EQ(directory_.read("squeue.calls"),
            "-h -a --local -t all -j 7\n-h -a --local -t all -j 8\n");
  clock_.advance(1h);
  const auto found = states(many);
  EXPECT_EQ(std::count(found.begin(), found.end(), State::kFound), 60);
  EXPECT_EQ(calls(), 3U);
  EXPECT_THAT(directory_.read("squeue.calls"), ::testing::EndsWith("\n-h -a --local -t all\n"));
  const SchedulerLoad load = resolver_.load();
  EXPECT_THAT(load.questions, ::testing::ElementsAre(::testing::Pair("all jobs", 1),
                                                     ::testing::Pair("one job", 2)));
  EXPECT_GT(load.share, 0);
}

TEST_F(SqueueResolverTest, AfterAListOfAllJobsTheNextOneWaitsAHundredTimesAsLongAsItTook) {
  set_squeue("answer");
  const std::vector<Asked> many = waiting_jobs(60);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(states(many), std::vector(60, State::kFound));
  const auto took = std::chrono::steady_clock::now() - begin;
  clock_.advance(1ms);  // captured later than it was asked for
  EXPECT_EQ(states(many), std::vector(60, State::kNotAsked))
      << "that answer cannot have named them";
  EXPECT_EQ(calls(), 1U);
  EXPECT_GT(resolver_.min_interval(), 0ms);
  EXPECT_LE(queue_->next_list() - clock_.steady(), took * Queue::kShare);
  clock_.advance(took * Queue::kShare);
  EXPECT_EQ(states(many), std::vector(60, State::kFound));
  EXPECT_EQ(calls(), 2U);
}

TEST_F(SqueueResolverTest, OneListServesEverybodyWhoWantsItThen) {
  set_squeue("answer");
  const std::vector<Asked> many = waiting_jobs(120);
  since_ = clock_.steady();  // all of them were captured by now
  clock_.advance(1ms);
  EXPECT_EQ(states({many.begin(), many.begin() + 60}), std::vector(60, State::kFound));
  EXPECT_EQ(states({many.begin() + 60, many.end()}), std::vector(60, State::kFound))
      << "a second page of those that wait";
  SqueueNumbers gaps(queue_);
  const auto uses = gaps.numbers({.numbers = {}, .since = *since_}, {}, clock_.steady() + 20s);
  ASSERT_TRUE(uses) << uses.error().message();
  ASSERT_TRUE(*uses);
  EXPECT_EQ((*uses)->size(), 120U);
  EXPECT_EQ(calls(), 1U);
  clock_.advance(1us);
  const auto later =
      gaps.numbers({.numbers = {}, .since = clock_.steady()}, {}, clock_.steady() + 20s);
  ASSERT_TRUE(later);
  EXPECT_FALSE(*later) << "not now";
  const auto two =
      gaps.numbers({.numbers = {3, 500}, .since = clock_.steady()}, {}, clock_.steady() + 20s);
  ASSERT_TRUE(two && *two);
  ASSERT_EQ((*two)->size(), 1U);
  EXPECT_EQ((*two)->front().number, 3U);
  EXPECT_EQ(calls(), 3U);
}

TEST_F(SqueueResolverTest, SingleQuestionsAreBoundedAndNoneWaitsBehindTheAbsent) {
  set_squeue("answer");
  std::vector<Asked> jobs;
  for (int i = 1; i <= 50; ++i) jobs.push_back({std::to_string(i)});
  const auto count = [](const std::vector<State>& all, State state) {
    return std::count(all.begin(), all.end(), state);
  };
  auto answers = states(jobs);
  EXPECT_EQ(count(answers, State::kNotYet), 25) << "none is listed";
  EXPECT_EQ(count(answers, State::kNotAsked), 25);
  clock_.advance(1s);
  answers = states(jobs);
  EXPECT_EQ(answers.back(), State::kNotYet) << "those that were not asked for come first";
  EXPECT_EQ(calls(), 50U);
  clock_.advance(1s);
  answers = states(jobs);
  EXPECT_EQ(count(answers, State::kUnknown), 25);
}

TEST_F(SqueueResolverTest, GivesSqueueNothingOfOurEnvironmentAndANewNonceEachTime) {
  ASSERT_EQ(setenv("SQUEUE_FORMAT2", "%i", 1), 0);
  set_squeue("answer");
  set_numbers("7|7|N/A|1002|2001|100|N/A|N/A|0|PD|\n");
  ASSERT_TRUE(ask({{"7"}}));
  ASSERT_TRUE(ask({{"7"}}));
  ASSERT_EQ(unsetenv("SQUEUE_FORMAT2"), 0);
  std::istringstream in(directory_.read("squeue.environments"));
  std::set<std::string> formats;
  std::set<std::string> others;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("SQUEUE_FORMAT2=")) {
      formats.insert(line.substr(line.rfind(':') + 1));
    } else if (!line.starts_with("PWD=") && !line.starts_with("SHLVL=") &&
               !line.starts_with("_=")) {  // the shell's own
      others.insert(line);
    }
  }
  EXPECT_THAT(others, ::testing::UnorderedElementsAre("PATH=/usr/bin:/bin", "TZ=UTC",
                                                      "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0",
                                                      "SLURM_CONF=/etc/slurm/test.conf"));
  ASSERT_EQ(formats.size(), 2U);
  for (const std::string& nonce : formats)
    EXPECT_THAT(nonce, ::testing::MatchesRegex("@[0-9a-f]{32}"));
}

TEST_F(SqueueResolverTest, LooksAtTheEntryOnlyAfterTheAnswer) {
  set_squeue("answer");
  set_numbers("7|7|N/A|1002|2001|100|N/A|N/A|0|PD|\n");
  ASSERT_TRUE(ask({{"7"}}));
  EXPECT_GE(calls_when_asked_, 1U);
}

TEST_F(SqueueResolverTest, AReusedIdDoesNotLendItsOwner) {
  set_squeue("answer");
  set_numbers("7|7|N/A|1002|2001|500|N/A|N/A|0|PD|\n");
  EXPECT_EQ(states({{"7", 100 * kSecond, false}}), std::vector{State::kUnknown});
}

TEST_F(SqueueResolverTest, OfTwoEntriesOfOneIdOnlyTheLaterMayGoByTheTime) {
  set_squeue("answer");
  set_numbers("7|7|N/A|1002|2001|100|N/A|N/A|0|PD|\n");
  EXPECT_EQ(states({{"7", 100 * kSecond + 1, false}, {"7", 100 * kSecond + 2, false}}),
            (std::vector{State::kUnknown, State::kFound}));
  EXPECT_EQ(states({{"7", 100 * kSecond + 1, false}}), std::vector{State::kUnknown})
      << "and it is remembered";
}

TEST_F(SqueueResolverTest, AnEntryWhoseIdCameAgainAtOnceSaysSoForGood) {
  set_squeue("answer");
  set_numbers("7|7|N/A|1002|2001|100|N/A|N/A|0|PD|\n8|8|N/A|1002|2001|300|N/A|N/A|0|PD|\n");
  const auto answers = ask({{"7", 100 * kSecond + 1, false},
                            {"7", 101 * kSecond, false},
                            {"8", 100 * kSecond, false},
                            {"8", 300 * kSecond, false}});
  ASSERT_TRUE(answers);
  EXPECT_EQ(answers->at(0).state, State::kUnknown);
  EXPECT_EQ(answers->at(0).user.unverified_reason, kIdCameAgain);
  EXPECT_EQ(answers->at(2).state, State::kUnknown);
  EXPECT_NE(answers->at(2).user.unverified_reason, kIdCameAgain)
      << "the times tell these two apart";
}

TEST_F(SqueueResolverTest, AnAbsentJobIsUnknownAfterTwoAnswersSomeTimeApart) {
  set_squeue("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  EXPECT_EQ(states({{"7", 100, false}}), std::vector{State::kNotYet});
  EXPECT_EQ(states({{"7", 100, false}}), std::vector{State::kNotAsked}) << "no time went by";
  clock_.advance(SqueueResolver::kRound);
  EXPECT_EQ(states({{"7", 100, false}}), std::vector{State::kUnknown});
  EXPECT_FALSE(log_.has("SLURM_JOBS_HIDDEN")) << "it left the spool as well";
}

TEST_F(SqueueResolverTest, AFailureIsNoAbsence) {
  set_squeue("answer");
  EXPECT_EQ(states({{"7"}}), std::vector{State::kNotYet});
  clock_.advance(5s);
  set_squeue(
      "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; "
      "exit 1");
  const auto failed = ask({{"7"}});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind(), ErrorKind::kTransient);
  EXPECT_EQ(failed.error().message(),
            "squeue: exit status 1: slurm_load_jobs error: Unable to contact slurm controller "
            "(connect failure)");
  set_squeue("answer");
  set_numbers("7|7|N/A|1002|2001|100|N/A|N/A|0|PD|\n");
  EXPECT_EQ(states({{"7"}}), std::vector{State::kFound});
}

TEST_F(SqueueResolverTest, AJobThatComesBackBeginsItsAbsenceAnew) {
  set_squeue("answer");
  EXPECT_EQ(states({{"7"}}), std::vector{State::kNotYet});
  clock_.advance(2s);
  set_numbers("7|7|N/A|1002|2001|100|N/A|N/A|0|PD|\n8|7|N/A|1003|2001|100|N/A|N/A|0|PD|\n");
  EXPECT_EQ(states({{"7"}}), std::vector{State::kNotYet}) << "rows of two owners";
  set_numbers("");
  clock_.advance(2s);
  EXPECT_EQ(states({{"7"}}), std::vector{State::kNotYet});
}

TEST_F(SqueueResolverTest, JobsThatAreHiddenFromUsAreSaid) {
  set_squeue("answer");
  EXPECT_EQ(states({{"7"}, {"8"}}), (std::vector{State::kNotYet, State::kNotYet}));
  ASSERT_TRUE(log_.has("SLURM_JOBS_HIDDEN"));
  EXPECT_EQ(log_.last("SLURM_JOBS_HIDDEN")->field("jobs"), "2");
  clock_.advance(5s);
  const auto answers = ask({{"7"}});
  ASSERT_TRUE(answers);
  EXPECT_EQ(answers->front().state, State::kUnknown);
  EXPECT_EQ(answers->front().user.unverified_reason,
            "slurmctld does not list the job, though its entry stands in the spool");
}

TEST_F(SqueueResolverTest, AJobThatIsGoneFromTheSpoolAsWellIsNotCalledHidden) {
  set_squeue("answer");
  EXPECT_EQ(states({{"7", 100, false}}), std::vector{State::kNotYet});
  clock_.advance(5s);
  const auto answers = ask({{"7", 100, false}});
  ASSERT_TRUE(answers);
  EXPECT_EQ(answers->front().state, State::kUnknown);
  EXPECT_FALSE(answers->front().user.unverified_reason);
}

TEST_F(SqueueResolverTest, AHangingSqueueIsKilledWithinTheDeadline) {
  set_squeue("sleep 1000 & echo $$ $! >\"$D/pids\"; wait");
  const auto begin = std::chrono::steady_clock::now();
  const auto answers = ask({{"7"}}, 300ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, test::kPatience);
  ASSERT_FALSE(answers);
  EXPECT_EQ(answers.error().message(), "squeue: no answer in time; killed");
  EXPECT_TRUE(no_child_left());
}

TEST_F(SqueueResolverTest, AStopIsHonoured) {
  set_squeue("sleep 1000");
  stop_.request_stop();
  const auto answers = ask({{"7"}});
  ASSERT_FALSE(answers);
  EXPECT_EQ(answers.error().message(), "squeue: stopped");
}

TEST_F(SqueueResolverTest, GarbageIsRefusedWhole) {
  set_squeue("answer");
  set_numbers("7|7|N/A|1002|2001|100|N/A|N/A|0|PD|\n7|7|N/A|root|0|100|N/A|N/A|0|PD|\n");
  const auto answers = ask({{"7"}});
  ASSERT_FALSE(answers);
  EXPECT_THAT(answers.error().message(), HasSubstr("not as Slurm writes it"));
}

TEST_F(SqueueResolverTest, TwentyThousandJobsAreOneAnswer) {
  constexpr int kJobs = 20'000;
  std::string numbers;
  std::vector<Asked> jobs;
  for (int i = 1; i <= kJobs; ++i) {
    const std::string id = std::to_string(i);
    const std::string uid = i % 2 == 0 ? "1002" : "4242";
    numbers +=
        id + '|' + id + "|N/A|" + uid + "|2001|100|N/A|N/A|0|PD|1|a@q@p@/w@name " + id + "@\n";
    jobs.push_back({id});
  }
  directory_.write("queue", numbers);
  set_squeue("answer");
  const auto answers = ask(jobs);
  ASSERT_TRUE(answers) << answers.error().message();
  ASSERT_EQ(answers->size(), std::size_t{kJobs});
  for (int i = 0; i < kJobs; ++i) {
    const OwnerAnswer& answer = answers->at(static_cast<std::size_t>(i));
    ASSERT_EQ(answer.state, State::kFound) << i;
    ASSERT_EQ(answer.name, "name " + std::to_string(i + 1));
    ASSERT_EQ(answer.user.name.has_value(), (i + 1) % 2 == 0)
        << "uid 4242 has no name and stays a number";
    ASSERT_EQ(answer.user.id, (i + 1) % 2 == 0 ? "1002" : "4242");
  }
  EXPECT_EQ(calls(), 1U);
  EXPECT_EQ(user_lookups_, 2U) << "a name is looked up once for all jobs";
}

TEST_F(SqueueResolverTest, TheStubOfALaterComponentIsMarked) {
  set_squeue("answer");
  set_numbers("7|7|N/A|1002|2001|100|7|0|0|PD|\n8|8|N/A|1002|2001|100|7|1|0|PD|\n");
  script_ = "#!/bin/bash\n#SBATCH -J b\nexit 0\n";
  const auto answers = ask({{"7"}, {"8"}});
  ASSERT_TRUE(answers);
  EXPECT_FALSE(answers->at(0).het->synthetic);
  EXPECT_TRUE(answers->at(1).het->synthetic);
  EXPECT_EQ(answers->at(1).het->job_id, "7");
}

TEST_F(SqueueResolverTest, ATasksOwnEntryIsFoundByItsOwnId) {
  set_squeue("answer");
  set_numbers("9|7|3|1002|2001|100|N/A|N/A|0|R|\n");
  const auto answers = ask({{"9"}});
  ASSERT_TRUE(answers);
  EXPECT_EQ(answers->at(0).state, State::kFound);
  EXPECT_EQ(answers->at(0).array->task_id, "3");
}

TEST_F(SqueueResolverTest, AnIdThatIsNoNumberIsNeverAskedFor) {
  set_squeue("answer");
  EXPECT_EQ(states({{"7; rm -rf /"}, {"-j"}, {""}}),
            (std::vector{State::kUnknown, State::kUnknown, State::kUnknown}));
}

TEST_F(SqueueResolverTest, CheckTellsAMissingSqueueFromADeadSlurmctld) {
  set_squeue(
      "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; "
      "exit 1");
  const auto down = resolver_.check();
  ASSERT_FALSE(down);
  EXPECT_EQ(down.error().kind(), ErrorKind::kTransient);
  EXPECT_THAT(down.error().message(), HasSubstr("Unable to contact slurm controller"));
  std::filesystem::remove(config_.squeue);
  const auto missing = resolver_.check();
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(missing.error().message(),
              ::testing::AllOf(HasSubstr("resolve = \"slurmctld\": squeue: "),
                               HasSubstr("cannot be executed")));
}

TEST_F(SqueueResolverTest, CheckIsContentWhenWeOwnTheSpool) {
  set_squeue("answer");
  const auto result = resolver_.check();
  EXPECT_TRUE(result) << result.error().message();
}

TEST_F(SqueueResolverTest, CheckSaysWhenJobsMayBeHidden) {
  if (geteuid() == 0)
    GTEST_SKIP() << "SKIPPED: root sees every job, so this runs as an ordinary user only";
  set_squeue("answer");
  config_.spool = "/";  // somebody else's
  SqueueResolver other(std::make_shared<Queue>(config_, log_, clock_), config_, log_, clock_,
                       names_);
  const auto hidden = other.check();
  ASSERT_FALSE(hidden);
  EXPECT_THAT(hidden.error().message(), HasSubstr("PrivateData=jobs"));
  set_numbers("7|7|N/A|4242|2001|100|N/A|N/A|0|PD|\n");
  EXPECT_TRUE(other.check());
}

}  // namespace
}  // namespace scriptorium::slurm
