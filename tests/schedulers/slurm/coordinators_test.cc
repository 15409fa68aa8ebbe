#include "schedulers/slurm/coordinators.h"

#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/schedulers/slurm/commands_fixture.h"
#include "tests/support/patience.h"

namespace scriptorium::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// "chem: games; org: daemon games"
std::string list_of(const Result<std::vector<AccountCoordinators>>& answer) {
  if (!answer) return answer.error().message();
  std::string text;
  for (const AccountCoordinators& account : *answer) {
    text += (text.empty() ? "" : "; ") + account.account + ":";
    for (const std::string& user : account.users) text += " " + user;
  }
  return text;
}

std::string list_of(const Result<KnownCoordinators>& answer) {
  if (!answer) return answer.error().message();
  return *answer ? list_of(Result<std::vector<AccountCoordinators>>(**answer)) : "nothing";
}

TEST(ParseCoordinatorsTest, AsSlurmPrintsThem) {
  // Of Slurm 22.05.8: games coordinates chem, of which org is a part.
  EXPECT_EQ(list_of(parse_coordinators("bio|\nchem|games\norg|daemon,games\nroot|\n")),
            "chem: games; org: daemon games");
  EXPECT_EQ(list_of(parse_coordinators("")), "");
  for (const char* odd : {"chem\n", "|games\n", "chem|games|more\n", "\n", "chem|a\nerror\n"}) {
    const auto answer = parse_coordinators(odd);
    ASSERT_FALSE(answer) << odd;
    EXPECT_EQ(answer.error().kind(), ErrorKind::kTransient) << odd;
  }
}

class AskCoordinatorsTest : public CommandsFixture {
 protected:
  Result<KnownCoordinators> ask(std::chrono::milliseconds most = test::kPatience) {
    return ask_coordinators(config_, stop_.get_token(), std::chrono::steady_clock::now() + most);
  }
};

TEST_F(AskCoordinatorsTest, AsksSacctmgrBesideSqueue) {
  set_program("sacctmgr", "[ \"$SLURM_CONF\" = /etc/slurm/test.conf ] && echo 'chem|alice,bob'");
  EXPECT_EQ(list_of(ask()), "chem: alice bob");
  set_program("sacctmgr", "echo 'chem|'");
  EXPECT_EQ(list_of(ask()), "") << "there may be some, and there are none";
  EXPECT_EQ(*read_file(directory_.path_to("sacctmgr.calls")),
            "-n -P show accounts withcoord format=Account,Coordinators\n"
            "-n -P show accounts withcoord format=Account,Coordinators\n");
}

TEST_F(AskCoordinatorsTest, NoneWhereThereIsNothingToAsk) {
  EXPECT_EQ(list_of(ask()), "nothing") << "no sacctmgr";
  // Of Slurm 22.05.8, which ends with 1.
  set_program("sacctmgr",
              "echo 'You are not running a supported accounting_storage plugin' >&2; exit 1");
  EXPECT_EQ(list_of(ask()), "nothing");
  set_program("sacctmgr", "echo 'chem|alice'");
  config_.resolve = Resolve::kNone;
  EXPECT_EQ(list_of(ask()), "nothing");
}

TEST_F(AskCoordinatorsTest, AFailureIsNotAnEmptyAnswer) {
  set_program("sacctmgr", "echo 'sacctmgr: error: Problem talking to the database' >&2; exit 1");
  const auto failed = ask();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind(), ErrorKind::kTransient);
  EXPECT_THAT(failed.error().message(), HasSubstr("Problem talking to the database"));
  set_program("sacctmgr", "echo 'chem|alice'; exec sleep 1000");
  const auto late = ask(std::chrono::milliseconds{50});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind(), ErrorKind::kTransient);
  EXPECT_TRUE(no_child_left());
}

}  // namespace
}  // namespace scriptorium::slurm
