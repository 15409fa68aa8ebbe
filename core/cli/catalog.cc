#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/api/maintained_sink.h"
#include "core/base/text.h"
#include "core/base/thrown.h"
#include "core/base/time.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/progress_line.h"
#include "core/cli/signal_stop.h"
#include "core/daemon/log.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;
using Report = MaintainedSink::Report;

constexpr std::size_t kShownFindings = 1000;
constexpr std::size_t kLongestFinding = 4096;

struct Catalog {
  std::string name;
  std::unique_ptr<Sink> sink;
};

std::string verb_of(Command command) {
  switch (command) {
    case Command::kCatalogCheck: return "check";
    case Command::kCatalogRebuild: return "rebuild";
    case Command::kCatalogCompact: return "compact";
    default: return "stats";
  }
}

// The sink whose name is `wanted`, or the only one that can be maintained if that is "".
Result<Catalog> find_catalog(const Setup& setup, const std::string& wanted, Logger& log) {
  Catalog found;
  std::string names;
  bool several = false;
  for (const LoadedSink& loaded : setup.sinks) {
    if (!wanted.empty() && loaded.instance.name != wanted) continue;
    const PluginContext context{.name = loaded.instance.name,
                                .cluster = setup.config.core.cluster,
                                .log = log,
                                .clock = system_clock()};
    auto made = create_sink(loaded.plugin, loaded.instance.table, context);
    if (!made) return made.error();
    if ((*made)->maintained() == nullptr) continue;
    several = found.sink != nullptr;
    names += (names.empty() ? "" : ", ") + loaded.instance.name;
    found = {.name = loaded.instance.name, .sink = *std::move(made)};
  }
  if (several) {
    return Error{ErrorKind::kInvalidConfig,
                 "the configuration has several catalogs: " + names + "; name one with --sink"};
  }
  if (found.sink != nullptr) return found;
  if (!wanted.empty()) {
    return Error{ErrorKind::kInvalidConfig,
                 "[sink." + printable(wanted) + "] is no catalog of the configuration"};
  }
  return Error{ErrorKind::kInvalidConfig,
               "the configuration has no catalog; add these lines, reload, and run \"scriptorium "
               "sinks fill catalog\":\n[sink.catalog]\nkinds = [\"job.*\", \"usage.job\"]"};
}

Result<Report> run_verb(Command command, MaintainedSink& sink,
                        const MaintainedSink::Control& control) {
  switch (command) {
    case Command::kCatalogCheck: return sink.check(control);
    case Command::kCatalogRebuild: return sink.rewrite(MaintainedSink::Rewrite::kDamaged, control);
    case Command::kCatalogCompact: return sink.rewrite(MaintainedSink::Rewrite::kUnpacked, control);
    default: return sink.stats();
  }
}

Result<Report> run_with_progress(Command command, MaintainedSink& sink, Console& console) {
  const SignalStop signals(console.owns_process);
  ProgressLine line(console);
  const auto report = [&](std::string_view step, std::uint64_t done, std::uint64_t of) {
    if (!line.due()) return;
    line.draw(printable(std::string(step)) + ": " + std::to_string(done) +
              (of > 0 ? " of " + std::to_string(of) : ""));
  };
  return call_plugin("the sink's plugin", ErrorKind::kPermanent, [&] {
    return run_verb(command, sink, {.stop = signals.token(), .progress = report});
  });
}

Json json_of(const Arguments& arguments, const std::string& sink, const Report& report) {
  Json json = {{"command", verb_of(arguments.command)},
               {"sink", sink},
               {"interrupted", report.interrupted},
               {"figures", Json::object()},
               {"findings", Json::array()}};
  for (const auto& [name, number] : report.figures) json["figures"][name] = number;
  for (const auto& finding : report.findings) {
    json["findings"].push_back(
        {{"place", finding.place}, {"problem", finding.problem}, {"lost", finding.lost}});
    if (!finding.command.empty()) json["findings"].back()["command"] = finding.command;
  }
  return json;
}

std::string figure_text(const std::string& name, std::uint64_t number) {
  if (name.ends_with("bytes")) return format_bytes(number);
  if (!name.ends_with("time")) return std::to_string(number);
  return number == 0 ? "-"
                     : format_rfc3339(Timestamp{static_cast<std::int64_t>(number) * kSecond},
                                      TimePrecision::kSeconds);
}

void show_figures(const Report& report, Console& console) {
  std::size_t width = 0;
  for (const auto& [name, number] : report.figures) width = std::max(width, name.size() + 2);
  for (const auto& [name, number] : report.figures) {
    std::string label = printable(name);
    std::ranges::replace(label, '_', ' ');
    console.out << padded(label, width) << figure_text(name, number) << "\n";
  }
}

// Of very many a sink names some only.
std::uint64_t all_findings(const Report& report) {
  const auto counted = report.figures.find("findings");
  return std::max<std::uint64_t>(report.findings.size(),
                                 counted == report.figures.end() ? 0 : counted->second);
}

void show_findings(const Report& report, Console& console) {
  const std::size_t shown = std::min(report.findings.size(), kShownFindings);
  for (std::size_t i = 0; i < shown; ++i) {
    console.out << printable(report.findings[i].place) << ": "
                << printable(report.findings[i].problem, kLongestFinding) << "\n";
  }
  const std::uint64_t all = all_findings(report);
  if (shown == all) return;
  console.out << "and " << all - shown << " more; --json has "
              << (all == report.findings.size()
                      ? "all of them"
                      : "the first " + std::to_string(report.findings.size()))
              << "\n";
}

void show_remedies(const Arguments& arguments, const std::string& sink, const Report& report,
                   Console& console) {
  std::set<std::string> remedies;
  for (const auto& finding : report.findings) {
    if (finding.lost) {
      remedies.insert("to get what is lost from another sink: scriptorium sinks fill " +
                      printable(sink));
    } else if (!finding.command.empty()) {
      remedies.insert("to continue: " + printable(finding.command));
    } else {
      remedies.insert("to repair it: scriptorium catalog rebuild" +
                      (arguments.sink.empty() ? "" : " --sink " + printable(sink)));
    }
  }
  for (const std::string& remedy : remedies) console.out << remedy << "\n";
}

void show(const Arguments& arguments, const std::string& sink, const Report& report,
          Console& console) {
  show_findings(report, console);
  show_figures(report, console);
  show_remedies(arguments, sink, report, console);
  if (arguments.command != Command::kCatalogCheck) return;
  if (!report.findings.empty()) {
    console.out << console.red(count_of(all_findings(report), "finding")) << "\n";
  } else {
    console.out << console.green(report.interrupted ? "intact so far" : "intact") << "\n";
  }
}

int verdict(Command command, const Report& report, Console& console) {
  if (report.interrupted)
    return fail(console, "interrupted; run the same command again to continue", kExitTryAgain);
  if (report.findings.empty()) return kExitGood;
  return command == Command::kCatalogCheck ? kExitFound : kExitDataError;
}

}  // namespace

int catalog_command(const Arguments& arguments, Console& console) try {
  int code = kExitGood;
  if (!become_daemon_user_or_say(arguments, console, code)) return code;
  const auto setup = load_or_say(arguments, console);
  if (!setup) return kExitConfig;
  const auto log = make_command_logger();
  const auto catalog = find_catalog(*setup, arguments.sink, *log);
  if (!catalog) return fail(console, catalog.error().message(), kExitUsage);
  const auto report = run_with_progress(arguments.command, *catalog->sink->maintained(), console);
  if (!report && report.error().kind() == ErrorKind::kExhausted)
    return fail(console, report.error().message(), kExitTryAgain);
  if (!report) return fail(console, report.error());
  if (arguments.json) {
    console.out << json_of(arguments, catalog->name, *report)
                       .dump(2, ' ', false, Json::error_handler_t::replace)
                << "\n";
  } else {
    show(arguments, catalog->name, *report, console);
  }
  return verdict(arguments.command, *report, console);
} catch (...) {
  return fail(console, "the sink's plugin threw: " + thrown_text(), kExitSoftware);
}

}  // namespace scriptorium::cli
