#include "core/mail/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <random>
#include <string>

#include "core/base/file.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::mail {
namespace {

using ::testing::HasSubstr;

constexpr Timestamp kNow{1'764'000'000 * kSecond};

MailKey key_of(const std::string& user, const std::string& period = "2026-W46") {
  return {.kind = "user", .cluster = "lab", .user = user, .period = period};
}

class LedgerTest : public ::testing::Test {
 protected:
  std::string folder() const { return dir_.path() + "/mail"; }
  std::string file(const std::string& period = "2026-W46") const {
    return folder() + "/" + period + ".jsonl";
  }
  Ledger open() const {
    auto ledger = Ledger::open(folder());
    EXPECT_TRUE(ledger) << ledger.error().message();
    return *std::move(ledger);
  }
  MailState state(const MailKey& key) const { return open().find(key).state; }
  void append(const std::string& text) const { std::ofstream(file(), std::ios::app) << text; }

  test::TempDir dir_;
};

TEST_F(LedgerTest, EachStepIsThereAfterwards) {
  const MailKey alice = key_of("alice");
  EXPECT_EQ(state(alice), MailState::kNone);
  EXPECT_TRUE(open().claim(alice, "alice@example.org", kNow));
  EXPECT_EQ(state(alice), MailState::kClaimed);
  EXPECT_TRUE(open().wait(alice, "sendmail: exit status 75", "From: x\n\ntext\n", kNow));
  {
    const Ledger ledger = open();
    const MailEntry entry = ledger.find(alice);
    EXPECT_EQ(entry.state, MailState::kWaiting);
    EXPECT_EQ(entry.reason, "sendmail: exit status 75");
    EXPECT_EQ(entry.recipient, "alice@example.org");
    EXPECT_EQ(ledger.message(alice).value_or(""), "From: x\n\ntext\n");
  }
  EXPECT_TRUE(open().claim(alice, "alice@example.net", {kNow.nanoseconds + 3600 * kSecond}));
  EXPECT_TRUE(open().taken(alice, kNow));
  const Ledger ledger = open();
  EXPECT_EQ(ledger.find(alice).state, MailState::kTaken);
  EXPECT_EQ(ledger.find(alice).recipient, "alice@example.net");
  EXPECT_EQ(ledger.find(alice).since, kNow);
  EXPECT_EQ(ledger.find(alice).reason, "");
  EXPECT_FALSE(ledger.message(alice));
}

TEST_F(LedgerTest, AnotherUserClusterPeriodOrKindIsAnotherMail) {
  MailKey other = key_of("alice");
  ASSERT_TRUE(open().claim(other, "a", kNow));
  for (std::string MailKey::* part :
       {&MailKey::kind, &MailKey::cluster, &MailKey::user, &MailKey::period}) {
    MailKey key = other;
    key.*part += "x";
    EXPECT_EQ(state(key), MailState::kNone);
    EXPECT_NE(key.id(), other.id());
  }
  MailKey moved = other;
  moved.cluster = "laba";
  moved.user = "lice";
  EXPECT_NE(moved.id(), other.id());
}

TEST_F(LedgerTest, OnlyOneProcessHasIt) {
  const Ledger first = open();
  const auto second = Ledger::open(folder());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind(), ErrorKind::kTransient);
  EXPECT_THAT(second.error().message(), HasSubstr("another process"));
}

TEST_F(LedgerTest, AStepThatWasNotWrittenToItsEndDidNotHappen) {
  const MailKey alice = key_of("alice");
  ASSERT_TRUE(open().claim(alice, "alice", kNow));
  const std::string before = read_file(file()).value_or("");
  ASSERT_TRUE(open().taken(alice, kNow));
  const std::string line = read_file(file()).value_or("").substr(before.size());
  for (std::size_t cut = 0; cut < line.size(); ++cut) {
    ASSERT_TRUE(replace_file(file(), before + line.substr(0, cut), 0600));
    ASSERT_EQ(state(alice), MailState::kClaimed) << cut;
    // What follows is a line of its own.
    ASSERT_TRUE(open().refused(alice, "no", kNow));
    ASSERT_EQ(state(alice), MailState::kRefused) << cut;
  }
}

TEST_F(LedgerTest, ALineThatIsNoStepStopsEverything) {
  ASSERT_TRUE(open().claim(key_of("alice"), "alice", kNow));
  const std::string good = read_file(file()).value_or("");
  for (const char* bad : {"\n", "x\n", "{}\n", "[]\n",
                          R"({"kind":"user","state":"taken"})"
                          "\n"}) {
    ASSERT_TRUE(replace_file(file(), good, 0600));
    append(bad);
    const auto ledger = Ledger::open(folder());
    ASSERT_FALSE(ledger) << bad;
    EXPECT_EQ(ledger.error().kind(), ErrorKind::kCorrupt);
    EXPECT_THAT(ledger.error().message(), HasSubstr(file() + ":2"));
  }
}

TEST_F(LedgerTest, TheOldestComesFirstOfAllPeriods) {
  {
    Ledger ledger = open();
    int hour = 0;
    for (const char* user : {"carol", "alice", "bob"}) {
      const MailKey key = key_of(user, hour == 1 ? "2026-10" : "2026-W46");
      ASSERT_TRUE(ledger.claim(key, user, {kNow.nanoseconds + hour++ * 3600 * kSecond}));
      ASSERT_TRUE(ledger.wait(key, "later", user, kNow));
    }
    ASSERT_TRUE(ledger.claim(key_of("dave"), "dave", kNow));
  }
  const Ledger ledger = open();
  std::string users;
  for (const auto& [key, entry] : ledger.all(MailState::kWaiting)) users += key.user + " ";
  EXPECT_EQ(users, "carol alice bob ");
  EXPECT_EQ(ledger.all(MailState::kClaimed).size(), 1U);
}

TEST_F(LedgerTest, APeriodIsDoneForItsKindAlone) {
  ASSERT_TRUE(open().done("user", "2026-W46", kNow));
  const Ledger ledger = open();
  EXPECT_TRUE(ledger.is_done("user", "2026-W46"));
  EXPECT_FALSE(ledger.is_done("user", "2026-W45"));
  EXPECT_FALSE(ledger.is_done("account", "2026-W46"));
}

TEST_F(LedgerTest, NobodyElseMayReadItButMayEnterTheFolderWhateverTheUmask) {
  const mode_t before = ::umask(077);
  const auto claimed = open().claim(key_of("alice"), "alice", kNow);
  ::umask(before);
  ASSERT_TRUE(claimed);
  EXPECT_EQ(stat_path(folder())->mode & 0777U, 0711U);
  EXPECT_EQ(stat_path(folder() + "/waiting")->mode & 0777U, 0700U);
  EXPECT_EQ(stat_path(file())->mode & 0777U, 0600U);
}

// Random steps, each time read from the disk again, held against a map.
TEST_F(LedgerTest, WhatIsOnTheDiskIsWhatIsInMemory) {
  std::mt19937 random(7);
  std::map<MailKey, MailState> model;
  const auto any = [&](unsigned below) { return random() % below; };
  for (int round = 0; round < 60; ++round) {
    Ledger ledger = open();
    for (unsigned step = any(6); step > 0; --step) {
      const MailKey key =
          key_of("u" + std::to_string(any(5)), any(2) == 0 ? "2026-W46" : "2026-10");
      switch (any(4)) {
        case 0:
          ASSERT_TRUE(ledger.claim(key, "a", kNow));
          model[key] = MailState::kClaimed;
          break;
        case 1:
          ASSERT_TRUE(ledger.taken(key, kNow));
          model[key] = MailState::kTaken;
          break;
        case 2:
          ASSERT_TRUE(ledger.refused(key, "r", kNow));
          model[key] = MailState::kRefused;
          break;
        default: ASSERT_TRUE(ledger.wait(key, "w", "m", kNow)); model[key] = MailState::kWaiting;
      }
    }
    for (const auto& [key, expected] : model) ASSERT_EQ(ledger.find(key).state, expected);
  }
  for (const auto& [key, expected] : model) {
    EXPECT_EQ(state(key), expected);
    // A mail that was claimed again still has its message.
    if (expected != MailState::kClaimed) {
      EXPECT_EQ(open().message(key).has_value(), expected == MailState::kWaiting);
    }
  }
}

}  // namespace
}  // namespace scriptorium::mail
