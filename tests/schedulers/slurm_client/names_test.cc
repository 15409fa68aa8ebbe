#include "schedulers/slurm_client/names.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace scriptorium::slurm_client {
namespace {

using namespace std::literals;

TEST(AccountNamesTest, KnowsRootAndHasNoNameForADeletedUser) {
  const AccountNames names = system_account_names();
  EXPECT_EQ(names.user(0), "root");
  EXPECT_EQ(names.group(0), "root");
  EXPECT_EQ(names.user(4'000'000'000U), std::nullopt);
  EXPECT_EQ(names.group(4'000'000'000U), std::nullopt);
}

TEST(AddNamesTest, NamesOnlyNumbersThatHaveNoNameYet) {
  User user{.id = "0", .group_id = "4294967296"};
  add_names(user);
  EXPECT_EQ(user.name, "root");
  EXPECT_EQ(user.group_name, std::nullopt) << "4294967296 must not become group 0";
  User named{.name = "operator", .id = "0"};
  add_names(named);
  EXPECT_EQ(named.name, "operator");
}

class CachedNamesTest : public ::testing::Test {
 protected:
  std::optional<std::string> name_of(const std::string& id) {
    User user{.id = id};
    names_.add_to(user);
    return user.name;
  }

  test::FakeClock clock_;
  int lookups_ = 0;
  CachedNames names_{clock_,
                     {[this](uid_t id) -> std::optional<std::string> {
                        ++lookups_;
                        return id == 1002 ? std::optional<std::string>("bob") : std::nullopt;
                      },
                      [](gid_t) -> std::optional<std::string> { return std::nullopt; }}};
};

TEST_F(CachedNamesTest, LooksANameUpAgainAfterFiveMinutes) {
  EXPECT_EQ(name_of("1002"), "bob");
  EXPECT_EQ(name_of("1002"), "bob");
  EXPECT_EQ(lookups_, 1);
  clock_.advance(5min);
  EXPECT_EQ(name_of("1002"), "bob");
  EXPECT_EQ(lookups_, 2);
}

TEST_F(CachedNamesTest, LooksUpAMissingNameAgainSoonAsTheNameServiceMayBeBack) {
  EXPECT_EQ(name_of("4242"), std::nullopt);
  EXPECT_EQ(name_of("4242"), std::nullopt);
  EXPECT_EQ(lookups_, 1);
  clock_.advance(10s);
  EXPECT_EQ(name_of("4242"), std::nullopt);
  EXPECT_EQ(lookups_, 2);
}

}  // namespace
}  // namespace scriptorium::slurm_client
