#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/api/options.h"
#include "core/base/error.h"
#include "core/base/time.h"
#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/daemon/setup.h"

// Functions that several commands share.
namespace scriptorium::cli {

// Prints each problem on its own line, in file order; true if there were any.
bool print_problems(const Problems& problems, Console& console);

// Prints "scriptorium: " and the message; returns `code`.
int fail(Console& console, const std::string& message, int code);
// The same, with the exit code that fits the error's kind.
int fail(Console& console, const Error& error);

// Loads configuration and plugins; prints problems and returns nothing if there are any.
std::optional<Setup> load_or_say(const Arguments& arguments, Console& console);
// The same with the rules for secrets, for a command that captures or checks.
std::optional<Setup> load_with_rules_or_say(const Arguments& arguments, Console& console);

// Call this before a command opens the journal or creates files in state_dir: root becomes the
// daemon's user, so that no file there belongs to root. False: that failed, a message was printed,
// and `code` is the exit code.
bool become_daemon_user_or_say(const Arguments& arguments, Console& console, int& code);

// For commands that only query the daemon. A broken configuration must not prevent that, so its
// problems are only mentioned if state_dir could be read.
std::optional<std::string> state_dir_of(const Arguments& arguments, Console& console);

// Asks the daemon, or the journal on disk if no daemon runs. On failure prints a message, sets
// `code` to the exit code and returns nothing.
std::optional<nlohmann::ordered_json> ask_control(const std::string& state_dir,
                                                  const nlohmann::ordered_json& request,
                                                  Console& console, int& code);

// The beginning of what a person typed: an age before now, "7d"; in the reader's zone "2026-11-14",
// "2026-11-14T08:00" or "yesterday"; "2026-11-14T08:00:00Z". "": the beginning of time.
std::optional<Timestamp> since_of(const std::string& text);

}  // namespace scriptorium::cli
