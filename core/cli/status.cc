#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "core/cli/answer_text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/health.h"
#include "core/daemon/control.h"
#include "core/daemon/log.h"
#include "core/daemon/status_answer.h"

namespace scriptorium::cli {
namespace {

using status_answer::Json;
using status_answer::member;
using status_answer::number_of;
using status_answer::sum_of;

// A shorter call is usual.
constexpr double kShownCallSeconds = 5;

void note_counts(TextTable& table, const Json& counts, const std::string& word) {
  if (!counts.is_object()) return;
  for (const auto& [reason, count] : counts.items()) {
    if (number_of(count) > 0) table.note(word + " " + text_of(count) + " x: " + printable(reason));
  }
}
void note_error(TextTable& table, const Json& object, const Console& console) {
  if (const Json& error = member(object, "last_error"); error.is_string())
    table.note(console.yellow("last error: ") + text_of(error));
}

// "numbers 5-7, 12 (4 jobs) ...", with the newest few ranges.
std::string ranges_of(const Json& ranges, const Json& count) {
  constexpr std::size_t kShown = 8;
  std::string text;
  std::size_t shown = 0;
  for (const Json& range : ranges.is_array() ? ranges : Json::array()) {
    if (++shown > kShown) break;
    text += (text.empty() ? "" : ", ") + text_of(range);
  }
  return text + (shown > kShown ? ", ..." : "") + " (" + text_of(count) + ")";
}

void note_gaps(TextTable& table, const Json& gaps, const Console& console) {
  if (number_of(member(gaps, "confirmed")) > 0) {
    table.note(console.red("jobs whose script was never seen: ") +
               ranges_of(member(gaps, "confirmed_ranges"), member(gaps, "confirmed")));
  }
  if (number_of(member(gaps, "suspected")) > 0) {
    table.note(console.yellow("job numbers that never appeared: ") +
               ranges_of(member(gaps, "ranges"), member(gaps, "suspected")));
  }
}

// The most frequent reason first.
void note_unverified(TextTable& table, const Json& reasons, const Console& console) {
  if (!reasons.is_object()) return;
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [reason, count] : reasons.items())
    sorted.emplace_back(-number_of(count), reason);
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [count, reason] : sorted) {
    if (count < 0)
      table.note(console.yellow("owner unverified") + " " + whole(-count) +
                 " x: " + printable(reason));
  }
}

// "asked the scheduler: 28 x all jobs, 51 x one job; at most 0.02 % of its time"
void note_load(TextTable& table, const Json& load) {
  const Json& questions = member(load, "questions");
  const Json& share = member(load, "share");
  if (sum_of(questions) <= 0 || !share.is_number()) return;
  std::string text = "asked the scheduler: ";
  bool first = true;
  for (const auto& [kind, count] : questions.items()) {
    if (number_of(count) <= 0) continue;
    text += (first ? "" : ", ") + text_of(count) + " x " + printable(kind);
    first = false;
  }
  std::array<char, 32> percent{};
  const double of_hundred = share.get<double>() * 100;
  std::snprintf(percent.data(), percent.size(),
                of_hundred < 0.01 ? "less than %.2f" : "at most %.2f", std::max(of_hundred, 0.01));
  table.note(text + "; " + percent.data() + " % of its time in the last minutes");
}

std::string sources_text(const Json& sources, const Console& console) {
  TextTable table(
      {"SOURCE", "PLUGIN", "CAPTURE", "CAPTURED", "INCOMPLETE", "UNVERIFIED", "MISSED", "LAG"},
      {3, 4, 5, 6, 7});
  for (const auto& [name, source] : sources.items()) {
    const double missed = sum_of(member(source, "missed"));
    const double incomplete = number_of(member(source, "incomplete"));
    // Without an owner resolver there is nothing to count.
    const Json& owners = member(source, "owners");
    const double unverified = sum_of(member(owners, "unverified"));
    table.add({printable(name), text_of(member(source, "plugin")),
               text_of(member(source, "capture")), text_of(member(source, "captured")),
               incomplete > 0 ? console.yellow(whole(incomplete)) : whole(incomplete),
               owners.is_object()
                   ? (unverified > 0 ? console.yellow(whole(unverified)) : whole(unverified))
                   : "-",
               missed > 0 ? console.red(whole(missed)) : whole(missed),
               seconds_of(member(source, "lag_seconds"))});
    if (const Json& why = member(source, "why_not_better");
        why.is_string() && !why.get<std::string>().empty()) {
      table.note("no better way: " + text_of(why));
    }
    note_counts(table, member(source, "missed"), console.red("missed"));
    note_unverified(table, member(owners, "unverified"), console);
    if (const double later = number_of(member(member(owners, "later"), "waiting")); later > 0)
      table.note("asked about again: " + whole(later) + " (scriptorium owners list)");
    note_counts(table, member(source, "redactions"), "secrets found");
    note_load(table, member(owners, "scheduler_load"));
    note_gaps(table, member(source, "gaps"), console);
    if (const Json& there = member(source, "spool_there"); there.is_boolean() && !there.get<bool>())
      table.note(console.red("the spool is not there"));
    note_error(table, source, console);
  }
  return table.text(console);
}

std::string journal_text(const Json& journal, const Console& console) {
  std::string text = console.bold("JOURNAL") + "  " + text_of(member(journal, "events")) +
                     " events, " + bytes_of(member(journal, "bytes")) + " of " +
                     bytes_of(member(journal, "limit_bytes"));
  const double limit = number_of(member(journal, "limit_bytes"));
  if (limit > 0) {
    const double fill = number_of(member(journal, "bytes")) * 100 / limit;
    const std::string percent = whole(fill) + " %";
    text += " (" +
            (fill >= 95   ? console.red(percent)
             : fill >= 75 ? console.yellow(percent)
                          : percent) +
            ")";
  }
  text += "\n";
  if (const Json& full = member(journal, "full"); full.is_boolean() && full.get<bool>()) {
    text += "  " + console.red("full: the spool is not read until a sink accepts events") + "\n";
  }
  for (const Json& user : member(journal, "over_share")) {
    const std::string waiting = text_of(member(user, "waiting")) + " entries (" +
                                bytes_of(member(user, "waiting_bytes")) + ") wait in the spool";
    if (!member(user, "user_id").is_string()) {
      text += "  " + waiting + " until the scheduler names their owners\n";
      continue;
    }
    const Json& name =
        member(user, "user").is_string() ? member(user, "user") : member(user, "user_id");
    text += "  " + console.yellow("user " + text_of(name)) + " holds " +
            bytes_of(member(user, "bytes")) + ", a full share; " + waiting + "\n";
  }
  if (const Json& error = member(journal, "last_error");
      error.is_string() && !error.get<std::string>().empty()) {
    text += "  " + console.red("last error: ") + text_of(error) + "\n";
  }
  return text;
}

std::string sinks_text(const Json& sinks, const Console& console) {
  TextTable table({"SINK", "PLUGIN", "ACKNOWLEDGED", "WAITING", "BYTES", "OLDEST", "RETRIES",
                   "DEAD", "LAST SUCCESS"},
                  {2, 3, 4, 5, 6, 7});
  for (const auto& [name, sink] : sinks.items()) {
    const double dead = number_of(member(sink, "dead"));
    const Json& waiting = member(sink, "waiting");
    // The journal's count survives restarts and reloads, but an older daemon may not report it.
    const Json& total = member(sink, "acknowledged_total");
    table.add({printable(name), text_of(member(sink, "plugin")),
               text_of(total.is_null() ? member(sink, "acknowledged") : total), text_of(waiting),
               bytes_of(member(sink, "waiting_bytes")),
               number_of(waiting) > 0 ? seconds_of(member(sink, "oldest_waiting_seconds")) : "-",
               whole(sum_of(member(sink, "retries"))),
               dead > 0 ? console.red(whole(dead)) : whole(dead),
               text_of(member(sink, "last_success"))});
    if (member(sink, "configured") == Json(false)) {
      table.note(console.yellow("not configured: " + text_of(waiting) + " waiting") +
                 "; configure it again, or: scriptorium sinks forget " + printable(name));
    }
    if (const Json& why = member(sink, "not_ready"); why.is_string())
      table.note(console.red("not ready: ") + text_of(why));
    if (const Json& call = member(sink, "call_under_way");
        number_of(member(call, "seconds")) >= kShownCallSeconds) {
      table.note(console.yellow("in a call (" + text_of(member(call, "name")) + ") for " +
                                seconds_of(member(call, "seconds"))));
    }
    if (const double refill = number_of(member(sink, "refill_from_archive")); refill > 0)
      table.note("will be refilled from archive: " + whole(refill));
    if (const Json& fill = member(sink, "fill");
        fill.is_object() && member(fill, "state") != Json("done")) {
      table.note("being filled from " + text_of(member(fill, "archive")) + ": " +
                 whole(number_of(member(fill, "sent")) + number_of(member(fill, "present"))) +
                 " of " + text_of(member(fill, "total")));
    }
    note_counts(table, member(sink, "retries"), "retried");
    if (!member(sink, "not_ready").is_string()) note_error(table, sink, console);
    if (const Json& next = member(sink, "next_attempt_in_ms"); next.is_number()) {
      table.note("next attempt in " + format_seconds(next.get<double>() / 1000));
    }
    if (dead > 0) table.note("see: scriptorium deadletters list --sink " + printable(name));
  }
  return table.text(console);
}

std::string mail_text(const Json& mail, const Console& console) {
  std::string text = console.bold("MAIL") + "  " + text_of(member(mail, "period")) + ": " +
                     text_of(member(mail, "sent")) + " sent at " + text_of(member(mail, "time"));
  if (const double waiting = number_of(member(mail, "waiting")); waiting > 0)
    text += ", " + whole(waiting) + " waiting";
  text += "\n";
  if (const Json& skipped = member(mail, "skipped"); skipped.is_object()) {
    for (const auto& [why, count] : skipped.items())
      text += "  " + text_of(count) + " not written: " + printable(why) + "\n";
  }
  const auto say = [&](const char* what, const std::string& who) {
    text += "  " + console.red(what) + ": " + who + "\n";
  };
  if (const double refused = number_of(member(mail, "refused")); refused > 0)
    say("refused", whole(refused));
  if (const double late = number_of(member(mail, "waiting_for_a_day")); late > 0)
    say("could not be handed over for a day", whole(late));
  for (const Json& name : member(mail, "may_be_lost")) say("may have got no mail", text_of(name));
  return text;
}

std::string for_people(const Json& status, const Console& console) {
  std::string text = console.bold("scriptorium " + text_of(member(status, "version"))) + ", up " +
                     seconds_of(member(status, "uptime_seconds")) + "\n";
  if (const Json& refused = member(status, "reload_refused"); refused.is_string()) {
    text += console.red("The last reload was refused, the old configuration remains in effect: ") +
            text_of(refused) + "\n";
  }
  text += "\n";
  if (const Json& sources = member(status, "sources"); sources.is_object())
    text += sources_text(sources, console) + "\n";
  text += journal_text(member(status, "journal"), console) + "\n";
  if (const Json& sinks = member(status, "sinks"); sinks.is_object())
    text += sinks_text(sinks, console);
  if (const Json& mail = member(status, "mail"); mail.is_object())
    text += "\n" + mail_text(mail, console);
  return text;
}

}  // namespace

int status_command(const Arguments& arguments, Console& console) {
  const auto state_dir = state_dir_of(arguments, console);
  if (!state_dir) {
    if (!arguments.health) return kExitConfig;
    console.out << no_answer("the configuration " + arguments.config_file + " is wrong").line
                << "\n";
    return Health::kCritical;
  }
  const auto log = make_command_logger();
  const auto answer = control(*state_dir, R"({"command":"status"})", *log);
  if (arguments.health) {
    const Health health =
        answer ? judge_health(*answer, {.behind_warning_s = arguments.behind_warning_s,
                                        .behind_critical_s = arguments.behind_critical_s})
               : no_answer(answer.error().message());
    console.out << health.line << "\n";
    return health.state;
  }
  if (!answer) return fail(console, answer.error());
  if (arguments.json) {
    console.out << *answer << "\n";
    return kExitGood;
  }
  const Json status = Json::parse(*answer, nullptr, false);
  if (status.is_discarded()) return fail(console, "the daemon's answer is not JSON", kExitSoftware);
  console.out << for_people(status, console);
  return kExitGood;
}

}  // namespace scriptorium::cli
