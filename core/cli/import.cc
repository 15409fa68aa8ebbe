#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/base/thrown.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/signal_stop.h"
#include "core/daemon/log.h"
#include "core/daemon/privileges.h"
#include "core/import/importer.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;
using import::ImportOptions;
using import::ImportSummary;

// Messages per kind of problem; further ones are only counted.
constexpr std::uint64_t kNamedOfAKind = 20;

std::string day(const std::optional<Timestamp>& time) {
  return time ? local_text(*time).substr(0, 10) : "-";
}

bool is_cluster_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), fits) &&
         name.front() != '.' && name.front() != '_' && name.front() != '-';
}

// ---- progress and summary

class Teller {
 public:
  explicit Teller(Console& console)
      : console_(console), live_(::isatty(STDERR_FILENO) == 1 && console.owns_process) {}

  void skipped(const std::string& path, std::string_view kind, const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (!room_for(std::string(kind))) return;
    clear();
    console_.err << "skipped: " << printable(path) << ": " << kind
                 << (why == kind ? "" : " (" + printable(why) + ")") << "\n";
  }
  void foreign(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (!room_for("foreign")) return;
    clear();
    console_.err << "not a job: " << printable(path) << "\n";
  }
  void progress(std::uint64_t read, std::uint64_t delivered) {
    if (!live_) return;
    const std::lock_guard lock(mutex_);
    console_.err << "\rread " << read << ", delivered " << delivered << " " << std::flush;
    shown_ = true;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    clear();
    for (const auto& [kind, count] : named_) {
      if (count > kNamedOfAKind)
        console_.err << (kind == "foreign" ? "not a job" : "skipped: " + kind) << ": "
                     << count - kNamedOfAKind << " more\n";
    }
  }

 private:
  bool room_for(const std::string& kind) { return ++named_[kind] <= kNamedOfAKind; }
  void clear() {
    if (std::exchange(shown_, false)) console_.err << "\r\x1b[K";
  }

  Console& console_;
  const bool live_;
  std::mutex mutex_;
  std::map<std::string, std::uint64_t> named_;
  bool shown_ = false;
};

Json summary_json(const Arguments& arguments, const ImportOptions& options,
                  const ImportSummary& summary) {
  Json json = {{"format", to_string(options.format)},
               {"tree", arguments.tree},
               {"cluster", options.origin.cluster},
               {"scheduler", options.origin.scheduler},
               {"dry_run", options.dry_run},
               {"jobs", summary.found},
               {"imported", summary.imported},
               {"already_imported", summary.already},
               {"not_before", summary.later},
               {"verified_owners", summary.verified},
               {"with_problems", summary.doubtful},
               {"foreign_names", summary.foreign},
               {"bytes", summary.bytes}};
  json["first"] =
      summary.first ? Json(format_rfc3339(*summary.first, TimePrecision::kSeconds)) : Json(nullptr);
  json["last"] =
      summary.last ? Json(format_rfc3339(*summary.last, TimePrecision::kSeconds)) : Json(nullptr);
  json["skipped"] = Json::object();
  for (const auto& [kind, count] : summary.skipped) json["skipped"][kind] = count;
  json["sinks"] = Json::object();
  for (const auto& [name, sink] : summary.sinks) {
    json["sinks"][name] = {
        {"acknowledged", sink.acknowledged},
        {"waiting", sink.waiting},
        {"dead", sink.dead},
        {"last_error", sink.last_error.empty() ? Json(nullptr) : Json(sink.last_error)}};
  }
  json["interrupted"] = summary.interrupted;
  return json;
}

std::uint64_t skipped_jobs(const ImportSummary& summary) {
  std::uint64_t count = 0;
  for (const auto& [kind, number] : summary.skipped) count += number;
  return count;
}

std::string summary_text(const ImportOptions& options, const ImportSummary& summary,
                         const Console& console) {
  std::string text = console.bold(count_of(summary.found, "job") + " found") + ", " +
                     std::to_string(summary.imported) +
                     (options.dry_run ? " would be imported" : " imported");
  if (!options.dry_run) text += ", " + std::to_string(summary.already) + " imported before";
  if (options.before) text += ", " + std::to_string(summary.later) + " not before the given time";
  text += ", " + std::to_string(skipped_jobs(summary)) + " skipped\n";
  for (const auto& [kind, count] : summary.skipped)
    text += "  skipped: " + std::to_string(count) + " " + kind + "\n";
  if (summary.first) {
    text += "  from " + day(summary.first) + " to " + day(summary.last) + ", " +
            format_bytes(summary.bytes) + " of scripts and " + "environments\n";
  }
  if (options.owners != nullptr)
    text +=
        "  the owners of " + std::to_string(summary.verified) + " of them are from accounting\n";
  if (summary.doubtful > 0)
    text += "  " + std::to_string(summary.doubtful) +
            " of them with a note in their `problems` about what the tree leaves uncertain\n";
  if (summary.foreign > 0)
    text += "  " + count_of(summary.foreign, "name") + " in the tree that do not belong to a job\n";
  for (const auto& [name, sink] : summary.sinks) {
    text += "sink " + name + ": " + std::to_string(sink.acknowledged) + " acknowledged, " +
            std::to_string(sink.waiting) + " waiting, " + count_of(sink.dead, "dead letter") + "\n";
    if (!sink.last_error.empty() && sink.waiting + sink.dead > 0)
      text += "  last error: " + printable(sink.last_error) + "\n";
  }
  return text;
}

// Prints what remains to be done and returns the exit code.
int verdict(const ImportOptions& options, const ImportSummary& summary, Console& console) {
  std::uint64_t waiting = 0;
  std::uint64_t dead = 0;
  for (const auto& [name, sink] : summary.sinks) {
    waiting += sink.waiting;
    dead += sink.dead;
  }
  if (dead > 0) {
    console.err << "scriptorium: " << count_of(dead, "dead letter")
                << "; look with: scriptorium deadletters list --import"
                << (options.sink.empty() ? "" : " --sink " + options.sink) << "\n";
  }
  if (summary.interrupted) {
    console.err << "scriptorium: interrupted; run the same command again to continue\n";
    return kExitTryAgain;
  }
  if (summary.stalled || waiting > 0) {
    return fail(
        console,
        (summary.stalled ? std::string("the import's journal is full and no sink accepts events")
                         : count_of(waiting, "delivery") + " could not be made") +
            "; run the same command again to continue, once the cause is fixed",
        kExitUnavailable);
  }
  if (dead > 0) return kExitUnavailable;
  if (!summary.skipped.empty()) return kExitDataError;
  return kExitGood;
}

// ---- the run

// The source that the tree's jobs are attributed to. It determines the scheduler's name and what is
// kept of variables and secrets.
Result<const LoadedSource*> source_for(const Arguments& arguments, const Setup& setup) {
  std::string names;
  std::vector<const LoadedSource*> spools;
  for (const LoadedSource& source : setup.sources) {
    if (source.plugin.descriptor->kind == PluginKind::kFreeSource) continue;
    if (source.instance.name == arguments.source) return &source;
    spools.push_back(&source);
    names += (names.empty() ? "" : ", ") + source.instance.name;
  }
  if (!arguments.source.empty()) {
    return Error{ErrorKind::kInvalidConfig, "there is no [source." + printable(arguments.source) +
                                                "] with a spool in the configuration; there are: " +
                                                (names.empty() ? "none" : names)};
  }
  if (spools.size() == 1) return spools.front();
  return Error{
      ErrorKind::kInvalidConfig,
      spools.empty()
          ? "the configuration has no source with a spool, whose scheduler and rule for "
            "environments the imported "
            "jobs would share; add one"
          : "the configuration has several sources; name the one of these jobs with --source: " +
                names};
}

std::string host_of(const CoreConfig& core) {
  if (!core.host.empty()) return core.host;
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

int import_tree(const Arguments& arguments, Console& console, SpoolOpener* opener,
                const import::OwnerList* owners) try {
  const auto setup = load_with_rules_or_say(arguments, console);
  if (!setup) return kExitConfig;
  auto source = source_for(arguments, *setup);
  if (!source) return fail(console, source.error().message(), kExitUsage);

  ImportOptions options;
  options.format = *import::parse_tree_format(arguments.format);
  const CoreConfig& core = setup->config.core;
  options.origin.cluster = arguments.cluster.empty() ? core.cluster : arguments.cluster;
  if (!is_cluster_name(options.origin.cluster)) {
    return fail(console,
                "--cluster: \"" + printable(options.origin.cluster) +
                    "\" is not a valid cluster name: a letter or digit, then at most 63 of A-Z a-z "
                    "0-9 . _ -",
                kExitUsage);
  }
  options.origin.host = host_of(core);
  options.redactor = (*source)->redactor;
  options.max_file_bytes = static_cast<std::uint64_t>((*source)->instance.common.max_file_bytes);
  options.sink = arguments.sink;
  options.owners = owners;
  options.dry_run = arguments.dry_run;
  options.again = arguments.again;
  if (!arguments.before.empty()) {
    options.before = since_of(arguments.before);
    if (!options.before) {
      return fail(console,
                  "--before: \"" + printable(arguments.before) +
                      "\" is not a time; give a date such as 2026-11-21, or a time such as "
                      "2026-11-21T01:26",
                  kExitUsage);
    }
  }
  std::error_code failed;
  options.tree = std::filesystem::absolute(arguments.tree, failed).lexically_normal().string();
  while (options.tree.size() > 1 && options.tree.back() == '/') options.tree.pop_back();

  const SignalStop signals(console.owns_process);
  const auto log = make_command_logger();
  const PluginContext context{.name = (*source)->instance.name,
                              .cluster = core.cluster,
                              .log = *log,
                              .clock = system_clock()};
  auto adapter = create_spool_adapter((*source)->plugin, (*source)->instance.table, context);
  if (!adapter) return fail(console, adapter.error());
  options.origin.scheduler =
      arguments.scheduler.empty() ? (*adapter)->scheduler() : arguments.scheduler;

  auto tree = open_spool(opener, options.tree, {.inotify = false, .fanotify = false});
  if (!tree) return fail(console, tree.error().message(), kExitNoInput);
  Teller teller(console);
  const import::ImportListener listener{
      .skipped = [&](const std::string& path, std::string_view kind,
                     const std::string& why) { teller.skipped(path, kind, why); },
      .foreign = [&](const std::string& path) { teller.foreign(path); },
      .progress = [&](std::uint64_t read,
                      std::uint64_t delivered) { teller.progress(read, delivered); }};
  const auto result =
      run_import(options, *setup, *tree->access, adapter->get(), listener, *log, signals.token());
  teller.end();
  if (!result) {
    if (result.error().kind() == ErrorKind::kExhausted)
      return fail(console, result.error().message(), kExitTryAgain);
    return fail(console, result.error());
  }
  if (arguments.json) {
    console.out << summary_json(arguments, options, *result)
                       .dump(2, ' ', false, Json::error_handler_t::replace)
                << "\n";
  } else {
    console.out << summary_text(options, *result, console);
  }
  console.out.flush();
  const int code = verdict(options, *result, console);
  if (result->hangs) {
    console.err.flush();
    ::_exit(code);
  }
  return code;
} catch (...) {
  return fail(console, "the import threw: " + thrown_text(), kExitSoftware);
}

// ---- as the daemon's user

// A configuration that names the tree as a spool, so that the spool opener opens nothing else. Only
// root can write to its folder.
class OpenerConfig {
 public:
  static Result<OpenerConfig> make(const std::string& tree) {
    std::string folder = "/tmp/scriptorium-import.XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) return system_error("mkdtemp " + folder, errno);
    OpenerConfig config(folder);
    std::string quoted;
    for (const char c : tree) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        return Error{ErrorKind::kPermanent, "the tree's path has control characters"};
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    auto written = replace_file(
        config.file(),
        "cluster = \"import\"\n[sink.none]\nplugin = \"null\"\n[source.tree]\nspool = \"" + quoted +
            "\"\n",
        0600);
    if (!written) return written.error();
    return config;
  }
  OpenerConfig(OpenerConfig&& other) noexcept : folder_(std::exchange(other.folder_, {})) {}
  OpenerConfig& operator=(OpenerConfig&&) = delete;
  ~OpenerConfig() {
    if (folder_.empty()) return;
    ::unlink(file().c_str());
    ::rmdir(folder_.c_str());
  }
  std::string file() const { return folder_ + "/tree.toml"; }

 private:
  explicit OpenerConfig(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

int import_as_user(const Arguments& arguments, Console& console, const CoreConfig& core,
                   const std::string& opener_config, const import::OwnerList* owners) {
  auto privileges =
      separate_privileges(Config{.core = core}, opener_config, PrivilegesFor::kCommand);
  if (!privileges) {
    std::string words = privileges.error().message();
    if (const std::size_t at = words.find(opener_config); at != std::string::npos)
      words.replace(at, opener_config.size(), arguments.config_file);
    return fail(
        console, words,
        privileges.error().kind() == ErrorKind::kInvalidConfig ? kExitConfig : kExitCannotCreate);
  }
  // If the parent dies, end too, because only the parent removes the opener's configuration. This
  // comes after the change of user, which resets it (prctl(2)).
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  return import_tree(arguments, console, privileges->opener.get(), owners);
}

// Root reads the tree, and the daemon's user does the rest, so that new files belong to that user:
// a child becomes that user, with its own spool opener for the tree. This process only waits.
int import_from_root(const Arguments& arguments, Console& console, const CoreConfig& core,
                     const import::OwnerList* owners) {
  std::error_code failed;
  const auto tree = std::filesystem::absolute(arguments.tree, failed).lexically_normal().string();
  auto config = OpenerConfig::make(tree);
  if (!config) return fail(console, config.error().message(), kExitUnavailable);
  ::umask(0077);
  console.out.flush();
  console.err.flush();
  const pid_t child = ::fork();
  if (child < 0) return fail(console, system_error("fork", errno).message(), kExitUnavailable);
  if (child == 0) {
    const int code = import_as_user(arguments, console, core, config->file(), owners);
    console.out.flush();
    console.err.flush();
    ::_exit(code);
  }
  // A terminal sends SIGINT to parent and child; the child ends cleanly, then the parent.
  for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  int status = 0;
  for (;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) break;
    int signal = 0;
    if (::sigwait(&set, &signal) == 0 && signal == SIGTERM) ::kill(child, SIGTERM);
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return fail(console,
              "the import was ended by signal " + std::to_string(WTERMSIG(status)) +
                  "; run the same command again to continue",
              kExitSoftware);
}

}  // namespace

int import_command(const Arguments& arguments, Console& console) {
  std::optional<import::OwnerList> list;
  if (!arguments.owners.empty()) {
    // Read it first, because only root may have access to it.
    auto read = import::OwnerList::read(arguments.owners, ::geteuid());
    if (!read) return fail(console, read.error());
    list = *std::move(read);
    if (list->odd_lines() > 0)
      console.err << "scriptorium: " << printable(arguments.owners) << ": "
                  << count_of(list->odd_lines(), "line") << " of "
                  << list->jobs() + list->odd_lines() << " are malformed and are ignored\n";
  }
  const import::OwnerList* owners = list ? &*list : nullptr;
  Problems problems;
  const CoreConfig core = load_config(arguments.config_file, problems).core;
  if (console.owns_process && problems.empty() && has_daemon_user(core) && !arguments.dry_run)
    return import_from_root(arguments, console, core, owners);
  return import_tree(arguments, console, nullptr, owners);
}

}  // namespace scriptorium::cli
