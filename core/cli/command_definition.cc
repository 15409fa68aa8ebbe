#include "core/cli/command_definition.h"

#include "core/cli/manual.h"

namespace scriptorium::cli {

CommandDefinition::CommandDefinition(Arguments& into) : into_(into) {
  app_.name("scriptorium");
  app_.require_subcommand(1);
  app_.footer(help_footer());
  app_.set_version_flag("-V,--version", "scriptorium " SCRIPTORIUM_VERSION, "Print the version");
  app_.get_formatter()->column_width(34);
  add_config(app_);

  CLI::App& run = add(app_, "run", "Capture and deliver until stopped", Command::kRun);
  run.add_flag("--once", into_.once,
               "Take what the spool holds, deliver it, and end; 0 only if everything was settled");
  add(app_, "check", "Check everything that startup needs, and report every problem",
      Command::kCheck);

  CLI::App& plugins =
      add(app_, "plugins", "List the plugins, or all options of one", Command::kPlugins);
  plugins.add_option("NAME", into_.name,
                     "A plugin; \"core\" for the options of Scriptorium itself");
  plugins.add_flag("--markdown", into_.markdown, "Print a page of the reference");

  add_status();
  add_dead_letters();
  add_sinks();
  add_owners();

  add_show();
  add_search();
  add_diff();
  add_history();
  add_software();
  add_report();
  add_usage();
  add_checkpoint();

  CLI::App& serve = add(
      app_, "serve",
      "Answer the users' search, show and report from sinks that they may not read, and the page",
      Command::kServe);
  serve.add_flag("--open", into_.open,
                 "Only the page, for one person at a browser on this host: print the address, and "
                 "open it where there is a browser");

  CLI::App& setup =
      add(app_, "setup", "Create what a destination needs once, such as topics or index templates",
          Command::kSetup);
  setup.add_option("SINK", into_.name, "A sink of the configuration: archive for [sink.archive]")
      ->required();
  setup.add_flag("--print", into_.print, "Only print it");

  add_import();
  add_redact();
  add_catalog();

  add(app_, "version", "Print the version", Command::kVersion);
  // parse_command_line() handles it as "COMMAND --help"; it is defined here for the help and the
  // man page.
  CLI::App& help = add(app_, "help", "Print the help of a command", Command::kVersion);
  help.add_option("COMMAND", into_.help_of,
                  "A command, such as \"deadletters list\"; default: all commands");

  CLI::App& completion =
      add(app_, "completion", "Print the completion for a shell", Command::kCompletion);
  completion.group("");
  completion.add_option("SHELL", into_.shell, "The shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  CLI::App& man = add(app_, "man", "Print this manual as troff", Command::kMan);
  man.group("");
}

CLI::Option* CommandDefinition::add_config_option(CLI::App& app, std::string& file) {
  return app
      .add_option("-c,--config", file, "The configuration; plugins.d beside it is read as well")
      ->type_name("FILE")
      ->default_str(kDefaultConfigFile);
}

void CommandDefinition::add_config(CLI::App& app) {
  add_config_option(app, into_.config_file)->each([this](const std::string&) {
    into_.config_given = true;
  });
}

CLI::App& CommandDefinition::add(CLI::App& parent, const std::string& name, const std::string& help,
                                 Command command) {
  CLI::App& made = *parent.add_subcommand(name, help);
  made.footer(exit_codes_footer(&parent == &app_ ? name : parent.get_name() + " " + name));
  add_config(made);  // here as well, so that it may follow the command and appears in its help
  made.callback([this, command] { into_.command = command; });
  return made;
}

}  // namespace scriptorium::cli
