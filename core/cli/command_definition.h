#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

#include "core/cli/arguments.h"

namespace scriptorium::cli {

// The commands and their options, as CLI11 takes them. Parsing writes what was given to `into`,
// which must outlive this. For one command line; one thread.
class CommandDefinition {
 public:
  explicit CommandDefinition(Arguments& into);
  CLI::App& app() noexcept { return app_; }

 private:
  static CLI::Option* add_config_option(CLI::App& app, std::string& file);
  void add_config(CLI::App& app);
  CLI::App& add(CLI::App& parent, const std::string& name, const std::string& help,
                Command command);
  CLI::Option* add_in(CLI::App& app);
  void add_show();
  void add_search();
  void add_search_outputs(CLI::App& search);
  void add_since(CLI::App& app);
  void add_cluster(CLI::App& app);
  void add_diff();
  void add_history();
  void add_software();
  void add_report();
  CLI::Option* add_report_mail(CLI::App& report, CLI::Option* user);
  void add_usage();
  void add_status();
  void add_dead_letters();
  void add_sinks();
  void add_owners();
  void add_of_import(CLI::App& app);
  void add_import();
  void add_redact();
  void add_catalog();
  void add_checkpoint();
  // Exactly one of ID and --all.
  void add_choice(CLI::App& app);

  static constexpr std::size_t kMostJobWords = 100'000;
  static constexpr const char* kIdHelp = "Event id; its first 8 digits suffice if they are unique";

  Arguments& into_;
  CLI::App app_{
      "Captures the exact script and environment of every batch job and delivers them to plugins."};
};

}  // namespace scriptorium::cli
