#include "schedulers/slurm/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/api/job_script.h"
#include "tests/schedulers/slurm/fixtures.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ScriptInfo read(std::string_view script) { return read_script_info(script, kSbatchSyntax); }
std::optional<std::string> interpreter(std::string_view script) { return read(script).interpreter; }
std::vector<std::string> directives(std::string_view script) { return read(script).directives; }
std::vector<std::string> modules(std::string_view line) { return read(line).modules; }
std::optional<std::string> name(std::string_view script) {
  return job_name_directive(script, kSbatchSyntax);
}

TEST(SlurmScriptTest, TheInterpreterIsThePathOfTheFirstLine) {
  EXPECT_EQ(interpreter("#!/bin/bash\n"), "/bin/bash");
  EXPECT_EQ(interpreter("#!/bin/bash"), "/bin/bash");
  EXPECT_EQ(interpreter("#!/bin/bash\r\n"), "/bin/bash");
  EXPECT_EQ(interpreter("#! /bin/bash -l\n"), "/bin/bash");
  EXPECT_EQ(interpreter("#!\t/usr/bin/python3\t-u\n"), "/usr/bin/python3");
  EXPECT_EQ(interpreter("\n#!/bin/bash\n"), std::nullopt);
  EXPECT_EQ(interpreter("# comment\n"), std::nullopt);
  EXPECT_EQ(interpreter("#!\n/bin/bash\n"), std::nullopt);
  EXPECT_EQ(interpreter("#!"), std::nullopt);
  EXPECT_EQ(interpreter(""), std::nullopt);
}

TEST(SlurmScriptTest, ForEnvTheCommandBelongsToTheInterpreter) {
  EXPECT_EQ(interpreter("#!/usr/bin/env bash\n"), "/usr/bin/env bash");
  EXPECT_EQ(interpreter("#!/usr/bin/env -S python3 -u\n"), "/usr/bin/env python3");
  EXPECT_EQ(interpreter("#!/usr/bin/env -Sperl -w\n"), "/usr/bin/env perl");
  EXPECT_EQ(interpreter("#!/usr/bin/env -i -u HOME A=1 zsh\r\n"), "/usr/bin/env zsh");
  EXPECT_EQ(interpreter("#!/usr/bin/env\n"), "/usr/bin/env");
}

TEST(SlurmScriptTest, DirectivesEndAtTheFirstCommand) {
  EXPECT_THAT(directives("#!/bin/bash\n#SBATCH -t 1\n\n  # text\n#SBATCH   --mem=1G  \r\n "
                         "\t\n#SBATCH\n# SBATCH -x\n##SBATCH -y\n"
                         "  #SBATCH -z\necho\n#SBATCH -n 2\n"),
              ElementsAre("-t 1", "--mem=1G"));
}

TEST(SlurmScriptTest, DirectivesKeepTheirExactText) {
  EXPECT_THAT(
      directives("#SBATCH -J \"a  b\" # why\n#SBATCH--time=1\n#SBATCH hetjob\n#SBATCH -J c\n"),
      ElementsAre("-J \"a  b\" # why", "--time=1", "hetjob", "-J c"));
}

TEST(SlurmScriptTest, AHostileScriptCannotMakeDirectivesOrModulesWithoutEnd) {
  std::string script;
  for (int i = 0; i < 5000; ++i) script += "#SBATCH -n1\n";
  script += "#SBATCH " + std::string(kMaxScriptItemBytes + 1, 'x') + "\n";
  for (int i = 0; i < 5000; ++i) script += "ml a b c\n";
  EXPECT_THAT(directives(script), SizeIs(kMaxScriptItems));
  EXPECT_THAT(modules(script), SizeIs(kMaxScriptItems));
  EXPECT_THAT(
      directives("#SBATCH " + std::string(kMaxScriptItemBytes + 1, 'x') + "\n#SBATCH -n1\n"),
      ElementsAre("-n1"));
  EXPECT_THAT(modules("module load " + std::string(kMaxScriptItemBytes + 1, 'x') + " b\n"),
              ElementsAre("b"));
}

TEST(SlurmScriptTest, FindsTheModulesThatAreLoaded) {
  EXPECT_THAT(modules("module load GCC/12.2.0 OpenMPI/4.1.4\n"),
              ElementsAre("GCC/12.2.0", "OpenMPI/4.1.4"));
  EXPECT_THAT(modules("  module add a 2>/dev/null\n"), ElementsAre("a"));
  EXPECT_THAT(modules("module load a > /dev/null 2>&1; module load b&&module load c || exit 1\n"),
              ElementsAre("a", "b", "c"));
  EXPECT_THAT(modules("module load a &>/dev/null\nmodule load b >>log 2>&1 c\n"),
              ElementsAre("a", "b", "c"));
  EXPECT_THAT(modules("module --silent load a # b\n"), ElementsAre("a"));
  EXPECT_THAT(modules("module load 'a b' \"c\"/1 d\\ e\n"), ElementsAre("a b", "c/1", "d e"));
  EXPECT_THAT(modules("module swap old new\nmodule switch only\nmodule swap\n"),
              ElementsAre("new", "only"));
  EXPECT_THAT(
      modules("if true; then module load a; fi\n[ -f x ] && { module load b; }\n(module load c)\n"),
      ElementsAre("a", "b", "c"));
  EXPECT_THAT(modules("MODULEPATH=/x module load a\n! module load b\n"), ElementsAre("a", "b"));
  EXPECT_THAT(modules("module load a \\\n  b \\\r\n  c\nmodule load d\n"),
              ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(modules("module load a\r\n"), ElementsAre("a"));
}

TEST(SlurmScriptTest, FindsTheModulesOfMl) {
  EXPECT_THAT(modules("ml GCC -OpenMPI Python/3.10\n"), ElementsAre("GCC", "Python/3.10"));
  EXPECT_THAT(modules("ml load a\nml add b\nml swap x y\nml -q c\n"),
              ElementsAre("a", "b", "y", "c"));
  EXPECT_THAT(modules("ml\nml list\nml purge\nml avail gcc\nml use /x\nml unload z\nml spider q\n"
                      "ml = load(x)\nml += 1\n"),
              IsEmpty());
}

TEST(SlurmScriptTest, TakesNoModuleThatIsNotLoaded) {
  EXPECT_THAT(modules("# module load a\n"), IsEmpty());
  EXPECT_THAT(modules("echo module load a\necho \\\n  module load b\n"), IsEmpty());
  EXPECT_THAT(
      modules(
          "module purge\nmodule unload a\nmodule list\nmodule\nmodule load\nmodule -t avail b\n"),
      IsEmpty());
  EXPECT_THAT(modules("mymodule load a\nxml b\nhtml c\nmodules load d\n"), IsEmpty());
  EXPECT_THAT(modules("echo 'module load a; module load b'\n"), IsEmpty());
}

TEST(SlurmScriptTest, EvaluatesNothing) {
  EXPECT_THAT(modules("module load GCC/$VERSION ${X:-a b} $(cat list; echo) `cat x y`\n"),
              ElementsAre("GCC/$VERSION", "${X:-a b}", "$(cat list; echo)", "`cat x y`"));
  EXPECT_THAT(modules("module load \"$(f \"x\")\"\n"), ElementsAre("$(f \"x\")"));
}

TEST(SlurmScriptTest, AnOpenQuoteSpoilsOneLineOnly) {
  EXPECT_THAT(modules("echo don't module\nmodule load a\nmodule load \"b\nmodule load c\n"),
              ElementsAre("a", "b", "c"));
}

TEST(SlurmScriptTest, TheNameComesFromTheDirectivesOfTheFirstComponent) {
  EXPECT_EQ(name("#SBATCH -J one\n"), "one");
  EXPECT_EQ(name("#SBATCH -Jone -n 1\n"), "one");
  EXPECT_EQ(name("#SBATCH --job-name=\"my job\" # x\n"), "my job");
  EXPECT_EQ(name("#SBATCH -n1 --job-name 'a b'\n#SBATCH -J last\n"), "last");
  EXPECT_EQ(name("#SBATCH -J first\n#SBATCH hetjob\n#SBATCH -J second\n"), "first");
  EXPECT_EQ(name("#SBATCH # -J no\n#SBATCH --job-name=\n"), std::nullopt);
  EXPECT_EQ(name("echo\n#SBATCH -J late\n"), std::nullopt);
  EXPECT_EQ(name("#SBATCH -J\n"), std::nullopt);
  EXPECT_EQ(name("#SBATCH -J " + std::string(1025, 'x') + "\n"), std::nullopt);
}

// Each expectation was measured with sbatch 22.05.8.
TEST(SlurmScriptTest, SbatchObeysTheLinesForOtherSchedulers) {
  const std::string pbs =
      "#!/bin/bash\n#PBS -N pbsname\n#PBS -l walltime=00:07:00\n#SBATCH -J sbname\n#SBATCH -t 9\n";
  EXPECT_THAT(directives(pbs),
              ElementsAre("-J sbname", "-t 9", "#PBS -N pbsname", "#PBS -l walltime=00:07:00"));
  EXPECT_EQ(name(pbs), "pbsname");
  EXPECT_THAT(directives("#!/bin/bash\n#BSUB -J bsubname\n#BSUB -W 00:11\n#BSUB\nhostname\n"),
              ElementsAre("#BSUB -J bsubname", "#BSUB -W 00:11"));
  EXPECT_EQ(name("#!/bin/bash\n#BSUB -J 'a b'\n"), "a b");
  // Also after the first command, and in a here-document.
  EXPECT_THAT(directives("#SBATCH -J a\ncat <<E\n#PBS -Ninner\nE\n#SBATCH -J late\n"),
              ElementsAre("-J a", "#PBS -Ninner"));
  // Where both are, #BSUB wins altogether, even with an empty line.
  EXPECT_THAT(directives("#!/bin/sh\n#PBS -N p\n#BSUB -n 2\n"), ElementsAre("#BSUB -n 2"));
  EXPECT_THAT(directives("#!/bin/sh\n#PBS -N p\n#BSUB\n"), IsEmpty());
  EXPECT_EQ(name("#SBATCH -J sb\n#PBS -N p\n#BSUB\n"), "sb");
}

TEST(SlurmScriptTest, SbatchSeesOtherLinesOnlyUpToTheHundredthThatIsNoComment) {
  std::string lines = "#!/bin/bash\n";
  for (int i = 0; i < 300; ++i) lines += "# comment\n";
  for (int i = 0; i < 100; ++i) lines += i % 2 == 0 ? "x=1\n" : "\n";
  EXPECT_THAT(directives(lines + "#PBS -N p\n"), ElementsAre("#PBS -N p"));
  EXPECT_THAT(directives(lines + "x=2\n#PBS -N p\n"), IsEmpty());
}

TEST(SlurmScriptTest, OtherLinesBeginWithExactlyTheirPrefix) {
  for (const char* line : {" #PBS -N p", "# PBS -N p", "##PBS -N p", "#pbs -N p", "#BSU -J b"})
    EXPECT_THAT(directives("#!/bin/sh\n"s + line + "\n"), IsEmpty()) << line;
}

TEST(SlurmScriptTest, IgnorePbsSwitchesThemOff) {
  const auto with = [](const std::string& option) {
    return directives("#!/bin/sh\n#SBATCH " + option + "\n#PBS -N p\n#BSUB -J b\n");
  };
  EXPECT_THAT(with("--ignore-pbs"), ElementsAre("--ignore-pbs"));
  EXPECT_THAT(with("-n 1 --ig"), ElementsAre("-n 1 --ig"));
  EXPECT_THAT(with("--comment=--ignore-pbs"), SizeIs(2));
  EXPECT_THAT(with("--input=x"), SizeIs(2));
  EXPECT_THAT(with("hetjob\n#SBATCH --ignore-pbs"), SizeIs(3));
  EXPECT_THAT(with("-n 1\n#SBATCH --ignore-pbs\n#SBATCH hetjob"), SizeIs(3));
}

TEST(SlurmScriptTest, TheNameIsFoundInEveryFormThatSbatchTakes) {
  for (const char* line :
       {"#SBATCH -HJ abc", "#SBATCH -QHJabc", "#SBATCH --job abc", "#SBATCH --job-n=abc",
        "#PBS -Nabc", "#PBS-N abc", "#PBS --job_name=abc", "#PBS --job_na abc", "#PBS -hN abc",
        "#PBS -VNabc", "#PBS -N abc -l walltime=1:00", "#PBS -N\n#PBS abc", "#BSUB --job_name abc",
        "#PBS -N other\n#PBS -N abc # why"}) {
    EXPECT_EQ(name("#!/bin/sh\n"s + line + "\n"), "abc") << line;
  }
}

TEST(SlurmScriptTest, OnlyTheStubsOfLaterComponentsLookLikeOne) {
  for (const auto& entry : fixtures::recorded_entries()) {
    const std::string_view script(entry.script.data(), entry.script.size() - 1);
    EXPECT_EQ(is_het_stub(script), entry.key == "hash.5/job.45" || entry.key == "hash.7/job.47")
        << entry.name << " " << entry.key;
  }
  EXPECT_FALSE(is_het_stub("exit 0\n"));
  EXPECT_FALSE(is_het_stub("#!/bin/sh\nexit 0\nrm\n"));
  EXPECT_FALSE(is_het_stub("#!/bin/sh\n# text\nexit 0\n"));
  EXPECT_FALSE(is_het_stub(""));
}

TEST(SlurmScriptTest, EveryPrefixOfAScriptCanBeRead) {
  const std::string script =
      "#!/usr/bin/env -S bash -l\n#SBATCH -J \"a\\\" b\" '\nmodule load \"$(x `y\\\n z)\" ${a 2>&1 "
      "<<E\nml a \\";
  for (std::size_t length = 0; length <= script.size(); ++length) {
    const std::string_view prefix = std::string_view(script).substr(0, length);
    read(prefix);
    name(prefix);
  }
}

}  // namespace
}  // namespace scriptorium::slurm
