#include "schedulers/slurm/owner.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>

#include "core/base/file.h"
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
                               const Clock& clock, slurm_client::AccountNames names)
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

std::vector<const SqueueResolver::Asked*> SqueueResolver::choose_single(
    const std::vector<Asked>& asked) {
  const SteadyTime now = clock_.steady();
  if (now - round_begin_ >= kRound) {
    round_begin_ = now;
    asked_in_round_ = 0;
  }
  // New ones first: an absent one is asked for a second time before it goes, and must not keep the
  // others waiting.
  std::vector<const Asked*> in_order;
  std::vector<const Asked*> absent;
  for (const Asked& one : asked) {
    const auto found = absent_.find(one.key());
    if (found == absent_.end()) {
      in_order.push_back(&one);
    } else if (now - found->second.first >= kRound) {
      absent.push_back(&one);
    }
  }
  in_order.insert(in_order.end(), absent.begin(), absent.end());
  std::set<std::uint64_t> chosen;
  std::erase_if(in_order, [&](const Asked* one) {
    if (chosen.contains(one->id)) return false;
    if (asked_in_round_ == kSinglesARound) return true;
    ++asked_in_round_;
    chosen.insert(one->id);
    return false;
  });
  return in_order;
}

OwnerAnswer SqueueResolver::answer_of(const QueueAnswer& answer, const RowsById& rows,
                                      const Asked& asked, std::size_t& hidden) {
  const OwnerQuery& query = *asked.query;
  const bool unchanged = query.entry_unchanged && query.entry_unchanged();
  OwnerAnswer result;
  if (rows.of(asked.id).empty()) {
    if (unchanged) ++hidden;
    result.state = note_absence(asked.key(), answer.asked);
    if (result.state == OwnerAnswer::State::kUnknown && unchanged)
      result.user.unverified_reason =
          "slurmctld does not list the job, though its entry stands in the spool";
    return result;
  }
  absent_.erase(asked.key());
  const std::int64_t latest = latest_[asked.id].script_mtime_ns;
  const bool came_again = latest > query.script_mtime_ns;
  result = make_answer(rows.of(asked.id), {.job_id = asked.id,
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

std::vector<SqueueResolver::Asked> SqueueResolver::to_ask(std::span<const OwnerQuery> queries,
                                                          Answers& answers) {
  std::vector<Asked> asked;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto id = job_number(queries[i].event->job.id);
    if (!id) {
      answers[i].state = OwnerAnswer::State::kUnknown;
      continue;
    }
    LatestEntry& latest = latest_[*id];
    latest.script_mtime_ns = std::max(latest.script_mtime_ns, queries[i].script_mtime_ns);
    latest.asked = clock_.steady();
    asked.push_back({&queries[i], i, *id});
  }
  return asked;
}

Result<void> SqueueResolver::ask_singly(const std::vector<Asked>& asked, Answers& answers,
                                        std::size_t& hidden, const std::stop_token& stop,
                                        SteadyTime deadline) {
  std::map<std::uint64_t, std::pair<QueueAnswer, RowsById>> known;
  std::optional<Error> failed;
  for (const Asked* one : choose_single(asked)) {
    if (!known.contains(one->id)) {
      if (failed) continue;
      auto answer = queue_->one(one->id, stop, deadline);
      if (!answer) {
        failed = answer.error();
        continue;
      }
      const auto at = known.emplace(one->id, std::pair{*std::move(answer), RowsById{}}).first;
      at->second.second = RowsById(at->second.first.rows, {one->id});
    }
    const auto& [answer, rows] = known.at(one->id);
    answers[one->place] = answer_of(answer, rows, *one, hidden);
  }
  if (failed && known.empty()) return *std::move(failed);
  return {};
}

Result<void> SqueueResolver::ask_for_list(const std::vector<Asked>& asked,
                                          const std::set<std::uint64_t>& ids, Answers& answers,
                                          std::size_t& hidden, const std::stop_token& stop,
                                          SteadyTime deadline) {
  SteadyTime newest{};
  for (const Asked& one : asked) newest = std::max(newest, one.query->since);
  auto list = queue_->all(newest, stop, deadline);
  if (!list) return list.error();
  // What an earlier list of all jobs names needs no other one.
  if (*list) list_ = *list;
  if (list_ == nullptr) return {};
  const RowsById rows(list_->rows, ids);
  for (const Asked& one : asked) {
    if (one.query->since > list_->asked) continue;
    const auto absent = absent_.find(one.key());
    if (absent != absent_.end() && list_->asked <= absent->second.first) continue;
    answers[one.place] = answer_of(*list_, rows, one, hidden);
  }
  return {};
}

Result<std::vector<OwnerAnswer>> SqueueResolver::resolve(std::span<const OwnerQuery> queries,
                                                         std::stop_token stop,
                                                         SteadyTime deadline) {
  Answers answers(queries.size(), OwnerAnswer{.state = OwnerAnswer::State::kNotAsked});
  forget_old();
  const std::vector<Asked> asked = to_ask(queries, answers);
  if (asked.empty()) return answers;
  std::set<std::uint64_t> ids;
  for (const Asked& one : asked) ids.insert(one.id);
  std::size_t hidden = 0;
  const auto done = ids.size() <= kMostSingles
                        ? ask_singly(asked, answers, hidden, stop, deadline)
                        : ask_for_list(asked, ids, answers, hidden, stop, deadline);
  if (!done) return done.error();
  const bool any = std::any_of(answers.begin(), answers.end(), [](const OwnerAnswer& a) {
    return a.state != OwnerAnswer::State::kNotAsked;
  });
  postponed_ = !any && ids.size() > kMostSingles;
  if (!any) list_.reset();  // it has nothing more to say
  if (hidden != 0) log_hidden(hidden);
  return answers;
}

void SqueueResolver::log_hidden(std::size_t hidden) {
  log_.warning("SLURM_JOBS_HIDDEN",
               "slurmctld does not list jobs whose entries stand in the spool; give our user "
               "operator level if PrivateData hides jobs, and see that slurm_conf is that of this "
               "spool's cluster",
               {{"jobs", static_cast<std::uint64_t>(hidden)},
                {"uid", static_cast<std::uint64_t>(geteuid())}});
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
  std::vector<NumberUse> uses;
  const auto add = [&](const QueueAnswer& answer) {
    std::transform(answer.rows.begin(), answer.rows.end(), std::back_inserter(uses), use_of);
  };
  if (question.numbers.empty()) {
    const auto list = queue_->all(question.since, stop, deadline);
    if (!list) return list.error();
    if (!*list) return std::optional<std::vector<NumberUse>>();
    add(**list);
  }
  for (const std::uint64_t number : question.numbers) {
    const auto answer = queue_->one(number, stop, deadline);
    if (!answer) return answer.error();
    add(*answer);
  }
  return std::optional(std::move(uses));
}

Result<void> SqueueResolver::check() {
  const auto answer = queue_->list({}, clock_.steady() + kCheckPatience);
  if (!answer) {
    if (answer.error().kind() == ErrorKind::kInvalidConfig)
      return answer.error().with_context("resolve = \"slurmctld\"");
    return answer.error().with_context(
        "slurmctld cannot be asked for owners now, so users stay unverified until it can");
  }
  const uid_t we = geteuid();
  // Root and SlurmUser, who owns the spool, see every job whatever PrivateData says.
  if (we == 0) return {};
  if (const auto spool = stat_path(config_.spool); spool && spool->owner == we) return {};
  const bool sees_others = std::any_of(answer->rows.begin(), answer->rows.end(),
                                       [&](const QueueRow& row) { return row.uid != we; });
  if (sees_others) return {};
  return Error(ErrorKind::kTransient,
               "squeue answers, but shows no job of another user: either there is none now, or "
               "PrivateData=jobs hides them from uid " +
                   std::to_string(we) +
                   " (then: sacctmgr modify user NAME set adminlevel=operator)");
}

}  // namespace scriptorium::slurm
