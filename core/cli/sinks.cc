#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "core/base/text.h"
#include "core/cli/answer_text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/config/config.h"
#include "core/daemon/status_answer.h"

namespace scriptorium::cli {
namespace {

using status_answer::Json;
using status_answer::member;
using status_answer::number_of;

constexpr std::chrono::milliseconds kPoll{500};
constexpr int kBarCells = 30;

// Asks the daemon, or the journal on disk; on failure returns nothing and sets `code` to the exit
// code.
std::optional<Json> ask(const Arguments& arguments, Console& console, const Json& request,
                        int& code) {
  const auto state_dir = state_dir_of(arguments, console);
  if (!state_dir) {
    code = kExitConfig;
    return std::nullopt;
  }
  return ask_control(*state_dir, request, console, code);
}

// According to the configuration on disk, which a daemon would start with.
bool in_configuration(const Arguments& arguments, const std::string& sink) {
  Problems problems;
  const Config config = load_config(arguments.config_file, problems);
  return std::any_of(config.sinks.begin(), config.sinks.end(),
                     [&](const auto& s) { return s.name == sink; });
}

Json find_sink(const Json& sinks, const std::string& name) {
  for (const Json& sink : sinks.is_array() ? sinks : Json::array()) {
    if (member(sink, "sink") == Json(name)) return sink;
  }
  return nullptr;
}

double done_of(const Json& fill) {
  return number_of(member(fill, "sent")) + number_of(member(fill, "present"));
}

int list(const Arguments& arguments, Console& console) {
  int code = kExitGood;
  auto sinks = ask(arguments, console, {{"command", "sinks.list"}}, code);
  if (!sinks) return code;
  for (Json& sink : *sinks) {
    const std::string name =
        member(sink, "sink").is_string() ? sink.at("sink").get<std::string>() : "";
    sink["configured"] =
        member(sink, "registered") == Json(true) || in_configuration(arguments, name);
  }
  if (arguments.json) {
    console.out << sinks->dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
    return kExitGood;
  }
  if (sinks->empty()) {
    console.out << "the journal has no sinks yet\n";
    return kExitGood;
  }
  TextTable table({"SINK", "CONFIGURED", "ACKNOWLEDGED", "WAITING", "BYTES", "OLDEST", "DEAD"},
                  {2, 3, 4, 5, 6});
  for (const Json& sink : *sinks) {
    const bool configured = sink.at("configured").get<bool>();
    const Json& oldest = member(sink, "oldest_waiting_seconds");
    table.add({text_of(member(sink, "sink")), configured ? "yes" : console.yellow("no"),
               whole(member(sink, "acknowledged")), whole(member(sink, "waiting")),
               bytes_of(member(sink, "waiting_bytes")),
               oldest.is_number() ? format_seconds(number_of(oldest)) : "-",
               whole(member(sink, "dead"))});
    if (number_of(member(sink, "refill_from_archive")) > 0)
      table.note("will be refilled from archive: " + whole(member(sink, "refill_from_archive")));
    if (const Json& fill = member(sink, "fill"); fill.is_object()) {
      table.note("fill from " + text_of(member(fill, "archive")) + ": " +
                 text_of(member(fill, "state")) + ", " +
                 std::to_string(std::llround(done_of(fill))) + " of " +
                 whole(member(fill, "total")));
    }
  }
  console.out << table.text(console);
  return kExitGood;
}

bool confirmed(const Arguments& arguments, Console& console, const Json& sink) {
  if (arguments.yes) return true;
  const Json& oldest = member(sink, "oldest_waiting_seconds");
  const std::string what =
      "sink " + printable(arguments.name) + ": " + whole(member(sink, "waiting")) +
      " waiting events" +
      (oldest.is_number() ? ", the oldest " + format_seconds(number_of(oldest)) + " old" : "") +
      ", " + whole(member(sink, "dead")) + " dead letters";
  if (!console.in_is_terminal) {
    console.err << "scriptorium: forgetting " << what << " cannot be undone; confirm with --yes\n";
    return false;
  }
  console.err << "Forget " << what << ", for good? [y/N] " << std::flush;
  std::string answer;
  std::getline(console.in, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

int forget(const Arguments& arguments, Console& console) {
  if (in_configuration(arguments, arguments.name)) {
    return fail(console,
                "[sink." + printable(arguments.name) + "] is in " + arguments.config_file +
                    "; remove it there first, and reload",
                kExitUsage);
  }
  int code = kExitGood;
  const auto sinks = ask(arguments, console, {{"command", "sinks.list"}}, code);
  if (!sinks) return code;
  const Json sink = find_sink(*sinks, arguments.name);
  if (sink.is_null())
    return fail(console, "the journal has no sink " + printable(arguments.name), kExitNoInput);
  if (!confirmed(arguments, console, sink)) return kExitUsage;
  const auto forgotten =
      ask(arguments, console, {{"command", "sinks.forget"}, {"sink", arguments.name}}, code);
  if (!forgotten) return code;
  console.out << "sink " << printable(arguments.name) << " forgotten, with "
              << whole(member(*forgotten, "waiting")) << " waiting events and "
              << whole(member(*forgotten, "dead")) << " dead letters\n";
  return kExitGood;
}

void draw(Console& console, const Json& fill) {
  const double total = number_of(member(fill, "total"));
  if (member(fill, "state") == Json("counting")) {
    console.err << "\r\x1b[Kcounting: " << whole(member(fill, "total")) << std::flush;
    return;
  }
  const double share = total > 0 ? std::min(done_of(fill) / total, 1.0) : 1.0;
  const auto cells = static_cast<int>(share * kBarCells);
  console.err << "\r\x1b[K[" << std::string(static_cast<std::size_t>(cells), '#')
              << std::string(static_cast<std::size_t>(kBarCells - cells), '.') << "] "
              << std::llround(share * 100) << " %  " << std::llround(done_of(fill)) << " of "
              << std::llround(total) << std::flush;
}

int stop_fill(const Arguments& arguments, Console& console) {
  int code = kExitGood;
  const auto fill =
      ask(arguments, console, {{"command", "sinks.fill.stop"}, {"sink", arguments.name}}, code);
  if (!fill) return code;
  console.out << "stopped: " << std::llround(done_of(*fill)) << " of "
              << whole(member(*fill, "total")) << " events were sent to "
              << printable(arguments.name) << " from " << text_of(member(*fill, "archive"))
              << ", and are still delivered\n";
  return kExitGood;
}

int fill(const Arguments& arguments, Console& console) {
  if (arguments.stop) return stop_fill(arguments, console);
  Json request{{"command", "sinks.fill"}, {"sink", arguments.name}};
  if (!arguments.archive.empty()) request["from"] = arguments.archive;
  if (!arguments.since.empty()) {
    const auto since = since_of(arguments.since);
    if (!since)
      return fail(
          console,
          "--since: \"" + printable(arguments.since) + "\" is neither a date, a time nor an age",
          kExitUsage);
    request["since"] = format_rfc3339(*since, TimePrecision::kSeconds);
  }
  int code = kExitGood;
  auto fill = ask(arguments, console, request, code);
  if (!fill) return code;
  const std::string from = text_of(member(*fill, "archive"));
  if (arguments.no_wait) {
    console.out << "the daemon fills " << printable(arguments.name) << " from " << from
                << "; see: scriptorium sinks list\n";
    return kExitGood;
  }
  while (member(*fill, "state") != Json("done")) {
    if (console.out_is_terminal) draw(console, *fill);
    std::this_thread::sleep_for(kPoll);
    const auto sinks = ask(arguments, console, {{"command", "sinks.list"}}, code);
    if (!sinks) {
      console.err << "scriptorium: the fill continues from here once the daemon runs again\n";
      return code;
    }
    const Json sink = find_sink(*sinks, arguments.name);
    if (!member(sink, "fill").is_object())
      return fail(console, "the sink was forgotten meanwhile", kExitUnavailable);
    fill = member(sink, "fill");
    if (member(*fill, "state") == Json("stopped"))
      return fail(console, "the fill was stopped meanwhile", kExitUnavailable);
  }
  if (console.out_is_terminal) console.err << "\r\x1b[K";
  console.out << whole(member(*fill, "sent")) << " events sent to " << printable(arguments.name)
              << " from " << from << ", " << whole(member(*fill, "present"))
              << " were already there or in flight\n";
  if (number_of(member(*fill, "not_understood")) > 0)
    console.out << whole(member(*fill, "not_understood"))
                << " records of the archive are left out: damaged, or without all their parts\n";
  return kExitGood;
}

}  // namespace

int sinks_command(const Arguments& arguments, Console& console) {
  int code = kExitGood;
  if (!become_daemon_user_or_say(arguments, console, code)) return code;
  switch (arguments.command) {
    case Command::kSinksForget: return forget(arguments, console);
    case Command::kSinksFill: return fill(arguments, console);
    default: return list(arguments, console);
  }
}

}  // namespace scriptorium::cli
