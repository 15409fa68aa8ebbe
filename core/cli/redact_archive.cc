#include "core/cli/redact_archive.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/api/rewritable_sink.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/cli/archive_guard.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/redact_record.h"
#include "core/cli/redact_text.h"
#include "core/cli/signal_stop.h"
#include "core/daemon/log.h"
#include "core/plugin/call_plugin.h"
#include "core/redact/stored_event.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;
using redact::Mode;

constexpr std::uint64_t kShownOfAReason = 20;
constexpr std::uint64_t kProgressEvery = 100;

struct RuleCount {
  std::uint64_t removed = 0;
  std::uint64_t kept = 0;
  std::uint64_t events = 0;
};

// Applies the rules to each event, says what they find, and writes the record.
class Cleaner final : public RewritableSink::Editor {
 public:
  Cleaner(const RulesInForce& rules, bool json, std::optional<RedactionRecord> record,
          Console& console)
      : rules_(*rules.rules),
        redactor_(rules.rules, rules.mode, EnvironmentRule{}),
        record_(std::move(record)),
        console_(console),
        tells_(!json),
        live_(::isatty(STDERR_FILENO) == 1 && console.owns_process) {}

  Result<std::shared_ptr<const Event>> edit(const std::string& path, const Event& stored) override {
    if (live_ && ++read_ % kProgressEvery == 0) {
      console_.err << "\rread " << read_ << ", with secrets " << changed_ << " " << std::flush;
      shown_ = true;
    }
    auto result = redact::redact_stored(redactor_, stored);
    if (!result) return result.error();
    for (const Redaction& r : result->found) {
      if (r.kept) counts_[r.rule].kept += r.count;
    }
    if (result->event != nullptr && !record_)
      tell(path, stored, *result->event, redact::added_redactions(stored, *result->event));
    return result->event;
  }

  Result<void> replacing(const std::string& path, const Event& before, const Event& after,
                         bool resumed) override {
    const auto removed = redact::added_redactions(before, after);
    tell(path, before, after, removed);
    if (!record_) return {};
    return record_->add(shown_path(path, before, after), after.job.id, removed, resumed);
  }

  void left(const std::string& path, std::string_view reason) override {
    if (++named_[std::string(reason)] > kShownOfAReason) return;
    clear();
    console_.err << "left alone: " << printable(masked_text(path, rules_)) << ": " << reason
                 << "\n";
  }

  void clear() {
    if (std::exchange(shown_, false)) console_.err << "\r\x1b[K";
  }
  const std::map<std::string, RuleCount>& counts() const noexcept { return counts_; }

 private:
  // A name that holds a secret is not told, nor one that the job's name gave.
  std::string shown_path(const std::string& path, const Event& before, const Event& after) const {
    return masked_text(before.job.name == after.job.name ? path : parent_of(path), rules_);
  }

  void tell(const std::string& path, const Event& before, const Event& after,
            const std::vector<Redaction>& removed) {
    ++changed_;
    std::string what;
    for (const Redaction& r : removed) {
      RuleCount& count = counts_[r.rule];
      count.removed += r.count;
      ++count.events;
      what +=
          (what.empty() ? "" : ", ") + std::to_string(r.count) + " " + r.rule + " in " + r.where;
    }
    if (!tells_) return;
    clear();
    console_.out << printable(shown_path(path, before, after), 4096) << ": job "
                 << printable(after.job.id) << ": " << printable(what, 4096) << "\n";
  }

  const redact::RuleSet& rules_;
  const redact::Redactor redactor_;
  std::optional<RedactionRecord> record_;
  Console& console_;
  const bool tells_;
  const bool live_;
  bool shown_ = false;
  std::uint64_t read_ = 0;
  std::uint64_t changed_ = 0;
  std::map<std::string, RuleCount> counts_;
  std::map<std::string, std::uint64_t> named_;
};

// The sinks of the configuration that can replace what they stored, and whether the tree belongs to
// one of them.
struct Rewriter {
  std::unique_ptr<Sink> sink;  // owns `rewritable`
  RewritableSink* rewritable = nullptr;
  bool own_tree = false;
  std::optional<std::string> keeps_copies;  // a sink that has the jobs too, for good
};

Result<Rewriter> find_rewriter(const Setup& setup, const std::string& tree, Logger& log) {
  Rewriter best;
  for (const LoadedSink& sink : setup.sinks) {
    const PluginContext context{.name = sink.instance.name,
                                .cluster = setup.config.core.cluster,
                                .log = log,
                                .clock = system_clock()};
    auto made = create_sink(sink.plugin, sink.instance.table, context);
    if (!made) return made.error();
    bool own = false;
    for (const std::string& directory : (*made)->directories())
      own = own || directories_overlap(directory, tree);
    best.own_tree = best.own_tree || own;
    RewritableSink* const rewritable = (*made)->rewritable();
    if (rewritable == nullptr && (*made)->readable() != nullptr)
      best.keeps_copies = sink.instance.name;
    if (rewritable == nullptr || (best.rewritable != nullptr && !own)) continue;
    best.sink = *std::move(made);
    best.rewritable = rewritable;
  }
  if (best.rewritable != nullptr) return best;
  return Error{ErrorKind::kInvalidConfig,
               "no sink of the configuration can change what was archived; add the one that wrote "
               "this tree"};
}

Json summary_json(const RewritableSink::Summary& summary, const Cleaner& cleaner, bool applied,
                  bool interrupted) {
  Json rules = Json::object();
  for (const auto& [rule, count] : cleaner.counts())
    rules[rule] = {{"removed", count.removed}, {"kept", count.kept}, {"events", count.events}};
  Json left = Json::object();
  for (const auto& [reason, count] : summary.left) left[reason] = count;
  return {{"applied", applied},         {"events", summary.events},   {"changed", summary.changed},
          {"resumed", summary.resumed}, {"removed", summary.removed}, {"rules", std::move(rules)},
          {"left", std::move(left)},    {"interrupted", interrupted}};
}

void show_summary(const RewritableSink::Summary& summary, const Cleaner& cleaner, bool applied,
                  Console& console) {
  console.out << console.bold(count_of(summary.events, "event")) << " read, " << summary.changed
              << (applied ? " changed" : " would be changed");
  if (summary.resumed > 0)
    console.out << ", " << summary.resumed << " completed that an earlier run had begun";
  if (summary.removed > 0)
    console.out << ", " << count_of(summary.removed, "interrupted write") << " removed";
  console.out << "\n";
  for (const auto& [rule, count] : cleaner.counts()) {
    if (count.removed > 0)
      console.out << "  " << rule << ": " << count.removed << " in "
                  << count_of(count.events, "event") << "\n";
    if (count.kept > 0) console.out << "  " << rule << ": " << count.kept << " only reported\n";
  }
  for (const auto& [reason, count] : summary.left)
    console.out << "  left alone: " << count << " (" << reason << ")\n";
}

// Checks that the tree may be changed now, and opens the record; the exit code otherwise.
std::optional<int> prepare_to_apply(const Arguments& arguments, const CoreConfig& core,
                                    bool own_tree, Logger& log, std::optional<ArchiveGuard>& guard,
                                    std::optional<RedactionRecord>& record, Console& console) {
  const std::string by_whom = user_running_this();
  int code = kExitGood;
  if (own_tree && !become_daemon_user_or_say(arguments, console, code)) return code;
  if (own_tree) {
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

}  // namespace

int redact_archive(const Arguments& arguments, const RulesInForce& rules, Console& console) {
  if (rules.mode == Mode::kOff)
    return fail(console, "the configuration says redact = \"off\"; choose a --mode", kExitUsage);
  const auto setup = load_or_say(arguments, console);
  if (!setup) return kExitConfig;
  std::error_code failed;
  const std::string tree = std::filesystem::canonical(arguments.archive, failed).string();
  if (failed)
    return fail(console, printable(arguments.archive) + ": " + failed.message(), kExitNoInput);
  const auto log = make_command_logger();
  auto rewriter = find_rewriter(*setup, tree, *log);
  if (!rewriter) return fail(console, rewriter.error());
  if (arguments.apply && rewriter->keeps_copies) {
    return fail(console,
                "the sink " + *rewriter->keeps_copies +
                    " holds the same jobs, and nothing can be removed from it: the secret would "
                    "stay there. Remove that sink and its files first, apply, and fill a new one "
                    "with \"scriptorium sinks fill\"",
                kExitUnavailable);
  }

  std::optional<ArchiveGuard> guard;
  std::optional<RedactionRecord> record;
  if (arguments.apply) {
    if (const auto code = prepare_to_apply(arguments, setup->config.core, rewriter->own_tree, *log,
                                           guard, record, console))
      return *code;
  }
  const SignalStop signals(console.owns_process);
  Cleaner cleaner(rules, arguments.json, std::move(record), console);
  const auto summary = call_plugin("the sink's plugin", ErrorKind::kPermanent, [&] {
    return rewriter->rewritable->rewrite({.directory = tree,
                                          .apply = arguments.apply,
                                          .exclusive = guard.has_value(),
                                          .stop = signals.token()},
                                         cleaner);
  });
  cleaner.clear();
  if (!summary) {
    return fail(
        console, summary.error().message(),
        summary.error().kind() == ErrorKind::kInvalidConfig ? kExitNoInput : kExitUnavailable);
  }
  const bool interrupted = signals.token().stop_requested();
  if (arguments.json) {
    console.out << summary_json(*summary, cleaner, arguments.apply, interrupted)
                       .dump(2, ' ', false, Json::error_handler_t::replace)
                << "\n";
  } else {
    show_summary(*summary, cleaner, arguments.apply, console);
  }
  if (interrupted)
    return fail(console, "interrupted; run the same command again to continue", kExitTryAgain);
  if (!summary->left.empty()) return kExitDataError;
  return !arguments.apply && summary->changed > 0 ? kExitFound : kExitGood;
}

}  // namespace scriptorium::cli
