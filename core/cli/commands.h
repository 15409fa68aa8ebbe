#pragma once

#include "core/cli/arguments.h"
#include "core/cli/console.h"

// One function per command, each in its own file. Each reports errors on console.err and returns
// the exit code.
namespace scriptorium::cli {

int run_command(const Arguments& arguments, Console& console);

int check_command(const Arguments& arguments, Console& console);
int plugins_command(const Arguments& arguments, Console& console);
int status_command(const Arguments& arguments, Console& console);
int dead_letters_command(const Arguments& arguments, Console& console);
int sinks_command(const Arguments& arguments, Console& console);
int owners_command(const Arguments& arguments, Console& console);
int show_command(const Arguments& arguments, Console& console);
int search_command(const Arguments& arguments, Console& console);
int diff_command(const Arguments& arguments, Console& console);
int history_command(const Arguments& arguments, Console& console);
int software_command(const Arguments& arguments, Console& console);
int report_command(const Arguments& arguments, Console& console);
int usage_command(const Arguments& arguments, Console& console);
int serve_command(const Arguments& arguments, Console& console);
int setup_command(const Arguments& arguments, Console& console);
int import_command(const Arguments& arguments, Console& console);
int redact_command(const Arguments& arguments, Console& console);
int catalog_command(const Arguments& arguments, Console& console);
int checkpoint_command(const Arguments& arguments, Console& console);

}  // namespace scriptorium::cli
