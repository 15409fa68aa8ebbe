#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>

namespace scriptorium::test {

// Runs one disabled test of this program ("JournalCrashChild.DISABLED_Works") in a process of its
// own with these variables, as faults are armed by the environment at the first point that is
// reached. Its standard output goes to the file. Returns its wait status.
inline int run_child_test(const std::string& name,
                          const std::map<std::string, std::string>& variables,
                          const std::string& output) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (const auto& [variable, value] : variables) ::setenv(variable.c_str(), value.c_str(), 1);
    ::dup2(::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    const std::string filter = "--gtest_filter=" + name;
    ::execl("/proc/self/exe", "child", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
    ::_exit(127);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

inline bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

}  // namespace scriptorium::test
