// The commands that look after the daemon, its sinks and what they hold.
#include "core/cli/command_definition.h"
#include "core/cli/manual.h"

namespace scriptorium::cli {

void CommandDefinition::add_status() {
  CLI::App& status = add(app_, "status", "Show what the running daemon has captured and delivered",
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
}

void CommandDefinition::add_dead_letters() {
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

void CommandDefinition::add_sinks() {
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
  CLI::App& fill = add(
      sinks, "fill", "Send a sink what an archive already holds; what the sink has does not change",
      Command::kSinksFill);
  fill.add_option("SINK", into_.name, "The sink to be filled: search for [sink.search]")
      ->required();
  fill.add_option("--from", into_.archive, "The sink whose archive is read, if there are several")
      ->type_name("SINK");
  fill.add_option("--since", into_.since,
                  "Only events since then: a date or time in your time zone, or an age such as 90d")
      ->type_name("TIME");
  fill.add_flag("--stop", into_.stop, "Stop a fill that is under way: nothing more is sent")
      ->excludes("--from")
      ->excludes("--since");
  fill.add_flag("--no-wait", into_.no_wait,
                "Do not show the progress; the daemon continues in any case");
}

void CommandDefinition::add_owners() {
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

void CommandDefinition::add_of_import(CLI::App& app) {
  app.add_flag("--import", into_.of_import,
               "Those of \"scriptorium import\", which has its own journal");
}

void CommandDefinition::add_import() {
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
  import.add_option("--sink", into_.sink, "Only into this sink")->type_name("SINK");
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
  import
      .add_option("--before", into_.before,
                  "Only jobs from before this date or time, in your time zone")
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

void CommandDefinition::add_redact() {
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
                      "A file tree that was written before, whatever its layout; without DIR: all "
                      "that the sinks of the configuration stored")
          ->type_name("[DIR]")
          ->expected(0, 1);
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

void CommandDefinition::add_catalog() {
  CLI::App& catalog = *app_.add_subcommand(
      kCatalogCommand, "Check the catalog, repair it, make it smaller, or show what it holds");
  catalog.require_subcommand(1);
  catalog.footer(exit_codes_footer(kCatalogCommand));
  const auto add_verb = [&](const char* name, const char* help, Command command) {
    CLI::App& verb = add(catalog, name, help, command);
    verb.add_option("--sink", into_.sink, "The catalog's name, if there are several")
        ->type_name("SINK");
    verb.add_flag("--json", into_.json, "Figures and findings, for programs");
  };
  add_verb("check", "Read everything, and compare it with its checksums and its index",
           Command::kCatalogCheck);
  add_verb("rebuild", "Make what is damaged once more, from what can be read of it",
           Command::kCatalogRebuild);
  add_verb("compact", "Rewrite what would be noticeably smaller", Command::kCatalogCompact);
  add_verb("stats", "Show how much it holds, and what takes the room", Command::kCatalogStats);
}

void CommandDefinition::add_choice(CLI::App& app) {
  CLI::Option* id = app.add_option("ID", into_.id, kIdHelp);
  CLI::Option* all = app.add_flag("--all", into_.all, "All of them")->excludes(id);
  app.parse_complete_callback([id, all] {
    if (id->count() + all->count() == 0) throw CLI::RequiredError("ID or --all");
  });
}

}  // namespace scriptorium::cli
