#include "schedulers/slurm/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace scriptorium::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SlurmConfigTest : public ::testing::Test {
 protected:
  SlurmConfigTest() {
    table_.path = "source.slurm";
    table_.position = {"scriptorium.toml", 3};
  }
  void set(std::string key, decltype(Value::data) value) {
    table_.entries.push_back({std::move(key), {std::move(value), {"scriptorium.toml", 4}}});
  }
  std::vector<std::string> problem_keys() {
    Problems problems;
    config_ = read_config(table_, problems);
    std::vector<std::string> keys;
    for (const Problem& p : problems.list()) keys.push_back(p.key);
    return keys;
  }
  Table table_;
  SlurmConfig config_;
};

TEST_F(SlurmConfigTest, ASpoolIsEnough) {
  set("spool", std::string("/var/spool/slurmctld"));
  EXPECT_THAT(problem_keys(), IsEmpty());
  EXPECT_EQ(config_.spool, "/var/spool/slurmctld");
  EXPECT_EQ(config_.resolve, Resolve::kSlurmctld);
  EXPECT_EQ(config_.squeue, "");
}

TEST_F(SlurmConfigTest, EveryProblemIsReportedOnce) {
  set("spool", std::string("spool"));
  set("resolve", std::string("libslurm"));
  set("slurm_conf", std::string(""));
  set("squeue", true);
  EXPECT_THAT(problem_keys(),
              ::testing::UnorderedElementsAre("source.slurm.spool", "source.slurm.resolve",
                                              "source.slurm.slurm_conf", "source.slurm.squeue"));
}

TEST_F(SlurmConfigTest, TheSpoolIsRequired) {
  EXPECT_THAT(problem_keys(), ElementsAre("source.slurm.spool"));
}

TEST_F(SlurmConfigTest, EveryOptionIsDescribed) {
  std::vector<std::string> names;
  for (const OptionInfo& info : describe()) {
    names.push_back(info.name);
    EXPECT_FALSE(info.help.empty()) << info.name;
  }
  EXPECT_THAT(names, ElementsAre("spool", "resolve", "slurm_conf", "squeue"));
}

}  // namespace
}  // namespace scriptorium::slurm
