#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <string_view>

#include "schedulers/slurm/queue.h"
#include "schedulers/slurm_client/names.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::slurm {

// Slurm's commands as shell scripts that answer as the test says and record how they were called.
class CommandsFixture : public ::testing::Test {
 protected:
  // `body` runs with $D = the folder; each call adds a line to NAME.calls and its environment to
  // NAME.environments.
  void set_program(const std::string& name, const std::string& body) {
    directory_.write(name, "#!/bin/sh\nD='" + directory_.path() + "'\necho \"$*\" >>\"$D/" + name +
                               ".calls\"; env >>\"$D/" + name + ".environments\"\n" + body + "\n");
    std::filesystem::permissions(directory_.path_to(name), std::filesystem::perms::owner_all);
  }
  // In `body`, $ID is the job that is asked for, if only one is, and answer() prints the rows of
  // set_queue(), of which only that job's, if any.
  void set_squeue(const std::string& body) {
    set_program("squeue",
                "X=${SQUEUE_FORMAT2##*:}; ID=; case \"$*\" in *' -j '*) ID=${*##*-j };; esac\n"
                "answer() { if [ -n \"$ID\" ]; then awk -F'|' -v id=$ID '$1 == id || $2 == id' "
                "\"$D/queue\";"
                " else cat \"$D/queue\"; fi | sed \"s/@/$X/g\"; }\n" +
                    body);
  }
  // The numbers of each row, up to the state; each of the `texts` ends with '@'.
  void set_queue(std::string_view rows, std::string_view texts = "a@q@p@/w@job@") {
    std::istringstream in{std::string(rows)};
    std::string whole;
    for (std::string row; std::getline(in, row);)
      whole.append(row).append("1|").append(texts).append("\n");
    directory_.write("queue", whole);
  }
  static bool no_child_left() { return waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

  test::TempDir directory_;
  SlurmConfig config_{.spool = directory_.path(),
                      .slurm_conf = "/etc/slurm/test.conf",
                      .squeue = directory_.path_to("squeue")};
  test::RecordingLogger log_;
  test::FakeClock clock_;
  std::stop_source stop_;
  std::size_t user_lookups_ = 0;
  slurm_client::AccountNames names_{
      [this](uid_t id) -> std::optional<std::string> {
        ++user_lookups_;
        return id == 1002 ? std::optional<std::string>("bob") : std::nullopt;
      },
      [](gid_t id) -> std::optional<std::string> {
        return id == 2001 ? std::optional<std::string>("chem") : std::nullopt;
      }};
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>(config_, log_, clock_);
};

}  // namespace scriptorium::slurm
