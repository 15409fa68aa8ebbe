#include "core/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>
#include <utility>

#include "core/base/text.h"
#include "core/cli/exit_codes.h"
#include "core/cli/manual.h"

namespace scriptorium::cli {
namespace {

// The definition of the command line, bound to `into`, which must outlive it.
class Definition {
 public:
  explicit Definition(Arguments& into) : into_(into) {
    app_.name("scriptorium");
    app_.require_subcommand(1);
    app_.footer(help_footer());
    app_.set_version_flag("-V,--version", "scriptorium " SCRIPTORIUM_VERSION, "Print the version");
    app_.get_formatter()->column_width(34);
    add_config(app_);

    CLI::App& run = add(app_, "run", "Capture and deliver until stopped", Command::kRun);
    run.add_flag(
        "--once", into_.once,
        "Take what the spool holds, deliver it, and end; 0 only if everything was settled");
    add(app_, "check", "Check everything that startup needs, and report every problem",
        Command::kCheck);

    CLI::App& plugins =
        add(app_, "plugins", "List the plugins, or all options of one", Command::kPlugins);
    plugins.add_option("NAME", into_.name,
                       "A plugin; \"core\" for the options of Scriptorium itself");
    plugins.add_flag("--markdown", into_.markdown, "Print a page of the reference");

    CLI::App& status =
        add(app_, "status", "Show what the running daemon has captured and delivered",
            Command::kStatus);
    CLI::Option* json = status.add_flag("--json", into_.json, "The whole answer, for programs");
    CLI::Option* check =
        status
            .add_flag("--check", into_.health,
                      "One line for Nagios, Icinga and similar monitors; exits 0 if all "
                      "is well, 1 (warning) or 2 "
                      "(critical)")
            ->excludes(json);
    status
        .add_option("--warning", into_.behind_warning_s,
                    "With --check: seconds that a sink may be behind without a warning")
        ->needs(check)
        ->check(CLI::NonNegativeNumber);
    status
        .add_option("--critical", into_.behind_critical_s,
                    "With --check: seconds behind from which it is critical")
        ->needs(check)
        ->check(CLI::NonNegativeNumber);

    add_dead_letters();
    add_sinks();
    add_owners();

    CLI::App& show =
        add(app_, "show", "Show a job's script, its owner and where it is stored", Command::kShow);
    show.add_option("JOB", into_.job, "The scheduler's id of the job")->required();
    show.add_flag("--environment", into_.environment, "The variables instead of the script");
    CLI::Option* raw = show.add_flag("--raw", into_.raw,
                                     "Only the bytes as they were captured, of the newest capture");
    show.add_flag("--json", into_.json, "Everything, for programs")->excludes(raw);

    add_report();

    CLI::App& setup = add(app_, "setup",
                          "Create what a destination needs once, such as topics or index templates",
                          Command::kSetup);
    setup.add_option("SINK", into_.name, "A sink of the configuration: archive for [sink.archive]")
        ->required();
    setup.add_flag("--print", into_.print, "Only print it");

    add_import();
    add_redact();

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

  CLI::App& app() noexcept { return app_; }

 private:
  static CLI::Option* add_config_option(CLI::App& app, std::string& file) {
    return app
        .add_option("-c,--config", file, "The configuration; plugins.d beside it is read as well")
        ->type_name("FILE")
        ->default_str(kDefaultConfigFile);
  }
  void add_config(CLI::App& app) {
    add_config_option(app, into_.config_file)->each([this](const std::string&) {
      into_.config_given = true;
    });
  }

  CLI::App& add(CLI::App& parent, const std::string& name, const std::string& help,
                Command command) {
    CLI::App& made = *parent.add_subcommand(name, help);
    made.footer(exit_codes_footer(&parent == &app_ ? name : parent.get_name() + " " + name));
    add_config(made);  // here as well, so that it may follow the command and appears in its help
    made.callback([this, command] { into_.command = command; });
    return made;
  }

  void add_report() {
    CLI::App& report =
        add(app_, "report", "Show what jobs used of what they requested, and what to request next",
            Command::kReport);
    CLI::Option* job = report.add_option(
        "JOB", into_.job, "The scheduler's id of a job, or ID_TASK for a task of an array");
    CLI::Option* user = report
                            .add_option("--user", into_.user,
                                        "Jobs of this user, by name or uid, most wasteful first")
                            ->type_name("USER")
                            ->excludes(job);
    CLI::Option* since = report
                             .add_option("--since", into_.since,
                                         "Jobs that ended since then: a date or time (UTC), or an "
                                         "age such as 7d, 12h or 30m")
                             ->type_name("TIME")
                             ->excludes(job);
    report
        .add_option("--archive", into_.archive,
                    "A file tree to read instead of those of the configuration's sinks")
        ->type_name("DIR");
    report.add_option("--limit", into_.limit, "Rows of the table; 0 = all")
        ->check(CLI::NonNegativeNumber)
        ->excludes(job);
    CLI::Option* json = report.add_flag("--json", into_.json, "Everything, for programs");
    report
        .add_flag("--jobstats", into_.js1,
                  "The summary of one job as jobstats writes it, for tools that read that")
        ->excludes(json)
        ->needs(job);
    report.parse_complete_callback([job, user, since] {
      if (job->count() + user->count() + since->count() == 0)
        throw CLI::RequiredError("JOB, --user or --since");
    });
  }

  void add_dead_letters() {
    CLI::App& letters = *app_.add_subcommand(
        "deadletters", "List, show, retry or discard events that a sink has rejected for good");
    letters.require_subcommand(1);
    letters.footer(exit_codes_footer("deadletters"));
    const auto add_sink = [this](CLI::App& app) {
      app.add_option("--sink", into_.sink, "Only those of this sink")->type_name("SINK");
      add_of_import(app);
    };

    CLI::App& list = add(letters, "list", "List the dead letters", Command::kDeadLettersList);
    add_sink(list);
    list.add_flag("--json", into_.json, "For programs");

    CLI::App& show =
        add(letters, "show", "Show a dead letter with its event", Command::kDeadLettersShow);
    show.add_option("ID", into_.id, kIdHelp)->required();
    show.add_flag("--json", into_.json, "For programs");
    add_of_import(show);

    CLI::App& retry = add(letters, "retry", "Deliver again", Command::kDeadLettersRetry);
    add_choice(retry);
    add_sink(retry);

    CLI::App& discard = add(letters, "discard", "Give up for good: the events are removed",
                            Command::kDeadLettersDiscard);
    add_choice(discard);
    add_sink(discard);
    discard.add_flag("--yes", into_.yes, "Do not ask");
  }

  void add_sinks() {
    CLI::App& sinks = *app_.add_subcommand(
        "sinks", "List the sinks of the journal, forget one, or fill one from an archive");
    sinks.require_subcommand(1);
    sinks.footer(exit_codes_footer("sinks"));
    CLI::App& list =
        add(sinks, "list", "List what waits for each sink, configured or not", Command::kSinksList);
    list.add_flag("--json", into_.json, "For programs");
    CLI::App& forget =
        add(sinks, "forget", "Remove what waits for a sink that is not configured any more",
            Command::kSinksForget);
    forget.add_option("SINK", into_.name, "Its name, as \"sinks list\" shows it")->required();
    forget.add_flag("--yes", into_.yes, "Do not ask");
    CLI::App& fill =
        add(sinks, "fill",
            "Send a sink what an archive already holds; what the sink has does not change",
            Command::kSinksFill);
    fill.add_option("SINK", into_.name, "The sink to be filled: search for [sink.search]")
        ->required();
    fill.add_option("--from", into_.archive, "The sink whose archive is read, if there are several")
        ->type_name("SINK");
    fill.add_option("--since", into_.since,
                    "Only events since then: a date or time (UTC), or an age such as 90d")
        ->type_name("TIME");
    fill.add_flag("--no-wait", into_.no_wait,
                  "Do not show the progress; the daemon continues in any case");
  }

  void add_owners() {
    CLI::App& owners = *app_.add_subcommand(
        "owners", "List the jobs whose owner could not be verified, or ask the scheduler again");
    owners.require_subcommand(1);
    owners.footer(exit_codes_footer("owners"));
    CLI::App& list = add(owners, "list", "List them, with the reason", Command::kOwnersList);
    list.add_flag("--json", into_.json, "For programs");
    CLI::App& retry =
        add(owners, "retry",
            "Ask now instead of at the next round; jobs whose owner is found move to that owner",
            Command::kOwnersRetry);
    retry.add_flag("--no-wait", into_.no_wait,
                   "Do not wait for the answers; the daemon continues in any case");
  }

  void add_of_import(CLI::App& app) {
    app.add_flag("--import", into_.of_import,
                 "Those of \"scriptorium import\", which has its own journal");
  }

  void add_import() {
    CLI::App& import =
        add(app_, "import",
            "Import another archiver's jobs into the sinks, with their dates, each job once",
            Command::kImport);
    import
        .add_option("FORMAT", into_.format,
                    "The archiver that wrote the tree; savescript is the layout that XDMoD reads")
        ->required()
        ->check(CLI::IsMember({"sarchive", "job_archive", "savescript"}));
    import.add_option("DIR", into_.tree, "The top of the tree")->required();
    import
        .add_option("--source", into_.source,
                    "The source whose scheduler and environment rule apply, if there are several")
        ->type_name("SOURCE");
    import
        .add_option("--cluster", into_.cluster,
                    "The cluster that the jobs ran on, if not the configuration's")
        ->type_name("NAME");
    import
        .add_option("--scheduler", into_.scheduler,
                    "The scheduler that the jobs ran under, if not the source's")
        ->type_name("NAME");
    import.add_option("--sink", into_.sink, "Only into this sink")->type_name("SINK");
    import.add_option("--before", into_.before, "Only jobs from before this date or time (UTC)")
        ->type_name("TIME");
    import
        .add_option("--owners", into_.owners,
                    "The jobs' owners, from accounting: output of sacct -P with JobIDRaw, User, "
                    "UID, Submit")
        ->type_name("FILE");
    import.add_flag("--dry-run", into_.dry_run, "Read and count, and change nothing");
    import.add_flag("--again", into_.again,
                    "Include jobs that were imported before; sinks that have them do not change");
    import.add_flag("--json", into_.json, "The summary, for programs");
  }

  void add_redact() {
    CLI::App& redact =
        add(app_, "redact",
            "Show which secrets would be removed from a job script, or clean up an archive",
            Command::kRedact);
    CLI::Option* files = redact.add_option("FILE", into_.files, "A job script; - = standard input");
    CLI::Option* environment = redact.add_flag(
        "--environment", into_.environment,
        "Each FILE holds NAME=value strings that end in NUL, or lines if there is no NUL");
    CLI::Option* mode = redact.add_option("--mode", into_.mode,
                                          "As the option redact of the configuration, which is "
                                          "the default if it can be read");
    mode->check(CLI::IsMember({"default", "strict", "flag"}));
    CLI::Option* explain = redact.add_flag(
        "--explain", into_.explain, "Show as well what is kept although a rule nearly applies");
    CLI::Option* print =
        redact.add_flag("--print", into_.print, "Print FILE as it would be archived, and no more");
    CLI::Option* rules = redact.add_flag("--rules", into_.rules, "List the rules in force");
    CLI::Option* archive =
        redact
            .add_option("--archive", into_.archive,
                        "A file tree that was written before: its events, whatever its layout")
            ->type_name("DIR");
    CLI::Option* dry_run =
        redact.add_flag("--dry-run", into_.dry_run, "With --archive: report, and change nothing");
    CLI::Option* apply = redact.add_flag("--apply", into_.apply,
                                         "With --archive: remove for good what the rules find");
    CLI::Option* record =
        redact
            .add_option("--record", into_.record,
                        "With --apply: what changed goes here, a line of JSON for each event; "
                        "default: redactions.jsonl in state_dir")
            ->type_name("FILE");
    redact.add_flag("--json", into_.json, "For programs")->excludes(print);
    for (CLI::Option* option : {files, rules}) option->excludes(archive);
    rules->excludes(files);
    for (CLI::Option* option : {environment, explain, print}) option->needs(files);
    for (CLI::Option* option : {dry_run, apply}) option->needs(archive);
    apply->excludes(dry_run);
    record->needs(apply);
    redact.parse_complete_callback([files, rules, archive, dry_run, apply] {
      if (files->count() + rules->count() + archive->count() == 0)
        throw CLI::RequiredError("FILE, --rules or --archive");
      if (archive->count() > 0 && dry_run->count() + apply->count() == 0)
        throw CLI::RequiredError("--dry-run or --apply");
    });
  }

  // Exactly one of ID and --all.
  void add_choice(CLI::App& app) {
    CLI::Option* id = app.add_option("ID", into_.id, kIdHelp);
    CLI::Option* all = app.add_flag("--all", into_.all, "All of them")->excludes(id);
    app.parse_complete_callback([id, all] {
      if (id->count() + all->count() == 0) throw CLI::RequiredError("ID or --all");
    });
  }

  static constexpr const char* kIdHelp = "Event id; its first 8 digits suffice if they are unique";

  Arguments& into_;
  CLI::App app_{
      "Captures the exact script and environment of every batch job and delivers them to plugins."};
};

OptionModel model_of(const CLI::Option& option) {
  OptionModel model;
  model.positional = option.get_positional();
  model.required = option.get_required();
  model.help = option.get_description();
  model.default_value = option.get_default_str();
  if (model.positional) model.names.push_back(option.get_name(true));
  for (const std::string& name : option.get_snames()) model.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) model.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) {
    // CLI11 appends the words of IsMember: "TEXT:{bash,zsh,fish}".
    const std::string type = option.get_type_name();
    const std::size_t brace = type.find('{');
    if (brace != std::string::npos) {
      std::istringstream words(type.substr(brace + 1, type.rfind('}') - brace - 1));
      for (std::string word; std::getline(words, word, ',');) model.words.push_back(word);
    }
    model.value = model.positional ? model.names.front() : type.substr(0, type.find(':'));
  }
  return model;
}

CommandModel model_of(const CLI::App& app) {
  CommandModel model;
  model.name = app.get_name();
  model.help = app.get_description();
  model.hidden = app.get_group().empty();
  for (const CLI::Option* option : app.get_options()) model.options.push_back(model_of(*option));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    model.commands.push_back(model_of(*sub));
  return model;
}

// For an unknown command CLI11 only reports that a command is missing.
std::optional<std::string> unknown_command(const CommandModel& root,
                                           const std::vector<std::string>& words) {
  const CommandModel* command = &root;
  for (std::size_t i = 0; i < words.size() && !command->commands.empty(); ++i) {
    if (words[i] == "-c" || words[i] == "--config") {
      ++i;
      continue;
    }
    if (words[i].starts_with('-')) continue;
    const auto found = std::find_if(command->commands.begin(), command->commands.end(),
                                    [&](const CommandModel& c) { return c.name == words[i]; });
    if (found != command->commands.end()) {
      command = &*found;
      continue;
    }
    std::vector<std::string> names;
    for (const CommandModel& c : command->commands) {
      if (!c.hidden) names.push_back(c.name);
    }
    const auto near = did_you_mean(words[i], names);
    return "unknown command \"" + printable(words[i]) + "\"" +
           (near ? "; did you mean \"" + *near + "\"?" : "") +
           "\nRun with --help for more information.\n";
  }
  return std::nullopt;
}

}  // namespace

ParsedLine parse_command_line(const std::vector<std::string>& words) {
  if (!words.empty() && words.front() == "help") {
    std::vector<std::string> asked(words.begin() + 1, words.end());
    asked.emplace_back("--help");
    // For an unknown command, "--help" would print the general help.
    const auto unknown = unknown_command(command_model(), asked);
    if (!unknown) return parse_command_line(asked);
    ParsedLine refused;
    refused.exit_code = kExitUsage;
    refused.err = *unknown;
    return refused;
  }
  Arguments arguments;
  Definition definition(arguments);
  ParsedLine result;
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 requires
    definition.app().parse(std::move(reversed));
    result.arguments = std::move(arguments);
  } catch (const CLI::ParseError& e) {
    std::ostringstream out;
    std::ostringstream err;
    result.exit_code = definition.app().exit(e, out, err) == 0 ? kExitGood : kExitUsage;
    result.out = out.str();
    result.err = err.str();
    if (result.exit_code != kExitGood)
      result.err = unknown_command(command_model(), words).value_or(result.err);
  }
  return result;
}

CommandModel command_model() {
  Arguments unused;
  Definition definition(unused);
  CommandModel model = model_of(definition.app());
  model.hidden = false;
  return model;
}

}  // namespace scriptorium::cli
