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

// A configuration whose plugins are loaded and whose every option was checked; nothing was created
// yet.
struct Setup {
  Config config;
  std::vector<std::string> plugin_dirs;
  std::vector<LoadedSource> sources;
  std::vector<LoadedSink> sinks;
};

// The exit code of a `run` that is refused for an error, and so that of a `check` that finds the
// same.
int exit_code_of(ErrorKind kind) noexcept;

// Reads the config, loads every plugin that it names, checks all options (core's and the plugins',
// unknown keys). All problems of all files and plugins go into `problems`; a plugin that does not
// load is one at its instance's place. The result is only to be used if there were none.
Setup load_setup(const std::string& config_file, Problems& problems);

// One line of `scriptorium check`.
struct Finding {
  enum class Level { kOk, kWarning, kFailed } level = Level::kOk;
  std::string subject;  // "sink.archive", "source.slurm", "state_dir", "journal"
  std::string text;
  // A start would be refused for it, by an error of this kind, which gives the exit code. Absent:
  // the daemon would start.
  std::optional<ErrorKind> refusal;
};

// The rest of start-up but starting: state_dir writable, journal readable and not damaged (no lock
// is taken, so a daemon may run), every plugin instance made and its check() asked, every spool
// looked at. Leaves nothing behind. `privileges`: how this process was separated; the spools are
// then looked at by its opener, as the daemon would.
std::vector<Finding> check_setup(const Setup& setup, Logger& log, const Privileges& privileges);

}  // namespace scriptorium
