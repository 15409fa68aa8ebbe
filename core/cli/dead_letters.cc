#include <nlohmann/json.hpp>
#include <string>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/cli/answer_text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/daemon/status_answer.h"
#include "core/import/importer.h"

namespace scriptorium::cli {
namespace {

using status_answer::Json;
using status_answer::member;

constexpr std::size_t kShortId = 12;

std::string list_text(const Json& letters, const Console& console) {
  TextTable table({"ID", "SINK", "JOB", "KIND", "ATTEMPTS", "LAST ATTEMPT", "SIZE", "REASON"},
                  {4, 6});
  for (const Json& letter : letters) {
    table.add({text_of(member(letter, "event_id")).substr(0, kShortId),
               text_of(member(letter, "sink")), text_of(member(letter, "job_id")),
               text_of(member(letter, "kind")), text_of(member(letter, "attempts")),
               text_of(member(letter, "last_attempt")), bytes_of(member(letter, "bytes")),
               text_of(member(letter, "reason"))});
  }
  return table.text(console);
}

std::string letter_text(const Json& letter, const Console& console) {
  std::string text = console.bold("sink " + text_of(member(letter, "sink"))) + ": " +
                     text_of(member(letter, "reason")) + "\n";
  text += "  attempts " + text_of(member(letter, "attempts")) + ", first " +
          text_of(member(letter, "first_attempt")) + ", last " +
          text_of(member(letter, "last_attempt")) + "\n";
  return text;
}

// Asks the daemon, or the journal on disk; on failure returns nothing and sets `code` to the exit
// code.
std::optional<Json> ask(const Arguments& arguments, Console& console, const Json& request,
                        int& code) {
  auto state_dir = state_dir_of(arguments, console);
  if (!state_dir) {
    code = kExitConfig;
    return std::nullopt;
  }
  if (arguments.of_import) {
    // An import into a single sink has its own journal.
    const std::string of_sink = import::import_directory(*state_dir, arguments.sink);
    state_dir = stat_path(of_sink) ? of_sink : import::import_directory(*state_dir, "");
  }
  return ask_control(*state_dir, request, console, code);
}

int list(const Arguments& arguments, Console& console) {
  Json request{{"command", "deadletters.list"}};
  if (!arguments.sink.empty()) request["sink"] = arguments.sink;
  int code = kExitGood;
  const auto letters = ask(arguments, console, request, code);
  if (!letters) return code;
  if (arguments.json) {
    console.out << printable_json(letters->dump(2, ' ', false, Json::error_handler_t::replace))
                << "\n";
  } else if (letters->empty()) {
    console.out << "no dead letters\n";
  } else {
    console.out << list_text(*letters, console);
  }
  return kExitGood;
}

int show(const Arguments& arguments, Console& console) {
  int code = kExitGood;
  const auto found =
      ask(arguments, console, {{"command", "deadletters.show"}, {"event_id", arguments.id}}, code);
  if (!found) return code;
  if (!arguments.json && found->contains("letters")) {
    for (const Json& letter : found->at("letters")) console.out << letter_text(letter, console);
    console.out << "\n";
  }
  const Json& shown = arguments.json || !found->contains("event") ? *found : found->at("event");
  console.out << printable_json(shown.dump(2, ' ', false, Json::error_handler_t::replace)) << "\n";
  return kExitGood;
}

bool confirmed(const Arguments& arguments, Console& console) {
  if (arguments.yes) return true;
  const std::string what =
      arguments.all ? "every dead letter" : "dead letter " + printable(arguments.id);
  const std::string of = arguments.sink.empty() ? "" : " of sink " + printable(arguments.sink);
  if (!console.in_is_terminal) {
    console.err << "scriptorium: discarding " << what << of
                << " cannot be undone; confirm with --yes\n";
    return false;
  }
  console.err << "Discard " << what << of << " for good? [y/N] " << std::flush;
  std::string answer;
  std::getline(console.in, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

int retry_or_discard(const Arguments& arguments, Console& console, bool discard) {
  if (discard && !confirmed(arguments, console)) return kExitUsage;
  Json request{{"command", discard ? "deadletters.discard" : "deadletters.retry"},
               {"event_id", arguments.id}};
  if (!arguments.sink.empty()) request["sink"] = arguments.sink;
  int code = kExitGood;
  const auto answer = ask(arguments, console, request, code);
  if (!answer) return code;
  const std::uint64_t count = answer->value("count", std::uint64_t{0});
  if (count == 0 && !arguments.all)
    return fail(console, "there is no dead letter " + printable(arguments.id), kExitNoInput);
  console.out << count << (count == 1 ? " dead letter " : " dead letters ")
              << (discard ? "discarded" : "will be delivered again") << "\n";
  return kExitGood;
}

}  // namespace

int dead_letters_command(const Arguments& arguments, Console& console) {
  int code = kExitGood;
  if (!become_daemon_user_or_say(arguments, console, code)) return code;
  switch (arguments.command) {
    case Command::kDeadLettersShow: return show(arguments, console);
    case Command::kDeadLettersRetry: return retry_or_discard(arguments, console, false);
    case Command::kDeadLettersDiscard: return retry_or_discard(arguments, console, true);
    default: return list(arguments, console);
  }
}

}  // namespace scriptorium::cli
