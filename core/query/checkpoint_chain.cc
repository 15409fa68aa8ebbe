#include "core/query/checkpoint_chain.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "core/api/kit/search/job_facts.h"
#include "core/base/text.h"
#include "core/query/job_text.h"
#include "core/query/unchecked_json.h"
#include "core/query/usage_tables.h"

namespace scriptorium::query {
namespace {

using Json = nlohmann::ordered_json;
using Action = CheckpointStep::Action;

constexpr std::size_t kMostWord = 40;
constexpr std::size_t kMostFindings = 8;  // a job may have a thousand programs
// With this code a job asks to be run again (docs/checkpoint.md).
constexpr int kRunAgain = 99;
// The job's end is known in whole seconds, and by another clock than its saves.
constexpr double kEndSlackSeconds = 60;
// This scheduler runs a job again under a new id, so its next life is in another record.
constexpr std::string_view kGivesNewIds = "oar";

struct ActionName {
  const char* name;
  const char* words;
};
// In the order of Action.
constexpr std::array<ActionName, 5> kActions = {{{"made", "saved"},
                                                 {"failed", "not saved"},
                                                 {"restart_failed", "not resumed"},
                                                 {"restarted", "resumed"},
                                                 {"ended", "ended"}}};

double seconds_between(Timestamp from, Timestamp to) {
  return static_cast<double>(to.nanoseconds - from.nanoseconds) / static_cast<double>(kSecond);
}

CheckpointStep step_of(const Event& event) {
  const Json json = Json::parse(event.extra_json, nullptr, false);
  const auto whole = [&](const char* name) -> std::optional<std::uint64_t> {
    const auto number = measured_at(json, {kCheckpoint, name});
    return number ? std::optional(static_cast<std::uint64_t>(*number)) : std::nullopt;
  };
  CheckpointStep step{.time = event.time,
                      .node = printable(event.host),
                      .action_name = text_at(json, {kCheckpoint, "action"}, kMostWord),
                      .is_verified = event.user.verified,
                      .root_pid = whole("root_pid"),
                      .manifest_sha256 = text_at(json, {kCheckpoint, "manifest_sha256"}),
                      .image_bytes = whole("image_bytes"),
                      .frozen_seconds = measured_at(json, {kCheckpoint, "frozen_seconds"}),
                      .reason = text_at(json, {kCheckpoint, "reason"}, kMostWord)};
  const auto known = std::ranges::find_if(
      kActions, [&](const ActionName& action) { return step.action_name == action.name; });
  step.action = static_cast<Action>(known - kActions.begin());
  if (!event.user.verified) step.writer = printable(event.user.name.value_or(""), kMostWord);
  if (const Json& runs_on = value_at(json, {kCheckpoint, "runs_on"}); runs_on.is_boolean())
    step.runs_on = runs_on.get<bool>();
  if (const auto code = whole("exit_code"); code && *code <= 255)
    step.exit_code = static_cast<int>(*code);
  return step;
}

// Any user of a node can write a record that names any job.
bool may_be_owners(const User& user, const JobRow& job) {
  return !job.user || (user.name == job.user && (!user.id || !job.uid || user.id == job.uid));
}

std::vector<CheckpointStep> steps_of(const Searchable::Record& record, CheckpointTrust trust) {
  std::vector<CheckpointStep> steps;
  std::set<std::string> seen;
  for (const auto& event : record.later) {
    if (event->kind != "job.checkpoint") continue;
    const bool counts = event->user.verified ||
                        (trust == CheckpointTrust::kAll && may_be_owners(event->user, record.job));
    if (!counts) continue;
    if (seen.insert(event->id).second) steps.push_back(step_of(*event));
  }
  // At one time: first the end of a life, then the begin of the next one.
  std::ranges::stable_sort(
      steps, {}, [](const CheckpointStep& step) { return std::pair(step.time, step.action); });
  return steps;
}

// Sorts steps by program. An image has the same manifest where it was made and resumed; a program
// keeps its process id in a life, and most engines give it back in the next one.
class ProgramSorter {
 public:
  void add(CheckpointStep step) {
    current_ = place_of(step);
    if (current_ >= chains_.size()) chains_.emplace_back();
    if (step.root_pid) by_pid_[*step.root_pid] = current_;
    if (!step.manifest_sha256.empty()) by_manifest_[step.manifest_sha256] = current_;
    chains_[current_].steps.push_back(std::move(step));
  }
  std::vector<CheckpointChain> take() { return std::move(chains_); }

 private:
  std::size_t place_of(const CheckpointStep& step) const {
    if (const auto known = by_manifest_.find(step.manifest_sha256); known != by_manifest_.end())
      return known->second;
    // A refused resume has no id, and is of the program before it.
    if (!step.root_pid) return current_;
    if (const auto known = by_pid_.find(*step.root_pid); known != by_pid_.end())
      return known->second;
    const bool is_new = step.action != Action::kRestarted && !by_pid_.empty();
    return is_new ? chains_.size() : current_;
  }

  std::vector<CheckpointChain> chains_;
  std::map<std::uint64_t, std::size_t> by_pid_;
  std::map<std::string, std::size_t> by_manifest_;
  std::size_t current_ = 0;
};

bool was_ended_by_save(const CheckpointLife& life) {
  return !life.saves.empty() && life.saves.back().runs_on == false;
}

// Builds the lives of one program, step by step.
class LifeBuilder {
 public:
  explicit LifeBuilder(CheckpointChain& chain) : chain_(chain) {}

  void add(CheckpointStep& step) {
    switch (step.action) {
      case Action::kMade: save(step); break;
      case Action::kFailed: life_at(step).unsaved.push_back(step); break;
      case Action::kRestartFailed: chain_.refused.push_back(step); break;
      case Action::kRestarted: resume(step); break;
      case Action::kEnded: end(step); break;
      case Action::kOther: return;
    }
    if (step.action != Action::kRestartFailed) note_trust(chain_.lives.back(), step);
  }

 private:
  static void note_trust(CheckpointLife& life, const CheckpointStep& step) {
    if (step.is_verified) return;
    life.is_verified = false;
    if (!step.writer.empty()) life.writers.insert(step.writer);
  }
  CheckpointLife& begin(const CheckpointStep& step) {
    CheckpointLife life{.node = step.node, .refused = std::exchange(chain_.refused, {})};
    for (const CheckpointStep& refused : life.refused) note_trust(life, refused);
    chain_.lives.push_back(std::move(life));
    return chain_.lives.back();
  }
  // A step that does not fit to the last life is of one whose begin nobody recorded.
  CheckpointLife& life_at(const CheckpointStep& step) {
    const bool fits = !chain_.lives.empty() && chain_.refused.empty() &&
                      !chain_.lives.back().ended && chain_.lives.back().node == step.node;
    return fits ? chain_.lives.back() : begin(step);
  }
  // A program that its last save has ended can be saved or end only in a later life.
  CheckpointLife& running_life_at(const CheckpointStep& step) {
    const bool is_over = !chain_.lives.empty() && was_ended_by_save(chain_.lives.back());
    return is_over ? begin(step) : life_at(step);
  }
  void save(CheckpointStep& step) { running_life_at(step).saves.push_back(step); }
  void end(CheckpointStep& step) { running_life_at(step).ended = step; }
  void resume(CheckpointStep& step) {
    if (!chain_.lives.empty()) {
      const CheckpointLife& before = chain_.lives.back();
      if (!before.ended && !before.saves.empty() && before.saves.back().time <= step.time) {
        step.away_seconds = seconds_between(before.saves.back().time, step.time);
        step.repeats_work = before.saves.back().runs_on.value_or(false);
      }
    }
    begin(step).resumed = step;
  }

  CheckpointChain& chain_;
};

// The last run of the job that had begun by then.
std::optional<Timestamp> run_begin_before(const Searchable::Record& record, Timestamp time) {
  std::optional<Timestamp> begin;
  for (const auto& event : record.later) {
    if (event->kind != "usage.job") continue;
    JobRow run;
    join(run, *event);
    if (run.started_at && *run.started_at <= time && (!begin || *begin < *run.started_at))
      begin.emplace(*run.started_at);
  }
  return begin;
}

// When it ended by itself, or was saved and left; unknown for one that may be running.
std::optional<Timestamp> end_of(const CheckpointChain& chain, std::size_t place) {
  const CheckpointLife& life = chain.lives[place];
  if (life.ended) return life.ended->time;
  const bool is_left =
      place + 1 < chain.lives.size() || !chain.refused.empty() || was_ended_by_save(life);
  if (life.saves.empty() || !is_left) return std::nullopt;
  return life.saves.back().time;
}

void add_measured(CheckpointChain& chain, const CheckpointLife& life, Timestamp begin,
                  Timestamp end) {
  const double whole = seconds_between(begin, end);
  if (whole < 0) return;
  double frozen = 0;
  for (const CheckpointStep& save : life.saves) frozen += save.frozen_seconds.value_or(0);
  frozen = std::min(frozen, whole);
  const double away = life.resumed ? life.resumed->away_seconds.value_or(0) : 0;
  ++chain.measured_lives;
  chain.worked_seconds += whole - frozen;
  chain.away_seconds += away;
  if (life.resumed && life.resumed->repeats_work) chain.repeated_seconds += away;
  chain.lost_seconds += frozen + away;
}

void measure(CheckpointChain& chain, const std::optional<Timestamp>& first_begin) {
  for (std::size_t i = 0; i < chain.lives.size(); ++i) {
    const CheckpointLife& life = chain.lives[i];
    const auto end = end_of(chain, i);
    if (!end) continue;
    if (life.resumed) {
      add_measured(chain, life, life.resumed->time, *end);
    } else if (i == 0 && first_begin) {
      add_measured(chain, life, *first_begin, *end);
    }
  }
}

// ---- findings

std::optional<CheckpointFinding> thrash(const CheckpointChain& chain) {
  const double whole = chain.lost_seconds + chain.worked_seconds;
  if (chain.measured_lives < kThrashLeastLives || chain.lost_seconds < kThrashLeastSeconds)
    return std::nullopt;
  const double share = chain.lost_seconds / whole;
  if (share < kThrashNoticeRatio) return std::nullopt;
  const bool is_warning = share >= kThrashWarningRatio;
  const double half = chain.lost_seconds / 2;
  const char* advice =
      chain.repeated_seconds >= half
          ? "Most of it passed between a save after which the program ran on and the next resume, "
            "which did that work again: save it more often."
      : chain.away_seconds >= half
          ? "Most of it passed between a save and the next resume: ask for a longer time limit, so "
            "that it has fewer lives."
          : "Most of it passed while it was frozen: save it less often, or to a faster file "
            "system.";
  return CheckpointFinding{.id = "ckpt_thrash",
                           .severity = is_warning ? "warning" : "notice",
                           .value = share,
                           .threshold = is_warning ? kThrashWarningRatio : kThrashNoticeRatio,
                           .unit = "ratio",
                           .text = "In " + std::to_string(chain.measured_lives) +
                                   " lives the program was saved, waited or was resumed for " +
                                   format_seconds(chain.lost_seconds) + " of " +
                                   format_seconds(whole) + " (" + percent(share) +
                                   "). In that time it did no work" +
                                   (chain.repeated_seconds > 0 ? " that lasts. " : ". ") + advice};
}

std::string advice_for(std::string_view reason) {
  static const std::map<std::string_view, const char*> kAdvice = {
      {"pid_taken", "Submit the job again: on another node the process id is likely free."},
      {"other_node",
       "Submit the job again to the node that made the image, and keep the next one "
       "and the program's files on a file system that all nodes see."},
      {"other_cpu", "Submit the job again, to nodes with the processor that made the image."},
      {"file_changed",
       "Put the file back that checkpoint_failed, beside the image, names; then submit the job "
       "again."},
      {"file_missing",
       "Put the file back that checkpoint_failed, beside the image, names; then submit the job "
       "again."},
      {"image_damaged", "The image before it may be intact: checkpoint.old."},
      {"no_image", "The image before it may be there: checkpoint.old."}};
  const auto known = kAdvice.find(reason);
  return known != kAdvice.end()
             ? known->second
             : "The file checkpoint_failed, beside the image, says more. Remove that reason, then "
               "submit the job again.";
}

std::string image_words(const CheckpointStep& save) {
  return "The image of " + local_time(save.time) + (save.node.empty() ? "" : " on " + save.node) +
         (save.image_bytes ? " (" + format_bytes(*save.image_bytes) + ")" : "");
}

constexpr const char* kWhyNeverRestored = " Without it, what the program did until then is lost. ";

// All attempts to resume the last image were refused.
std::optional<CheckpointFinding> refused_for_good(const CheckpointChain& chain, const JobRow& job) {
  if (chain.refused.empty() || chain.lives.empty() || chain.lives.back().saves.empty() ||
      succeeded(job))
    return std::nullopt;
  const CheckpointStep& last = chain.refused.back();
  // It has ended by itself, so nothing is lost.
  if (std::ranges::any_of(chain.refused,
                          [](const CheckpointStep& step) { return step.reason == "ended"; }))
    return std::nullopt;
  const std::size_t count = chain.refused.size();
  const std::string place = last.node.empty() ? "" : " on " + last.node;
  const std::string attempts =
      count == 1 ? "the attempt" + place + " was refused"
                 : "all " + std::to_string(count) + " attempts were refused, the last one" + place;
  return CheckpointFinding{.id = "ckpt_never_restored",
                           .severity = "warning",
                           .value = static_cast<double>(count),
                           .threshold = 1,
                           .unit = "count",
                           .text = image_words(chain.lives.back().saves.back()) +
                                   " was not resumed: " + attempts +
                                   (last.reason.empty() ? "" : " (" + last.reason + ")") + "." +
                                   kWhyNeverRestored + advice_for(last.reason)};
}

// Nothing came after the last image, for which the program or the job ended.
std::optional<CheckpointFinding> left_behind(const CheckpointChain& chain, const JobRow& job,
                                             Timestamp now) {
  if (!chain.refused.empty() || chain.lives.empty() || job.scheduler == kGivesNewIds)
    return std::nullopt;
  const CheckpointLife& life = chain.lives.back();
  if (life.ended || life.saves.empty()) return std::nullopt;
  const CheckpointStep& save = life.saves.back();
  const bool job_ended_for_it = job.exit_code == kRunAgain && job.ended_at &&
                                seconds_between(save.time, *job.ended_at) >= -kEndSlackSeconds;
  // Where the event does not say whether the program ran on, the job's end does.
  const bool is_left = save.runs_on ? !*save.runs_on && !succeeded(job) : job_ended_for_it;
  const double since = seconds_between(save.time, now);
  if (!is_left || since < kNeverRestoredSeconds) return std::nullopt;
  return CheckpointFinding{
      .id = "ckpt_never_restored",
      .severity = "warning",
      .value = since,
      .threshold = kNeverRestoredSeconds,
      .unit = "seconds",
      .text = image_words(save) + " was not resumed for " + format_seconds(since) +
              (job_ended_for_it ? ", though the job ended to be run again (exit code 99)."
                                : ", and the save ended the program.") +
              kWhyNeverRestored +
              "Submit the job again, or remove the image if another job has resumed it."};
}

}  // namespace

std::string checkpoint_words(const CheckpointStep& step) {
  const auto place = static_cast<std::size_t>(step.action);
  return place < kActions.size() ? kActions.at(place).words : step.action_name;
}

std::vector<CheckpointChain> checkpoint_chains(const Searchable::Record& record,
                                               CheckpointTrust trust) {
  ProgramSorter sorter;
  for (CheckpointStep& step : steps_of(record, trust)) sorter.add(std::move(step));
  std::vector<CheckpointChain> chains = sorter.take();
  for (CheckpointChain& chain : chains) {
    LifeBuilder builder(chain);
    for (CheckpointStep& step : chain.steps) builder.add(step);
    const bool is_first = &chain == &chains.front();
    measure(chain, is_first ? run_begin_before(record, chain.steps.front().time) : std::nullopt);
  }
  return chains;
}

bool is_verified(const CheckpointChain& chain) {
  return std::ranges::all_of(chain.steps, &CheckpointStep::is_verified);
}

std::string checkpoint_sum_text(const std::vector<CheckpointChain>& chains) {
  std::size_t lives = 0;
  double lost = 0;
  double worked = 0;
  for (const CheckpointChain& chain : chains) {
    lives += chain.lives.size();
    lost += chain.lost_seconds;
    worked += chain.worked_seconds;
  }
  if (lives <= chains.size()) return {};
  std::string text = std::to_string(lives) + " lives";
  if (chains.size() > 1) text += " of " + std::to_string(chains.size()) + " programs";
  if (worked > 0) text += ", " + format_seconds(lost) + " lost of " + format_seconds(lost + worked);
  return std::ranges::all_of(chains, is_verified) ? text : text + " (unverified)";
}

std::vector<CheckpointFinding> checkpoint_findings(const Searchable::Record& record,
                                                   Timestamp now) {
  std::vector<CheckpointFinding> findings;
  const auto add = [&findings](std::optional<CheckpointFinding> found) {
    if (found && findings.size() < kMostFindings) findings.push_back(*std::move(found));
  };
  const auto chains = checkpoint_chains(record, CheckpointTrust::kVerifiedOnly);
  const auto last = std::ranges::max_element(
      chains, {}, [](const CheckpointChain& chain) { return chain.steps.back().time; });
  for (auto chain = chains.begin(); chain != chains.end(); ++chain) {
    add(thrash(*chain));
    add(refused_for_good(*chain, record.job));
    if (chain == last) add(left_behind(*chain, record.job, now));
  }
  return findings;
}

Json checkpoint_json(const Searchable::Record& record, Timestamp now) {
  Json programs = Json::array();
  for (const CheckpointChain& chain : checkpoint_chains(record)) {
    Json program{{"lives", chain.lives.size()}, {"verified", is_verified(chain)}};
    const auto with_id = std::ranges::find_if(
        chain.steps, [](const CheckpointStep& step) { return step.root_pid.has_value(); });
    if (with_id != chain.steps.end()) program["root_pid"] = *with_id->root_pid;
    if (chain.measured_lives > 0) {
      program["lost_seconds"] = chain.lost_seconds;
      program["worked_seconds"] = chain.worked_seconds;
    }
    programs.push_back(std::move(program));
  }
  if (programs.empty()) return {};
  Json findings = Json::array();
  for (const CheckpointFinding& found : checkpoint_findings(record, now))
    findings.push_back({{"id", found.id},
                        {"severity", found.severity},
                        {"value", found.value},
                        {"threshold", found.threshold},
                        {"unit", found.unit},
                        {"text", found.text}});
  return {{"programs", std::move(programs)}, {"findings", std::move(findings)}};
}

}  // namespace scriptorium::query
