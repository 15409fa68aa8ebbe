#include "core/cli/manual.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/cli/arguments.h"
#include "core/cli/console.h"

namespace scriptorium::cli {
namespace {

struct Fact {
  std::string_view term;
  std::string_view text;
};
struct Section {
  std::string_view title;
  std::vector<Fact> facts;
};

// The parts of the man page and of `--help` that are not commands or options.
const std::vector<Section>& sections() {
  static const std::vector<Section> all{
      {"FILES",
       {
           {"/etc/scriptorium/scriptorium.toml", "The configuration."},
           {"/etc/scriptorium/plugins.d/*.toml",
            "Sources and sinks, one file for each plugin, read in name order."},
           {"/etc/scriptorium/redact.d/*.toml",
            "The site's own rules for secrets, read in name order; see redact."},
           {"/var/lib/scriptorium",
            "state_dir: the journal, the lock, and the socket that status asks."},
       }},
      {"EXIT STATUS",
       {
           {"0", "All is well; run --once: everything was settled."},
           {"1",
            "search: no job matches. diff: the jobs differ. redact: something would be removed. "
            "catalog check: something is damaged. checkpoint verify: an image is not whole. "
            "status --check: a warning."},
           {"2", "status --check: critical."},
           {"64", "The command line is wrong."},
           {"65",
            "import: some jobs of the tree could not be read; the others were imported. redact: "
            "a part of the archive was left alone. catalog rebuild: something is lost. "
            "checkpoint prune: something was left."},
           {"66",
            "There is no such job, dead letter, file or tree. report --mail: no job of the period, "
            "or no coordinator of the account. usage: this does not run in a job. checkpoint: no "
            "image."},
           {"69",
            "No daemon answers, a check failed for which run would still start, or run --once "
            "could not settle everything. usage: the job cannot be measured."},
           {"70", "Scriptorium itself is at fault; please report it."},
           {"73", "state_dir or the journal cannot be made."},
           {"74",
            "The journal was found damaged while in use; the next start saves what can be read."},
           {"75",
            "Another daemon owns state_dir. Or: no more threads can be had. Of import and catalog: "
            "another one runs, or it was interrupted. Of report --mail also: somebody may have got "
            "no mail."},
           {"78",
            "The configuration is wrong; every problem was printed. check: run --once would "
            "refuse it."},
       }},
      {"SIGNALS",
       {
           {"SIGTERM, SIGINT",
            "Deliver what is in flight within shutdown_seconds, leave the rest in the journal, and "
            "exit."},
           {"SIGHUP",
            "Reload the configuration; if it is wrong, report that and keep the old one."},
           {"SIGTERM, SIGINT, SIGHUP of usage --until-exit", "Write the last report, and end."},
       }},
      {"EXAMPLES",
       {
           {"scriptorium check --config scriptorium.toml",
            "Try a configuration before it is used."},
           {"scriptorium run --once --config scriptorium.toml",
            "Archive what a spool holds now, and exit."},
           {"scriptorium show 4711 --raw > job.sh", "Get a job's script back, byte for byte."},
           {"scriptorium search gromacs user:alice state:failed since:7d",
            "Find jobs by script, owner and outcome."},
           {"scriptorium diff 4711", "See what changed since this job last worked."},
           {"scriptorium software --since 30d", "See which modules the jobs of a month loaded."},
           {"scriptorium report 4711", "See what a job used, and what to ask for next time."},
           {"scriptorium usage --here --until-exit",
            "In a job script: keep a report of the job, where no daemon measures it."},
           {"scriptorium report --user alice --since 7d",
            "Find the jobs of a week that wasted most."},
           {"scriptorium report --by account --since 30d --csv",
            "Sum up a month for each account, for a spreadsheet."},
           {"scriptorium report --mail --all --period week --dry-run /tmp/mails",
            "See which mails users would get about last week."},
           {"scriptorium import sarchive /srv/old-archive --dry-run",
            "See what another archiver's tree would bring."},
           {"scriptorium redact job.sh", "See what of a script would not be archived, and why."},
           {"scriptorium redact --archive --dry-run",
            "Look for secrets in what was archived before there were rules."},
           {"scriptorium checkpoint list",
            "See which images of saved programs are there, and of which job."},
           {"scriptorium catalog check", "See whether every job of the catalog is intact."},
           {"scriptorium status --json", "Ask the daemon, from a program."},
           {"scriptorium owners retry",
            "Ask again for the owners of jobs that went out unverified."},
           {"scriptorium sinks fill search",
            "Send a newly added sink what the archive already holds."},
           {"scriptorium deadletters retry --all --sink archive",
            "Retry what was rejected, once the cause is fixed."},
       }},
  };
  return all;
}

// One exit code of one or more commands. `commands` are full paths, or "*" for all.
struct ExitFact {
  std::string_view code;
  std::vector<std::string_view> commands;
  std::string_view text;
};
const std::vector<ExitFact>& exit_facts() {
  static const std::vector<ExitFact> all{
      {"0", {"run"}, "It stopped as requested; with --once: everything was settled."},
      {"0", {"check"}, "The daemon would work as configured."},
      {"0", {"status"}, "The daemon answered; with --check: all is well."},
      {"0",
       {"plugins",
        "show",
        "report",
        "setup",
        "import",
        "history",
        "software",
        "version",
        "help",
        "completion",
        "man",
        "deadletters",
        "deadletters list",
        "deadletters show",
        "deadletters retry",
        "deadletters discard",
        "sinks",
        "sinks list",
        "sinks forget",
        "sinks fill",
        "owners",
        "owners list",
        kCatalogCommand,
        "catalog rebuild",
        "catalog compact",
        "catalog stats",
        kCheckpointCommand,
        "checkpoint list",
        "checkpoint show",
        "checkpoint prune"},
       "Done."},
      {"0", {"checkpoint verify"}, "Every image is whole."},
      {"1", {"checkpoint verify"}, "An image is not whole, or cannot be read; each was named."},
      {"65",
       {"checkpoint prune"},
       "Something was left that is not an image of yours, or could not be removed; each was "
       "named."},
      {"66", {"checkpoint list"}, "A directory cannot be read; the others were listed."},
      {"66",
       {"checkpoint show", "checkpoint prune"},
       "A directory cannot be read, or has no image."},
      {"75", {"checkpoint prune"}, "A request works in a directory; nothing was removed there."},
      {"0", {"catalog check"}, "Everything is intact."},
      {"1", {"catalog check"}, "Something is damaged; each finding was printed."},
      {"0", {"search"}, "At least one job was found."},
      {"0", {"diff"}, "The jobs are equal."},
      {"0",
       {kUsageCommand},
       "Done; with --until-exit also if the job cannot be measured, so that its script continues."},
      {"0", {"serve"}, "It was stopped by a signal."},
      {"0", {"redact"}, "Nothing was found; with --apply: nothing is left to remove."},
      {"0", {"owners retry"}, "Every job was asked about, whatever the answer."},
      {"1", {"search"}, "No job matches, and everything was searched."},
      {"1", {"diff"}, "The jobs differ."},
      {"1", {"redact"}, "Something was found; with --apply it is removed, and the code is 0."},
      {"1", {"status"}, "With --check: a warning."},
      {"2", {"status"}, "With --check: critical."},
      {"64", {"*"}, "The command line is wrong."},
      {"65", {"import"}, "Some jobs of the tree could not be read; the others were imported."},
      {"65",
       {"redact"},
       "A file is not an environment; with --archive: some files were left alone, as the output "
       "says."},
      {"65",
       {"catalog rebuild", "catalog compact"},
       "Something is lost, or damaged and left alone; each finding was printed."},
      {"66", {"diff", "history"}, "There is no such job, or no other run of it is known."},
      {"66", {"show"}, "There is no such job."},
      {"66",
       {"report"},
       "There is no such job; with --mail: no job that ended in the period, or no coordinator of "
       "the account."},
      {"66", {kUsageCommand}, "This does not run in a job."},
      {"66",
       {"deadletters", "deadletters show", "deadletters retry", "deadletters discard"},
       "There is no such dead letter."},
      {"66", {"import"}, "The tree cannot be read."},
      {"66", {"redact"}, "A file or the archive cannot be read."},
      {"66",
       {"catalog check", "catalog rebuild", "catalog compact", "catalog stats"},
       "Nothing is stored yet."},
      {"66",
       {"sinks", "sinks forget", "sinks fill"},
       "There is no such sink, or the command cannot be applied to it."},
      {"69", {"run"}, "With --once: not everything could be settled."},
      {"69", {"check"}, "A check failed, but run would start anyway."},
      {"69", {"plugins"}, "The plugin cannot be loaded."},
      {"69", {"status"}, "No daemon answers."},
      {"69", {"show"}, "The job was not found, and not everything could be asked."},
      {"69", {"search", "diff", "history", "software"}, "No sink that was asked could answer."},
      {"69",
       {"report"},
       "The archive cannot be read; with --mail also: a mail was refused, could not be handed "
       "over for a day, or the scheduler does not say who coordinates accounts."},
      {"69",
       {kUsageCommand},
       "Nothing here counts what the job uses, or no plugin that measures it."},
      {"69",
       {"serve"},
       "Its user may not read any index, or another query service answers on the socket."},
      {"69", {"setup"}, "The destination cannot be reached, or refuses."},
      {"69", {"import"}, "Not everything could be settled."},
      {"69",
       {"redact"},
       "The archive cannot be changed: it is full, the journal still needs events from it, or "
       "another sink would keep the secret."},
      {"69",
       {"catalog check", "catalog rebuild", "catalog compact", "catalog stats"},
       "The catalog cannot be read or changed."},
      {"69",
       {"deadletters", "deadletters list", "deadletters show", "deadletters retry",
        "deadletters discard", "sinks", "sinks list", "sinks forget", "sinks fill", "owners",
        "owners list"},
       "Neither a daemon nor a journal could be reached."},
      {"69", {"owners retry"}, "No daemon answers, or the scheduler and its accounting do not."},
      {"70",
       {"run", "setup", "import", "redact", "catalog check", "catalog rebuild", "catalog compact",
        "catalog stats"},
       "Scriptorium or a plugin is at fault; please report it."},
      {"73", {"run", "check", "import"}, "state_dir or the journal cannot be made."},
      {"73", {"serve"}, "The socket cannot be made."},
      {"73", {"redact"}, "The record of what was removed cannot be made."},
      {"75",
       {"search"},
       "It ended early, by its deadline or a signal, or a part of a store could not be read."},
      {"75", {"run"}, "Another daemon owns state_dir. Or: no more threads can be had."},
      {"75",
       {"report"},
       "With --mail: another such command runs, it was interrupted, or somebody may have got no "
       "mail; each was named."},
      {"75", {"redact"}, "A daemon or an import runs, or the command was interrupted."},
      {"75", {"import"}, "Another import runs, or this one was interrupted."},
      {"75",
       {"catalog check", "catalog rebuild", "catalog compact"},
       "It was interrupted, or another such command is under way; run it again to continue."},
      {"78",
       {"check"},
       "The configuration is wrong, or names something that does not exist; run --once would "
       "refuse it."},
      {"78",
       {"run",
        "status",
        "show",
        "report",
        "setup",
        "import",
        "deadletters",
        "deadletters list",
        "deadletters show",
        "deadletters retry",
        "deadletters discard",
        "sinks",
        "sinks list",
        "sinks forget",
        "sinks fill",
        "owners",
        "owners list",
        "owners retry",
        kCatalogCommand,
        "catalog check",
        "catalog rebuild",
        "catalog compact",
        "catalog stats"},
       "The configuration is wrong."},
      {"78",
       {"search", "diff", "history", "software"},
       "The configuration is wrong, or none of its sinks can be searched."},
      {"78", {"serve"}, "The configuration is wrong, or none of its sinks has an index."},
      {"78", {"redact"}, "The configuration or a rule of redact.d is wrong."},
  };
  return all;
}

// ---- troff

// Escapes text within a line, so that '-' can be copied from the page.
std::string troff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if (c == '\'') {
      result += "\\(aq";
    } else {
      result += c;
    }
  }
  return result;
}

// A separate line, where a leading '.' would be a request.
std::string troff_line(std::string_view text) {
  return (text.starts_with('.') ? "\\&" : "") + troff(text) + "\n";
}

std::string bold(std::string_view text) { return "\\fB" + troff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + troff(text) + "\\fR"; }

std::string troff_option(const OptionModel& option) {
  std::string head;
  for (const std::string& name : option.names) {
    if (!head.empty()) head += ", ";
    head += option.positional ? italic(name) : bold(name);
  }
  if (!option.positional && !option.value.empty()) head += " " + italic(option.value);
  std::string text = ".TP\n" + head + "\n" + troff_line(option.help + ".");
  if (!option.words.empty()) {
    text += "One of ";
    for (std::size_t i = 0; i < option.words.size(); ++i)
      text += (i == 0 ? "" : ", ") + bold(option.words[i]);
    text += ".\n";
  }
  if (!option.default_value.empty()) text += "Default: " + bold(option.default_value) + ".\n";
  return text;
}

std::string synopsis(const std::string& path, const CommandModel& command) {
  std::string line = bold(path);
  for (const OptionModel& option : command.options) {
    if (!option.positional) continue;
    line += option.required ? " " + italic(option.names.front())
                            : " [" + italic(option.names.front()) + "]";
  }
  return line + " [" + italic("OPTION") + "...]";
}

// Visits every command that can be called, with its path ("deadletters list").
template <typename Visit>
void each_leaf(const CommandModel& command, const std::string& path, const Visit& visit) {
  for (const CommandModel& sub : command.commands) {
    const std::string below = path.empty() ? sub.name : path + " " + sub.name;
    if (sub.commands.empty()) {
      visit(below, sub);
    } else {
      each_leaf(sub, below, visit);
    }
  }
}

// ---- completion

std::string join(const std::vector<std::string>& words) {
  std::string result;
  for (const std::string& word : words) result += (result.empty() ? "" : " ") + word;
  return result;
}

std::vector<std::string> option_words(const CommandModel& command) {
  std::vector<std::string> words;
  for (const OptionModel& option : command.options) {
    if (!option.positional) words.insert(words.end(), option.names.begin(), option.names.end());
  }
  return words;
}

std::vector<std::string> command_words(const CommandModel& command) {
  std::vector<std::string> words;
  for (const CommandModel& sub : command.commands) {
    if (!sub.hidden) words.push_back(sub.name);
  }
  return words;
}

std::vector<std::string> value_words(const CommandModel& command) {
  std::vector<std::string> words;
  for (const OptionModel& option : command.options) {
    if (option.positional) words.insert(words.end(), option.words.begin(), option.words.end());
  }
  return words;
}

// Visits every command, including groups, with its path ("deadletters list").
template <typename Visit>
void each_command(const CommandModel& command, const std::string& path, const Visit& visit) {
  visit(path, command);
  for (const CommandModel& sub : command.commands)
    each_command(sub, path.empty() ? sub.name : path + " " + sub.name, visit);
}

std::vector<std::string> options_with_value(const CommandModel& root, bool files) {
  std::vector<std::string> words;
  each_command(root, "", [&](const std::string&, const CommandModel& command) {
    for (const OptionModel& option : command.options) {
      if (option.positional || option.value.empty() || (option.value == "FILE") != files) continue;
      for (const std::string& name : option.names) {
        if (std::find(words.begin(), words.end(), name) == words.end()) words.push_back(name);
      }
    }
  });
  return words;
}

std::string alternatives(const std::vector<std::string>& words) {
  std::string result;
  for (const std::string& word : words) result += (result.empty() ? "" : "|") + word;
  return result.empty() ? "\"\"" : result;
}

std::string bash_completion(const CommandModel& root) {
  const std::string files = alternatives(options_with_value(root, true));
  const std::string others = alternatives(options_with_value(root, false));
  std::string cases;
  each_command(root, "", [&](const std::string& path, const CommandModel& command) {
    auto words = command_words(command);
    for (auto& more : {option_words(command), value_words(command)})
      words.insert(words.end(), more.begin(), more.end());
    cases += "    \"" + path + "\") words=\"" + join(words) + "\" ;;\n";
  });
  return "# bash completion for scriptorium; made by \"scriptorium completion bash\".\n"
         "_scriptorium() {\n"
         "  local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\" "
         "path=\"\" word words=\"\" i\n"
         "  case \"$previous\" in\n"
         "    " +
         files +
         ") mapfile -t COMPREPLY < <(compgen -f -- \"$current\"); return ;;\n"
         "    " +
         others +
         ") COMPREPLY=(); return ;;\n"
         "  esac\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    word=\"${COMP_WORDS[i]}\"\n"
         "    case \"$word\" in\n"
         "      " +
         files + "|" + others +
         ") ((i++)) ;;\n"
         "      -*) ;;\n"
         "      *) if [[ -z \"$path\" ]]; then path=\"$word\"; elif [[ \"$path\" == deadletters || "
         "\"$path\" == sinks || "
         "\"$path\" == owners || \"$path\" == catalog ]]; then "
         "path=\"$path $word\"; "
         "fi ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$path\" in\n" +
         cases +
         "  esac\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "}\n"
         "complete -F _scriptorium scriptorium\n";
}

std::string single_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return result + "'";
}

// ':' and brackets are special in a specification of zsh's _arguments.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_function_name(const std::string& path) {
  std::string name = "_scriptorium";
  for (const char c : path.empty() ? path : " " + path) name += c == ' ' ? '_' : c;
  return name;
}

std::string zsh_completion(const CommandModel& root) {
  std::string text =
      "#compdef scriptorium\n# zsh completion for scriptorium; made by \"scriptorium completion "
      "zsh\".\n";
  each_command(root, "", [&](const std::string& path, const CommandModel& command) {
    text += zsh_function_name(path) + "() {\n";
    if (!command.commands.empty()) text += "  local line state\n  local -a commands\n";
    text += "  _arguments -C";
    for (const OptionModel& option : command.options) {
      if (option.positional) {
        std::string action = option.words.empty() ? " " : "(" + join(option.words) + ")";
        text += " \\\n    " + single_quoted(std::string{option.required ? ":" : "::"} +
                                            option.names.front() + ":" + action);
        continue;
      }
      for (const std::string& name : option.names) {
        std::string spec = name + "[" + zsh_text(option.help) + "]";
        if (!option.value.empty())
          spec += ":" + option.value + ":" + (option.value == "FILE" ? "_files" : " ");
        text += " \\\n    " + single_quoted(spec);
      }
    }
    if (command.commands.empty()) {
      text += "\n}\n";
      return;
    }
    text +=
        " \\\n    '1: :->command' \\\n    '*:: :->rest'\n  case $state in\n    command)\n      "
        "commands=(";
    for (const CommandModel& sub : command.commands) {
      if (!sub.hidden) text += "\n        " + single_quoted(sub.name + ":" + zsh_text(sub.help));
    }
    text += "\n      )\n      _describe command commands ;;\n    rest)\n      case $line[1] in\n";
    for (const CommandModel& sub : command.commands) {
      text += "        " + sub.name + ") " +
              zsh_function_name(path.empty() ? sub.name : path + " " + sub.name) + " ;;\n";
    }
    text += "      esac ;;\n  esac\n}\n";
  });
  // If autoloaded from fpath, the file is the function; if sourced, it must register itself.
  return text +
         "if [[ ${funcstack[1]} == _scriptorium ]]; then\n  _scriptorium \"$@\"\nelse\n  compdef "
         "_scriptorium scriptorium\nfi\n";
}

std::string fish_completion(const CommandModel& root) {
  std::string text =
      "# fish completion for scriptorium; made by \"scriptorium completion fish\".\ncomplete -c "
      "scriptorium -f\n";
  each_command(root, "", [&](const std::string& path, const CommandModel& command) {
    std::string condition = "__fish_use_subcommand";
    if (!path.empty()) {
      condition.clear();
      for (std::size_t at = 0; at < path.size();) {
        const std::size_t space = std::min(path.find(' ', at), path.size());
        condition += (condition.empty() ? "" : "; and ") +
                     ("__fish_seen_subcommand_from " + path.substr(at, space - at));
        at = space + 1;
      }
    }
    const std::string line = "complete -c scriptorium -n " + single_quoted(condition);
    for (const CommandModel& sub : command.commands) {
      if (!sub.hidden) text += line + " -a " + sub.name + " -d " + single_quoted(sub.help) + "\n";
    }
    for (const OptionModel& option : command.options) {
      if (option.positional) {
        if (!option.words.empty()) text += line + " -a " + single_quoted(join(option.words)) + "\n";
        continue;
      }
      text += line;
      for (const std::string& name : option.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.value.empty()) text += option.value == "FILE" ? " -r -F" : " -x";
      text += " -d " + single_quoted(option.help) + "\n";
    }
  });
  return text;
}

}  // namespace

std::string help_footer() {
  std::string text;
  for (const Section& section : sections()) {
    text += (text.empty() ? "" : "\n") + std::string{section.title} + "\n";
    const bool examples = section.title == "EXAMPLES";
    std::size_t width = 0;
    for (const Fact& fact : section.facts) width = std::max(width, fact.term.size() + 2);
    for (const Fact& fact : section.facts) {
      text += "  " +
              (examples ? std::string{fact.term} + "\n      "
                        : padded(std::string{fact.term} + " ", width)) +
              std::string{fact.text} + "\n";
    }
  }
  return text;
}

std::string exit_codes_footer(const std::string& command) {
  std::string text = "EXIT STATUS\n";
  for (const ExitFact& fact : exit_facts()) {
    const auto is_meant = [&](std::string_view of) { return of == "*" || of == command; };
    if (std::any_of(fact.commands.begin(), fact.commands.end(), is_meant))
      text += "  " + padded(std::string{fact.code} + " ", 4) + std::string{fact.text} + "\n";
  }
  return text;
}

std::string man_page(const CommandModel& root, const std::string& version) {
  std::string text =
      ".\\\" Made by \"scriptorium man\"; do not edit.\n.TH SCRIPTORIUM 8 \"\" \"Scriptorium " +
      troff(version) +
      "\" \"System Administration\"\n.SH NAME\nscriptorium \\- capture every batch job\\(aqs "
      "script and environment\n";
  text += ".SH SYNOPSIS\n";
  each_leaf(root, "", [&](const std::string& path, const CommandModel& command) {
    if (!command.hidden) text += synopsis(root.name + " " + path, command) + "\n.br\n";
  });
  text += ".SH DESCRIPTION\n" + troff_line(root.help);
  text += ".SH OPTIONS\n";
  for (const OptionModel& option : root.options) text += troff_option(option);
  text += ".SH COMMANDS\n";
  each_leaf(root, "", [&](const std::string& path, const CommandModel& command) {
    text += ".SS " + troff(path) + "\n" + troff_line(command.help + ".");
    for (const OptionModel& option : command.options) text += troff_option(option);
  });
  for (const Section& section : sections()) {
    text += ".SH " +
            (section.title.find(' ') == std::string_view::npos
                 ? std::string{section.title}
                 : "\"" + std::string{section.title} + "\"") +
            "\n";
    for (const Fact& fact : section.facts)
      text += ".TP\n" + bold(fact.term) + "\n" + troff_line(fact.text);
  }
  return text;
}

std::string completion(const CommandModel& root, const std::string& shell) {
  if (shell == "bash") return bash_completion(root);
  if (shell == "zsh") return zsh_completion(root);
  return fish_completion(root);
}

}  // namespace scriptorium::cli
