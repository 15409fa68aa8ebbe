#pragma once

#include <optional>
#include <string>

#include "core/api/options.h"
#include "core/base/error.h"
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

// For commands that only ask the daemon. A configuration that has become wrong must not hide what the daemon does, so
// its problems are only mentioned as long as state_dir could be read.
std::optional<std::string> state_dir_of(const Arguments& arguments, Console& console);

}  // namespace scriptorium::cli
