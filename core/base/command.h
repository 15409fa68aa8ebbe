#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium {

// Runs programs that may hang, write without end, or leave children behind.
//
// Owns:    the children. Each runs in its own process group, which is killed before run() returns,
//          so nothing of it outlives the call (but see leaves_children). A child that SIGKILL does
//          not end at once (blocked in a file system) is remembered and reaped later.
// Threads: one at a time.
class CommandRunner {
 public:
  struct Command {
    std::string program;                   // absolute path
    std::vector<std::string> arguments;    // without argv[0]
    std::vector<std::string> environment;  // "NAME=value"; the child's whole environment
    std::string input;                     // standard input; empty: /dev/null
    // run() returns when the program itself has ended, although processes that it has started hold
    // its output open, and does not kill those. Exim delivers in such a process.
    bool leaves_children = false;
  };
  struct Answer {
    int status = 0;  // exit status; 128 + signal if a signal ended it
    std::string output;
    std::string error;  // the beginning of standard error
  };

  // The child is killed once it has written more than this to standard output.
  explicit CommandRunner(std::size_t max_output = std::size_t{64} << 20)
      : max_output_(max_output) {}
  CommandRunner(const CommandRunner&) = delete;
  CommandRunner& operator=(const CommandRunner&) = delete;
  ~CommandRunner();

  // Any exit status counts as success. kTransient: the program could not be started, did not end by
  // `deadline` (std::chrono::steady_clock), was stopped, or wrote too much. kExhausted: no
  // descriptor was left.
  Result<Answer> run(const Command& command, const std::stop_token& stop, SteadyTime deadline);

  // Whether the last run() started its program. If that run() failed, the program was killed.
  bool started() const noexcept { return started_; }

  // Children that were killed but have not ended yet.
  std::size_t stuck() noexcept;

 private:
  std::size_t max_output_;
  std::vector<pid_t> stuck_;
  bool started_ = false;
};

// "squeue: exit status 1: " and the first line of standard error, as kTransient.
Error exit_error(std::string_view name, const CommandRunner::Answer& answer);

// The program to run: `configured` if it is not empty, otherwise the first executable called `name`
// in `folders`, a colon-separated list. Our own PATH is not used, because whoever starts the daemon
// controls it. Nothing if no such program can be executed.
std::optional<std::string> find_program(const std::string& configured, std::string_view name,
                                        std::string_view folders);

}  // namespace scriptorium
