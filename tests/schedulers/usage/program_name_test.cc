#include "schedulers/usage/program_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/text.h"

namespace scriptorium::usage {
namespace {

std::string command_line(const std::vector<std::string>& words) {
  std::string bytes;
  for (const std::string& word : words) bytes += word + '\0';
  return bytes;
}

ProgramName named(const std::vector<std::string>& words, const std::string& command = "comm") {
  return name_program(command, command_line(words));
}

TEST(ProgramNameTest, IsTheBaseNameOfTheFirstArgument) {
  EXPECT_EQ(named({"/opt/vasp/6.4/bin/vasp_std_with_a_long_name", "-in", "secret"}),
            (ProgramName{"vasp_std_with_a_long_name", ""}));
  EXPECT_EQ(named({"./a.out"}), (ProgramName{"a.out", ""}));
  EXPECT_EQ(named({"-bash"}), (ProgramName{"bash", ""})) << "a login shell";
}

TEST(ProgramNameTest, IsTheCommandWhereTheFirstArgumentIsNoName) {
  EXPECT_EQ(name_program("gmx", ""), (ProgramName{"gmx", ""})) << "it is ending";
  EXPECT_EQ(named({"", "x"}, "gmx"), (ProgramName{"gmx", ""}));
  EXPECT_EQ(named({"/opt/bin/"}, "gmx"), (ProgramName{"gmx", ""}));
  EXPECT_EQ(named({"-"}, "gmx"), (ProgramName{"gmx", ""}));
  EXPECT_EQ(named({"worker: password /data/secret"}, "gmx"), (ProgramName{"gmx", ""}))
      << "a title that the program wrote over its arguments";
  EXPECT_EQ(name_program("gmx", "worker: step 7 of /data/secret"), (ProgramName{"gmx", ""}));
  EXPECT_EQ(name_program("", ""), (ProgramName{"?", ""}));
  EXPECT_EQ(named({"two\nlines"}, "gmx"), (ProgramName{"gmx", ""}));
}

TEST(ProgramNameTest, NamesTheScriptOfAnInterpreterAndNoOtherArgument) {
  struct Case {
    std::vector<std::string> words;
    std::string script;
  };
  const std::vector<Case> cases = {
      {{"python3", "/home/u/train.py", "--token", "x"}, "train.py"},
      {{"/usr/bin/python3.11", "-u", "train.py"}, "train.py"},
      {{"pypy3", "-O", "train.py"}, "train.py"},
      {{"python", "-uB", "-W", "ignore", "-X", "dev", "run"}, "run"},
      {{"python", "-Wignore", "-Xdev", "run"}, "run"},
      {{"python", "--check-hash-based-pycs", "always", "run"}, "run"},
      {{"python", "--", "-odd.py"}, "-odd.py"},
      {{"python", "-m", "torch.distributed.run", "train.py"}, "torch.distributed.run"},
      {{"python", "-um", "http.server"}, "http.server"},
      {{"python", "-mpytest", "x"}, "pytest"},
      {{"python", "-m", "not/a/module"}, ""},
      {{"python", "-m"}, ""},
      {{"python", "-c", "print(1)"}, ""},
      {{"python", "-c", "run", "secret"}, ""},
      {{"python", "-crun", "secret"}, ""},
      {{"python", "-ucrun", "secret"}, ""},
      {{"python", "-"}, ""},
      {{"python"}, ""},
      {{"python", ""}, ""},
      {{"python", "a file.py"}, ""},
      {{"python", "directory/"}, ""},
      {{"python", "/dev/fd/63"}, ""},
      {{"python", "/dev/shm/run.py"}, "run.py"},

      {{"/usr/lib/R/bin/exec/R", "--no-echo", "--no-restore", "--file=/home/u/fit.R", "--args",
        "x"},
       "fit.R"},
      {{"R", "-f", "fit.R", "--restore", "--save"}, "fit.R"},
      {{"R", "--no-echo", "-e", "q()", "--file=secret"}, ""},
      {{"R", "--vanilla", "--args", "--file=x"}, ""},
      {{"R", "-f"}, ""},
      {{"Rscript", "--vanilla", "fit.R", "x"}, "fit.R"},
      {{"Rscript", "-e", "1+1", "secret"}, ""},
      {{"Rscript", "--version"}, ""},

      {{"julia", "--project", "-t", "8", "solve.jl", "x.jl"}, "solve.jl"},
      {{"julia-1.9.3", "--threads=8", "/home/u/solve.jl"}, "solve.jl"},
      {{"julia", "-L", "init.jl", "solve.jl"}, "solve.jl"},
      {{"julia", "-e", "include(\"x.jl\")", "y.jl"}, ""},
      {{"julia", "--eval=x", "y.jl"}, ""},
      {{"julia", "solve", "8"}, ""},

      {{"perl", "-w", "count.pl", "x"}, "count.pl"},
      {{"perl5.36.0", "-I", "lib", "-Mstrict", "-T", "count"}, "count"},
      {{"perl", "-Ilib", "count"}, "count"},
      {{"perl", "-i.bak", "--", "count"}, "count"},
      {{"perl", "-lane", "print"}, ""},
      {{"perl", "-0777", "-pe", "s/a/b/", "file"}, ""},
      {{"perl", "-E", "say", "secret"}, ""},
      {{"perl", "-we", "say", "secret"}, ""},
      {{"perl", "-"}, ""},

      {{"/bin/bash", "/var/spool/slurmd/job00042/slurm_script", "x"}, "slurm_script"},
      {{"-bash"}, ""},
      {{"sh", "-e", "run.sh", "x"}, "run.sh"},
      {{"bash", "-euo", "pipefail", "run.sh"}, "run.sh"},
      {{"bash", "+x", "-O", "extglob", "run.sh"}, "run.sh"},
      {{"bash", "--rcfile", "rc", "--norc", "run.sh"}, "run.sh"},
      {{"zsh", "-oextendedglob", "run.sh"}, ""},
      {{"bash", "--", "run.sh"}, "run.sh"},
      {{"ksh93", "run"}, "run"},
      {{"dash", "-c", "echo", "secret"}, ""},
      {{"bash", "-lc", "run", "secret"}, ""},
      {{"bash", "-s", "secret"}, ""},
      {{"fish", "--command=secret", "x"}, ""},
      {{"tcsh", "-f", "run.csh"}, "run.csh"},

      {{"node", "server.js"}, ""},
      {{"pythonic", "x"}, ""},
      {{"gmx", "mdrun"}, ""},
  };
  for (const Case& one : cases)
    EXPECT_EQ(named(one.words).script, one.script) << ::testing::PrintToString(one.words);
}

TEST(ProgramNameTest, AScriptWhoseNameWasCutIsNotNamed) {
  EXPECT_EQ(name_program("python3", std::string("python3\0-u\0/home/u/tra", 22)).script, "");
}

TEST(ProgramNameTest, AScriptBehindVeryManyOptionsIsNotSearched) {
  std::vector<std::string> words(200, "-u");
  words.front() = "python3";
  words.emplace_back("train.py");
  EXPECT_EQ(named(words), (ProgramName{"python3", ""}));
}

TEST(ProgramNameTest, WhatAUserWroteIsBoundedAndValidText) {
  const std::string huge(4096, 'x');
  const std::vector<std::string> hostile = {huge,
                                            "\xff\xfe\x80",
                                            std::string(63, 'x') + "\xc3\xa9",
                                            std::string(62, 'x') + "\xf0\x9f",
                                            "\x1b[2J",
                                            "\x80",
                                            std::string(100, '\xff'),
                                            "$(reboot)"};
  for (const std::string& name : hostile) {
    for (const ProgramName& made :
         {named({name}), named({"python3", "/tmp/" + name}), named({"two words"}, name)}) {
      EXPECT_TRUE(is_utf8(made.name) && is_utf8(made.script)) << printable(name);
      EXPECT_LE(made.name.size(), kLongestProgramName);
      EXPECT_LE(made.script.size(), kLongestProgramName);
      EXPECT_FALSE(made.name.empty());
    }
  }
  EXPECT_EQ(named({std::string(63, 'x') + "\xc3\xa9"}).name, std::string(63, 'x'))
      << "cut between two characters";
  EXPECT_EQ(named({huge}).name, std::string(64, 'x'));
}

TEST(SrunTaskTest, IsReadFromTheControlGroup) {
  constexpr std::uint64_t kStep = std::uint64_t{1} << 32U;
  const std::vector<std::pair<std::string, std::optional<std::uint64_t>>> cases = {
      {"7:blkio:/\n4:memory:/slurm_n1/uid_0/job_9/step_3/task_17\n1:cpu:/\n", 3 * kStep + 17},
      {"0::/system.slice/slurmstepd.scope/job_9/step_0/user/task_2\n", 2},
      {"0::/x/job_9/step_0/user/task_2/own/group\n", 2},
      {"4:memory:/slurm/uid_0/job_9/step_batch/task_0\n", std::nullopt},
      {"4:memory:/slurm/uid_0/job_9/step_extern/task_special\n", std::nullopt},
      {"3:cpuset:/slurm/uid_0/job_9/step_0\n4:memory:/slurm/uid_0/job_9/step_0/task_1\n", 1},
      {"3:cpuset:/slurm/uid_0/job_9/step_0\n", std::nullopt},
      {"0::/x/step_0x/task_1\n", std::nullopt},
      {"0::/x/step_0/task_1x\n", std::nullopt},
      {"0::/x/step_99999999999/task_1\n", std::nullopt},
      {"0::/x/step_/task_\n", std::nullopt},
      {"", std::nullopt}};
  for (const auto& [groups, task] : cases) EXPECT_EQ(srun_task(groups), task) << groups;
}

TEST(ContainerTest, IsTheDirectoryThatIsNotTheMachinesRoot) {
  const std::string machine =
      "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
      "27 1 254:0 /@/root / rw,relatime - btrfs /dev/vda rw\n";
  // The first, and the one by fuse, as ch-run 0.31 makes them.
  const auto container = [&](const std::string& mounts) {
    return container_of(root_directory(mounts), root_directory(machine));
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"44 64 254:0 /var/tmp/img / ro,relatime - ext4 /dev/vda rw\n45 44 0:6 / /dev rw - x x rw\n",
       "img"},
      {"45 44 0:6 /a /dev rw - x x rw\n44 64 254:0 /b / ro - ext4 /dev/vda rw\n", "b"},
      {"89 65 0:39 / / ro,nosuid,nodev,relatime - fuse /dev/fuse rw,user_id=0,group_id=0\n", ""},
      {"90 65 0:40 / / rw - overlay overlay rw,lowerdir=/l/X,upperdir=/u\n", ""},
      {machine, ""},
      {"27 1 254:1 /@/root / rw - btrfs /dev/vdb rw\n", "root"},
      {"44 64 254:0 /images/a\\040b / ro - ext4 /dev/vda rw\n", ""},
      {"44 64 254:0 /images/img//deleted / ro - ext4 /dev/vda rw\n", ""},
      {"44 64 254:0 /images/img / ro,rela", ""},  // cut
      {"44 64 254:0 /images/" + std::string(70, 'x') + " / ro - ext4 /dev/vda rw\n",
       std::string(64, 'x')},
      {"\n\n", ""},
      {"", ""}};
  for (const auto& [mounts, name] : cases) EXPECT_EQ(container(mounts), name) << mounts;
  EXPECT_EQ(container_of(root_directory(cases[0].first), {}), "") << "the machine's is not known";
}

}  // namespace
}  // namespace scriptorium::usage
