#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/thrown.h"
#include "core/cli/command_line.h"
#include "core/cli/commands.h"
#include "core/cli/exit_codes.h"
#include "core/plugin/call_within.h"

namespace {

int run(int argc, char** argv) {
  using namespace scriptorium::cli;  // NOLINT(google-build-using-namespace)
  const ParsedLine line = parse_command_line(std::vector<std::string>(argv + 1, argv + argc));
  Console console = standard_console();
  console.out << line.out;
  console.err << line.err;
  return line.arguments ? run_command(*line.arguments, console) : line.exit_code;
}

}  // namespace

#ifdef SCRIPTORIUM_JEMALLOC
// Read by jemalloc when it starts (jemalloc(3), TUNING). Two heaps are enough for our few threads,
// and what a burst or one large script took goes back to the system within a second. glibc's malloc
// fragments here: events are made in one thread and freed in another, and its resident memory grew
// by 260 bytes an event that waited (44 MB stay 44 MB with this one).
extern "C" __attribute__((visibility("default"))) const char* malloc_conf;
const char* malloc_conf = "narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0";
#endif

int main(int argc, char** argv) try {
  // A reader that goes away (`| head`) is an error of write(), not the end of a daemon.
  std::signal(SIGPIPE, SIG_IGN);
  const int code = run(argc, argv);
  std::cout.flush();
  std::cerr.flush();
  if (scriptorium::call_hung()) ::_exit(code);
  return code;
} catch (const std::exception& e) {
  // What std::thread throws.
  const auto* system = dynamic_cast<const std::system_error*>(&e);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    std::cerr << "scriptorium: no more threads can be had (" << e.what()
              << "): raise TasksMax= or LimitNPROC= of the unit, or `ulimit -u`\n";
    return scriptorium::cli::kExitTryAgain;
  }
  std::cerr << "scriptorium: " << e.what()
            << "; this is a fault of Scriptorium, please report it\n";
  return scriptorium::cli::kExitSoftware;
} catch (...) {
  // A plugin's exception that came through one of the commands.
  std::cerr << "scriptorium: " << scriptorium::thrown_text()
            << " was thrown; this is a fault of Scriptorium or of a plugin, please report it\n";
  return scriptorium::cli::kExitSoftware;
}
