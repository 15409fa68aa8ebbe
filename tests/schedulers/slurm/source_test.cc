#include "schedulers/slurm/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"

namespace scriptorium::slurm {
namespace {

using ::testing::HasSubstr;

class SlurmSourceTest : public ::testing::Test {
 protected:
  test::RecordingLogger log_;
  test::FakeClock clock_;
  SlurmConfig config_{.spool = "/var/spool/slurmctld"};
  SlurmSource source_{config_, {"slurm", "lab", log_, clock_}};

  std::string refusal(const std::vector<std::string>& names) const {
    const auto result = source_.check_root(names);
    if (result) return "accepted";
    EXPECT_EQ(result.error().kind(), ErrorKind::kInvalidConfig);
    return result.error().message();
  }
};

TEST_F(SlurmSourceTest, TakesAFolderThatIsNewOrSlurmctlds) {
  for (const std::vector<std::string>& names :
       std::vector<std::vector<std::string>>{{},
                                             {"lost+found"},
                                             {".snapshot"},
                                             {"hash.3"},
                                             {"job_state"},
                                             {"node_state.old"},
                                             {"clustername", "anything"},
                                             {"jwt_hs256.key"},
                                             {"foreign", "hash.0"},
                                             {"job_state.new"}}) {
    EXPECT_EQ(refusal(names), "accepted") << ::testing::PrintToString(names);
  }
}

TEST_F(SlurmSourceTest, SaysWhoseFolderItIsInstead) {
  EXPECT_THAT(refusal({"server_priv", "aux"}), HasSubstr("Torque's"));
  EXPECT_THAT(refusal({"cred_state", "job00042"}), HasSubstr("slurmd"));
  EXPECT_THAT(refusal({"job.11", "job.21"}), HasSubstr("one of its hash.N folders"));
  EXPECT_THAT(refusal({"etc", "usr"}), HasSubstr("nothing in it is slurmctld's"));
  EXPECT_THAT(refusal({"hash.10"}), HasSubstr("scontrol show config"));
}

TEST_F(SlurmSourceTest, HasNobodyToAskWhenToldSo) {
  EXPECT_NE(source_.make_resolver(), nullptr);
  EXPECT_NE(source_.make_late_owner_resolver(), nullptr);
  config_.resolve = Resolve::kNone;
  SlurmSource silent(config_, {"slurm", "lab", log_, clock_});
  EXPECT_EQ(silent.make_resolver(), nullptr);
  EXPECT_EQ(silent.make_late_owner_resolver(), nullptr);
}

TEST_F(SlurmSourceTest, AnEntrysNumberIsItsJobId) {
  EXPECT_EQ(source_.number_of("hash.7/job.4711117"), 4711117U);
  EXPECT_EQ(source_.number_of("hash.7/job."), std::nullopt);
  EXPECT_EQ(source_.number_of("hash.7/job.x7"), std::nullopt);
  EXPECT_EQ(source_.number_of("nothing"), std::nullopt);
  EXPECT_NE(source_.make_number_resolver(), nullptr);
}

TEST_F(SlurmSourceTest, NamesItsSchedulerAndSpool) {
  EXPECT_EQ(source_.scheduler(), "slurm");
  EXPECT_EQ(source_.spool_root(), "/var/spool/slurmctld");
}

}  // namespace
}  // namespace scriptorium::slurm
