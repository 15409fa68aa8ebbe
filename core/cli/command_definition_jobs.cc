// The commands that find, show and compare jobs.
#include "core/cli/command_definition.h"
#include "core/cli/manual.h"
#include "core/query/run_sums.h"

namespace scriptorium::cli {

CLI::Option* CommandDefinition::add_in(CLI::App& app) {
  return app.add_option("--in", into_.in, "Ask this sink, not the fastest that can be searched")
      ->type_name("SINK");
}

void CommandDefinition::add_since(CLI::App& app) {
  app.add_option("--since", into_.since,
                 "Jobs submitted since then: an age such as 7d, a date or a time")
      ->type_name("TIME");
}

void CommandDefinition::add_cluster(CLI::App& app) {
  app.add_option("--cluster", into_.cluster, "The cluster of jobs that are named without theirs")
      ->type_name("NAME");
}

void CommandDefinition::add_show() {
  CLI::App& show =
      add(app_, "show", "Show jobs' scripts, their owners, what became of them and where they lie",
          Command::kShow);
  show.add_option("JOB", into_.jobs,
                  "Ids, tasks (4711_3), components (4711+1), ranges (4711-4720); lab/4711 for "
                  "another cluster")
      ->required()
      ->expected(1, static_cast<int>(kMostJobWords));
  show.add_flag("--environment", into_.environment, "The variables instead of the script");
  CLI::Option* raw = show.add_flag("--raw", into_.raw,
                                   "Only the bytes as they were captured, of the newest capture");
  show.add_flag("--json", into_.json, "Everything, for programs")->excludes(raw);
  add_cluster(show);
}

void CommandDefinition::add_search() {
  CLI::App& search = add(app_, "search", "Find jobs by their script, their owner and what they did",
                         Command::kSearch);
  search.add_option("QUERY", into_.query,
                    "Words, \"phrases\", field:value, /expressions/; docs/search.md has all");
  add_in(search);
  CLI::Option* limit =
      search.add_option("--limit", into_.limit, "How many jobs at most, the newest first; 0 = all")
          ->check(CLI::NonNegativeNumber);
  search.add_flag("--all", into_.all, "Every job that matches, however long it takes")
      ->excludes(limit);
  add_since(search);
  search.add_option("--after", into_.after, "Continue behind an earlier answer, which names NEXT")
      ->type_name("NEXT");
  search
      .add_option("--deadline", into_.deadline,
                  "End after so many seconds with what was found until then; 0 = none. Default: 2 "
                  "on a terminal with an indexed sink, else none")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber);
  search.add_option("-C,--context", into_.context, "Lines around each matching line")
      ->type_name("LINES")
      ->check(CLI::Range(0, 100));
  search.add_flag("--exact", into_.exact, "With --facets: count all matches, however slow");
  add_search_outputs(search);
}

void CommandDefinition::add_search_outputs(CLI::App& search) {
  CLI::Option* count = search.add_flag("--count", into_.count, "Only how many jobs match");
  CLI::Option* facets =
      search
          .add_option("--facets", into_.facets,
                      "Instead of the jobs, how many of them have which value: user,module")
          ->type_name("FIELDS");
  CLI::Option* json = search.add_flag("--json", into_.json, "For programs");
  CLI::Option* csv = search.add_flag("--csv", into_.csv, "A table for programs, with a header");
  CLI::Option* ids = search.add_flag("--ids", into_.ids, "Only the ids, one on each line");
  CLI::Option* nul =
      search.add_flag("-0,--null", into_.nul, "Only the ids, each ended by a NUL, for xargs -0");
  for (CLI::Option* option : {csv, ids, nul}) option->excludes(json)->excludes(count);
  for (CLI::Option* option : {ids, nul}) option->excludes(csv)->excludes(facets);
  ids->excludes(nul);
}

void CommandDefinition::add_diff() {
  CLI::App& diff =
      add(app_, "diff", "Compare two jobs, or one with the last of its kind that completed",
          Command::kDiff);
  diff.add_option("JOB", into_.jobs,
                  "One or two ids; of one, what changed since it last worked is shown")
      ->required()
      ->expected(1, 2);
  CLI::Option* script = diff.add_flag("--script", into_.script, "Only the scripts");
  diff.add_flag("--environment", into_.environment, "Only the variables")->excludes(script);
  diff.add_flag("--all", into_.all, "Variables that every login changes, too")->excludes(script);
  diff.add_flag("--json", into_.json, "For programs");
  add_cluster(diff);
  add_in(diff);
}

void CommandDefinition::add_history() {
  CLI::App& history =
      add(app_, "history", "List the runs of a job and of those like it, and the edits between",
          Command::kHistory);
  history.add_option("JOB", into_.jobs, "The scheduler's id of one of the runs")
      ->required()
      ->expected(1);
  history.add_option("--limit", into_.limit, "How many runs at most, the newest first")
      ->check(CLI::PositiveNumber);
  history.add_flag("--json", into_.json, "For programs");
  add_cluster(history);
  add_in(history);
}

void CommandDefinition::add_checkpoint() {
  CLI::App& checkpoint = *app_.add_subcommand(
      kCheckpointCommand, "List, check or remove the images of programs that were saved for you");
  checkpoint.require_subcommand(1);
  checkpoint.footer(exit_codes_footer(kCheckpointCommand));
  const auto add_verb = [&](const char* name, const char* help, Command command,
                            const char* help_of_dirs) {
    CLI::App& verb = add(checkpoint, name, help, command);
    verb.add_option("DIR", into_.files, help_of_dirs);
    return &verb;
  };
  constexpr const char* kDirs = "Directories of images, or single images (DIR/checkpoint.old)";
  CLI::App* list = add_verb("list", "List the images in directories and in the folders in them",
                            Command::kCheckpointList,
                            "Default: the working directory, and where the archive has a record "
                            "of an image of yours");
  list->add_flag("--json", into_.json, "For programs");
  CLI::App* show =
      add_verb("show", "Show all that is known of an image, and whether this node could resume it",
               Command::kCheckpointShow, "An image; of a directory of images, the newest");
  show->get_option("DIR")->required()->expected(1);
  show->add_flag("--json", into_.json, "For programs");
  CLI::App* verify = add_verb("verify", "Read images, and compare every file with its checksum",
                              Command::kCheckpointVerify, kDirs);
  verify->get_option("DIR")->required();
  CLI::App* prune = add_verb("prune",
                             "Remove images that are not needed any more: of programs that have "
                             "ended, and older ones",
                             Command::kCheckpointPrune, kDirs);
  prune->get_option("DIR")->required();
  CLI::Option* keep =
      prune
          ->add_option("--keep", into_.keep,
                       "Images to keep of each directory, the newest, unless their programs have "
                       "ended")
          ->check(CLI::PositiveNumber);
  prune->add_option("--older-than", into_.before, "Only images that are older: 7d, a date, a time")
      ->type_name("AGE");
  prune->add_flag("--all", into_.all, "Also images that wait for their resume")->excludes(keep);
  prune->add_flag("--dry-run", into_.dry_run, "Only say what would be removed");
}

void CommandDefinition::add_software() {
  CLI::App& software =
      add(app_, "software",
          "Count which modules, environments, images and interpreters how many jobs and users use",
          Command::kSoftware);
  add_since(software);
  software.add_option("--by", into_.by, "A row for each user or account of a module")
      ->check(CLI::IsMember({"user", "account"}));
  CLI::Option* json = software.add_flag("--json", into_.json, "For programs");
  software.add_flag("--csv", into_.csv, "A table for programs, with a header")->excludes(json);
  add_in(software);
}

void CommandDefinition::add_report() {
  CLI::App& report =
      add(app_, "report", "Show what jobs used of what they requested, and what to request next",
          Command::kReport);
  CLI::Option* job = report.add_option(
      "JOB", into_.job, "The scheduler's id of a job, or ID_TASK for a task of an array");
  CLI::Option* user =
      report
          .add_option("--user", into_.users,
                      "Jobs of this user, by name or uid, most wasteful first; with --mail: mails "
                      "to this user, and can be given several times")
          ->type_name("USER")
          ->allow_extra_args(false)
          ->excludes(job);
  CLI::Option* since = report
                           .add_option("--since", into_.since,
                                       "Jobs that ended since then: a date or time in your "
                                       "time zone, or an age such as 7d, 12h or 30m")
                           ->type_name("TIME")
                           ->excludes(job);
  report.add_option("--until", into_.until, "Jobs that ended before then; likewise")
      ->type_name("TIME")
      ->excludes(job);
  CLI::Option* by =
      report
          .add_option("--by", into_.by,
                      "A row for each user, account, ... with what all their jobs had and did not "
                      "use, beside as long a time before --since; for each week or month, with "
                      "that of the jobs that ended in it")
          ->check(CLI::IsMember(query::sum_by_words()))
          ->excludes(job);
  report
      .add_flag("--family", into_.family,
                "A row for each family of jobs, those that a person would call the same, and how "
                "its runs change")
      ->excludes(job)
      ->excludes(by);
  report
      .add_option("--archive", into_.archive,
                  "A file tree to read instead of those of the configuration's sinks")
      ->type_name("DIR");
  report.add_option("--limit", into_.limit, "Rows of the table; 0 = all")
      ->check(CLI::NonNegativeNumber)
      ->excludes(job);
  CLI::Option* json = report.add_flag("--json", into_.json, "Everything, for programs");
  report.add_flag("--csv", into_.csv, "With --by: a table for programs, with a header")
      ->excludes(json)
      ->needs(by);
  report
      .add_flag("--jobstats", into_.js1,
                "The summary of one job as jobstats writes it, for tools that read that")
      ->excludes(json)
      ->needs(job);
  CLI::Option* mail = add_report_mail(report, user);
  report.parse_complete_callback([this, job, user, since, by, mail] {
    if (mail->count() > 0) {
      if (user->count() == 0 && !into_.all && into_.account.empty())
        throw CLI::RequiredError("--mail: --all, --user or --account");
      return;
    }
    if (job->count() + user->count() + since->count() + by->count() == 0)
      throw CLI::RequiredError("JOB, --user, --since, --by or --mail");
    if (into_.users.size() > 1) throw CLI::ArgumentMismatch("--user: several only with --mail");
    if (!into_.users.empty()) into_.user = into_.users.front();
  });
}

CLI::Option* CommandDefinition::add_report_mail(CLI::App& report, CLI::Option* user) {
  CLI::Option* mail = report.add_flag("--mail", into_.mail,
                                      "Send each user what his jobs wasted in a week or a month, "
                                      "once, if it is worth a mail (needs --all, --user or "
                                      "--account)");
  CLI::Option* all = report.add_flag("--all", into_.all,
                                     "With --mail: all users, coordinators and addresses of the "
                                     "site");
  all->needs(mail)->excludes(user);
  report
      .add_option("--account", into_.account,
                  "With --mail: the coordinators of this account, about all accounts that they "
                  "coordinate")
      ->type_name("ACCOUNT")
      ->needs(mail)
      ->excludes(user)
      ->excludes(all);
  report
      .add_option("--period", into_.period,
                  "With --mail: week or month, the last one that is over, or one such as 2026-W46 "
                  "or 2026-10")
      ->type_name("PERIOD")
      ->needs(mail);
  CLI::Option* into = report
                          .add_option("--dry-run", into_.eml_dir,
                                      "With --mail: write the mails into this folder, as files "
                                      ".eml, and send none")
                          ->type_name("DIR")
                          ->needs(mail);
  report
      .add_flag(
          "--resend", into_.resend,
          "With --mail: only mails of that period that were refused for good, or may have been "
          "lost, since an earlier call was ended while the mail program had them")
      ->needs(mail)
      ->excludes(into);
  for (CLI::Option* other : report.get_options()) {
    const std::string name = other->get_single_name();
    for (const char* no :
         {"JOB", "since", "until", "by", "family", "archive", "limit", "json", "csv", "jobstats"}) {
      if (name == no) mail->excludes(other);
    }
  }
  return mail;
}

void CommandDefinition::add_usage() {
  CLI::App& usage = add(app_, kUsageCommand,
                        "Measure the job that this command runs in; needs no daemon and no right",
                        Command::kUsage);
  usage
      .add_flag("--here", into_.here,
                "The report of the job up to now, as report has it afterwards")
      ->required();
  usage.add_flag("--until-exit", into_.until_exit,
                 "Measure in the background until the calling script ends, and write "
                 "scriptorium-usage-JOB.txt and .json at each reading");
}

}  // namespace scriptorium::cli
