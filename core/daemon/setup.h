#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/config/config.h"
#include "core/plugin/loader.h"

namespace scriptorium {

struct Privileges;

struct LoadedSource {
  SourceInstance instance;
  LoadedPlugin plugin;
};
struct LoadedSink {
  SinkInstance instance;
  LoadedPlugin plugin;
};

// A configuration with its plugins loaded and every option checked; no instance is made yet.
struct Setup {
  Config config;
  std::vector<std::string> plugin_dirs;
  std::vector<LoadedSource> sources;
  std::vector<LoadedSink> sinks;
};

// The exit code of a `run` that an error of this kind refuses, and of a `check` that finds it.
int exit_code_of(ErrorKind kind) noexcept;

// Reads the config, loads every plugin that it names, and checks all options, core's and the
// plugins', and unknown keys. All problems of all files and plugins go into `problems`; a plugin
// that does not load is a problem at its instance's position. Use the result only if there is none.
Setup load_setup(const std::string& config_file, Problems& problems);

// One line of `scriptorium check`.
struct Finding {
  enum class Level { kOk, kWarning, kFailed } level = Level::kOk;
  std::string subject;  // "sink.archive", "source.slurm", "state_dir", "journal"
  std::string text;
  // The kind of the error with which a start would be refused; gives the exit code. Absent: the
  // daemon would start.
  std::optional<ErrorKind> refusal;
};

// The rest of a start without starting: is state_dir writable, is the journal readable and intact
// (no lock is taken, so a daemon may run), can every plugin instance be made, what does its check()
// say, can every spool be read. Leaves nothing behind. `privileges`: how this process was
// separated; its opener reads the spools, as the daemon's would.
std::vector<Finding> check_setup(const Setup& setup, Logger& log, const Privileges& privileges);

}  // namespace scriptorium
