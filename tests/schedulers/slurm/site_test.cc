#include "schedulers/slurm/site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SiteFacts facts_of(const std::string& line) {
  SiteFacts facts;
  EXPECT_EQ(read_fact(line, facts), std::nullopt) << line;
  return facts;
}

TEST(ReadFactTest, ReadsSlurmConfAndScontrolAlike) {
  EXPECT_EQ(facts_of("ClusterName=lab").cluster, "lab");
  EXPECT_EQ(facts_of("  clustername = Lab   # ours").cluster, "lab")
      << "Slurm uses it in lower case";
  EXPECT_EQ(facts_of("ClusterName             = lab").cluster, "lab");
  EXPECT_EQ(facts_of("StateSaveLocation=\"/var/spool/a b\"").state_directory, "/var/spool/a b");
  EXPECT_EQ(facts_of("StateSaveLocation       = /var/spool/slurmctld").state_directory,
            "/var/spool/slurmctld");
  EXPECT_EQ(facts_of("#ClusterName=other").cluster, std::nullopt);
  EXPECT_EQ(facts_of("NodeName=n1 CPUs=4").cluster, std::nullopt);
  SiteFacts facts;
  EXPECT_EQ(read_fact("include /etc/slurm/more.conf  # nodes", facts), "/etc/slurm/more.conf");
}

TEST(IdsInTextTest, NamesTheEntryThatHoldsTheScript) {
  EXPECT_THAT(ids_in_text("8_1"), ElementsAre("8"));
  EXPECT_THAT(ids_in_text("8_[1-3]"), ElementsAre("8"));
  EXPECT_THAT(ids_in_text("10+1"), ElementsAre("11"));
  EXPECT_THAT(ids_in_text("10+0"), ElementsAre("10"));
  for (const char* text : {"10", "a_1", "10+", "+1", "10+a", ""})
    EXPECT_THAT(ids_in_text(text), IsEmpty()) << text;
}

class SiteTest : public ::testing::Test {
 protected:
  std::vector<std::string> mismatches(const std::string& cluster) {
    std::vector<std::string> texts;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{1500};
    for (const Mismatch& m : compare_with_site(config_, cluster, {}, deadline))
      texts.push_back((m.wrong ? "wrong: " : "") + m.text);
    return texts;
  }

  test::TempDir own_;
  std::string spool_ = own_.make_directory("spool");
  SlurmConfig config_{
      .spool = spool_, .slurm_conf = own_.path_to("slurm.conf"), .squeue = own_.path_to("squeue")};
};

TEST_F(SiteTest, AConfigurationThatIsNotThereIsWrong) {
  EXPECT_THAT(mismatches("lab"), ElementsAre(HasSubstr("wrong: slurm_conf: there is no " +
                                                       own_.path_to("slurm.conf"))));
}

TEST_F(SiteTest, WhatFitsSaysNothingAlsoThroughALink) {
  own_.write("slurm.conf", "ClusterName=Lab\nStateSaveLocation=" + own_.path_to("link") + "\n");
  std::filesystem::create_directory_symlink(spool_, own_.path_to("link"));
  EXPECT_THAT(mismatches("lab"), IsEmpty());
}

TEST_F(SiteTest, AnotherClusterAndAnotherDirectoryAreSaidWithTheirNames) {
  own_.write("slurm.conf", "Include more.conf\nStateSaveLocation=\\\n/var/spool/other\n");
  own_.write("more.conf", "ClusterName=there\n");
  EXPECT_THAT(mismatches("here"),
              ElementsAre(HasSubstr("cluster = \"here\", but Slurm's ClusterName is \"there\""),
                          HasSubstr("Slurm's StateSaveLocation is \"/var/spool/other\"")));
}

TEST_F(SiteTest, AnIncludeThatGoesInACircleEnds) {
  own_.write("slurm.conf", "ClusterName=lab\nInclude slurm.conf\n");
  EXPECT_THAT(mismatches("lab"), IsEmpty());
}

TEST_F(SiteTest, AskScontrolBesideSqueueWhereTheFileSaysNothing) {
  own_.write("slurm.conf", "");
  const std::string scontrol =
      own_.write("scontrol", "#!/bin/sh\necho 'ClusterName             = there'\n");
  std::filesystem::permissions(scontrol, std::filesystem::perms::owner_all);
  EXPECT_THAT(mismatches("here"), ElementsAre(HasSubstr("\"there\" (scontrol show config)")));
  own_.write("scontrol", "#!/bin/sh\nsleep 1000\n");
  std::filesystem::permissions(scontrol, std::filesystem::perms::owner_all);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_THAT(mismatches("here"), IsEmpty());
  EXPECT_LT(std::chrono::steady_clock::now() - begun, test::kPatience);
}

}  // namespace
}  // namespace scriptorium::slurm
