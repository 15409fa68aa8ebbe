#include "schedulers/torque/parse.h"
#include "core/base/time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/schedulers/torque/fixtures.h"

namespace scriptorium::torque {
namespace {

using namespace std::literals;
using Role = SpoolPath::Role;
using State = Assessment::State;
using fixtures::recorded;
using fixtures::spool_file;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// An entry as it stands in the spool: its script, and its record under the suffix.
SpoolEntry entry(const std::string& folder, const std::string& stem,
                 const std::string& suffix = "JB") {
  const std::string job = folder + "/" + stem;
  return {stem + fixtures::kHost,
          {spool_file("SC", recorded(job, "SC")), spool_file(suffix, recorded(job, suffix))}};
}
SpoolEntry odd(int job) { return entry("torque-6.1.3.h5/odd/jobs", std::to_string(job)); }
SpoolEntry ordinary() { return entry("torque-6.1.3.h5/flat/jobs", "65"); }

ParsedJob parsed(const SpoolEntry& made) {
  auto job = parse_entry(made);
  EXPECT_TRUE(job) << job.error().message();
  return job ? *std::move(job) : ParsedJob{};
}

// The ordinary job with something in its record replaced.
SpoolEntry with_record(const std::string& from, const std::string& to) {
  SpoolEntry made = ordinary();
  std::string record = *made.files[1].bytes;
  const auto at = record.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  record.replace(at, from.size(), to);
  made.files[1] = spool_file("JB", record);
  return made;
}

TEST(TorquePathTest, ScriptsAndRecordsOfOneStemAreOneEntry) {
  for (const std::string stem :
       {"1.host", "1", "1234.host.dom", "1[].host", "1[3].host", "9/1.host", "0/1-a.host"}) {
    EXPECT_EQ(classify_path(stem + ".SC").role, Role::kEntryFile) << stem;
    for (const char* suffix : {".JB", ".TA", ".JC"}) {
      const std::string path = stem + suffix;  // the views point into it
      const SpoolPath place = classify_path(path);
      EXPECT_EQ(place.role, Role::kEntryRecord) << path;
      EXPECT_EQ(place.entry, stem);
      EXPECT_EQ(path_of_file(place.entry, place.file), path);
    }
  }
}

TEST(TorquePathTest, ArrayTasksAreLeftAlone) {
  EXPECT_EQ(classify_path("12-7.host.JB").role, Role::kForeign);
  EXPECT_EQ(classify_path("2/12-7.host.JC").role, Role::kForeign);
  EXPECT_EQ(classify_path("12-7.JB").role, Role::kForeign);
  // No Torque writes one; if there were one, it would be a script.
  EXPECT_EQ(classify_path("12-7.host.SC").role, Role::kEntryFile);
}

TEST(TorquePathTest, OnlyTheTenFoldersAreEntered) {
  for (const char* path : {"0", "5", "9"}) EXPECT_EQ(classify_path(path).role, Role::kDirectory);
  for (const char* path :
       {"",           "10",        "a",   "0/0",  "0/0/1.h.SC", "a/1.h.SC", "10/1.h.SC",
        "/1.h.SC",    "0//1.h.SC", ".SC", "x.SC", "1.h.BK",     "1.h.BD",   "1.h.AR",
        "1.h.SC.tmp", "1.h.",      "12",  "..",   "1.h.sc",     "-1.h.SC"}) {
    EXPECT_EQ(classify_path(path).role, Role::kForeign) << path;
  }
  EXPECT_EQ(classify_path("1" + std::string(300, 'x') + ".SC").role, Role::kForeign);
}

TEST(TorqueAssessTest, AScriptWithItsRecordIsComplete) {
  EXPECT_EQ(assess_entry(ordinary()).state, State::kComplete);
  EXPECT_EQ(assess_entry(entry("torque-6.1.3.h5/flat/jobs", "2", "TA")).state, State::kComplete);
  EXPECT_EQ(assess_entry(entry("torque-4.2.10/jobs", "0")).state, State::kComplete);
}

TEST(TorqueAssessTest, OneOfThemAloneIsNot) {
  SpoolEntry made = ordinary();
  const SpoolEntry record_only{made.key, {made.files[1]}};
  EXPECT_EQ(assess_entry(record_only).state, State::kIncomplete);
  EXPECT_EQ(assess_entry(record_only).reason, "script missing");
  const SpoolEntry script_only{made.key, {made.files[0]}};
  EXPECT_EQ(assess_entry(script_only).state, State::kIncomplete);
  EXPECT_EQ(assess_entry(script_only).reason, "record missing");
  made.files[1] = spool_file("JB", recorded("torque-6.1.3.h5/flat/jobs/65", "JB").substr(0, 1000));
  EXPECT_EQ(assess_entry(made).reason, "record missing") << "half a record is none";
  made = ordinary();
  made.files[0] = spool_file("SC", "");
  EXPECT_EQ(assess_entry(made).reason, "script empty");
}

TEST(TorqueAssessTest, AnInteractiveJobIsIgnoredAndCounted) {
  SpoolEntry made =
      with_record("<attributes>", "<attributes><interactive flags=\"1\">41173</interactive>");
  made.files.erase(made.files.begin());
  EXPECT_EQ(assess_entry(made).state, State::kIgnore);
  EXPECT_EQ(assess_entry(made).reason, "interactive job");
}

TEST(TorqueAssessTest, WholeChunksMayHaveMoreToCome) {
  SpoolEntry made = ordinary();
  for (const std::size_t chunks : {1U, 3U}) {
    made.files[0] = spool_file("SC", std::string(chunks * kScriptChunk, 'x'));
    EXPECT_EQ(assess_entry(made).state, State::kDoubtful);
    EXPECT_EQ(assess_entry(made).settle, kChunkGap);
  }
  made.files[0] = spool_file("SC", std::string(3 * kScriptChunk + 8200, 'x'));
  EXPECT_EQ(assess_entry(made).state, State::kSettling);
  EXPECT_EQ(assess_entry(made).settle, kLongScriptRest);
}

TEST(TorqueAssessTest, AnOldRecordThatWasSavedAfterTheScriptProvesThatItIsWhole) {
  SpoolEntry made = entry("torque-4.2.10/jobs", "0");
  made.files[0] = spool_file("SC", std::string(kScriptChunk, 'x'), 5 * kSecond);
  made.files[1].stat.mtime_ns = 4 * kSecond;
  EXPECT_EQ(assess_entry(made).state, State::kDoubtful);
  made.files[1].stat.mtime_ns = 6 * kSecond;
  EXPECT_EQ(assess_entry(made).state, State::kComplete);
}

TEST(TorqueParseTest, TheOrdinaryJob) {
  const SpoolEntry made = ordinary();
  const ParsedJob job = parsed(made);
  EXPECT_EQ(job.job.id, "65.pbshead.cluster.test");
  EXPECT_EQ(job.job.name, "short");
  EXPECT_EQ(job.job.partition, "batch");
  EXPECT_FALSE(job.job.array || job.job.account || job.job.qos);
  EXPECT_EQ(job.job.submitted_at->nanoseconds, 1795226771 * kSecond);
  EXPECT_EQ(job.job.work_dir, "/home/chem/md/carol");
  EXPECT_EQ(job.user.name, "carol");
  EXPECT_EQ(job.user.group_name, "carol");
  EXPECT_TRUE(job.user.verified);
  EXPECT_EQ(job.script_file, "SC");
  EXPECT_EQ(*job.script, *made.files[0].bytes);
  EXPECT_EQ(job.script_info.interpreter, "/bin/bash");
  EXPECT_EQ(job.environment_format, EnvironmentFormat::kNulEnded);
  EXPECT_TRUE(job.environment_guessed);
  ASSERT_EQ(job.mixed_files.size(), 1U);
  EXPECT_EQ(job.mixed_files[0].name, "record");
  EXPECT_EQ(*job.mixed_files[0].bytes, *made.files[1].bytes);
  EXPECT_THAT(job.problems, IsEmpty());
  EXPECT_EQ(job.extra_json, "");
}

TEST(TorqueParseTest, AnArrayIsOneEventWithItsSpec) {
  for (const auto& [version, spec] :
       {std::pair("torque-6.1.3.h5/flat/jobs", "1-3,7%2"), {"torque-4.2.10/jobs", "1-3,7"}}) {
    const ParsedJob job = parsed(entry(version, "2", "TA"));
    EXPECT_EQ(job.job.id, "2[].pbshead.cluster.test");
    ASSERT_TRUE(job.job.array);
    EXPECT_EQ(job.job.array->job_id, "2[].pbshead.cluster.test");
    EXPECT_FALSE(job.job.array->task_id);
    EXPECT_EQ(job.job.array->task_spec, spec);
    EXPECT_THAT(job.problems, IsEmpty());
  }
}

TEST(TorqueParseTest, TheOldRecordTellsAsMuch) {
  const ParsedJob job = parsed(entry("torque-4.2.10/jobs", "0"));
  EXPECT_EQ(job.job.id, "0.pbshead.cluster.test");
  EXPECT_EQ(job.job.work_dir, "/home/chem/md/carol")
      << "from PBS_O_WORKDIR, as 4.2 has no init_work_dir";
  EXPECT_EQ(job.user.name, "carol");
  EXPECT_TRUE(job.user.verified);
  EXPECT_EQ(split_environment(*job.environment).size(), 9U);
}

TEST(TorqueParseTest, TheIdComesFromTheRecordAndNotFromTheFilesName) {
  const std::string record =
      fixtures::bytes_of("torque-6.1.3.h5/collision/jobs/67.pbshead.cluster.tesu.JB");
  const ParsedJob job = parsed(
      {"67.pbshead.cluster.tesu", {spool_file("SC", "#!/bin/sh\n"), spool_file("JB", record)}});
  EXPECT_EQ(job.job.id, "67.pbshead.cluster.test");
  EXPECT_TRUE(job.user.verified);
  EXPECT_THAT(job.problems, IsEmpty());
}

TEST(TorqueParseTest, ARecordOfOtherFilesIsNotBelieved) {
  const std::string record = recorded("torque-6.1.3.h5/flat/jobs/65", "JB");
  const ParsedJob job = parsed(
      {"66.pbshead.cluster.test", {spool_file("SC", "#!/bin/sh\n"), spool_file("JB", record)}});
  EXPECT_EQ(job.job.id, "66.pbshead.cluster.test");
  EXPECT_FALSE(job.user.verified || job.user.name);
  EXPECT_THAT(job.problems, ElementsAre(HasSubstr("files of another name")));
  EXPECT_EQ(job.mixed_files.size(), 1U) << "kept all the same, for whoever looks into it";
}

TEST(TorqueParseTest, OwnersAreTheServersWordWhateverTheUserWrote) {
  const ParsedJob job = parsed(with_record("PBS_O_LOGNAME=carol", "PBS_O_LOGNAME=root"));
  EXPECT_EQ(job.user.name, "carol");
  EXPECT_TRUE(job.user.verified);
}

TEST(TorqueParseTest, WhoTheJobRunsAsIsNotedWhereItIsNotTheOwner) {
  const ParsedJob as_dave = parsed(entry("torque-6.1.3.h5/forged/jobs", "69"));
  EXPECT_EQ(as_dave.user.name, "carol");
  EXPECT_TRUE(as_dave.user.verified);
  EXPECT_FALSE(as_dave.user.group_name) << "egroup is the group of the other one";
  EXPECT_EQ(as_dave.extra_json, R"({"details":{"run_as":"dave"}})");
  const ParsedJob as_root = parsed(entry("torque-6.1.3.h5/forged/jobs", "70"));
  EXPECT_EQ(as_root.user.name, "carol");
  EXPECT_EQ(as_root.extra_json, R"({"details":{"run_as":"root"}})");
}

TEST(TorqueParseTest, AManagersProxyIsNoted) {
  const ParsedJob job =
      parsed(with_record("<job_state", "<proxy_user flags=\"1\">boss</proxy_user><job_state"));
  EXPECT_EQ(job.extra_json, R"({"details":{"proxy_user":"boss"}})");
  EXPECT_EQ(job.user.name, "carol");
  const ParsedJob odd_name =
      parsed(with_record("<job_state", "<proxy_user flags=\"1\">a\"b\\c</proxy_user><job_state"));
  EXPECT_EQ(odd_name.extra_json, "");
}

TEST(TorqueParseTest, AForgedSecondOwnerMakesNobodyTheOwner) {
  const ParsedJob twice =
      parsed(with_record("<job_state", "<Job_Owner flags=\"1\">root@x</Job_Owner><job_state"));
  EXPECT_FALSE(twice.user.verified);
  EXPECT_THAT(twice.problems, Contains(HasSubstr("more than one Job_Owner")));
  const ParsedJob commented = parsed(with_record("<job_state", "<!-- --><job_state"));
  EXPECT_FALSE(commented.user.verified);
  EXPECT_THAT(commented.problems, Contains(HasSubstr("not as pbs_server writes it")));
}

TEST(TorqueParseTest, WhatCannotBeAUsersNameIsNone) {
  for (const char* owner : {"", "@host", "../root@h", "a b@h", "ro\not@h", "-x@h", "..@h"}) {
    const ParsedJob job = parsed(with_record("carol@pbshead.cluster.test", owner));
    EXPECT_FALSE(job.user.verified || job.user.name) << owner;
    EXPECT_THAT(job.problems, ElementsAre(HasSubstr("Job_Owner"))) << owner;
  }
}

TEST(TorqueParseTest, ALostVariableListIsUnknownAndNotEmpty) {
  for (const int job : {16, 17, 24, 29}) {
    const ParsedJob parsed_job = parsed(odd(job));
    EXPECT_EQ(parsed_job.environment, nullptr) << job;
    EXPECT_EQ(parsed_job.environment_format, EnvironmentFormat::kNone);
    EXPECT_TRUE(parsed_job.user.verified);
    EXPECT_EQ(parsed_job.job.work_dir, "/home/chem/md/carol");
  }
}

TEST(TorqueParseTest, OddJobsKeepTheirScriptAndTheirOwner) {
  for (const int job :
       {6, 7, 8, 10, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30}) {
    SCOPED_TRACE(job);
    const SpoolEntry made = odd(job);
    EXPECT_EQ(assess_entry(made).state, State::kComplete);
    const ParsedJob parsed_job = parsed(made);
    EXPECT_EQ(*parsed_job.script, *made.files[0].bytes);
    EXPECT_EQ(parsed_job.user.name, "carol");
    EXPECT_TRUE(parsed_job.user.verified);
    EXPECT_EQ(parsed_job.job.id, std::to_string(job) + fixtures::kHost);
    EXPECT_THAT(parsed_job.problems, IsEmpty());
  }
  EXPECT_EQ(parsed(odd(7)).job.name, "../../etc/x");
  EXPECT_EQ(parsed(odd(20)).job.name, "STDIN");
}

TEST(TorqueParseTest, WithoutARecordTheFilesNameStandsForTheId) {
  const ParsedJob job = parsed({"3/123.host", {spool_file("SC", "#!/bin/sh\n")}});
  EXPECT_EQ(job.job.id, "123.host");
  EXPECT_FALSE(job.user.verified || job.user.name);
  EXPECT_THAT(job.problems, ElementsAre("record: missing"));
  EXPECT_THAT(job.mixed_files, IsEmpty());
}

TEST(TorqueParseTest, ABrokenRecordIsKeptAndSaid) {
  const ParsedJob job =
      parsed({"123.host", {spool_file("SC", "#!/bin/sh\n"), spool_file("JB", "<?xml version")}});
  EXPECT_EQ(job.job.id, "123.host");
  EXPECT_THAT(job.problems, ElementsAre("record: 13 bytes that are no whole record"));
  ASSERT_EQ(job.mixed_files.size(), 1U);
  EXPECT_EQ(*job.mixed_files[0].bytes, "<?xml version");
}

TEST(TorqueParseTest, AJobWithoutAScriptIsNone) {
  const SpoolEntry made = ordinary();
  const auto job = parse_entry({made.key, {made.files[1]}});
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().kind(), ErrorKind::kVanished);
}

TEST(TorqueParseTest, TheNewestRecordCounts) {
  SpoolEntry made = ordinary();
  std::string later = *made.files[1].bytes;
  later.replace(later.find(">short<"), 7, ">later<");
  made.files.push_back(spool_file("JC", later, 5));
  EXPECT_EQ(parsed(made).job.name, "later");
  made.files[1].stat.mtime_ns = 6;
  EXPECT_EQ(parsed(made).job.name, "short");
  made.files[1] = spool_file("JB", "half", 7);
  EXPECT_EQ(parsed(made).job.name, "later") << "one that cannot be read does not hide one that can";
}

TEST(TorqueParseTest, ATruncatedScriptSaysSo) {
  SpoolEntry made = ordinary();
  made.files[0] = spool_file("SC", std::string(3 * kScriptChunk, 'x'));
  EXPECT_THAT(parsed(made).problems, ElementsAre(HasSubstr("196608 bytes, whole chunks only")));
}

TEST(TorqueParseTest, DirectivesAreThoseThatQsubReads) {
  SpoolEntry made = ordinary();
  made.files[0] = spool_file("SC",
                             "#!/bin/bash\n:note\n#PBS -N x\n  #PBS -l nodes=1\n# text\n##PBS -q "
                             "no\nmodule load gcc/12\n#PBS -q late\n");
  const ParsedJob job = parsed(made);
  EXPECT_THAT(job.script_info.directives, ElementsAre("-N x", "-l nodes=1"));
  EXPECT_THAT(job.script_info.modules, ElementsAre("gcc/12"));
}

TEST(TorqueParseTest, AnotherDirectivePrefixIsFoundInTheArguments) {
  for (const char* arguments :
       {"-C #JOB short.sh", "-C#JOB short.sh", "-q batch -C &quot;#JOB&quot; short.sh"}) {
    SpoolEntry made = with_record(">short.sh<", ">" + std::string(arguments) + "<");
    made.files[0] = spool_file("SC", "#PBS -N x\n#JOB -N y\n");
    EXPECT_THAT(parsed(made).script_info.directives, ElementsAre("-N y")) << arguments;
  }
}

}  // namespace
}  // namespace scriptorium::torque
