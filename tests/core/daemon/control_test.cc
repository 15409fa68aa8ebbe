#include "core/daemon/control.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/daemon/state_dir.h"
#include "tests/support/event_factory.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;

class ControlTest : public testing::Test {
 protected:
  // A journal with job 7, dead for the sink "archive".
  std::unique_ptr<Journal> make_journal() {
    auto opened = Journal::open({.directory = dir_.path()}, log_, system_clock());
    EXPECT_TRUE(opened);
    auto journal = *std::move(opened);
    const auto sink = *journal->register_sink("archive", {"*"});
    EXPECT_TRUE(journal->append_all("slurm", {test::make_event("7")}, std::nullopt, {}));
    auto items = journal->read(sink, 0, 10, 1U << 20);
    EXPECT_EQ(items->size(), 1U);
    Journal::Settle settle;
    settle.sequence = items->front().sequence;
    settle.outcome = Outcome::kRejected;
    settle.reason = "too large";
    settle.attempts = 1;
    journal->settle(sink, {settle}, settle.sequence);
    EXPECT_TRUE(journal->flush(std::chrono::steady_clock::now() + std::chrono::seconds{60}));
    return journal;
  }

  test::TempDir dir_;
  test::RecordingLogger log_;
};

TEST_F(ControlTest, JournalsCommandsAreAnsweredTheSameWithAndWithoutADaemon) {
  auto journal = make_journal();
  const std::string list = R"({"command":"deadletters.list"})";
  std::string with_daemon;
  {
    auto server = serve_control(
        dir_.path(),
        [&](const std::string& request) { return answer_from_journal(*journal, request); }, log_);
    ASSERT_TRUE(server) << server.error().message();
    auto answer = control(dir_.path(), list, log_);
    ASSERT_TRUE(answer) << answer.error().message();
    with_daemon = *answer;
  }
  journal.reset();
  auto without = control(dir_.path(), list, log_);
  ASSERT_TRUE(without) << without.error().message();
  EXPECT_EQ(*without, with_daemon);
  const Json letters = Json::parse(*without);
  ASSERT_EQ(letters.size(), 1U);
  EXPECT_EQ(letters[0]["job_id"], "7");
  EXPECT_EQ(letters[0]["reason"], "too large");

  auto shown = control(dir_.path(),
                       Json{{"command", "deadletters.show"},
                            {"event_id", letters[0]["event_id"].get<std::string>().substr(0, 10)}}
                           .dump(),
                       log_);
  ASSERT_TRUE(shown) << shown.error().message();
  EXPECT_EQ(Json::parse(*shown)["event"]["script"]["text"], test::kScript);
  auto found = control(dir_.path(), R"({"command":"find","job":"7"})", log_);
  ASSERT_TRUE(found);
  EXPECT_EQ(Json::parse(*found)[0]["job"]["id"], "7");
  auto retried = control(dir_.path(),
                         R"({"command":"deadletters.retry","sink":"archive","event_id":""})", log_);
  ASSERT_TRUE(retried) << retried.error().message();
  EXPECT_EQ(Json::parse(*retried)["count"], 1);
  EXPECT_EQ(*control(dir_.path(), list, log_), "[]");
}

TEST_F(ControlTest, StatusNeedsADaemonAndSaysSo) {
  make_journal();
  auto status = control(dir_.path(), R"({"command":"status"})", log_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(), "no daemon runs on " + dir_.path());
}

TEST_F(ControlTest, RequestsThatMakeNoSenseAreRefusedInWords) {
  auto journal = make_journal();
  for (const char* request : {"", "[]", "{", R"({"command":"explode"})", R"({"command":7})",
                              R"({"command":"deadletters.show"})"}) {
    const Json answer = Json::parse(answer_from_journal(*journal, request));
    EXPECT_EQ(answer["ok"], false) << request;
    EXPECT_FALSE(answer["error"].get<std::string>().empty()) << request;
  }
}

TEST_F(ControlTest, StateDirTooLongForASocketIsRefusedWithTheLimit) {
  auto path = control_socket_path("/" + std::string(120, 'x'));
  ASSERT_FALSE(path);
  EXPECT_EQ(path.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_NE(path.error().message().find("107 are possible"), std::string::npos);
}

}  // namespace
}  // namespace scriptorium
