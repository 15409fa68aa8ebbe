#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

#include "core/cli/show_text.h"
#include "tests/support/event_factory.h"
#include "tests/support/zone.h"

namespace scriptorium::cli {
namespace {

class ShowChainTest : public testing::Test {
 protected:
  void add(const std::string& time, const std::string& checkpoint, bool is_verified = true) {
    Event event = test::make_event_value("7");
    event.id = time + checkpoint;
    event.kind = "job.checkpoint";
    event.time = parse_rfc3339("2026-11-28T" + time + "Z").value();
    event.host = "n1";
    event.user.verified = is_verified;
    event.extra_json = R"({"checkpoint":)" + checkpoint + "}";
    record_.later.push_back(std::make_shared<const Event>(std::move(event)));
  }
  std::string shown() {
    return chain_text(record_, query::checkpoint_findings(record_, record_.later.back()->time),
                      Console{.in = in_, .out = out_, .err = out_});
  }

  test::Zone zone_{"UTC"};
  Searchable::Record record_;
  std::istringstream in_;
  std::ostringstream out_;
};

TEST_F(ShowChainTest, HasALineForEachStepInTheOrderOfTime) {
  add("16:30:00", R"({"action":"ended","exit_code":7})");
  add("16:10:00", R"({"action":"made","image_bytes":7549747,"frozen_seconds":0.098})");
  add("16:11:00", R"({"action":"restart_failed","reason":"pid_taken"})");
  add("16:12:00", R"({"action":"restarted","image_bytes":7549747,"tries":2})");
  add("16:13:00", R"({"action":"failed","reason":"tcp"})");
  EXPECT_EQ(shown(),
            "  checkpoint  2026-11-28 16:10:00  saved on n1: 7.2 MiB, frozen for 98 ms\n"
            "              2026-11-28 16:11:00  not resumed on n1: pid_taken\n"
            "              2026-11-28 16:12:00  resumed on n1: 7.2 MiB, away for 2 min 0 s\n"
            "              2026-11-28 16:13:00  not saved on n1: tcp\n"
            "              2026-11-28 16:30:00  ended on n1: exit code 7\n"
            "              2 lives, 2 min 0 s lost of 20 min 0 s\n");
}

TEST_F(ShowChainTest, SaysWhatRanOnAfterASave) {
  add("16:10:00", R"({"action":"made","runs_on":true})");
  add("16:12:00", R"({"action":"restarted"})");
  add("16:13:00", R"({"action":"made","runs_on":false})");
  EXPECT_EQ(shown(),
            "  checkpoint  2026-11-28 16:10:00  saved on n1: ran on\n"
            "              2026-11-28 16:12:00  resumed on n1: as of 2 min 0 s before\n"
            "              2026-11-28 16:13:00  saved on n1\n"
            "              2 lives, 2 min 0 s lost of 3 min 0 s\n");
}

TEST_F(ShowChainTest, EndsWithWhatIsWrongAndWhatToDo) {
  add("16:10:00", R"({"action":"made","image_bytes":1048576})");
  add("16:11:00", R"({"action":"restart_failed","reason":"other_cpu"})");
  EXPECT_EQ(
      shown(),
      "  checkpoint  2026-11-28 16:10:00  saved on n1: 1.0 MiB\n"
      "              2026-11-28 16:11:00  not resumed on n1: other_cpu\n"
      "              warning  The image of 2026-11-28 16:10 on n1 (1.0 MiB) was not resumed: the\n"
      "                       attempt on n1 was refused (other_cpu). Without it, what the program "
      "did\n"
      "                       until then is lost. Submit the job again, to nodes with the "
      "processor\n"
      "                       that made the image. [ckpt_never_restored]\n");
  const std::string use = use_text(record_, Console{.in = in_, .out = out_, .err = out_});
  EXPECT_TRUE(use.starts_with("  findings    ckpt_never_restored\n")) << use;
  const auto json = show_json(StoredCapture{}, &record_);
  EXPECT_EQ(json["checkpoint"]["findings"][0]["id"], "ckpt_never_restored");
  EXPECT_EQ(show_json(StoredCapture{}, nullptr).count("checkpoint"), 0U);
}

TEST_F(ShowChainTest, IsEmptyForAJobThatWasNeverSaved) {
  Event use = test::make_event_value("7");
  use.kind = "usage.job";
  record_.later.push_back(std::make_shared<const Event>(std::move(use)));
  EXPECT_EQ(shown(), "");
}

TEST_F(ShowChainTest, ShowsTheNewestOfManyAndSaysSo) {
  for (int minute = 10; minute < 55; ++minute)
    add("16:" + std::to_string(minute) + ":00", R"({"action":"made"})");
  const std::string text = shown();
  EXPECT_TRUE(
      text.starts_with("  checkpoint  5 earlier ones are left out; --json has them\n"
                       "              2026-11-28 16:15:00  saved on n1\n"))
      << text;
  EXPECT_TRUE(text.ends_with("16:54:00  saved on n1\n"));
}

TEST_F(ShowChainTest, EscapesAndMarksWhatTheServiceDidNotSay) {
  add("16:10:00", R"({"action":"made\u001b[2J","reason":"x\ny","image_bytes":-1})", false);
  add("16:11:00", R"(7)", false);
  const std::string text = shown();
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_NE(text.find("(unverified, written by alice)"), std::string::npos) << text;
  EXPECT_EQ(text.find("bytes"), std::string::npos);
}

}  // namespace
}  // namespace scriptorium::cli
