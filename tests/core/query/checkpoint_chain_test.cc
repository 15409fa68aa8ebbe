#include "core/query/checkpoint_chain.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/event_factory.h"
#include "tests/support/zone.h"

namespace scriptorium::query {
namespace {

constexpr double kDay = 86400;

Timestamp at_second(double seconds) {
  const Timestamp first = parse_rfc3339("2026-11-28T10:00:00Z").value();
  return {first.nanoseconds + static_cast<std::int64_t>(seconds * kSecond)};
}

// A job's record, to which a test adds steps at seconds after 10:00.
class CheckpointChainTest : public testing::Test {
 protected:
  Event step(double seconds, const std::string& checkpoint, const std::string& node = "n1") {
    Event event = test::make_event_value("7");
    event.id = std::to_string(seconds) + checkpoint;
    event.kind = "job.checkpoint";
    event.time = at_second(seconds);
    event.host = node;
    event.extra_json = R"({"checkpoint":{"action":)" + checkpoint + "}}";
    return event;
  }
  void add(Event event) {
    record_.later.push_back(std::make_shared<const Event>(std::move(event)));
  }
  void add(double seconds, const std::string& checkpoint, const std::string& node = "n1") {
    add(step(seconds, checkpoint, node));
  }
  void add_run(const std::string& started_at) {
    Event event = test::make_event_value("7");
    event.kind = "usage.job";
    event.extra_json = R"({"usage":{"started_at":")" + started_at + R"("}})";
    add(std::move(event));
  }
  // Saved, two lives that worked for so long in all, and so long between a save and a resume.
  void add_two_lives(double lost, double worked) {
    add(0, R"("made")");
    add(lost / 2, R"("restarted")");
    add((lost + worked) / 2, R"("made")");
    add(lost + worked / 2, R"("restarted")");
    add(lost + worked, R"("ended","exit_code":0)");
  }
  void job_ended(double seconds, int exit_code) {
    record_.job.scheduler = "slurm";
    record_.job.ended_at = at_second(seconds);
    record_.job.exit_code = exit_code;
  }

  CheckpointChain only_chain() {
    const auto chains = checkpoint_chains(record_);
    EXPECT_EQ(chains.size(), 1U);
    return chains.empty() ? CheckpointChain{} : chains.front();
  }
  // Of each: id, severity.
  std::vector<std::string> findings(double now = 0) {
    std::vector<std::string> list;
    for (const CheckpointFinding& found : checkpoint_findings(record_, at_second(now)))
      list.push_back(found.id + " " + found.severity);
    return list;
  }
  std::string finding_text(double now = 0) {
    const auto found = checkpoint_findings(record_, at_second(now));
    EXPECT_EQ(found.size(), 1U);
    return found.empty() ? "" : found.front().text;
  }

  using Strings = std::vector<std::string>;
  test::Zone zone_{"UTC"};
  Searchable::Record record_;
};

TEST_F(CheckpointChainTest, HasALifeForEachResumeAndTheTimeBetween) {
  add(100, R"("made","root_pid":42,"image_bytes":7549747,"frozen_seconds":0.5)");
  add(160, R"("restart_failed","reason":"pid_taken")", "n2");
  add(220, R"("restarted","root_pid":42)", "n2");
  add(300, R"("failed","root_pid":42,"reason":"tcp")", "n2");
  add(400, R"("ended","root_pid":42,"exit_code":7)", "n2");
  const CheckpointChain chain = only_chain();
  ASSERT_EQ(chain.lives.size(), 2U);
  const CheckpointLife& first = chain.lives[0];
  EXPECT_EQ(first.node, "n1");
  EXPECT_FALSE(first.resumed);
  ASSERT_EQ(first.saves.size(), 1U);
  EXPECT_EQ(first.saves[0].image_bytes, 7549747U);
  EXPECT_EQ(first.saves[0].frozen_seconds, 0.5);
  const CheckpointLife& second = chain.lives[1];
  EXPECT_EQ(second.node, "n2");
  ASSERT_EQ(second.refused.size(), 1U);
  EXPECT_EQ(second.refused[0].reason, "pid_taken");
  ASSERT_TRUE(second.resumed);
  EXPECT_EQ(second.resumed->time, at_second(220));
  EXPECT_EQ(second.resumed->away_seconds, 120);
  EXPECT_TRUE(second.saves.empty());
  ASSERT_EQ(second.unsaved.size(), 1U);
  EXPECT_EQ(second.unsaved[0].reason, "tcp");
  ASSERT_TRUE(second.ended);
  EXPECT_EQ(second.ended->exit_code, 7);
  EXPECT_TRUE(chain.refused.empty());
  // The begin of the first life is not known.
  EXPECT_EQ(chain.measured_lives, 1U);
  EXPECT_EQ(chain.lost_seconds, 120);
  EXPECT_EQ(chain.worked_seconds, 180);
  EXPECT_EQ(checkpoint_sum_text({chain}), "2 lives, 2 min 0 s lost of 5 min 0 s");
}

TEST_F(CheckpointChainTest, IsTheSameInAnyOrderAndWithEventsReadTwice) {
  add(400, R"("ended","exit_code":0)");
  add(220, R"("restarted")");
  add(100, R"("made")");
  add(220, R"("restarted")");
  add(100, R"("made")");
  const CheckpointChain chain = only_chain();
  EXPECT_EQ(chain.steps.size(), 3U);
  ASSERT_EQ(chain.lives.size(), 2U);
  EXPECT_EQ(chain.lives[1].resumed->away_seconds, 120);
}

TEST_F(CheckpointChainTest, BeginsTheFirstLifeWithTheRunOfTheJob) {
  add_run("2026-11-28T08:00:00Z");
  add_run("2026-11-28T09:59:00Z");
  add_run("2026-11-28T10:01:30Z");
  add(0, R"("made","frozen_seconds":2)");
  add(100, R"("restarted")");
  add(200, R"("ended","exit_code":0)");
  const CheckpointChain chain = only_chain();
  EXPECT_EQ(chain.measured_lives, 2U);
  EXPECT_EQ(chain.lost_seconds, 102);
  EXPECT_EQ(chain.worked_seconds, 158);
}

TEST_F(CheckpointChainTest, LeavesOutWhatNobodyRecorded) {
  struct Case {
    const char* what;
    std::vector<Event> steps;
    std::size_t lives, measured;
    double lost;
  };
  const std::vector<Case> cases = {
      {"a resume without a save", {step(0, R"("restarted")"), step(10, R"("made")")}, 1, 0, 0},
      {"a save on a node where nothing was resumed",
       {step(0, R"("made")"), step(10, R"("made")", "n2"), step(30, R"("restarted")", "n3")},
       3,
       0,
       0},
      {"an end without a resume",
       {step(0, R"("made")"), step(10, R"("ended","exit_code":0)", "n2")},
       2,
       0,
       0},
      {"a program that was resumed, lost, and resumed again",
       {step(0, R"("made")"), step(10, R"("restarted")"), step(50, R"("restarted")", "n2"),
        step(70, R"("ended","exit_code":0)", "n2")},
       3,
       1,
       0},
      {"clocks that disagree",
       {step(0, R"("restarted")", "n2"), step(1, R"("made")"),
        step(9, R"("ended","exit_code":0)", "n2")},
       3,
       0,
       0},
      {"saves after which it ran on",
       {step(0, R"("restarted")"), step(10, R"("made","frozen_seconds":1)"),
        step(20, R"("made","frozen_seconds":1)"), step(30, R"("ended","exit_code":0)")},
       1,
       1,
       2},
      {"a save that ended the program, then another program on that node",
       {step(0, R"("restarted")"), step(10, R"("made","runs_on":false)"),
        step(90, R"("made","runs_on":false)")},
       2,
       1,
       0},
      {"an end that was not recorded as resumed",
       {step(0, R"("restarted")"), step(10, R"("made","runs_on":false)"),
        step(90, R"("ended","exit_code":0)")},
       2,
       1,
       0},
      {"a request after the program was saved",
       {step(0, R"("restarted")"), step(10, R"("made","runs_on":false)"),
        step(11, R"("failed","reason":"process_gone")")},
       1,
       1,
       0},
      {"a later word for a step", {step(0, R"("migrated")"), step(10, R"("made")")}, 1, 0, 0},
      {"nothing that is known", {step(0, "7")}, 0, 0, 0},
  };
  for (const Case& one : cases) {
    record_.later.clear();
    for (const Event& event : one.steps) add(event);
    const CheckpointChain chain = only_chain();
    EXPECT_EQ(chain.lives.size(), one.lives) << one.what;
    EXPECT_EQ(chain.measured_lives, one.measured) << one.what;
    EXPECT_EQ(chain.lost_seconds, one.lost) << one.what;
    EXPECT_EQ(findings(), Strings{}) << one.what;
  }
}

TEST_F(CheckpointChainTest, OfSeveralProgramsIsOneForEach) {
  add(0, R"("made","root_pid":10)");
  add(1, R"("made","root_pid":20)");
  add(60, R"("restarted","root_pid":10)");
  add(61, R"("restarted","root_pid":20)");
  const auto chains = checkpoint_chains(record_);
  ASSERT_EQ(chains.size(), 2U);
  for (const CheckpointChain& chain : chains) {
    ASSERT_EQ(chain.lives.size(), 2U);
    EXPECT_EQ(chain.lives[1].resumed->away_seconds, 60);
  }
  EXPECT_EQ(checkpoint_sum_text(chains), "4 lives of 2 programs");
}

TEST_F(CheckpointChainTest, FollowsAnImageThatIsResumedUnderAnotherProcessId) {
  add(0, R"("made","root_pid":10,"manifest_sha256":"aa")");
  add(1, R"("made","root_pid":20,"manifest_sha256":"bb")");
  add(50, R"("restarted","root_pid":11,"manifest_sha256":"aa")");
  add(61, R"("restarted","root_pid":21,"manifest_sha256":"bb")");
  add(70, R"("ended","root_pid":11,"exit_code":0)");
  add(90, R"("made","root_pid":30,"manifest_sha256":"cc")");
  const auto chains = checkpoint_chains(record_);
  ASSERT_EQ(chains.size(), 3U);
  EXPECT_EQ(chains[0].lives.size(), 2U);
  EXPECT_EQ(chains[0].lives.back().resumed->away_seconds, 50);
  EXPECT_TRUE(chains[0].lives.back().ended);
  EXPECT_EQ(chains[1].lives.size(), 2U);
  EXPECT_EQ(chains[1].lives.back().resumed->away_seconds, 60);
  EXPECT_EQ(chains[2].lives.size(), 1U);
}

TEST_F(CheckpointChainTest, HasPrintableTextsAndNoImpossibleFigures) {
  add(0, R"("made\u001b[2J","reason":"x\ny","image_bytes":-1,"exit_code":300)", "n\x1b[1m");
  const CheckpointStep step = only_chain().steps.at(0);
  EXPECT_EQ(step.node, R"(n\x1b[1m)");
  EXPECT_EQ(checkpoint_words(step), R"(made\x1b[2J)");
  EXPECT_EQ(step.reason, R"(x\ny)");
  EXPECT_FALSE(step.image_bytes);
  EXPECT_FALSE(step.frozen_seconds);
  EXPECT_FALSE(step.exit_code);
}

TEST_F(CheckpointChainTest, FindsThrashFromAQuarterOfTheTimeAndTenMinutesOn) {
  struct Case {
    double lost, worked;
    Strings expected;
  };
  const std::vector<Case> cases = {{600, 1801, {}},
                                   {600, 1800, {"ckpt_thrash notice"}},
                                   {1000, 1002, {"ckpt_thrash notice"}},
                                   {1000, 1000, {"ckpt_thrash warning"}},
                                   {598, 2, {}},
                                   {600, 2, {"ckpt_thrash warning"}}};
  for (const Case& one : cases) {
    record_.later.clear();
    add_two_lives(one.lost, one.worked);
    EXPECT_EQ(findings(), one.expected) << one.lost << " of " << one.worked;
  }
}

TEST_F(CheckpointChainTest, FindsNoThrashInASingleLife) {
  add(0, R"("made")");
  add(5000, R"("restarted")");
  add(5001, R"("ended","exit_code":0)");
  EXPECT_EQ(findings(), Strings{});
  add_run("2026-11-28T09:59:00Z");
  EXPECT_EQ(findings(), Strings{"ckpt_thrash warning"});
}

TEST_F(CheckpointChainTest, SaysOfThrashHowMuchAndWhatToDo) {
  add_two_lives(1200, 1200);
  EXPECT_EQ(finding_text(),
            "In 2 lives the program was saved, waited or was resumed for 20 min 0 s of 40 min 0 s "
            "(50 %). In that time it did no work. Most of it passed between a save and the next "
            "resume: ask for a longer time limit, so that it has fewer lives.");
  record_.later.clear();
  add_two_lives(2, 2400);
  add(600, R"("made","frozen_seconds":700)");
  EXPECT_NE(finding_text().find("save it less often"), std::string::npos);
}

TEST_F(CheckpointChainTest, FindsAnImageThatWasLeftBehindForSevenDays) {
  add(0, R"("made","image_bytes":1048576)");
  job_ended(5, 99);
  EXPECT_EQ(findings(7 * kDay - 1), Strings{});
  EXPECT_EQ(findings(7 * kDay), Strings{"ckpt_never_restored warning"});
  EXPECT_EQ(finding_text(8 * kDay),
            "The image of 2026-11-28 10:00 on n1 (1.0 MiB) was not resumed for 8 d 0 h, though "
            "the job ended to be run again (exit code 99). Without it, what the program did "
            "until then is lost. Submit the job again, or remove the image if another job has "
            "resumed it.");
}

TEST_F(CheckpointChainTest, FindsNothingWhereTheProgramMayHaveRunOnOrElsewhere) {
  add(0, R"("made")");
  EXPECT_EQ(findings(8 * kDay), Strings{}) << "no end of the job is known";
  job_ended(5, 0);
  EXPECT_EQ(findings(8 * kDay), Strings{}) << "it completed after a periodic save";
  job_ended(-61, 99);
  EXPECT_EQ(findings(8 * kDay), Strings{}) << "the end of the run before";
  job_ended(-60, 99);
  EXPECT_EQ(findings(8 * kDay), Strings{"ckpt_never_restored warning"});
  record_.job.scheduler = "oar";
  EXPECT_EQ(findings(8 * kDay), Strings{}) << "the next life has another job id";
  job_ended(5, 99);
  add(8, R"("made","root_pid":9)");
  add(9, R"("ended","root_pid":9,"exit_code":0)");
  EXPECT_EQ(findings(8 * kDay), Strings{}) << "there is a later record";
}

TEST_F(CheckpointChainTest, KnowsFromASaveWhetherTheProgramRanOn) {
  add(0, R"("made","runs_on":false)");
  EXPECT_EQ(findings(7 * kDay - 1), Strings{});
  EXPECT_EQ(findings(7 * kDay), Strings{"ckpt_never_restored warning"}) << "no end of the job";
  EXPECT_NE(finding_text(8 * kDay).find("for 8 d 0 h, and the save ended the program."),
            std::string::npos);
  job_ended(-999, 0);
  EXPECT_EQ(findings(8 * kDay), Strings{"ckpt_never_restored warning"});
  record_.job.state = "COMPLETED";
  EXPECT_EQ(findings(8 * kDay), Strings{}) << "its last run did the work";
  add(10, R"("made","runs_on":true)");
  job_ended(12, 99);
  EXPECT_EQ(findings(8 * kDay), Strings{}) << "the program ran on until the job's end";
  add(11, R"("made","runs_on":7)");
  EXPECT_EQ(findings(8 * kDay), Strings{"ckpt_never_restored warning"}) << "it does not say";
}

TEST_F(CheckpointChainTest, WorkAfterASaveThatIsDoneAgainIsLostToo) {
  add(0, R"("restarted")");
  add(100, R"("made","runs_on":true)");
  add(1100, R"("restarted")", "n2");
  add(1200, R"("ended","exit_code":0)", "n2");
  const CheckpointChain chain = only_chain();
  EXPECT_TRUE(chain.lives[1].resumed->repeats_work);
  EXPECT_EQ(chain.lives[1].resumed->away_seconds, 1000);
  EXPECT_EQ(chain.lost_seconds, 1000);
  EXPECT_EQ(chain.repeated_seconds, 1000);
  EXPECT_EQ(finding_text(),
            "In 2 lives the program was saved, waited or was resumed for 16 min 40 s of "
            "20 min 0 s (83 %). In that time it did no work that lasts. Most of it passed between "
            "a save after which the program ran on and the next resume, which did that work "
            "again: save it more often.");
}

TEST_F(CheckpointChainTest, FindsAnImageOfWhichEveryResumeWasRefused) {
  add(0, R"("made")");
  EXPECT_EQ(findings(), Strings{});
  add(60, R"("restart_failed","reason":"other_node")", "n2");
  EXPECT_EQ(finding_text(),
            "The image of 2026-11-28 10:00 on n1 was not resumed: the attempt on n2 was refused "
            "(other_node). Without it, what the program did until then is lost. Submit the job "
            "again to the node that made the image, and keep the next one and the program's files "
            "on a file system that all nodes see.");
  add(90, R"("restart_failed","reason":"engine")", "n3");
  EXPECT_NE(finding_text().find("all 2 attempts were refused, the last one on n3 (engine)."),
            std::string::npos);
  record_.job.state = "COMPLETED";
  EXPECT_EQ(findings(), Strings{}) << "it did its work all the same";
  record_.job.exit_code = 1;
  EXPECT_EQ(findings(), Strings{"ckpt_never_restored warning"});
  add(99, R"("restarted")", "n4");
  EXPECT_EQ(findings(), Strings{});
}

TEST_F(CheckpointChainTest, FindsNothingInARefusalOfAProgramThatHadEnded) {
  add(0, R"("made")");
  add(60, R"("restart_failed","reason":"ended")");
  EXPECT_EQ(findings(8 * kDay), Strings{});
}

TEST_F(CheckpointChainTest, FindsNothingInWhatIsNotVerified) {
  add(0, R"("made")");
  Event forged = step(60, R"("restart_failed","reason":"pid_taken")");
  forged.user.verified = false;
  add(forged);
  EXPECT_EQ(findings(), Strings{});
  EXPECT_EQ(only_chain().refused.size(), 1U);
  record_.later.clear();
  add_two_lives(1200, 1200);
  ASSERT_EQ(findings(), Strings{"ckpt_thrash warning"});
  Event last = *record_.later.back();
  last.user.verified = false;
  record_.later.back() = std::make_shared<const Event>(std::move(last));
  EXPECT_EQ(findings(), Strings{});
  EXPECT_TRUE(checkpoint_sum_text({only_chain()}).ends_with(" (unverified)"));
  EXPECT_EQ(checkpoint_json(record_, at_second(0))["programs"][0]["verified"], false);
  EXPECT_FALSE(only_chain().lives.back().is_verified);
  EXPECT_TRUE(only_chain().lives.front().is_verified);
}

TEST_F(CheckpointChainTest, LeavesOutWhatAnotherUserWrote) {
  struct Writer {
    std::string name;
    std::optional<std::string> uid;
    std::size_t steps;
  };
  record_.job.user = "alice";
  record_.job.uid = "1001";
  for (const Writer& writer : std::vector<Writer>{{"alice", "1001", 2},
                                                  {"alice", std::nullopt, 2},
                                                  {"mallory", "1002", 1},
                                                  {"alice", "1002", 1},
                                                  {"mallory", "1001", 1}}) {
    record_.later.clear();
    add(0, R"("made")");
    Event claimed = step(60, R"("ended","exit_code":0)");
    claimed.user = {.name = writer.name, .id = writer.uid};
    claimed.user.verified = false;
    add(claimed);
    EXPECT_EQ(only_chain().steps.size(), writer.steps) << writer.name;
  }
  record_.job.user.reset();
  EXPECT_EQ(only_chain().steps.size(), 2U) << "nobody knows the owner";
  EXPECT_EQ(only_chain().steps.back().writer, "mallory");
}

TEST_F(CheckpointChainTest, ForProgramsHasSumsAndFindingsAndIsNullWithoutSteps) {
  EXPECT_TRUE(checkpoint_json(record_, at_second(0)).is_null());
  add_two_lives(1200, 1200);
  add(2400, R"("failed","root_pid":42,"reason":"tcp")");
  const auto json = checkpoint_json(record_, at_second(0));
  ASSERT_EQ(json["programs"].size(), 1U);
  EXPECT_EQ(json["programs"][0]["root_pid"], 42);
  EXPECT_EQ(json["programs"][0]["verified"], true);
  EXPECT_EQ(json["programs"][0]["lost_seconds"], 1200);
  EXPECT_EQ(json["programs"][0]["worked_seconds"], 1200);
  ASSERT_EQ(json["findings"].size(), 1U);
  EXPECT_EQ(json["findings"][0]["id"], "ckpt_thrash");
  EXPECT_EQ(json["findings"][0]["value"], 0.5);
  EXPECT_EQ(json["findings"][0]["threshold"], kThrashWarningRatio);
}

}  // namespace
}  // namespace scriptorium::query
