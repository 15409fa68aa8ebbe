#include "core/cli/health.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "core/cli/answer_text.h"
#include "core/cli/common.h"
#include "core/daemon/status_answer.h"

namespace scriptorium::cli {
namespace {

using status_answer::Json;
using status_answer::member;
using status_answer::number_of;
using status_answer::sum_of;

constexpr double kJournalWarning = 0.8;
// Thresholds for the last hour's jobs. A few unverified jobs are normal: they ended before the
// scheduler was asked.
constexpr double kUnverifiedShare = 0.1;
constexpr double kUnverifiedJobs = 10;
// Seconds that a call into a sink may take; a batch over a slow network takes some.
constexpr double kLongStart = 10;
constexpr double kLongCall = 30;

double number(const Json& object, const char* key) { return number_of(member(object, key)); }
bool is(const Json& object, const char* key, bool wanted) {
  return member(object, key) == Json(wanted);
}

class Judge {
 public:
  explicit Judge(const HealthLimits& limits) : limits_(limits) {}

  void source(const std::string& name, const Json& source) {
    captured_ += number(source, "captured");
    const double missed = sum_of(member(source, "missed"));
    missed_ += missed;
    if (is(source, "spool_there", false)) say(Health::kCritical, name + ": the spool is missing");
    if (missed > 0) say(Health::kWarning, name + ": " + whole(missed) + " missed");
    if (const double gaps = number(member(source, "gaps"), "confirmed"); gaps > 0)
      say(Health::kWarning, name + ": " + whole(gaps) + " jobs whose script was never seen");
    owners(name, member(source, "owners"));
  }

  void reload(const Json& refused) {
    if (refused.is_string())
      say(Health::kWarning, "the last reload was refused: " + refused.get<std::string>());
  }

  void mail(const Json& mail) {
    if (const double late = number(mail, "waiting_for_a_day"); late > 0)
      say(Health::kWarning, count_of(static_cast<std::uint64_t>(late), "mail") +
                                " could not be handed over for a day");
    if (const Json& names = member(mail, "may_be_lost"); names.is_array() && !names.empty())
      say(Health::kWarning, count_of(names.size(), "user") + " may have got no mail");
  }

  void journal(const Json& journal) {
    const double limit = number(journal, "limit_bytes");
    const double filled = limit > 0 ? number(journal, "bytes") / limit : 0;
    if (is(journal, "full", true)) {
      say(Health::kCritical, "the journal is full, capture waits");
    } else if (filled > kJournalWarning) {
      say(Health::kWarning, "the journal is at " + whole(filled * 100) + " %");
    }
    for (const Json& user : member(journal, "over_share")) {
      const Json& name =
          member(user, "user").is_string() ? member(user, "user") : member(user, "user_id");
      if (!name.is_string()) continue;  // entries whose owner is still being resolved
      say(Health::kWarning, "user " + name.get<std::string>() +
                                " holds a full share of the journal, " +
                                whole(number(user, "waiting")) + " entries wait in the spool");
    }
    if (const Json& error = member(journal, "last_error");
        error.is_string() && !error.get<std::string>().empty())
      say(Health::kCritical, "journal: " + error.get<std::string>());
    journal_percent_ = filled * 100;
  }

  void sink(const std::string& name, const Json& sink) {
    const Json& call = member(sink, "call_under_way");
    if (const Json& why = member(sink, "not_ready"); why.is_string()) {
      say(Health::kWarning, name + ": not ready: " + why.get<std::string>());
    } else if (number(call, "seconds") >= (is(sink, "ready", false) ? kLongStart : kLongCall)) {
      say(Health::kWarning, name + ": in a call (" + member(call, "name").get<std::string>() +
                                ") for " + format_seconds(number(call, "seconds")) +
                                "; does its file server or network hang?");
    }
    const double behind = number(sink, "waiting") > 0 ? number(sink, "oldest_waiting_seconds") : 0;
    const double dead = number(sink, "dead");
    waiting_ += number(sink, "waiting");
    dead_ += dead;
    if (is(sink, "configured", false)) {
      if (number(sink, "waiting") > 0) {
        say(Health::kWarning, name + ": not configured: " + whole(number(sink, "waiting")) +
                                  " waiting (see: scriptorium sinks forget " + name + ")");
      }
    } else if (behind >= static_cast<double>(limits_.behind_warning_s)) {
      const Json& error = member(sink, "last_error");
      say(behind >= static_cast<double>(limits_.behind_critical_s) ? Health::kCritical
                                                                   : Health::kWarning,
          name + ": behind by " + format_seconds(behind) +
              (error.is_string() ? " (" + error.get<std::string>() + ")" : ""));
    }
    if (dead > 0) say(Health::kWarning, name + ": " + whole(dead) + " dead letters");
  }

  Health verdict() const {
    static constexpr std::string_view kWords[] = {"OK", "WARNING", "CRITICAL"};
    std::string text = "SCRIPTORIUM " + std::string(kWords[state_]) + " - ";
    if (state_ == Health::kOk)
      text += whole(captured_) + " captured, " + whole(waiting_) + " waiting";
    // The worst problem comes first.
    bool first = true;
    for (const Health::State state : {Health::kCritical, Health::kWarning}) {
      for (const auto& [of, what] : said_) {
        if (of != state) continue;
        text += (first ? "" : "; ") + what;
        first = false;
      }
    }
    // The guidelines reserve '|' for the figures.
    for (char& c : text) {
      if (c == '|') c = '/';
    }
    text += " | captured=" + whole(captured_) + "c missed=" + whole(missed_) +
            "c waiting=" + whole(waiting_) + " dead=" + whole(dead_) +
            " journal=" + whole(journal_percent_) + "%;80;100";
    return {state_, printable(text, 2000)};
  }

 private:
  void owners(const std::string& name, const Json& owners) {
    const double decided = number(member(owners, "last_hour"), "decided");
    const double unverified = number(member(owners, "last_hour"), "unverified");
    if (unverified <= decided * kUnverifiedShare ||
        (unverified < kUnverifiedJobs && unverified < decided))
      return;
    const Json& reasons = member(owners, "unverified");
    std::string most;
    double of_most = 0;
    if (reasons.is_object()) {
      for (const auto& [reason, count] : reasons.items()) {
        if (number_of(count) <= of_most) continue;
        of_most = number_of(count);
        most = reason;
      }
    }
    say(Health::kWarning, name + ": the owners of " + whole(unverified) + " of the last hour's " +
                              whole(decided) + " jobs are unverified" +
                              (most.empty() ? "" : " (" + most + ")"));
  }

  void say(Health::State state, std::string what) {
    state_ = std::max(state_, state);
    said_.emplace_back(state, std::move(what));
  }

  const HealthLimits limits_;
  Health::State state_ = Health::kOk;
  std::vector<std::pair<Health::State, std::string>> said_;
  double captured_ = 0;
  double missed_ = 0;
  double waiting_ = 0;
  double dead_ = 0;
  double journal_percent_ = 0;
};

}  // namespace

Health judge_health(const std::string& status_json, const HealthLimits& limits) {
  const Json status = Json::parse(status_json, nullptr, false);
  if (!status.is_object()) return no_answer("the daemon's answer is not a JSON object");
  Judge judge(limits);
  const Json& sources = member(status, "sources");
  const Json& sinks = member(status, "sinks");
  if (sources.is_object()) {
    for (const auto& [name, source] : sources.items()) judge.source(name, source);
  }
  judge.reload(member(status, "reload_refused"));
  judge.journal(member(status, "journal"));
  if (sinks.is_object()) {
    for (const auto& [name, sink] : sinks.items()) judge.sink(name, sink);
  }
  judge.mail(member(status, "mail"));
  return judge.verdict();
}

Health no_answer(const std::string& reason) {
  return {Health::kCritical, printable("SCRIPTORIUM CRITICAL - " + reason, 2000)};
}

}  // namespace scriptorium::cli
