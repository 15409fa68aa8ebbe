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

// Runs programs that may hang, answer without end, or leave children.
// Owns:    the children. Each runs in a process group of its own, which is killed when run()
// returns, so nothing of
//          it outlives the call. A child that even SIGKILL cannot end at once (stuck in a file
//          system) is kept in mind and reaped later.
// Threads: one at a time.
class CommandRunner {
 public:
  struct Command {
    std::string program;                   // absolute path
    std::vector<std::string> arguments;    // without the program's own name
    std::vector<std::string> environment;  // "NAME=value"; the child gets these and no other
  };
  struct Answer {
    int status = 0;  // exit status; 128 + signal if a signal ended it
    std::string output;
    std::string error;  // standard error, its beginning
  };

  // Bytes of standard output that are read before the child is killed.
  explicit CommandRunner(std::size_t max_output = std::size_t{64} << 20)
      : max_output_(max_output) {}
  CommandRunner(const CommandRunner&) = delete;
  CommandRunner& operator=(const CommandRunner&) = delete;
  ~CommandRunner();

  // Any exit status is an answer. kTransient: it could not be started, did not end by `deadline`,
  // was stopped, or answered too much. kExhausted: no descriptor was left. The deadline is one of
  // std::chrono::steady_clock.
  Result<Answer> run(const Command& command, const std::stop_token& stop, SteadyTime deadline);

  // Children that were killed and have not ended yet.
  std::size_t stuck() noexcept;

 private:
  std::size_t max_output_;
  std::vector<pid_t> stuck_;
};

// The program to run: `configured` if that is given, else the first one called `name` in `folders`,
// a list as in PATH. Our own PATH is not used: the process that starts us may have put anything
// into it. Nothing if there is none that we may execute.
std::optional<std::string> find_program(const std::string& configured, std::string_view name,
                                        std::string_view folders);

}  // namespace scriptorium
