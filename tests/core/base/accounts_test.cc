#include "core/base/accounts.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

namespace scriptorium {
namespace {

using namespace std::string_literals;

// What a name service says, and what it was asked with.
struct Fake {
  int code = 0;
  std::size_t needs = 0;  // bytes of buffer
  int interrupts = 0;     // before the answer
  int asked = 0;
};
Fake fake;

int answer(const char* name, passwd* entry, char* buffer, std::size_t size, passwd** found) {
  *found = nullptr;
  ++fake.asked;
  if (fake.interrupts > 0) {
    --fake.interrupts;
    return EINTR;
  }
  if (size < fake.needs) return ERANGE;
  if (fake.code != 0) return fake.code;
  std::strcpy(buffer, name);  // NOLINT: the buffer has KiB
  entry->pw_name = buffer;
  entry->pw_uid = 7;
  entry->pw_gid = 8;
  *found = entry;
  return 0;
}

class AccountsTest : public ::testing::Test {
 protected:
  AccountsTest() { fake = {}; }
};

TEST_F(AccountsTest, RootIsFoundByNameAndByNumber) {
  for (const auto& user : {find_user("root"), find_user(uid_t{0})}) {
    ASSERT_TRUE(user) << user.error().message();
    ASSERT_TRUE(*user);
    EXPECT_EQ((*user)->name, "root");
    EXPECT_EQ((*user)->uid, 0U);
    EXPECT_EQ((*user)->gid, 0U);
    EXPECT_EQ((*user)->home, "/root");
    EXPECT_EQ(groups_of(**user).at(0), 0U);
  }
  for (const auto& group : {find_group("root"), find_group(gid_t{0})}) {
    ASSERT_TRUE(group) << group.error().message();
    ASSERT_TRUE(*group);
    EXPECT_EQ((*group)->name, "root");
    EXPECT_EQ((*group)->gid, 0U);
  }
}

TEST_F(AccountsTest, AUsersGroupsBeginWithThePrimaryOne) {
  EXPECT_EQ(groups_of({"no such user, and never one", 4711, 4712, ""}), std::vector<gid_t>{4712});
}

TEST_F(AccountsTest, WhatIsInNoDatabaseIsNoError) {
  for (const auto& user : {find_user("no such user, and never one"),
                           find_user(uid_t{4'000'000'000U}), find_user("")}) {
    ASSERT_TRUE(user) << user.error().message();
    EXPECT_FALSE(*user);
  }
  for (const auto& group : {find_group("no such group, and never one"),
                            find_group(gid_t{4'000'000'000U}), find_group("")}) {
    ASSERT_TRUE(group) << group.error().message();
    EXPECT_FALSE(*group);
  }
}

TEST_F(AccountsTest, ANameIsNotTakenForItsBeginning) {
  EXPECT_EQ(find_user("root\0x"s).value(), std::nullopt);
  EXPECT_EQ(find_group("root\0x"s).value(), std::nullopt);
}

TEST_F(AccountsTest, TheBufferGrowsUntilTheRecordFits) {
  for (const std::size_t needs : {100U, 5000U, 4U << 20}) {
    fake = {.needs = needs};
    const auto user = find_user("carol", answer);
    ASSERT_TRUE(user) << needs << ": " << user.error().message();
    ASSERT_TRUE(*user) << needs;
    EXPECT_EQ((*user)->name, "carol");
    EXPECT_EQ((*user)->uid, 7U);
    EXPECT_EQ((*user)->gid, 8U);
  }
}

TEST_F(AccountsTest, ARecordThatNeverFitsIsAnErrorAndNotAskedForWithoutEnd) {
  fake.needs = ~std::size_t{0};
  const auto user = find_user("carol", answer);
  ASSERT_FALSE(user);
  EXPECT_EQ(user.error().kind(), ErrorKind::kTransient);
  EXPECT_LT(fake.asked, 20);
}

TEST_F(AccountsTest, AnErrorIsToldApartFromNoSuchName) {
  for (const int code : {EIO, ENOMEM, EMFILE, EAGAIN}) {
    fake = {.code = code};
    const auto user = find_user("carol", answer);
    ASSERT_FALSE(user) << code;
    EXPECT_EQ(user.error().message(), system_error("look up user \"carol\"", code).message());
    EXPECT_EQ(user.error().kind(), system_error("", code).kind());
  }
  for (const int code : {ENOENT, ESRCH, EBADF, EPERM}) {
    fake = {.code = code};
    const auto user = find_user("carol", answer);
    ASSERT_TRUE(user) << code << ": " << user.error().message();
    EXPECT_FALSE(*user) << code;
  }
}

TEST_F(AccountsTest, AnInterruptedCallIsMadeAgain) {
  fake.interrupts = 3;
  EXPECT_TRUE(find_user("carol", answer).value().has_value());
  EXPECT_EQ(fake.asked, 4);
}

}  // namespace
}  // namespace scriptorium
