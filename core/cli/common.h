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

// What several commands share.
namespace scriptorium::cli {

// Prints every problem on a line of its own, in the files' order; true if there were any.
bool print_problems(const Problems& problems, Console& console);

// "scriptorium: " + the message; returns `code`.
int fail(Console& console, const std::string& message, int code);
// The exit code that an error's kind asks for.
int fail(Console& console, const Error& error);

// Config and plugins; nothing if there were problems, which are printed.
std::optional<Setup> load_or_say(const Arguments& arguments, Console& console);

// Before a command opens the journal or makes files in state_dir: root becomes the daemon's user,
// so that nothing of root's is left there. False: that failed, which was said, and `code` is what
// to end with.
bool become_daemon_user_or_say(const Arguments& arguments, Console& console, int& code);

// For commands that only ask the daemon. A configuration that has become wrong must not hide what
// the daemon does, so its problems are only mentioned as long as state_dir could be read.
std::optional<std::string> state_dir_of(const Arguments& arguments, Console& console);

// Asks the daemon, or the journal on disk if none runs. Nothing if that failed: it was said, and
// `code` is the exit code.
std::optional<nlohmann::ordered_json> ask_control(const std::string& state_dir,
                                                  const nlohmann::ordered_json& request,
                                                  Console& console, int& code);

// "7d" before now, "2026-11-14", "2026-11-14T08:00:00Z".
std::optional<Timestamp> since_of(const std::string& text);

}  // namespace scriptorium::cli
