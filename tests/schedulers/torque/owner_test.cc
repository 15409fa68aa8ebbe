#include "schedulers/torque/owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace scriptorium::torque {
namespace {

using namespace std::literals;

class AccountResolverTest : public testing::Test {
 protected:
  Accounts accounts() {
    return {[this](const std::string& name) -> Result<std::optional<std::uint32_t>> {
              ++asked_;
              if (down_)
                return Error(ErrorKind::kTransient,
                             "the name service cannot be asked for an account");
              return name == "carol" ? std::optional<std::uint32_t>(3001) : std::nullopt;
            },
            [](const std::string& name) -> Result<std::optional<std::uint32_t>> {
              return name == "chem" ? std::optional<std::uint32_t>(2001) : std::nullopt;
            }};
  }

  static Event event(std::optional<std::string> name, bool verified = true) {
    Event made;
    made.user.name = std::move(name);
    made.user.group_name = "chem";
    made.user.verified = verified;
    return made;
  }

  Result<OwnerAnswer> ask(const Event& event) {
    OwnerQuery query;
    query.event = &event;
    auto answers = resolver_.resolve({&query, 1}, {}, clock_.steady() + 10s);
    if (!answers) return answers.error();
    return answers->at(0);
  }

  int asked_ = 0;
  bool down_ = false;
  test::FakeClock clock_;
  AccountResolver resolver_{clock_, accounts()};
};

TEST_F(AccountResolverTest, AddsTheNumbersOfTheNames) {
  const auto answer = ask(event("carol"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->state, OwnerAnswer::State::kFound);
  EXPECT_EQ(answer->user.name, "carol");
  EXPECT_EQ(answer->user.id, "3001");
  EXPECT_EQ(answer->user.group_id, "2001");
  EXPECT_TRUE(answer->user.verified);
}

TEST_F(AccountResolverTest, AnOwnerWithoutAnAccountHereGoesOutVerifiedAndWithoutANumber) {
  const auto answer = ask(event("dave"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->state, OwnerAnswer::State::kFound);
  EXPECT_FALSE(answer->user.id);
  EXPECT_TRUE(answer->user.verified);
}

TEST_F(AccountResolverTest, NobodyIsAskedAboutANameThatTheServerDidNotSet) {
  const auto answer = ask(event("carol", false));
  ASSERT_TRUE(answer);
  EXPECT_FALSE(answer->user.verified || answer->user.id);
  EXPECT_EQ(asked_, 0);
}

TEST_F(AccountResolverTest, ANameServiceThatIsDownIsAskedAgain) {
  down_ = true;
  const auto failed = ask(event("carol"));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind(), ErrorKind::kTransient);
  down_ = false;
  EXPECT_EQ(ask(event("carol"))->user.id, "3001");
}

TEST_F(AccountResolverTest, ANameIsAskedForOnceInAWhile) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(ask(event("carol")));
  EXPECT_EQ(asked_, 1);
  clock_.advance(6min);
  ASSERT_TRUE(ask(event("carol")));
  EXPECT_EQ(asked_, 2);
}

TEST_F(AccountResolverTest, WhenStoppedItLeavesTheRestForLater) {
  std::stop_source stop;
  stop.request_stop();
  const Event waiting = event("carol");
  OwnerQuery query;
  query.event = &waiting;
  const auto answers = resolver_.resolve({&query, 1}, stop.get_token(), clock_.steady() + 10s);
  ASSERT_TRUE(answers);
  EXPECT_EQ(answers->at(0).state, OwnerAnswer::State::kNotYet);
}

TEST(SystemAccountsTest, KnowRootAndNobodyElse) {
  const Accounts system = system_accounts();
  EXPECT_EQ(system.user("root").value(), std::optional<std::uint32_t>(0));
  EXPECT_EQ(system.group("root").value(), std::optional<std::uint32_t>(0));
  EXPECT_EQ(system.user("no such user, and never one").value(), std::nullopt);
}

}  // namespace
}  // namespace scriptorium::torque
