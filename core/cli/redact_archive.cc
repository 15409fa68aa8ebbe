#include "core/cli/redact_archive.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/api/rewritable_sink.h"
#include "core/base/text.h"
#include "core/cli/archive_cleaner.h"
#include "core/cli/archive_guard.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/redact_record.h"
#include "core/cli/signal_stop.h"
#include "core/daemon/log.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;
using redact::Mode;

struct NamedSink {
  std::string name;
  std::unique_ptr<Sink> sink;
};

// What is visited, through which sinks of the configuration.
struct Targets {
  std::string directory;         // a tree; "": all that these sinks stored
  std::vector<NamedSink> sinks;  // rewritable, in the order of the configuration; not empty
  bool own = false;              // the daemon writes there
  std::vector<std::string> unchangeable;  // the other sinks
  // Why secrets would remain in another sink of the configuration.
  std::optional<std::string> copies;
};

bool writes_to(const Sink& sink, const std::string& tree) {
  return std::ranges::any_of(sink.directories(), [&](const std::string& directory) {
    return directories_overlap(directory, tree);
  });
}

std::string copies_in(const std::string& sink, bool rewritable) {
  return "the sink " + sink + " holds the same jobs, " +
         (rewritable
              ? "and the secret would stay there: use \"scriptorium redact --archive --apply\" "
                "without a directory, which cleans all sinks"
              : "and nothing can be removed from it: the secret would stay there. Remove that sink "
                "and its files first, apply, and fill a new one with \"scriptorium sinks fill\"");
}

Result<std::vector<NamedSink>> make_sinks(const Setup& setup, Logger& log) {
  std::vector<NamedSink> made;
  for (const LoadedSink& loaded : setup.sinks) {
    const PluginContext context{.name = loaded.instance.name,
                                .cluster = setup.config.core.cluster,
                                .log = log,
                                .clock = system_clock()};
    auto sink = create_sink(loaded.plugin, loaded.instance.table, context);
    if (!sink) return sink.error();
    made.push_back({.name = loaded.instance.name, .sink = *std::move(sink)});
  }
  return made;
}

// Each sink with all that it stored.
Targets all_of(std::vector<NamedSink> sinks) {
  Targets targets{.own = true};
  for (NamedSink& named : sinks) {
    if (named.sink->rewritable() != nullptr) {
      targets.sinks.push_back(std::move(named));
      continue;
    }
    if (named.sink->readable() != nullptr) targets.copies = copies_in(named.name, false);
    targets.unchangeable.push_back(named.name);
  }
  return targets;
}

// One tree, through the sink that writes to it, or else the first one that takes a tree.
Targets tree_of(std::vector<NamedSink> sinks, const std::string& tree) {
  Targets targets{.directory = tree};
  for (NamedSink& named : sinks) {
    const bool own = writes_to(*named.sink, tree);
    targets.own = targets.own || own;
    RewritableSink* const rewritable = named.sink->rewritable();
    if (rewritable == nullptr || !rewritable->takes_directories()) {
      if (named.sink->readable() != nullptr)
        targets.copies = copies_in(named.name, rewritable != nullptr);
    } else if (targets.sinks.empty() || own) {
      targets.sinks.clear();
      targets.sinks.push_back(std::move(named));
    }
  }
  return targets;
}

Result<Targets> find_targets(const Setup& setup, const std::string& tree, Logger& log) {
  auto sinks = make_sinks(setup, log);
  if (!sinks) return sinks.error();
  Targets targets = tree.empty() ? all_of(*std::move(sinks)) : tree_of(*std::move(sinks), tree);
  if (!targets.sinks.empty()) return targets;
  return Error{ErrorKind::kInvalidConfig,
               "no sink of the configuration can change what was archived; add the one that wrote "
               "this tree"};
}

// Checks that the archive may be changed now, and opens the record; the exit code otherwise.
std::optional<int> prepare_to_apply(const Arguments& arguments, const CoreConfig& core,
                                    const Targets& targets, Logger& log,
                                    std::optional<ArchiveGuard>& guard,
                                    std::optional<RedactionRecord>& record, Console& console) {
  if (targets.copies) return fail(console, *targets.copies, kExitUnavailable);
  const std::string by_whom = user_running_this();
  int code = kExitGood;
  if (targets.own && !become_daemon_user_or_say(arguments, console, code)) return code;
  if (targets.own) {
    auto taken = ArchiveGuard::take(core.state_dir, log);
    if (!taken) {
      const bool runs = taken.error().kind() == ErrorKind::kExhausted;
      return fail(console, taken.error().message(), runs ? kExitTryAgain : kExitUnavailable);
    }
    guard = *std::move(taken);
    if (guard->waiting() > 0)
      console.err << "scriptorium: " << count_of(guard->waiting(), "event")
                  << " in the journal were captured before and are delivered as they are; run this "
                     "command again after that\n";
  }
  auto opened = RedactionRecord::open(
      arguments.record.empty() ? core.state_dir + "/redactions.jsonl" : arguments.record, by_whom);
  if (!opened) {
    return fail(console, opened.error().message() + "; name another file with --record",
                kExitCannotCreate);
  }
  record = *std::move(opened);
  return std::nullopt;
}

// One run of the command over its targets.
class Run {
 public:
  Run(const Arguments& arguments, const RulesInForce& rules, const Targets& targets, bool exclusive,
      RedactionRecord* record, Console& console)
      : arguments_(arguments),
        rules_(rules),
        targets_(targets),
        exclusive_(exclusive),
        record_(record),
        console_(console),
        signals_(console.owns_process) {}

  int all() {
    int worst = kExitGood;
    for (const NamedSink& target : targets_.sinks) {
      if (interrupted()) break;
      worst = std::max(worst, pass(target));
    }
    finish();
    if (interrupted())
      return fail(console_, "interrupted; run the same command again to continue", kExitTryAgain);
    return worst;
  }

 private:
  bool interrupted() const { return signals_.token().stop_requested(); }

  int pass(const NamedSink& target) {
    if (!arguments_.json && targets_.directory.empty())
      console_.out << console_.bold("sink " + target.name + ":") << "\n";
    ArchiveCleaner cleaner(rules_, !arguments_.json, record_, console_);
    const auto summary = call_plugin("the sink's plugin", ErrorKind::kPermanent, [&] {
      return target.sink->rewritable()->rewrite({.directory = targets_.directory,
                                                 .apply = arguments_.apply,
                                                 .exclusive = exclusive_,
                                                 .stop = signals_.token()},
                                                cleaner);
    });
    if (!summary) return failed(target.name, summary.error());
    if (arguments_.json) {
      sinks_[target.name] = cleaner.json(*summary);
    } else {
      cleaner.show(*summary);
    }
    if (!summary->left.empty()) return kExitDataError;
    return !arguments_.apply && summary->changed > 0 ? kExitFound : kExitGood;
  }

  int failed(const std::string& sink, const Error& error) {
    sinks_[sink] = {{"error", error.message()}};
    const bool no_input =
        error.kind() == ErrorKind::kInvalidConfig || error.kind() == ErrorKind::kVanished;
    return fail(console_, error.message(), no_input ? kExitNoInput : kExitUnavailable);
  }

  void finish() const {
    if (arguments_.json) {
      console_.out << answer().dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
      return;
    }
    for (const std::string& sink : targets_.unchangeable) {
      console_.out << "the sink " << sink
                   << " cannot be changed; what it holds of these jobs must be deleted there\n";
    }
  }

  Json answer() const {
    if (!targets_.directory.empty()) {
      Json json = sinks_.empty() ? Json::object() : sinks_.front();
      json["interrupted"] = interrupted();
      return json;
    }
    return {{"applied", arguments_.apply},
            {"sinks", sinks_},
            {"unchangeable", targets_.unchangeable},
            {"interrupted", interrupted()}};
  }

  const Arguments& arguments_;
  const RulesInForce& rules_;
  const Targets& targets_;
  const bool exclusive_;
  RedactionRecord* const record_;
  Console& console_;
  const SignalStop signals_;
  Json sinks_ = Json::object();
};

}  // namespace

int redact_archive(const Arguments& arguments, const RulesInForce& rules, Console& console) {
  if (rules.mode == Mode::kOff)
    return fail(console, "the configuration says redact = \"off\"; choose a --mode", kExitUsage);
  const auto setup = load_or_say(arguments, console);
  if (!setup) return kExitConfig;
  std::string tree;
  if (!arguments.archive.empty()) {
    std::error_code failed;
    tree = std::filesystem::canonical(arguments.archive, failed).string();
    if (failed)
      return fail(console, printable(arguments.archive) + ": " + failed.message(), kExitNoInput);
  }
  const auto log = make_command_logger();
  const auto targets = find_targets(*setup, tree, *log);
  if (!targets) return fail(console, targets.error());

  std::optional<ArchiveGuard> guard;
  std::optional<RedactionRecord> record;
  if (arguments.apply) {
    if (const auto code =
            prepare_to_apply(arguments, setup->config.core, *targets, *log, guard, record, console))
      return *code;
  }
  return Run(arguments, rules, *targets, guard.has_value(), record ? &*record : nullptr, console)
      .all();
}

}  // namespace scriptorium::cli
