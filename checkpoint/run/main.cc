#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "checkpoint/run/job.h"
#include "checkpoint/run/options.h"
#include "checkpoint/run/run.h"

namespace {

using namespace scriptorium::checkpoint;  // NOLINT(google-build-using-namespace)

int run(const std::vector<std::string>& words) {
  const auto options = parse_run_options(words);
  if (!options) {
    std::cerr << "scriptorium-run: " << options.error().message() << "\n" << kRunHelp;
    return kExitUsage;
  }
  if (options->shows_help) {
    std::cout << kRunHelp;
    return 0;
  }
  if (options->shows_version) {
    std::cout << "scriptorium-run " << SCRIPTORIUM_VERSION << "\n";
    return 0;
  }
  const auto job = find_batch_job([](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return std::string(value == nullptr ? "" : value);
  });
  if (!job) {
    say("this is not a batch job of Slurm or OAR; the command runs without being saved");
    return become_command(options->command);
  }
  return run_life(*options, *job);
}

}  // namespace

int main(int argc, char** argv) try {
  return run({argv + 1, argv + argc});
} catch (const std::exception& e) {
  std::cerr << "scriptorium-run: " << e.what()
            << "; this is a fault of Scriptorium, please report it\n";
  return 70;
}
