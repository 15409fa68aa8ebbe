#include "checkpoint/check.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace scriptorium::checkpoint {
namespace {

NodeFacts good() {
  return {.kernel = "6.1.0-18-amd64",
          .ptrace_scope = "",
          .mountinfo = "33 24 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
          .proctrack = "proctrack/cgroup",
          .engine = std::string("4.1.1")};
}

// The lines that say what is missing.
std::string missing(const NodeFacts& facts) {
  std::string text;
  for (const CheckLine& line : check_lines(facts)) text += line.is_good ? "" : line.text + "\n";
  return text;
}

TEST(CheckTest, FindsNothingMissingOnAGoodNode) {
  EXPECT_EQ(missing(good()), "");
  NodeFacts facts = good();
  facts.kernel = "5.9";
  facts.ptrace_scope = "1\n";
  facts.mountinfo = "31 24 0:27 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n";
  facts.proctrack = "";
  EXPECT_EQ(missing(facts), "");
}

TEST(CheckTest, SaysWhatIsMissing) {
  NodeFacts facts = good();
  facts.kernel = "5.8.12";
  EXPECT_EQ(missing(facts), "kernel: 5.8.12; needs Linux 5.9 or later (CAP_CHECKPOINT_RESTORE)\n");
  facts = good();
  facts.engine = tl::unexpected(Refusal{"engine", "criu is not installed"});
  EXPECT_EQ(missing(facts), "criu: criu is not installed\n");
  facts = good();
  facts.ptrace_scope = "3\n";
  EXPECT_NE(missing(facts), "");
  facts = good();
  facts.mountinfo = "35 24 8:1 / / rw - ext4 /dev/sda1 rw\n";
  EXPECT_NE(missing(facts).find("control groups"), std::string::npos);
  facts = good();
  facts.proctrack = "proctrack/linuxproc";
  EXPECT_NE(missing(facts).find("needs proctrack/cgroup"), std::string::npos);
}

}  // namespace
}  // namespace scriptorium::checkpoint
