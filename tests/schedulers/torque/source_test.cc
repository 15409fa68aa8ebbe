#include "schedulers/torque/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/recording_logger.h"

namespace scriptorium::torque {
namespace {

using ::testing::HasSubstr;

class TorqueSourceTest : public testing::Test {
 protected:
  Result<void> check(const std::string& spool, const std::vector<std::string>& names,
                     std::set<std::string> there = {}) {
    const TorqueSource source({spool}, context_,
                              [&there](const std::string& path) { return there.contains(path); });
    return source.check_root(names);
  }

  test::RecordingLogger log_;
  const PluginContext context_{"torque", "lab", log_, system_clock()};
};

TEST_F(TorqueSourceTest, WatchesTheJobsOfTheServer) {
  EXPECT_EQ(TorqueSource({"/var/spool/torque"}, context_).spool_root(),
            "/var/spool/torque/server_priv/jobs");
}

TEST_F(TorqueSourceTest, TakesASpoolOfEveryLayoutAndAFreshOne) {
  EXPECT_TRUE(check("/t", {}));
  EXPECT_TRUE(check("/t", {"0", "1", "9"}));
  EXPECT_TRUE(check("/t", {"12.host.SC", "12.host.JB"}));
  EXPECT_TRUE(check("/t", {"12-1.host.JB", ".x"}));
}

TEST_F(TorqueSourceTest, OpenPbsIsRefusedWithWhyAndWhatToDo) {
  for (const char* mark : {"/var/spool/pbs/datastore", "/var/spool/pbs/pbs_version"}) {
    for (const char* spool :
         {"/var/spool/pbs", "/var/spool/pbs/server_priv", "/var/spool/pbs/server_priv/jobs"}) {
      const auto refused = check(spool, {}, {mark});
      ASSERT_FALSE(refused) << mark << " " << spool;
      EXPECT_EQ(refused.error().kind(), ErrorKind::kInvalidConfig);
      EXPECT_THAT(refused.error().message(), HasSubstr("OpenPBS"));
      EXPECT_THAT(refused.error().message(), HasSubstr("in a database and none in its spool"));
      EXPECT_THAT(refused.error().message(), HasSubstr("queuejob hook"));
    }
  }
}

TEST_F(TorqueSourceTest, TheSpoolOfAnExecutionHostIsRefused) {
  const auto refused = check("/var/spool/torque/mom_priv/jobs", {"12.host.SC"});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("can change its own script"));
}

TEST_F(TorqueSourceTest, AFolderOfSomethingElseIsRefused) {
  EXPECT_THAT(check("/t", {"hash.0", "job_state"}).error().message(), HasSubstr("Slurm"));
  EXPECT_THAT(check("/t", {"bin", "etc"}).error().message(),
              HasSubstr("nothing in it is pbs_server's"));
}

}  // namespace
}  // namespace scriptorium::torque
