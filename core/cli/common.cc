#include "core/cli/common.h"

#include <nlohmann/json.hpp>

#include "core/cli/exit_codes.h"
#include "core/config/config.h"
#include "core/daemon/control.h"
#include "core/daemon/log.h"
#include "core/daemon/privileges.h"

namespace scriptorium::cli {
bool print_problems(const Problems& problems, Console& console) {
  // A file's problems come from the reader, from core's options and from each plugin's, but a
  // person fixes a file line by line.
  Problems sorted = problems;
  sorted.sort();
  for (const Problem& problem : sorted.list()) console.err << problem.text() << "\n";
  if (!sorted.empty())
    console.err << count_of(sorted.list().size(), "problem") << " in the configuration\n";
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

bool become_daemon_user_or_say(const Arguments& arguments, Console& console, int& code) {
  if (!console.owns_process) return true;
  Problems problems;
  const CoreConfig core = load_config(arguments.config_file, problems).core;
  if (!problems.empty() && core.cluster.empty())
    return true;  // state_dir is unknown; the command reports the problem
  auto became = become_daemon_user(core, arguments.config_file);
  if (!became) code = fail(console, became.error());
  return became.has_value();
}

std::optional<Setup> load_or_say(const Arguments& arguments, Console& console) {
  Problems problems;
  Setup setup = load_setup(arguments.config_file, problems);
  if (print_problems(problems, console)) return std::nullopt;
  return setup;
}

std::optional<Setup> load_with_rules_or_say(const Arguments& arguments, Console& console) {
  Problems problems;
  Setup setup = load_setup(arguments.config_file, problems);
  load_rules(arguments.config_file, setup, problems);
  if (print_problems(problems, console)) return std::nullopt;
  return setup;
}

std::optional<nlohmann::ordered_json> ask_control(const std::string& state_dir,
                                                  const nlohmann::ordered_json& request,
                                                  Console& console, int& code) {
  using Json = nlohmann::ordered_json;
  const auto log = make_command_logger();
  const auto answer =
      control(state_dir, request.dump(-1, ' ', false, Json::error_handler_t::replace), *log);
  if (!answer) {
    code = answer.error().kind() == ErrorKind::kPermanent
               ? fail(console, answer.error().message(), kExitNoInput)
               : fail(console, answer.error());
    return std::nullopt;
  }
  Json json = Json::parse(*answer, nullptr, false);
  if (json.is_discarded()) {
    code = fail(console, "the daemon's answer is not JSON", kExitSoftware);
    return std::nullopt;
  }
  return json;
}

std::optional<std::string> state_dir_of(const Arguments& arguments, Console& console) {
  Problems problems;
  const Config config = load_config(arguments.config_file, problems);
  // If the file could not be read or parsed, `cluster` is empty too, and state_dir would be a
  // guess.
  if (!problems.empty() && config.core.cluster.empty()) {
    print_problems(problems, console);
    return std::nullopt;
  }
  if (!problems.empty()) {
    console.err << "scriptorium: " << arguments.config_file << ": "
                << count_of(problems.list().size(), "problem")
                << " in the configuration; \"scriptorium check\" names them\n";
  }
  return config.core.state_dir;
}

}  // namespace scriptorium::cli
