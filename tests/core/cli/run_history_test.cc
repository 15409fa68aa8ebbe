#include "core/cli/run_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/api/kit/search/job_facts.h"
#include "core/cli/show_text.h"
#include "tests/support/event_factory.h"

namespace scriptorium::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Searchable::Record run_of(const std::string& id, const std::string& script) {
  Searchable::Record record;
  record.event = test::make_event(id, script);
  record.job.id = id;
  record.job.script_sha256 = record.event->file("script")->sha256;
  return record;
}

TEST(RunHistoryTest, TheSameScriptNeedsNoReading) {
  const auto one = run_of("1", "#!/bin/sh\na\n");
  const auto two = run_of("2", "#!/bin/sh\na\n");
  const RunEdit edit = run_edit(one.job, two.job);
  EXPECT_TRUE(edit.known);
  EXPECT_EQ(edit_text(edit), "none");
  EXPECT_FALSE(run_edit(one.job, run_of("3", "b\n").job).known);
}

TEST(RunHistoryTest, AFewChangedLinesAreShown) {
  const RunEdit edit = run_edit(run_of("1", "#!/bin/sh\na\nb\n"), run_of("2", "#!/bin/sh\nA\nb\n"));
  EXPECT_EQ(edit_text(edit), "+1 -1");
  EXPECT_THAT(edit.changed, ElementsAre("-a", "+A"));
}

TEST(RunHistoryTest, ManyChangedLinesAreOnlyCounted) {
  const RunEdit edit = run_edit(run_of("1", "x\n"), run_of("2", "x\n1\n2\n3\n4\n5\n6\n7\n"));
  EXPECT_EQ(edit_text(edit), "+7 -0");
  EXPECT_THAT(edit.changed, IsEmpty());
}

TEST(RunHistoryTest, AScriptThatIsMissingMakesTheEditUnknown) {
  auto gone = run_of("1", "x\n");
  gone.event = nullptr;
  EXPECT_EQ(edit_text(run_edit(gone, run_of("2", "y\n"))), "?");
}

TEST(RunHistoryTest, AnotherModuleIsAnEdit) {
  auto one = run_of("1", "x\n");
  auto two = run_of("2", "x\n");
  one.job.modules = {"GCC/12"};
  two.job.modules = {"GCC/13"};
  EXPECT_EQ(edit_text(run_edit(one, two)), "modules");
}

TEST(ShowUseTest, TheEventsOfOneLifeAreOneLine) {
  Searchable::Record record;
  const auto tell = [&](const char* kind, const std::string& job) {
    Event event;
    event.kind = kind;
    event.extra_json = R"({"job":{)" + job + "}}";
    join(record.job, event);
    record.later.push_back(std::make_shared<Event>(event));
  };
  record.job.event_id = "e";
  const std::string first = R"("started_at":"2026-11-21T01:00:00Z")";
  const std::string second = R"("started_at":"2026-11-21T02:00:00Z")";
  tell("job.life", R"("state":"RUNNING",)" + first);
  tell("job.life", R"("state":"REQUEUED","ended_at":"2026-11-21T01:30:00Z",)" + first);
  tell("usage.job", R"("state":"REQUEUED","ended_at":"2026-11-21T01:30:00Z",)" + first);
  tell("job.life", R"("state":"RUNNING",)" + second);
  tell("job.life", R"("state":"COMPLETED","ended_at":"2026-11-21T02:10:00Z",)" + second);
  EXPECT_EQ(record.job.lives, 2U);
  std::istringstream in;
  std::ostringstream out;
  const std::string text = use_text(record, Console{.in = in, .out = out, .err = out});
  EXPECT_THAT(text, ::testing::ContainsRegex("life 1 +REQUEUED after 30 min"));
  EXPECT_THAT(text, ::testing::ContainsRegex("life 2 +COMPLETED after 10 min"));
  EXPECT_EQ(text.find("RUNNING"), std::string::npos) << text;
  EXPECT_EQ(text.find("life 3"), std::string::npos) << text;
}

}  // namespace
}  // namespace scriptorium::cli
