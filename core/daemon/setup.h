#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/plugin/loader.h"
#include "core/redact/redactor.h"

namespace scriptorium {

template <typename Instance>
struct Loaded {
  Instance instance;
  LoadedPlugin plugin;
};
struct LoadedSource : Loaded<SourceInstance> {
  // Null until load_rules(); a source does not start without it.
  std::shared_ptr<const redact::Redactor> redactor;
  std::string redaction;  // changes with the rules and the mode
};
using LoadedSink = Loaded<SinkInstance>;

// A configuration with its plugins loaded and every option checked; no instance is made yet.
struct Setup {
  Config config;
  std::vector<std::string> plugin_dirs;
  std::vector<LoadedSource> sources;
  std::vector<LoadedSink> sinks;
  std::shared_ptr<const redact::RuleSet> rules;  // null: not loaded, or no source wants any
};

// The exit code of a `run` that is refused with an error of this kind, and of a `check` that finds
// it.
int exit_code_of(ErrorKind kind) noexcept;

// Reads the configuration, loads every plugin that it names, checks all options, core's and the
// plugins', and looks for unknown keys. Adds all problems of all files and plugins to `problems`; a
// plugin that does not load is a problem at the position of its instance. Use the result only if
// there are no problems.
Setup load_setup(const std::string& config_file, Problems& problems);

// Loads the rules for secrets (core/redact/rule_set.h) with those of redact.d beside the
// configuration, and gives each source its redactor. Commands that capture nothing do without.
// Adds what is wrong with the site's rules to `problems`.
void load_rules(const std::string& config_file, Setup& setup, Problems& problems);

}  // namespace scriptorium
