#include "schedulers/slurm/owner.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <set>
#include <string_view>
#include <unordered_map>

#include "core/base/file.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "schedulers/slurm/script.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;

constexpr auto kRememberFor = 10min;  // how long we think of an entry that core asks no more about
constexpr auto kCheckPatience = 15s;  // of `scriptorium check`; Slurm's own MessageTimeout is 10 s

bool has_stub(const Event& event) {
  const EventFile* script = event.file("script");
  return script != nullptr && script->bytes != nullptr && is_het_stub(*script->bytes);
}

}  // namespace

SqueueResolver::SqueueResolver(std::shared_ptr<Queue> queue, SlurmConfig config, Logger& log,
                               const Clock& clock, AccountNames names)
    : queue_(std::move(queue)),
      config_(std::move(config)),
      log_(log),
      clock_(clock),
      names_(clock, std::move(names)) {}

OwnerAnswer::State SqueueResolver::note_absence(const EntryKey& entry, SteadyTime asked) {
  const auto [found, is_new] = absent_.try_emplace(entry, Absence{asked, clock_.steady()});
  found->second.last = clock_.steady();
  if (is_new || asked - found->second.first < kRound) return OwnerAnswer::State::kNotYet;
  absent_.erase(found);
  return OwnerAnswer::State::kUnknown;
}

void SqueueResolver::forget_old() {
  const SteadyTime old = clock_.steady() - kRememberFor;
  std::erase_if(absent_, [&](const auto& entry) { return entry.second.last < old; });
  std::erase_if(latest_, [&](const auto& entry) { return entry.second.asked < old; });
}

std::vector<std::size_t> SqueueResolver::choose_single(std::span<const OwnerQuery> queries,
                                                       const std::vector<std::uint64_t>& ids) {
  const SteadyTime now = clock_.steady();
  if (now - round_begin_ >= kRound) {
    round_begin_ = now;
    asked_in_round_ = 0;
  }
  // New ones first: an absent one is asked for a second time before it goes, and must not keep the
  // others waiting.
  std::vector<std::size_t> fresh;
  std::vector<std::size_t> absent;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto found = absent_.find({ids[i], queries[i].script_mtime_ns});
    if (found == absent_.end()) {
      fresh.push_back(i);
    } else if (now - found->second.first >= kRound) {
      absent.push_back(i);
    }
  }
  fresh.insert(fresh.end(), absent.begin(), absent.end());
  std::set<std::uint64_t> chosen;
  std::vector<std::size_t> result;
  for (const std::size_t i : fresh) {
    if (!chosen.contains(ids[i])) {
      if (asked_in_round_ == kSinglesARound) continue;
      ++asked_in_round_;
      chosen.insert(ids[i]);
    }
    result.push_back(i);
  }
  return result;
}

OwnerAnswer SqueueResolver::answer_of(const QueueAnswer& answer, const RowsById& rows,
                                      const OwnerQuery& query, std::uint64_t id,
                                      std::size_t& hidden) {
  const EntryKey key{id, query.script_mtime_ns};
  const bool unchanged = query.entry_unchanged && query.entry_unchanged();
  OwnerAnswer result;
  if (rows.numbers(id).empty()) {
    if (unchanged) ++hidden;
    result.state = note_absence(key, answer.asked);
    if (result.state == OwnerAnswer::State::kUnknown && unchanged)
      result.user.unverified_reason =
          "slurmctld does not list the job, though its entry stands in the spool";
    return result;
  }
  absent_.erase(key);
  const std::int64_t latest = latest_[id].script_mtime_ns;
  const bool came_again = latest > query.script_mtime_ns;
  result = make_answer(rows.numbers(id), rows.texts(id),
                       {.job_id = id,
                        .script_mtime_ns = query.script_mtime_ns,
                        .unchanged = unchanged,
                        .id_came_again = came_again,
                        .stub = has_stub(*query.event)});
  if (result.state == OwnerAnswer::State::kFound) names_.add_to(result.user);
  if (result.state == OwnerAnswer::State::kUnknown && came_again &&
      times_are_alike(latest, query.script_mtime_ns))
    result.user.unverified_reason = kIdCameAgain;
  return result;
}

Result<std::vector<OwnerAnswer>> SqueueResolver::resolve(std::span<const OwnerQuery> queries,
                                                         std::stop_token stop,
                                                         SteadyTime deadline) {
  std::vector<OwnerAnswer> answers(queries.size(),
                                   OwnerAnswer{.state = OwnerAnswer::State::kNotAsked});
  forget_old();
  std::vector<std::uint64_t> ids(queries.size());
  std::vector<OwnerQuery> asked;         // what is still to be asked for
  std::vector<std::size_t> place;        // of each of these in `queries`
  std::vector<std::uint64_t> asked_ids;  // and its number
  std::set<std::uint64_t> different;
  SteadyTime newest{};
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto id = job_number(queries[i].event->job.id);
    if (!id) {
      answers[i].state = OwnerAnswer::State::kUnknown;
      continue;
    }
    LatestEntry& latest = latest_[*id];
    latest.script_mtime_ns = std::max(latest.script_mtime_ns, queries[i].script_mtime_ns);
    latest.asked = clock_.steady();
    asked.push_back(queries[i]);
    place.push_back(i);
    asked_ids.push_back(*id);
    different.insert(*id);
    newest = std::max(newest, queries[i].since);
  }
  if (asked.empty()) return answers;
  std::size_t hidden = 0;

  if (different.size() <= kFew) {
    std::map<std::uint64_t, std::pair<QueueAnswer, RowsById>> known;
    std::optional<Error> failed;
    for (const std::size_t i : choose_single(asked, asked_ids)) {
      const std::uint64_t id = asked_ids[i];
      if (!known.contains(id)) {
        if (failed) continue;
        auto answer = queue_->one(id, stop, deadline);
        if (!answer) {
          failed = answer.error();
          continue;
        }
        const auto at = known.emplace(id, std::pair{*std::move(answer), RowsById{}}).first;
        at->second.second = RowsById(at->second.first.rows, {id});
      }
      const auto& [answer, rows] = known.at(id);
      answers[place[i]] = answer_of(answer, rows, asked[i], id, hidden);
    }
    if (failed && known.empty()) return *std::move(failed);
  } else {
    // What an earlier list of all jobs names needs no other one.
    auto list = queue_->all(newest, stop, deadline);
    if (!list) return list.error();
    if (!*list && list_ != nullptr) *list = list_;
    if (*list) {
      list_ = *list;
      const RowsById rows(list_->rows, different);
      for (std::size_t i = 0; i < asked.size(); ++i) {
        if (asked[i].since > list_->asked) continue;
        const auto absent = absent_.find({asked_ids[i], asked[i].script_mtime_ns});
        if (absent != absent_.end() && list_->asked <= absent->second.first) continue;
        answers[place[i]] = answer_of(*list_, rows, asked[i], asked_ids[i], hidden);
      }
    }
  }
  const bool any = std::any_of(answers.begin(), answers.end(), [](const OwnerAnswer& a) {
    return a.state != OwnerAnswer::State::kNotAsked;
  });
  postponed_ = !any && different.size() > kFew;
  if (!any) list_.reset();  // it has nothing more to say
  if (hidden != 0) {
    log_.warning("SLURM_JOBS_HIDDEN",
                 "slurmctld does not list jobs whose entries stand in the spool; give our user "
                 "operator level if PrivateData hides jobs, "
                 "and see that slurm_conf is that of this spool's cluster",
                 {{"jobs", static_cast<std::uint64_t>(hidden)},
                  {"uid", static_cast<std::uint64_t>(geteuid())}});
  }
  return answers;
}

std::chrono::milliseconds SqueueResolver::min_interval() const {
  if (!postponed_) return kRound;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(queue_->next_list() - clock_.steady());
  return std::clamp<std::chrono::milliseconds>(left, kRound, 10s);
}

Result<std::optional<std::vector<NumberUse>>> SqueueNumbers::numbers(const Question& question,
                                                                     std::stop_token stop,
                                                                     SteadyTime deadline) {
  if (question.numbers.empty()) {
    auto list = queue_->all(question.since, stop, deadline);
    if (!list) return list.error();
    if (!*list) return std::optional<std::vector<NumberUse>>();
    return std::optional((*list)->rows.uses);
  }
  std::vector<NumberUse> uses;
  for (const std::uint64_t number : question.numbers) {
    auto answer = queue_->one(number, stop, deadline);
    if (!answer) return answer.error();
    uses.insert(uses.end(), answer->rows.uses.begin(), answer->rows.uses.end());
  }
  return std::optional(std::move(uses));
}

Result<void> SqueueResolver::check() {
  const auto answer = queue_->list({}, clock_.steady() + kCheckPatience);
  if (!answer) {
    if (answer.error().kind() == ErrorKind::kInvalidConfig) return answer.error();
    return answer.error().with_context(
        "slurmctld cannot be asked for owners now, so users stay unverified until it can");
  }
  const uid_t we = geteuid();
  // Root and SlurmUser, who owns the spool, see every job whatever PrivateData says.
  if (we == 0) return {};
  if (const auto spool = stat_path(config_.spool); spool && spool->owner == we) return {};
  const bool sees_others = std::any_of(answer->rows.numbers.begin(), answer->rows.numbers.end(),
                                       [&](const QueueRow& row) { return row.uid != we; });
  if (sees_others) return {};
  return Error(ErrorKind::kTransient,
               "squeue answers, but shows no job of another user: either there is none now, or "
               "PrivateData=jobs hides them from uid " +
                   std::to_string(we) +
                   " (then: sacctmgr modify user NAME set adminlevel=operator)");
}

}  // namespace scriptorium::slurm
