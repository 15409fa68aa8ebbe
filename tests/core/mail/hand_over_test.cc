#include "core/mail/hand_over.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>
#include <thread>

#include "core/base/file.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::mail {

// For GoogleTest's messages.
static void PrintTo(HandedOver::Kind kind, std::ostream* out) {  // NOLINT: its name
  *out << std::array{"taken", "later", "refused", "undecided"}.at(static_cast<std::size_t>(kind));
}

namespace {

using namespace std::literals;
using Kind = HandedOver::Kind;
using ::testing::HasSubstr;

class HandOverTest : public ::testing::Test {
 protected:
  // A mail program of these lines of shell, in a folder of the test's own.
  std::string program(const std::string& lines, mode_t mode = 0755) {
    const std::string path = directory_.write(
        "sendmail", "#!/bin/sh\necho started >" + directory_.path_to("mark") + "\n" + lines + "\n");
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  HandedOver hand(const std::string& program, const std::string& recipient = "anna@example.org",
                  std::chrono::milliseconds most = test::kPatience) {
    return hand_over(runner_, program, "hpc@example.org", recipient, message_, {}, most);
  }
  bool was_started() const { return directory_.exists("mark"); }

  test::TempDir directory_;
  CommandRunner runner_;
  // More than a pipe holds.
  std::string message_ = "Subject: x\n\n" + std::string(300'000, 'x') + "\0\n.\nend\n"s;
};

TEST_F(HandOverTest, TheProgramGetsTheMessageByteByByteAndNothingElse) {
  const std::string path = program(
      "cd " + directory_.path() +
      "\ncat >first\n/usr/bin/head -c 9 /dev/stdin >again\n"
      "printf '%s\\n' \"$@\" >arguments\n/usr/bin/tr '\\0' '\\n' </proc/$$/environ >environment");
  ASSERT_EQ(setenv("HOME", "/forged", 1), 0);
  const HandedOver result = hand(path);
  EXPECT_EQ(result.kind, Kind::kTaken) << result.reason;
  EXPECT_EQ(result.reason, "");
  EXPECT_EQ(directory_.read("first"), message_);
  EXPECT_EQ(directory_.read("again"), "Subject: ") << "its input is a file";
  EXPECT_EQ(directory_.read("arguments"), "-i\n-f\nhpc@example.org\n--\nanna@example.org\n");
  EXPECT_EQ(directory_.read("environment"), "PATH=/usr/sbin:/usr/bin:/sbin:/bin\nLC_ALL=C\n");
}

TEST_F(HandOverTest, AnExitStatusSaysWhetherToTryAgain) {
  for (const auto& [status, kind] : std::map<int, Kind>{
           {0, Kind::kTaken},       {1, Kind::kLater},       {64, Kind::kRefused},
           {65, Kind::kRefused},    {66, Kind::kLater},      {67, Kind::kRefused},
           {68, Kind::kRefused},    {69, Kind::kLater},      {74, Kind::kUndecided},
           {75, Kind::kLater},      {76, Kind::kUndecided},  {77, Kind::kLater},
           {126, Kind::kLater},     {127, Kind::kLater},     {128, Kind::kLater},
           {129, Kind::kUndecided}, {137, Kind::kUndecided}, {192, Kind::kUndecided},
           {193, Kind::kLater},     {255, Kind::kLater}}) {
    const auto result = hand(program("cat >/dev/null; exit " + std::to_string(status)));
    EXPECT_EQ(result.kind, kind) << status;
    EXPECT_EQ(result.reason, status == 0 ? "" : "sendmail: exit status " + std::to_string(status));
  }
}

TEST_F(HandOverTest, TheReasonHas200BytesOfStandardErrorOnOneLine) {
  EXPECT_EQ(hand(program("printf 'refused\\033[0m\\nby host\\n\\n' >&2; exit 75")).reason,
            "sendmail: exit status 75: refused\\x1b[0m\\nby host");
  const auto result = hand(program("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 75"));
  EXPECT_EQ(result.reason, "sendmail: exit status 75: " + std::string(200, 'x') + "...");
}

TEST_F(HandOverTest, AProgramThatReadsNothingDecidesAllTheSame) {
  EXPECT_EQ(hand(program("exec <&-; exit 0")).kind, Kind::kTaken);
  EXPECT_EQ(hand(program("exec <&-; exit 75")).kind, Kind::kLater);
}

TEST_F(HandOverTest, AProgramThatHangsOrIsKilledIsUndecided) {
  const auto late = hand(program("cat >/dev/null; sleep 1000"), "anna", 300ms);
  EXPECT_EQ(late.kind, Kind::kUndecided);
  EXPECT_EQ(late.reason, "sendmail: no answer in time; killed");
  const auto killed = hand(program("cat >/dev/null; kill -KILL $$"));
  EXPECT_EQ(killed.kind, Kind::kUndecided);
  EXPECT_EQ(killed.reason, "sendmail: exit status 137");
}

TEST_F(HandOverTest, AStopIsUndecidedOnlyOnceTheProgramRuns) {
  std::stop_source stop;
  const std::string ready = directory_.path_to("ready");
  ASSERT_EQ(mkfifo(ready.c_str(), 0600), 0);
  std::jthread stopper([&] {
    std::ifstream in(ready);  // opens when the program has opened its end: it runs
    stop.request_stop();
  });
  const std::string path = program("echo up >" + ready + "; sleep 1000");
  EXPECT_EQ(hand_over(runner_, path, "a", "b", message_, stop.get_token()).kind, Kind::kUndecided);
  std::filesystem::remove(directory_.path_to("mark"));
  EXPECT_EQ(hand_over(runner_, path, "a", "b", message_, stop.get_token()).kind, Kind::kLater);
  EXPECT_FALSE(was_started());
}

TEST_F(HandOverTest, AProgramThatDoesNotStartIsTriedLater) {
  for (const std::string& path :
       {directory_.path_to("none"), program("exit 0", 0644), directory_.path(),
        directory_.write("no-format",
                         "\x7f"
                         "ELF")}) {
    const auto result = hand(path);
    EXPECT_EQ(result.kind, Kind::kLater) << path;
    EXPECT_THAT(result.reason, HasSubstr("start " + path));
  }
  EXPECT_FALSE(was_started());
}

TEST_F(HandOverTest, AProcessThatDeliversInTheBackgroundIsNeitherWaitedForNorKilled) {
  const std::string order = directory_.path_to("order");
  const std::string done = directory_.path_to("done");
  ASSERT_EQ(mkfifo(order.c_str(), 0600), 0);
  ASSERT_EQ(mkfifo(done.c_str(), 0600), 0);
  const UniqueFd orders(open(order.c_str(), O_RDWR | O_CLOEXEC));
  const UniqueFd answers(open(done.c_str(), O_RDWR | O_CLOEXEC));
  // It holds standard output and error open.
  const auto result =
      hand(program("(read -r line <" + order + "; echo $line >" + done + ") & exit 0"));
  EXPECT_EQ(result.kind, Kind::kTaken) << result.reason;
  ASSERT_TRUE(write_fd(orders.get(), "delivered\n"));
  pollfd delivered{answers.get(), POLLIN, 0};
  constexpr auto kMostMs = std::chrono::milliseconds(test::kPatience).count();
  EXPECT_EQ(poll(&delivered, 1, static_cast<int>(kMostMs)), 1);
}

TEST_F(HandOverTest, WhatIsNotAPlainAddressIsRefusedWithoutStartingTheProgram) {
  const std::string path = program("exit 0");
  for (const std::string& bad :
       {"-bp"s, "|cmd"s, "/file"s, "a@h, b@h"s, "a\nBcc: b"s, "a@b\n"s, ""s, "a\0b"s}) {
    const auto result = hand(path, bad);
    EXPECT_EQ(result.kind, Kind::kRefused) << bad;
    EXPECT_THAT(result.reason, HasSubstr("not a plain address"));
    EXPECT_EQ(hand_over(runner_, path, bad, "anna", message_, {}).kind, Kind::kRefused) << bad;
  }
  EXPECT_FALSE(was_started());
}

}  // namespace
}  // namespace scriptorium::mail
