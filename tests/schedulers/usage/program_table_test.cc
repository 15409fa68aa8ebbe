#include "schedulers/usage/program_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "schedulers/usage/life.h"

namespace scriptorium::usage {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Optional;

class ProgramTableTest : public ::testing::Test {
 protected:
  ProgramTable table_;
  std::map<std::uint32_t, std::uint64_t> tasks_;
  std::vector<std::string> identified_;
  std::map<std::uint32_t, Executable> answers_;
  std::vector<std::uint32_t> asked_;

  // Each process has the name of its command, and as script what follows a slash in it.
  void take(std::vector<ProcessNow> now) {
    table_.take(std::move(now), [&](const ProcessNow& one) {
      identified_.push_back(one.command);
      const std::size_t slash = one.command.find('/');
      ProcessIdentity identity{{one.command.substr(0, slash), {}}, std::nullopt};
      if (slash != std::string::npos) identity.program.script = one.command.substr(slash + 1);
      if (const auto task = tasks_.find(one.pid); task != tasks_.end())
        identity.task = task->second;
      return std::optional(identity);
    });
  }
  static ProcessNow process(std::uint32_t pid, const std::string& command, double seconds,
                            std::uint64_t threads = 1, std::uint64_t start = 100) {
    return {.pid = pid,
            .start_ticks = start,
            .command = command,
            .cpu_seconds = seconds,
            .threads = threads};
  }
  // Asks for each process whose file is not known; those of which there is an answer have it.
  void learn() {
    table_.learn([&](std::uint32_t pid, std::uint64_t) -> std::optional<Executable> {
      asked_.push_back(pid);
      const auto found = answers_.find(pid);
      return found != answers_.end() ? std::optional(found->second) : std::nullopt;
    });
  }
  // "name path seconds processes" of each program.
  std::vector<std::string> files() const {
    std::vector<std::string> all;
    for (const ProgramUse& one : table_.shares(std::nullopt).programs) {
      all.push_back(one.name + " " + one.path + " " +
                    std::to_string(static_cast<int>(one.cpu_seconds + 0.5)) + " " +
                    std::to_string(one.processes));
    }
    return all;
  }
  // "name script seconds" of each program, then the others.
  static std::vector<std::string> text_of(const ProgramShares& shares) {
    std::vector<std::string> all;
    const auto seconds = [](double value) {
      return std::to_string(static_cast<int>(value * 100 + 0.5));
    };
    for (const ProgramUse& one : shares.programs) {
      all.push_back(one.name + (one.script.empty() ? "" : " ") + one.script + " " +
                    seconds(one.cpu_seconds));
    }
    if (shares.other) all.push_back("(other) " + seconds(shares.other->cpu_seconds));
    if (shares.unseen) all.push_back("(unseen) " + seconds(shares.unseen->cpu_seconds));
    return all;
  }
  static double sum_of(const ProgramShares& shares) {
    double sum = shares.other ? shares.other->cpu_seconds : 0;
    if (shares.unseen) sum += shares.unseen->cpu_seconds;
    for (const ProgramUse& one : shares.programs) sum += one.cpu_seconds;
    return sum;
  }
  void restart() {
    LifeState life;
    life.job.job_id = "1";
    life.programs = table_;
    table_ = parse_life(life_record(life))->programs;
  }
};

TEST_F(ProgramTableTest, DividesTheCpuTimeOfAJobAmongItsPrograms) {
  take({process(1, "bash", 0.1), process(2, "python3/a.py", 10, 4)});
  take({process(1, "bash", 0.2), process(2, "python3/a.py", 50, 8), process(3, "python3/b.py", 5)});
  take({process(1, "bash", 0.2), process(3, "python3/b.py", 25)});
  const ProgramShares shares = table_.shares(100);
  EXPECT_THAT(text_of(shares),
              ElementsAre("python3 a.py 5000", "python3 b.py 2500", "bash 20", "(unseen) 2480"));
  EXPECT_THAT(shares.programs[0].cpu_ratio, Optional(DoubleNear(0.5, 1e-9)));
  EXPECT_EQ(shares.programs[0].threads, 8U);
  EXPECT_EQ(shares.programs[0].processes, 1U);
  EXPECT_DOUBLE_EQ(sum_of(shares), 100);
}

TEST_F(ProgramTableTest, BusyThreadsAreTheMostOfOneReadingInWhichAllWereCounted) {
  const auto at_once = [&](std::vector<std::optional<std::uint64_t>> busy) {
    std::vector<ProcessNow> now;
    for (const auto& threads : busy) {
      now.push_back(process(static_cast<std::uint32_t>(now.size()) + 1, "gmx", 1, 8));
      now.back().busy_threads = threads;
    }
    take(std::move(now));
    return table_.shares(100).programs.at(0).busy_threads;
  };
  EXPECT_EQ(at_once({std::nullopt}), std::nullopt);
  take({});
  EXPECT_EQ(table_.shares(100).programs.at(0).busy_threads, std::nullopt);
  EXPECT_EQ(at_once({2, 3}), 5U);
  EXPECT_EQ(at_once({8, std::nullopt}), 5U);
  EXPECT_EQ(at_once({1}), 5U);
  restart();
  EXPECT_EQ(at_once({1}), 5U);
}

TEST_F(ProgramTableTest, WithoutATotalNothingHasAShareAndNothingIsUnseen) {
  take({process(1, "bash", 2)});
  const ProgramShares shares = table_.shares(std::nullopt);
  EXPECT_THAT(text_of(shares), ElementsAre("bash 200"));
  EXPECT_FALSE(shares.programs[0].cpu_ratio.has_value());
}

TEST_F(ProgramTableTest, WithoutAProgramNothingIsSaid) {
  take({});
  EXPECT_THAT(text_of(table_.shares(100)), ElementsAre());
}

TEST_F(ProgramTableTest, ANumberThatIsUsedAgainIsAnotherProcess) {
  take({process(1, "a", 10, 1, 100)});
  take({process(1, "a", 3, 1, 200)});
  EXPECT_THAT(text_of(table_.shares(20)), ElementsAre("a 1300", "(unseen) 700"));
  EXPECT_EQ(table_.shares(20).programs[0].processes, 1U);
}

TEST_F(ProgramTableTest, AProcessThatExecutesAnotherProgramCountsForItFromThenOn) {
  take({process(1, "bash", 1)});
  take({process(1, "python3/a.py", 5)});
  take({process(1, "python3/a.py", 7)});
  EXPECT_THAT(text_of(table_.shares(9)),
              ElementsAre("python3 a.py 600", "bash 100", "(unseen) 200"));
}

TEST_F(ProgramTableTest, AProcessIsIdentifiedOnceForEachProgram) {
  for (int i = 0; i < 5; ++i) take({process(1, "bash", i)});
  for (int i = 5; i < 8; ++i) take({process(1, "gmx", i)});
  EXPECT_THAT(identified_, ElementsAre("bash", "gmx"));
}

TEST_F(ProgramTableTest, AProcessThatCannotBeIdentifiedIsCountedWhenItCan) {
  const auto nothing = [](const ProcessNow&) { return std::optional<ProcessIdentity>(); };
  table_.take({process(1, "a", 5)}, nothing);
  EXPECT_TRUE(table_.shares(5).programs.empty());
  take({process(1, "a", 7)});
  table_.take({process(1, "b", 9)}, nothing);
  EXPECT_THAT(text_of(table_.shares(9)), ElementsAre("a 900", "(unseen) 0"))
      << "one that was known stays what it was";
  take({process(1, "b", 10)});
  EXPECT_THAT(text_of(table_.shares(10)), ElementsAre("a 900", "b 100", "(unseen) 0"));
}

TEST_F(ProgramTableTest, AProcessThatOneReadingDoesNotMeetIsNotCountedTwice) {
  take({process(1, "a", 10)});
  take({});
  take({process(1, "a", 12)});
  EXPECT_THAT(text_of(table_.shares(100)), ElementsAre("a 1200", "(unseen) 8800"));
}

TEST_F(ProgramTableTest, AProcessThatTwoReadingsDoNotMeetIsForgotten) {
  take({process(1, "a", 10)});
  take({});
  take({});
  EXPECT_EQ(table_.state().processes, "");
}

TEST_F(ProgramTableTest, AProcessThatIsListedTwiceIsOne) {
  take({process(2, "b", 1), process(1, "a", 10), process(2, "b", 1)});
  EXPECT_THAT(text_of(table_.shares(100)), ElementsAre("a 1000", "b 100", "(unseen) 8900"));
  EXPECT_EQ(table_.shares(100).programs[1].processes, 1U);
}

TEST_F(ProgramTableTest, ATimeThatGoesBackTakesNothingAway) {
  take({process(1, "a", 10)});
  take({process(1, "a", 9.9)});
  EXPECT_THAT(text_of(table_.shares(100)), ElementsAre("a 1000", "(unseen) 9000"));
  take({process(1, "a", 11)});
  EXPECT_THAT(text_of(table_.shares(100)), ElementsAre("a 1100", "(unseen) 8900"));
}

TEST_F(ProgramTableTest, MoreThanTheJobUsedIsReducedToIt) {
  take({process(1, "a", 30), process(2, "b", 10)});
  const ProgramShares shares = table_.shares(20);
  EXPECT_THAT(text_of(shares), ElementsAre("a 1500", "b 500", "(unseen) 0"));
  EXPECT_THAT(shares.programs[0].cpu_ratio, Optional(DoubleNear(0.75, 1e-9)));
  EXPECT_THAT(text_of(table_.shares(0)), ElementsAre("a 0", "b 0", "(unseen) 0"));
}

TEST_F(ProgramTableTest, TheThirtyThirdProgramIsOther) {
  std::vector<ProcessNow> now;
  for (std::uint32_t i = 1; i <= 33; ++i) now.push_back(process(i, "p" + std::to_string(i), i));
  take(now);
  const ProgramShares shares = table_.shares(600);
  ASSERT_EQ(shares.programs.size(), kMostProgramsShown);
  EXPECT_EQ(shares.programs.front().name, "p33");
  EXPECT_EQ(shares.programs.back().name, "p2");
  EXPECT_THAT(shares.other->cpu_seconds, DoubleNear(1, 1e-9));
  EXPECT_DOUBLE_EQ(sum_of(shares), 600);
}

TEST_F(ProgramTableTest, WhatIsRememberedIsBoundedAndAddsUpAllTheSame) {
  double total = 0;
  for (std::uint32_t i = 1; i <= 3000; ++i) {
    take({process(1, "main", 10.0 * i), process(i + 1, "p" + std::to_string(i), 1, 1, i)});
    total += 11;
  }
  EXPECT_LE(table_.state().programs.size(), ProgramTable::kMostPrograms);
  const ProgramShares shares = table_.shares(total);
  EXPECT_EQ(shares.programs.front().name, "main") << "what runs keeps its place";
  EXPECT_NEAR(shares.programs.front().cpu_seconds, 30'000, 1e-6);
  EXPECT_NEAR(shares.unseen->cpu_seconds, 0, 1e-6);
  EXPECT_NEAR(sum_of(shares), total, 1e-6);
}

TEST_F(ProgramTableTest, WhileAllProgramsOfAFullTableRunANewOneIsOther) {
  std::vector<ProcessNow> now;
  for (std::uint32_t i = 1; i <= ProgramTable::kMostPrograms + 5; ++i)
    now.push_back(process(i, "p" + std::to_string(i), 1));
  take(now);
  EXPECT_EQ(table_.state().programs.size(), ProgramTable::kMostPrograms);
  EXPECT_THAT(table_.state().other_cpu_seconds, Optional(DoubleNear(5, 1e-9)));
  restart();
  for (ProcessNow& one : now) one.cpu_seconds = 2;
  take(now);
  EXPECT_DOUBLE_EQ(sum_of(table_.shares(266)), 266);
  EXPECT_THAT(table_.state().other_cpu_seconds, Optional(DoubleNear(10, 1e-9)));
}

TEST_F(ProgramTableTest, RanksAreTheTasksOfSrunThatRanItAtOnce) {
  constexpr std::uint64_t kStep1 = std::uint64_t{1} << 32U;
  tasks_ = {{1, 0}, {2, 0}, {3, 1}, {4, kStep1}, {5, 1}};
  take({process(1, "wrap", 0), process(2, "mpi", 9), process(3, "mpi", 9), process(5, "mpi", 0),
        process(9, "bash", 0)});
  take({process(9, "bash", 0), process(4, "mpi", 9, 16)});
  const ProgramShares shares = table_.shares(27);
  ASSERT_EQ(shares.programs.size(), 3U);
  EXPECT_THAT(shares.programs[0].ranks, Optional(2U));
  EXPECT_EQ(shares.programs[0].processes, 3U) << "two of them of one task";
  EXPECT_EQ(shares.programs[0].threads, 16U);
  EXPECT_FALSE(shares.programs[1].ranks.has_value()) << "the batch script is no rank";
  EXPECT_THAT(shares.programs[2].ranks, Optional(1U));
}

TEST_F(ProgramTableTest, ARestartNeitherLosesNorCountsTwice) {
  tasks_ = {{2, 7}};
  take({process(1, "bash", 0.5), process(2, "gmx", 40.25, 4), process(3, "a\n\"\\ b", 1)});
  const auto before = text_of(table_.shares(50));
  restart();
  EXPECT_EQ(text_of(table_.shares(50)), before);
  take({process(1, "bash", 0.5), process(2, "gmx", 45, 4)});
  EXPECT_THAT(text_of(table_.shares(50)),
              ElementsAre("gmx 4500", "a\n\"\\ b 100", "bash 50", "(unseen) 350"));
  EXPECT_THAT(table_.shares(50).programs[0].ranks, Optional(1U));
}

TEST_F(ProgramTableTest, AStateThatIsOddLosesOnlyWhatIsOdd) {
  const ProgramTable table = ProgramTable::from(
      {.programs = {{.name = "a", .cpu_seconds = 3}},
       .other_cpu_seconds = 1,
       .processes = "9:100:500:7: x :: 4:1 3:100:1000:0:5 3:100:1000:0:5 3:-1:0:0: "
                    "8:1:18446744073709551615:0: "});
  EXPECT_EQ(table.state().processes, "3:100:1000:0:5 9:100:500::")
      << "in order; a program that there is not is other";
}

TEST_F(ProgramTableTest, ALifeOfAnOlderDaemonHasNoPrograms) {
  const auto life = parse_life(R"({"job":{"id":"7"},"started_ns":5,"readings":3})");
  ASSERT_TRUE(life.has_value());
  EXPECT_TRUE(life->programs.shares(5).programs.empty());
}

// ---- the files of programs

TEST_F(ProgramTableTest, AnAnswerMovesWhatTheProcessUsedSinceItExecutesTheProgram) {
  take({process(1, "bash", 5)});
  take({process(1, "gmx", 7), process(2, "gmx", 3)});
  learn();
  EXPECT_THAT(files(), ElementsAre("bash  5 1", "gmx  5 2"));
  take({process(1, "gmx", 10), process(2, "gmx", 4)});
  answers_[1] = {"gmx", "/a/gmx", "1234"};
  learn();
  EXPECT_THAT(files(), ElementsAre("bash  5 1", "gmx /a/gmx 5 1", "gmx  4 2"));
  EXPECT_EQ(table_.state().programs.back().build_id, "1234");
  answers_[2] = {"gmx", "/b/gmx", "5678"};
  learn();
  EXPECT_THAT(files(), ElementsAre("bash  5 1", "gmx /a/gmx 5 1", "gmx /b/gmx 4 1"))
      << "a program of which all processes have a file is not listed without one";
  take({process(1, "gmx", 20), process(2, "gmx", 24)});
  EXPECT_THAT(files(), ElementsAre("gmx /b/gmx 24 1", "gmx /a/gmx 15 1", "bash  5 1"));
}

TEST_F(ProgramTableTest, AProcessIsAskedForUntilItsFileIsKnownOrCannotBe) {
  take({process(1, "a", 1), process(2, "b", 1), process(3, "c", 1)});
  learn();
  answers_ = {{1, {"a", "/a", ""}}, {2, {}}};
  learn();
  learn();
  take({process(1, "a", 2), process(2, "b", 2), process(3, "c", 2)});
  learn();
  EXPECT_THAT(asked_, ElementsAre(1, 2, 3, 1, 2, 3, 3, 3));
  EXPECT_THAT(files(), ElementsAre("a /a 2 1", "b  2 1", "c  2 1"));
}

TEST_F(ProgramTableTest, AnAnswerAboutAnotherProgramOfTheProcessIsAskedForAgain) {
  take({process(1, "bash", 5)});
  learn();
  answers_[1] = {"gmx", "/a/gmx", ""};
  learn();
  EXPECT_THAT(files(), ElementsAre("bash  5 1")) << "it executed gmx before the answer was made";
  take({process(1, "gmx", 7)});
  learn();
  EXPECT_THAT(files(), ElementsAre("bash  5 1", "gmx /a/gmx 2 1"));
  take({process(1, "namd", 10)});
  learn();
  EXPECT_THAT(files(), ElementsAre("bash  5 1", "namd  3 1", "gmx /a/gmx 2 1"));
  EXPECT_THAT(asked_, ElementsAre(1, 1, 1, 1));
}

TEST_F(ProgramTableTest, AnAnswerThatComesAfterTheProcessEndedCounts) {
  take({process(1, "gmx", 5)});
  take({});
  answers_[1] = {"gmx", "/a/gmx", ""};
  learn();
  EXPECT_THAT(files(), ElementsAre("gmx /a/gmx 5 1"));
}

TEST_F(ProgramTableTest, FilesOutliveARestart) {
  take({process(1, "gmx", 5), process(2, "bash", 1)});
  answers_[1] = {"gmx", "/a/gmx", "1234"};
  learn();
  restart();
  EXPECT_EQ(table_.state().programs.at(1).build_id, "1234");
  asked_.clear();
  learn();
  EXPECT_TRUE(asked_.empty()) << "it is not known yet what the processes execute";
  take({process(1, "gmx", 8), process(2, "bash", 1)});
  EXPECT_THAT(files(), ElementsAre("gmx /a/gmx 5 1", "gmx  3 1", "bash  1 1"));
  learn();
  EXPECT_THAT(files(), ElementsAre("gmx /a/gmx 8 1", "bash  1 1"));
}

TEST_F(ProgramTableTest, FilesOfAFullTableAddUpAllTheSame) {
  std::vector<ProcessNow> now;
  for (std::uint32_t i = 1; i <= ProgramTable::kMostPrograms + 5; ++i) {
    now.push_back(process(i, "p", 1));
    answers_[i] = {"p", "/" + std::to_string(i), ""};
  }
  for (int i = 0; i < 3; ++i) {
    take(now);
    learn();
    for (ProcessNow& one : now) one.cpu_seconds += 1;
  }
  EXPECT_EQ(table_.state().programs.size(), ProgramTable::kMostPrograms);
  EXPECT_NEAR(sum_of(table_.shares(3.0 * static_cast<double>(now.size()))),
              3.0 * static_cast<double>(now.size()), 1e-6);
}

TEST_F(ProgramTableTest, APathIsBoundedText) {
  take({process(1, "a", 1)});
  answers_[1] = {"a", "/\xff" + std::string(2000, 'x'), ""};
  learn();
  const std::string path = table_.state().programs.at(0).path;
  EXPECT_EQ(path.size(), 1024U);
  EXPECT_TRUE(path.starts_with("/\xef\xbf\xbdxxx"));
}

NodeUsage node_with(std::vector<ProgramUse> programs, std::optional<double> other,
                    double total_seconds) {
  NodeUsage node;
  node.cpu.time_seconds = total_seconds;
  node.programs = share_out(std::move(programs), other, total_seconds);
  return node;
}

TEST_F(ProgramTableTest, NodesAreMergedByNameAndScript) {
  const ProgramUse mpi{.name = "mpi", .cpu_seconds = 40, .processes = 4, .threads = 8, .ranks = 4};
  const ProgramUse python{.name = "python3", .script = "a.py", .cpu_seconds = 5, .processes = 1};
  ProgramUse other_script = python;
  other_script.script = "b.py";
  const ProgramShares shares =
      merge_programs({node_with({mpi, python}, 1, 50), node_with({mpi, other_script}, 2, 50),
                      node_with({}, {}, 50)},
                     150);
  EXPECT_THAT(text_of(shares), ElementsAre("mpi 8000", "python3 a.py 500", "python3 b.py 500",
                                           "(other) 300", "(unseen) 5700"));
  EXPECT_EQ(shares.programs[0].processes, 8U);
  EXPECT_EQ(shares.programs[0].threads, 16U);
  EXPECT_THAT(shares.programs[0].ranks, Optional(8U));
  EXPECT_THAT(shares.programs[0].cpu_ratio, Optional(DoubleNear(80.0 / 150, 1e-9)));
  EXPECT_FALSE(shares.programs[1].ranks.has_value());
}

TEST_F(ProgramTableTest, AProgramInAContainerIsNotMergedWithItsNamesake) {
  const ProgramUse outside{.name = "mpi", .cpu_seconds = 4};
  const ProgramUse inside{.name = "mpi", .container = "img", .cpu_seconds = 6};
  const auto node = node_with({outside, inside}, {}, 10);
  const std::vector<ProgramUse> merged = merge_programs({node, node}, 20).programs;
  ASSERT_EQ(merged.size(), 2U);
  EXPECT_EQ(merged[0].container, "img");
  EXPECT_DOUBLE_EQ(merged[0].cpu_seconds, 12);
}

TEST_F(ProgramTableTest, ANodesRecordKeepsItsPrograms) {
  NodeUsage node =
      node_with({{.name = "a", .script = "b", .cpu_seconds = 1.5, .threads = 2}}, 1, 4);
  node.job.job_id = "1";
  const auto back = parse_node(node_record(node));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(node_record(*back), node_record(node));
  EXPECT_THAT(text_of(back->programs), ElementsAre("a b 150", "(other) 100", "(unseen) 150"));
}

}  // namespace
}  // namespace scriptorium::usage
