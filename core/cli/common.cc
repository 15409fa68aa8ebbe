#include "core/cli/common.h"

#include "core/cli/exit_codes.h"
#include "core/config/config.h"

namespace scriptorium::cli {
namespace {

std::string count_of(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

bool print_problems(const Problems& problems, Console& console) {
  // A file's problems come from the reader, from core's options and from each plugin's; a person goes through it by line.
  Problems sorted = problems;
  sorted.sort();
  for (const Problem& problem : sorted.list()) console.err << problem.text() << "\n";
  if (!sorted.empty()) console.err << count_of(sorted.list().size(), "problem") << " in the configuration\n";
  return !sorted.empty();
}

int fail(Console& console, const std::string& message, int code) {
  console.err << "scriptorium: " << message << "\n";
  return code;
}

int fail(Console& console, const Error& error) {
  switch (error.kind()) {
    case ErrorKind::kInvalidConfig: return fail(console, error.message(), kExitConfig);
    case ErrorKind::kVanished: return fail(console, error.message(), kExitNoInput);
    default: return fail(console, error.message(), kExitUnavailable);
  }
}

std::optional<Setup> load_or_say(const Arguments& arguments, Console& console) {
  Problems problems;
  Setup setup = load_setup(arguments.config_file, problems);
  if (print_problems(problems, console)) return std::nullopt;
  return setup;
}

std::optional<std::string> state_dir_of(const Arguments& arguments, Console& console) {
  Problems problems;
  const Config config = load_config(arguments.config_file, problems);
  // A file that could not be read or parsed has no cluster either; its state_dir would be a guess.
  if (!problems.empty() && config.core.cluster.empty()) {
    print_problems(problems, console);
    return std::nullopt;
  }
  if (!problems.empty()) {
    console.err << "scriptorium: " << arguments.config_file << ": " << count_of(problems.list().size(), "problem")
                << " in the configuration; \"scriptorium check\" names them\n";
  }
  return config.core.state_dir;
}

}  // namespace scriptorium::cli
