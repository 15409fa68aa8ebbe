#include "core/import/read_entry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/sha256.h"

namespace scriptorium::import {
namespace {

using namespace std::string_literals;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kNoon = 1'730'635'200'000'000'000;  // 2024-11-03T12:00:00Z
constexpr std::int64_t kDayBegins = kNoon - 43'200'000'000'000;

std::string spool_bytes(std::initializer_list<std::string> strings) {
  std::string bytes{static_cast<char>(strings.size()), '\0', '\0', '\0'};
  for (const std::string& text : strings) bytes += text + '\0';
  return bytes;
}

class ReadEntryTest : public testing::Test {
 protected:
  static SpoolFile file(std::string bytes, std::int64_t mtime_ns = kNoon) {
    SpoolFile made;
    made.stat.mtime_ns = mtime_ns;
    made.bytes = make_bytes(std::move(bytes));
    return made;
  }
  static Event make(TreeFormat format, const std::string& path, SpoolFile script,
                    std::optional<SpoolFile> environment = std::nullopt,
                    const EnvironmentRule& rule = {}) {
    auto made =
        make_event(format, {classify(format, path), std::move(script), std::move(environment)},
                   {"lab", "toy", "ctl1"}, {nullptr, redact::Mode::kOff, rule}, {42});
    EXPECT_TRUE(made);
    return std::move(made->event);
  }
};

TEST_F(ReadEntryTest, AJobHasTheContractsIdAndTheFilesTime) {
  const Event event = make(TreeFormat::kSarchive, "20241103/job.11_script", file("echo\n"));
  EXPECT_EQ(event.time.nanoseconds, kNoon);
  EXPECT_EQ(event.id, event_id("lab", "toy", "job.script", "11", kNoon, sha256_hex("echo\n")));
  EXPECT_EQ(event.capture, "import");
  EXPECT_EQ(event.captured_at.nanoseconds, 42);
  EXPECT_FALSE(event.user.verified);
}

TEST_F(ReadEntryTest, ATreeThatWasCopiedWithoutItsTimesHasTheFoldersDates) {
  const Event event = make(TreeFormat::kSarchive, "20241103/job.11_script",
                           file("echo\n", kNoon + 400 * 86'400'000'000'000));
  EXPECT_EQ(event.time.nanoseconds, kDayBegins);
  EXPECT_EQ(event.id, event_id("lab", "toy", "job.script", "11", kDayBegins, sha256_hex("echo\n")))
      << "the same from every copy of the tree";
  EXPECT_THAT(event.problems, Contains(HasSubstr("time: the file's own, 2025-12-08T12:00:00Z")));
}

TEST_F(ReadEntryTest, AFolderInLocalTimeIsStillTheFilesDate) {
  EXPECT_EQ(job_time(kDayBegins - 3'600'000'000'000, period_of("20241103")),
            kDayBegins - 3'600'000'000'000);
  EXPECT_EQ(job_time(kDayBegins - 90'000'000'000'000, period_of("20241103")), kDayBegins);
  EXPECT_EQ(job_time(17, std::nullopt), 17);
}

TEST_F(ReadEntryTest, TheSpoolsOwnBytesComeBackExactly) {
  const Event event = make(TreeFormat::kSarchive, "job.11_script", file("#!/bin/sh\necho\n\0"s),
                           file(spool_bytes({"A=b=c", "LINES=one\ntwo", "SLURM_JOB_NAME=my job",
                                             "SLURM_SUBMIT_DIR=/home/x"})));
  EXPECT_EQ(*event.file("script")->bytes, "#!/bin/sh\necho\n");
  EXPECT_EQ(*event.file("environment")->bytes,
            "A=b=c\0LINES=one\ntwo\0SLURM_JOB_NAME=my job\0SLURM_SUBMIT_DIR=/home/x\0"s);
  EXPECT_EQ(event.job.name, "my job");
  EXPECT_EQ(event.job.work_dir, "/home/x");
  EXPECT_TRUE(event.complete);
  EXPECT_THAT(event.problems, IsEmpty());
}

TEST_F(ReadEntryTest, AScriptThatLacksTheSpoolsEndIsNotComplete) {
  const Event torn = make(TreeFormat::kSarchive, "job.11_script", file("#!/bin/sh\nec"),
                          file(spool_bytes({"A=b"})));
  EXPECT_FALSE(torn.complete);
  EXPECT_THAT(torn.problems, Contains(HasSubstr("final NUL")));
  const Event later =
      make(TreeFormat::kSarchive, "job.11_script", file("#!/bin/sh\necho\n"), file("A=b"));
  EXPECT_TRUE(later.complete) << "later versions of SArchive take the NUL away themselves";
}

TEST_F(ReadEntryTest, AnEnvironmentOfLinesBecomesVariablesAndSaysThatItIsAGuess) {
  const Event event = make(TreeFormat::kSarchive, "job.11_script", file("echo\n"),
                           file("A=b\nBASH_FUNC_ml%%=() {  eval x=1\n}\nPATH=/bin"));
  EXPECT_EQ(*event.file("environment")->bytes,
            "A=b\0BASH_FUNC_ml%%=() {  eval x=1\n}\0PATH=/bin\0"s);
  EXPECT_THAT(event.problems, Contains(HasSubstr("guess")));
}

TEST_F(ReadEntryTest, AGuessedEnvironmentDoesNotPassARuleThatTakesVariablesOut) {
  EnvironmentRule rule;
  rule.mode = EnvironmentRule::Mode::kPatterns;
  rule.drop = {"*TOKEN*"};
  const Event guessed = make(TreeFormat::kSarchive, "job.11_script", file("echo\n"),
                             file("X=1\n A_TOKEN=secret"), rule);
  EXPECT_EQ(guessed.file("environment"), nullptr);
  EXPECT_THAT(guessed.redactions, Not(IsEmpty()));
  const Event certain = make(TreeFormat::kSarchive, "job.11_script", file("echo\n\0"s),
                             file(spool_bytes({"A_TOKEN=secret", "X=1"})), rule);
  EXPECT_EQ(*certain.file("environment")->bytes, "X=1\0"s);
}

TEST_F(ReadEntryTest, AHalfEnvironmentIsKeptAsItIs) {
  std::string half = spool_bytes({"A=b", "C=d"});
  half.resize(half.size() - 3);
  const Event event = make(TreeFormat::kSarchive, "job.11_script", file("echo\n\0"s), file(half));
  EXPECT_EQ(event.environment_format, EnvironmentFormat::kRaw);
  EXPECT_EQ(*event.file("environment")->bytes, half);
  EXPECT_THAT(event.problems, Contains("environment: count 2, 1 strings"));
}

// job_archive reads the file through an iterator that skips blanks, then makes each NUL a newline.
TEST_F(ReadEntryTest, JobArchivesEnvironmentLosesItsCountInFront) {
  for (const std::string& header : {"<\n\n\n"s, "\n\n\n"s, ",\x01\n\n"s, "\n\x01\n\n"s}) {
    const ReadEnvironment read =
        read_environment(TreeFormat::kJobArchive, header + "USER=alice\nA=b\n");
    EXPECT_EQ(read.bytes, "USER=alice\0A=b\0"s);
    EXPECT_FALSE(read.guessed) << "a newline can only have been a NUL";
    EXPECT_THAT(read.problem, HasSubstr("blanks"));
  }
  EXPECT_TRUE(read_environment(TreeFormat::kJobArchive, "A=b c\nD=e\n").guessed)
      << "one that keeps blanks keeps newlines as well";
}

TEST_F(ReadEntryTest, JobArchivesUserIsWhatTheTreeSaysAndNotVerified) {
  const Event event = make(TreeFormat::kJobArchive, "alice/2024/11/11-md.sh",
                           file("#!/bin/sh\n\0"s), file("\n\n\nUSER=alice\n"));
  EXPECT_EQ(event.user.name, "alice");
  EXPECT_FALSE(event.user.verified);
  EXPECT_EQ(event.job.name, "md");
  EXPECT_TRUE(event.complete);
  EXPECT_FALSE(make(TreeFormat::kJobArchive, "alice/2024/11/11-md.sh", file("#!/bin/s"),
                    file("\n\n\nUSER=alice\n"))
                   .complete);
}

TEST_F(ReadEntryTest, DirectivesOfEitherSubmitCommandAreFound) {
  const Event slurm = make(TreeFormat::kSavescript, "1.savescript",
                           file("#!/bin/sh\n#SBATCH -N 2 -J first\n#PBS -N other\necho\n"));
  EXPECT_EQ(slurm.script->directives, (std::vector<std::string>{"-N 2 -J first", "#PBS -N other"}));
  EXPECT_EQ(slurm.job.name, "other");  // sbatch takes it, too
  const Event pbs =
      make(TreeFormat::kSavescript, "1.savescript", file("#!/bin/sh\n#PBS -N other\necho\n"));
  EXPECT_EQ(pbs.script->directives, std::vector<std::string>{"-N other"});
  EXPECT_EQ(pbs.job.name, "other");
}

TEST_F(ReadEntryTest, TextThatIsNotUtf8IsMadeSoAndTheScriptsBytesStay) {
  const Event event = make(TreeFormat::kJobArchive, "alice/2024/11/11-\xff.sh",
                           file("#!/bin/sh\n\xff\n\0"s), file("\n\n\nA=\xff\n"));
  EXPECT_EQ(event.job.name, "\xEF\xBF\xBD");
  EXPECT_EQ(*event.file("script")->bytes, "#!/bin/sh\n\xff\n");
  EXPECT_THAT(event.lossy, Contains("job.name"));
}

}  // namespace
}  // namespace scriptorium::import
