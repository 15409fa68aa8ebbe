#include "core/import/owners.h"
#include "core/base/time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"

namespace scriptorium::import {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kWritten = 1'730'635'200 * kSecond;  // 2024-11-03T12:00:00Z

constexpr const char* kList =
    "JobIDRaw|User|UID|Group|GID|Account|Partition|QOS|Submit\n"
    "11|alice|1001|chem|2001|proj1|batch|normal|2024-11-03T11:59:58\n"
    "12|bob|1002|phys|2002||||2024-11-03T11:59:58\n"
    "12|eve|1003|phys|2002||||2024-11-03T11:58:00\n"
    "13|carol|1004|phys|2002||||2023-11-03T11:59:58\n";

class OwnersTest : public testing::Test {
 protected:
  static Event job(const std::string& id, std::int64_t time = kWritten) {
    Event event;
    event.job.id = id;
    event.time = {time};
    event.user.name = "claimed";
    return event;
  }
  static OwnerList list(std::string_view text = kList) {
    auto parsed = OwnerList::parse(text, "owners.txt");
    EXPECT_TRUE(parsed) << parsed.error().message();
    return parsed ? *std::move(parsed) : OwnerList{};
  }
  test::TempDir own_;
};

TEST_F(OwnersTest, TheOwnerOfAccountingReplacesWhatTheTreeClaims) {
  Event event = job("11");
  EXPECT_TRUE(list().verify(event));
  EXPECT_EQ(event.user.name, "alice");
  EXPECT_EQ(event.user.id, "1001");
  EXPECT_EQ(event.user.group_name, "chem");
  EXPECT_EQ(event.user.group_id, "2001");
  EXPECT_TRUE(event.user.verified);
  EXPECT_EQ(event.job.account, "proj1");
  EXPECT_EQ(event.job.partition, "batch");
  EXPECT_EQ(event.job.submitted_at, Timestamp{kWritten - 2 * kSecond});
}

TEST_F(OwnersTest, AnIdThatWasUsedAgainVerifiesNobodyOfTheOtherTime) {
  Event event = job("13");
  EXPECT_FALSE(list().verify(event)) << "the same id a year before";
  EXPECT_FALSE(event.user.verified);
  EXPECT_EQ(event.user.name, "claimed");
  Event old = job("13", kWritten - 366 * 86'400 * kSecond);
  EXPECT_TRUE(list().verify(old));
}

TEST_F(OwnersTest, TwoOwnersAtAboutTheSameTimeVerifyNobody) {
  Event event = job("12");
  EXPECT_FALSE(list().verify(event));
  EXPECT_FALSE(event.user.verified);
}

TEST_F(OwnersTest, OnlyTheHourBeforeCounts) {
  for (const auto& [late, counts] : {std::pair{-299, true}, std::pair{-301, false},
                                     std::pair{3599, true}, std::pair{3601, false}}) {
    Event event = job("11", kWritten - 2 * kSecond + late * kSecond);
    EXPECT_EQ(list().verify(event), counts) << late;
  }
}

TEST_F(OwnersTest, LinesThatMakeNoSenseAreCountedAndVerifyNobody) {
  const OwnerList odd = list(
      "User|JobIDRaw|Submit|UID\n\nalice|1|2024-11-03T11:59:58|1001\nalice|2|Unknown|1001\nalice|3|"
      "2024-11-03T11:59:58\n"
      "a/"
      "b|4|2024-11-03T11:59:58|1001\nalice|5|2024-11-03T11:59:58|x\n|6|2024-11-03T11:59:58|"
      "1\nalice|7|2024-11-03T11:59:58|1|"
      "more\n");
  EXPECT_EQ(odd.jobs(), 1U);
  EXPECT_EQ(odd.odd_lines(), 6U);
  Event event = job("1");
  EXPECT_TRUE(odd.verify(event));
}

TEST_F(OwnersTest, AListWithoutTheColumnsIsRefusedWithTheCommandThatMakesOne) {
  for (const char* text : {"", "11|alice|1001\n", "JobIDRaw|User\n1|a\n", "JobIDRaw|Submit\n"}) {
    const auto refused = OwnerList::parse(text, "owners.txt");
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().kind(), ErrorKind::kInvalidConfig);
    EXPECT_THAT(refused.error().message(), HasSubstr("owners.txt:1: no column"));
    EXPECT_THAT(refused.error().message(), HasSubstr("TZ=UTC sacct"));
  }
}

TEST_F(OwnersTest, AFileThatOthersCouldHaveWrittenIsRefused) {
  const std::string file = own_.write("owners.txt", kList);
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  const auto good = OwnerList::read(file, ::geteuid());
  ASSERT_TRUE(good) << good.error().message();
  EXPECT_EQ(good->jobs(), 4U);
  ASSERT_EQ(::chmod(file.c_str(), 0620), 0);
  const auto refused = OwnerList::read(file, ::geteuid());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("others could have written it"));
  EXPECT_FALSE(OwnerList::read(own_.path(), ::geteuid())) << "a folder";
  EXPECT_EQ(OwnerList::read(own_.path_to("none"), ::geteuid()).error().kind(),
            ErrorKind::kVanished);
}

}  // namespace
}  // namespace scriptorium::import
