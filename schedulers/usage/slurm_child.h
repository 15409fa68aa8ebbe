#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace scriptorium::usage {

struct ChildAnswer {
  int status = 0;      // exit status; 128 + signal if a signal ended it
  std::string output;  // standard output
  std::string error;   // standard error, its beginning
};

// Runs one of Slurm's commands, which hang for ever when slurmctld or munged does, with this environment and no other.
// The child and all that it starts are killed when this returns. Any exit status is an answer; kTransient: it could not be
// started, took longer than `patience`, was stopped, or answered more than 256 MiB.
Result<ChildAnswer> run_child(const std::string& program, const std::vector<std::string>& arguments,
                              const std::vector<std::string>& environment, const std::stop_token& stop,
                              std::chrono::milliseconds patience);

// The command of this name: `configured` if it is given, else the first in the usual folders. kInvalidConfig, with the
// remedy, if there is none; `key` is the option that names it.
Result<std::string> find_command(const std::string& configured, const std::string& name, const std::string& key);

// 128 random bits as hexadecimal digits, to stand between fields that users write.
Result<std::string> make_nonce();

}  // namespace scriptorium::usage
