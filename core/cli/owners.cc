#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "core/base/text.h"
#include "core/cli/answer_text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/daemon/status_answer.h"

namespace scriptorium::cli {
namespace {

using status_answer::Json;
using status_answer::member;
using status_answer::number_of;

constexpr std::chrono::milliseconds kPoll{300};

int list(const Arguments& arguments, Console& console, const std::string& state_dir) {
  int code = kExitGood;
  const auto waiting = ask_control(state_dir, Json{{"command", "owners.list"}}, console, code);
  if (!waiting) return code;
  if (arguments.json) {
    console.out << waiting->dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
    return kExitGood;
  }
  if (waiting->empty()) {
    console.out << "no job waits for its owner\n";
    return kExitGood;
  }
  TextTable table({"JOB", "SINCE", "REASON"}, {});
  for (const Json& job : *waiting) {
    table.add({text_of(member(job, "job_id")), text_of(member(job, "noted_at")),
               text_of(member(job, "reason"))});
  }
  console.out << table.text(console);
  return kExitGood;
}

int retry(const Arguments& arguments, Console& console, const std::string& state_dir) {
  int code = kExitGood;
  const auto begun = ask_control(state_dir, Json{{"command", "owners.retry"}}, console, code);
  if (!begun) return code;
  if (begun->empty())
    return fail(console, "no source of this configuration can ask for owners later",
                kExitUnavailable);
  if (arguments.no_wait) {
    console.out << "the daemon asks; see: scriptorium owners list\n";
    return kExitGood;
  }
  std::map<std::string, Json> before;
  for (const Json& source : *begun) before[text_of(member(source, "source"))] = source;
  while (true) {
    const auto now = ask_control(state_dir, Json{{"command", "owners.status"}}, console, code);
    if (!now) return code;
    bool done = true;
    double verified = 0, waiting = 0;
    std::string errors;
    for (const Json& source : *now) {
      const auto was = before.find(text_of(member(source, "source")));
      if (was == before.end()) continue;  // added by a reload meanwhile
      done = done &&
             number_of(member(source, "rounds_done")) >= number_of(member(was->second, "round"));
      verified +=
          number_of(member(source, "verified")) - number_of(member(was->second, "verified"));
      waiting += number_of(member(source, "waiting"));
      if (const Json& error = member(source, "last_error"); error.is_string())
        errors += "scriptorium: source " + was->first + ": " + text_of(error) + "\n";
    }
    if (console.out_is_terminal)
      console.err << "\r\x1b[Kowners found: " << whole(verified)
                  << ", still unknown: " << whole(waiting) << std::flush;
    if (done) {
      if (console.out_is_terminal) console.err << "\r\x1b[K";
      console.out << "owners found: " << whole(verified) << "; still unknown: " << whole(waiting)
                  << (waiting > 0 ? " (asked about again later)\n" : "\n");
      console.err << errors;
      return errors.empty() ? kExitGood : kExitUnavailable;
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

int owners_command(const Arguments& arguments, Console& console) {
  int code = kExitGood;
  if (!become_daemon_user_or_say(arguments, console, code)) return code;
  const auto state_dir = state_dir_of(arguments, console);
  if (!state_dir) return kExitConfig;
  return arguments.command == Command::kOwnersRetry ? retry(arguments, console, *state_dir)
                                                    : list(arguments, console, *state_dir);
}

}  // namespace scriptorium::cli
