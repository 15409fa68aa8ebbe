#include "core/capture/assemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/sha256.h"
#include "core/redact/redactor.h"

namespace scriptorium {
namespace {

using namespace std::string_literals;

class AssembleTest : public testing::Test {
 protected:
  AssembleTest() {
    SpoolFile script;
    script.name = "script";
    script.stat.mtime_ns = 17;
    script.bytes = make_bytes("echo\0"s);
    entry_.key = "hash.1/job.1";
    entry_.files.push_back(script);
    parsed_.job.id = "1";
    parsed_.script = make_bytes("echo");
    parsed_.environment = make_bytes("A=1\0SECRET=x\0"s);
    parsed_.environment_format = EnvironmentFormat::kNulEnded;
  }
  Event make(const EnvironmentRule& rule = {}) const {
    ParsedJob parsed = parsed_;
    auto redactions = redact::Redactor(nullptr, redact::Mode::kOff, rule).redact(parsed);
    EXPECT_TRUE(redactions);
    return assemble({"lab", "slurm", "ctl1"}, entry_, std::move(parsed), *redactions, true, "scan",
                    {42});
  }

  SpoolEntry entry_;
  ParsedJob parsed_;
};

TEST_F(AssembleTest, IdAndTimeComeFromTheScriptFileAndNotFromOurClock) {
  const Event event = make();
  EXPECT_EQ(event.time.nanoseconds, 17);
  EXPECT_EQ(event.captured_at.nanoseconds, 42);
  EXPECT_EQ(event.id, event_id("lab", "slurm", "job.script", "1", 17, sha256_hex("echo")));
}

TEST_F(AssembleTest, DroppedVariablesAreGoneAndCountedAndTheIdStays) {
  EnvironmentRule rule;
  rule.mode = EnvironmentRule::Mode::kPatterns;
  rule.drop = {"SECRET*"};
  const Event event = make(rule);
  EXPECT_EQ(*event.file("environment")->bytes, "A=1\0"s);
  EXPECT_EQ(event.file("environment")->sha256, sha256_hex("A=1\0"s));
  ASSERT_EQ(event.redactions.size(), 1U);
  EXPECT_EQ(event.redactions[0].count, 1U);
  EXPECT_EQ(event.id, make().id);
}

TEST_F(AssembleTest, EnvironmentThatCannotBeParsedDoesNotPassARule) {
  parsed_.environment_format = EnvironmentFormat::kRaw;
  EnvironmentRule rule;
  rule.mode = EnvironmentRule::Mode::kPatterns;
  rule.drop = {"SECRET*"};
  EXPECT_EQ(make(rule).file("environment"), nullptr);
  EXPECT_NE(make().file("environment"), nullptr) << "without a rule the raw bytes are kept";
}

TEST_F(AssembleTest, TheOriginalIdIsThatOfTheBytesInTheSpool) {
  const EventOrigin origin{"lab", "slurm", "ctl1"};
  const std::string of_script = event_id("lab", "slurm", "job.script", "1", 17, sha256_hex("echo"));
  EXPECT_EQ(original_id(origin, entry_, parsed_), of_script);
  EXPECT_EQ(original_id(origin, "1", 17, "echo"), of_script);
  parsed_.environment = nullptr;
  EXPECT_EQ(original_id(origin, entry_, parsed_), of_script);
  parsed_.script = nullptr;
  EXPECT_EQ(original_id(origin, entry_, parsed_),
            event_id("lab", "slurm", "job.script", "1", 17, sha256_hex("echo\0"s)));
}

TEST_F(AssembleTest, EntryWithoutAScriptHasAnIdOfItsOwn) {
  parsed_.script = nullptr;
  entry_.files[0].name = "environment";
  const Event event = make();
  EXPECT_EQ(event.file("script"), nullptr);
  EXPECT_FALSE(event.script.has_value());
  EXPECT_EQ(event.id.size(), 64U);
}

}  // namespace
}  // namespace scriptorium
