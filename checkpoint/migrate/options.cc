#include "checkpoint/migrate/options.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "checkpoint/run/options.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::checkpoint {
namespace {

constexpr int kMostMoves = 100;

Error migrate_usage_error(std::string message) {
  return Error{ErrorKind::kPermanent, std::move(message)};
}

struct KnownOption {
  std::string_view name;
  std::string_view letter;  // "" = none
  bool takes_value;
};
constexpr std::array<KnownOption, 19> kKnown{{
    {"--drain-node", "-d", true},  {"--nodelist", "-w", true},    {"--exclude", "-x", true},
    {"--partition", "-p", true},   {"--priority", "", true},      {"--reason", "", true},
    {"--timeout", "", true},       {"--jobs", "", true},          {"--no-ckpt", "", true},
    {"--parallel-jobs", "", true}, {"--hold", "-H", false},       {"--test-only", "", false},
    {"--undo", "", false},         {"--check-config", "", false}, {"--json", "", false},
    {"--verbose", "-v", false},    {"--quiet", "-Q", false},      {"--help", "-h", false},
    {"--version", "-V", false},
}};

// "4711" or "4711_3".
bool is_job_id(std::string_view text) {
  constexpr std::size_t kMostDigits = 10;
  const bool has_task = text.find('_') != std::string_view::npos;
  const std::string_view job = take_until(text, '_');
  return is_all_digits(job) && job.size() <= kMostDigits &&
         (!has_task || (is_all_digits(text) && text.size() <= kMostDigits));
}

// Names of nodes and partitions, and lists of them such as "n[1-3],m7".
bool is_name_list(std::string_view text) {
  return !text.empty() && text.front() != '-' && std::ranges::all_of(text, [](char c) {
    return is_alphanumeric(c) || std::string_view("-_.,[]").find(c) != std::string_view::npos;
  });
}

// Nothing, or what is wrong.
std::optional<std::string> set_value(MigrateOptions& options, std::string_view name,
                                     const std::string& value) {
  const std::string given = ", not \"" + printable(value) + "\"";
  if (name == "--drain-node" || name == "--nodelist" || name == "--exclude" ||
      name == "--partition") {
    if (!is_name_list(value)) return std::string(name) + " is a name" + given;
    if (name == "--nodelist") options.nodes = value;
    if (name == "--exclude") options.excluded_nodes = value;
    if (name == "--partition") options.partition = value;
    if (name == "--drain-node") {
      if (value.find_first_of("[,") != std::string::npos) return "--drain-node is one node" + given;
      options.drain_node = value;
    }
  } else if (name == "--priority") {
    if (!parse_number<std::uint32_t>(value)) return "--priority is a number" + given;
    options.priority = value;
  } else if (name == "--reason") {
    if (value.empty() || printable(value) != value)
      return "--reason is a text of one line, of at most 256 bytes" + given;
    options.reason = value;
  } else if (name == "--timeout") {
    options.timeout = std::chrono::seconds(parse_period(value));
    if (options.timeout.count() == 0) return "--timeout is a time such as 90s or 10m" + given;
  } else if (name == "--jobs") {
    options.moves_at_a_time = parse_number<int>(value).value_or(0);
    if (options.moves_at_a_time < 1 || options.moves_at_a_time > kMostMoves)
      return "--jobs is a number from 1 to " + std::to_string(kMostMoves) + given;
  } else if (name == "--no-ckpt") {
    if (value != "leave" && value != "wait" && value != "requeue")
      return "--no-ckpt is leave, wait or requeue" + given;
    options.no_checkpoint = value == "leave"  ? NoCheckpoint::kLeave
                            : value == "wait" ? NoCheckpoint::kWait
                                              : NoCheckpoint::kRequeue;
  } else {
    if (value != "refuse" && value != "requeue")
      return "--parallel-jobs is refuse or requeue" + given;
    options.requeues_parallel_jobs = value == "requeue";
  }
  return std::nullopt;
}

void set_flag(MigrateOptions& options, std::string_view name) {
  if (name == "--hold") options.holds = true;
  if (name == "--test-only") options.only_tests = true;
  if (name == "--undo") options.undoes = true;
  if (name == "--check-config") options.checks_config = true;
  if (name == "--json") options.is_json = true;
  if (name == "--verbose") options.is_verbose = true;
  if (name == "--quiet") options.is_quiet = true;
  if (name == "--help") options.shows_help = true;
  if (name == "--version") options.shows_version = true;
}

}  // namespace

const char* const kMigrateHelp =
    "usage: scriptorium-migrate [OPTIONS] JOB...\n"
    "       scriptorium-migrate [OPTIONS] --drain-node NODE\n"
    "       scriptorium-migrate --undo JOB... | --undo --drain-node NODE\n"
    "       scriptorium-migrate --check-config\n"
    "Moves running jobs of Slurm to other nodes: each is saved by its own checkpoint, requeued "
    "and\n"
    "resumed elsewhere. A job that has not said that it can be saved is not signalled.\n"
    "  -d, --drain-node NODE  drain the node, and move its jobs\n"
    "  -w, --nodelist NODES   where the jobs are to run\n"
    "  -x, --exclude NODES    where they are not to run\n"
    "  -p, --partition NAME   the partition that they are to be in\n"
    "  -H, --hold             leave them saved and held: scontrol release JOB continues them\n"
    "  --priority N           their priority while they wait\n"
    "  --reason TEXT          of the drain\n"
    "  --timeout TIME         limit of each save, of each wait in the queue and of each resume,\n"
    "                         such as 90s or 10m; default: 10m\n"
    "  --jobs N               moves at a time; default: 4\n"
    "  --no-ckpt leave|wait|requeue     jobs that cannot be saved: leave them (default), wait for\n"
    "                         their end, or requeue them, which loses their work\n"
    "  --parallel-jobs refuse|requeue   jobs of several nodes: leave them (default) or requeue\n"
    "                         them, which loses their work\n"
    "  --test-only            only say what would be done\n"
    "  --undo                 give a drained node back; take back what is left of a move\n"
    "  --check-config         say what slurm.conf lacks for jobs that are saved and preempted\n"
    "  --json                 the report as JSON\n"
    "  -v, --verbose; -Q, --quiet; -h, --help; -V, --version\n";

Result<MigrateOptions> parse_migrate_options(const std::vector<std::string>& words) {
  MigrateOptions options;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (!word->starts_with('-')) {
      if (!is_job_id(*word)) {
        return migrate_usage_error("\"" + printable(*word) +
                                   "\" is not the id of a job, such as 4711, or 4711_3 for the "
                                   "task of an array");
      }
      options.jobs.push_back(*word);
      continue;
    }
    std::string name = *word;
    std::optional<std::string> value;
    if (name.starts_with("--") && name.find('=') != std::string::npos) {
      value = name.substr(name.find('=') + 1);
      name.resize(name.find('='));
    } else if (!name.starts_with("--") && name.size() > 2) {  // -wn1
      value = name.substr(2);
      name.resize(2);
    }
    const auto known = std::ranges::find_if(kKnown, [&](const KnownOption& option) {
      return name == option.name || name == option.letter;
    });
    if (known == kKnown.end() || name.empty())
      return migrate_usage_error("unknown option \"" + printable(*word) + "\"");
    if (known->takes_value && !value && word + 1 != words.end()) value = *++word;
    if (known->takes_value != value.has_value()) {
      return migrate_usage_error(std::string(known->name) +
                                 (known->takes_value ? " needs a value" : " takes no value"));
    }
    if (!value) {
      set_flag(options, known->name);
    } else if (const auto wrong = set_value(options, known->name, *value)) {
      return migrate_usage_error(*wrong);
    }
  }
  if (options.shows_help || options.shows_version) return options;
  if (options.checks_config) {
    if (words.size() == 1) return options;
    return migrate_usage_error("--check-config takes nothing beside it");
  }
  if (options.jobs.empty() == options.drain_node.empty())
    return migrate_usage_error("name either jobs or --drain-node NODE");
  return options;
}

}  // namespace scriptorium::checkpoint
