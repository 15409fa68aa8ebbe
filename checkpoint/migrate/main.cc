#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "checkpoint/migrate/check_config.h"
#include "checkpoint/migrate/migration.h"
#include "checkpoint/processes.h"
#include "checkpoint/run/options.h"
#include "core/base/text.h"

namespace {

using namespace scriptorium;              // NOLINT(google-build-using-namespace)
using namespace scriptorium::checkpoint;  // NOLINT(google-build-using-namespace)

constexpr int kExitNotAll = 1;
constexpr int kExitNoSlurm = 69;    // sysexits.h: EX_UNAVAILABLE
constexpr int kExitBrokenOff = 75;  // EX_TEMPFAIL
constexpr int kPaceMs = 500;

volatile std::sig_atomic_t g_is_interrupted = 0;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string{} : value;
}

int fail(const Error& error) {
  std::cerr << "scriptorium-migrate: " + error.message() + "\n";
  return error.kind() == ErrorKind::kTransient ? kExitNoSlurm : kExitNotAll;
}

// poll() returns early for a signal, so it must not be restarted.
void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = [](int) { g_is_interrupted = 1; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

int show_config(SlurmCommands& slurm) {
  const auto config = slurm.config();
  const auto partitions = config ? slurm.partitions() : config;
  if (!partitions) return fail(partitions.error());
  const auto remarks = check_config(*config, *partitions);
  std::cout << remarks_text(remarks, *config);
  const bool is_good = std::ranges::none_of(remarks, [](const ConfigRemark& remark) {
    return remark.kind == ConfigRemark::Kind::kNeeded;
  });
  return is_good ? 0 : kExitNotAll;
}

int run(const std::vector<std::string>& words) {
  const auto options = parse_migrate_options(words);
  if (!options) {
    std::cerr << "scriptorium-migrate: " + options.error().message() + "\n" + kMigrateHelp;
    return kExitUsage;
  }
  if (options->shows_help) {
    std::cout << kMigrateHelp;
    return 0;
  }
  if (options->shows_version) {
    std::cout << "scriptorium-migrate " << SCRIPTORIUM_VERSION << "\n";
    return 0;
  }
  const std::string path = variable("PATH");
  SlurmCommands slurm(path.empty() ? "/usr/bin:/bin" : path, own_environment(), ::geteuid());
  if (options->checks_config) return show_config(slurm);
  const auto folder = StateFolder::open(
      state_folder_path(variable("XDG_STATE_HOME"), variable("HOME"), ::geteuid() == 0));
  if (!folder) return fail(folder.error());
  const bool shows_steps =
      options->is_verbose || (::isatty(STDERR_FILENO) != 0 && !options->is_quiet);
  Migration migration(slurm, *folder, *options, [&](const std::string& text) {
    if (shows_steps) std::cerr << text + "\n";
  });
  catch_interrupts();
  migration.stop_when([] { return g_is_interrupted != 0; });
  int exit_code = 0;

  if (options->undoes) {
    if (const auto undone = migration.undo(); !undone) return fail(undone.error());
  } else {
    if (const auto prepared = migration.prepare(system_clock().now()); !prepared)
      return fail(prepared.error());
    Result<bool> continues = true;
    while (g_is_interrupted == 0 && continues && *continues) {
      continues = migration.step(system_clock().now());
      if (continues && *continues) ::poll(nullptr, 0, kPaceMs);
    }
    const bool is_broken_off = !continues || (*continues && g_is_interrupted != 0);
    if (is_broken_off) {
      migration.break_off();
      std::string command = "scriptorium-migrate";
      for (const std::string& word : words) command += " " + printable(word);
      std::cerr << "scriptorium-migrate: broken off; this continues it: " + command + "\n";
    }
    if (!continues) return fail(continues.error());
    exit_code = is_broken_off ? kExitBrokenOff : 0;
  }

  const auto& reports = migration.reports();
  if (options->is_json) {
    std::cout << report_json(reports, options->drain_node);
  } else if (!options->is_quiet) {
    for (const MoveReport& report : reports) std::cout << report_line(report) << "\n";
  }
  const bool is_all = std::ranges::all_of(reports, &MoveReport::is_as_asked);
  return exit_code != 0 || is_all ? exit_code : kExitNotAll;
}

}  // namespace

int main(int argc, char** argv) try {
  return run({argv + 1, argv + argc});
} catch (const std::exception& e) {
  std::cerr << "scriptorium-migrate: " << e.what()
            << "; this is a fault of Scriptorium, please report it\n";
  return 70;
}
