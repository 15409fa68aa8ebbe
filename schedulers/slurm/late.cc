#include "schedulers/slurm/late.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/text.h"
#include "schedulers/slurm/owner.h"
#include "schedulers/slurm/sacct.h"
#include "schedulers/slurm/site.h"
#include "schedulers/slurm_client/command.h"

namespace scriptorium::slurm {
namespace {

using State = OwnerAnswer::State;

// The last line is the reason; those before it say what was tried.
std::string last_line(std::string_view text) {
  text = trim_end(text, "\n");
  return printable(text.substr(text.rfind('\n') + 1), 200);  // npos + 1 is 0
}

// Two captures of one job, of which the later is the longer.
bool one_job(const Event& one, const Event& other) {
  return one.supersedes == other.id || other.supersedes == one.id;
}

}  // namespace

LateResolver::LateResolver(std::shared_ptr<Queue> queue, SlurmConfig config, Logger& log,
                           const Clock& clock, slurm_client::AccountNames names)
    : queue_(std::move(queue)),
      config_(std::move(config)),
      log_(log),
      clock_(clock),
      names_(clock, std::move(names)) {}

std::vector<LateResolver::Open> LateResolver::open_queries(
    std::span<const OwnerQuery> queries, std::vector<OwnerAnswer>& answers) const {
  std::vector<Open> open;
  std::map<std::uint64_t, std::vector<const OwnerQuery*>> of_one_id;
  for (const OwnerQuery& query : queries) {
    if (const auto id = job_number(query.event->job.id)) of_one_id[*id].push_back(&query);
  }
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const OwnerQuery& query = queries[i];
    const auto id = job_number(query.event->job.id);
    const auto has_twin = [&] {
      const auto& others = of_one_id.at(*id);
      return std::any_of(others.begin(), others.end(), [&](const OwnerQuery* other) {
        return other->script_mtime_ns != query.script_mtime_ns &&
               times_are_alike(other->script_mtime_ns, query.script_mtime_ns) &&
               !one_job(*other->event, *query.event);
      });
    };
    // Only times distinguish two jobs of one id, so where they do not, nothing ever will.
    if (!id || query.event->user.unverified_reason == kIdCameAgain || has_twin()) {
      answers[i].state = State::kUnknown;
      continue;
    }
    open.push_back({.place = i,
                    .entry = {.job_id = *id, .script_mtime_ns = query.script_mtime_ns},
                    .since = query.since});
  }
  return open;
}

bool LateResolver::settle(OwnerAnswer& answer, OwnerAnswer&& found) {
  if (found.state != State::kFound) return false;
  answer = std::move(found);
  names_.add_to(answer.user);
  return true;
}

Result<void> LateResolver::ask_queue(std::vector<Open>& open, std::vector<OwnerAnswer>& answers,
                                     const std::stop_token& stop, SteadyTime deadline) {
  std::set<std::uint64_t> ids;
  SteadyTime newest{};
  SteadyTime oldest = SteadyTime::max();
  for (const Open& query : open) {
    ids.insert(query.entry.job_id);
    newest = std::max(newest, query.since);
    oldest = std::min(oldest, query.since);
  }
  const auto read = [&](const QueueAnswer& answer, const std::set<std::uint64_t>& about) {
    const RowsById rows(answer.rows, about);
    std::erase_if(open, [&](Open& query) {
      const std::uint64_t id = query.entry.job_id;
      if (!about.contains(id)) return false;
      // A task's own number does not count: it was given out when the task began, long after the
      // submit time of its row.
      const auto& of_job = rows.of(id);
      if (!of_job.empty() && of_job.front()->array_job_id == id &&
          settle(answers[query.place], make_answer(of_job, query.entry)))
        return true;
      query.not_in_queue = query.since <= answer.asked;
      return false;
    });
  };
  if (ids.size() > SqueueResolver::kSinglesARound) {
    auto list = queue_->all(newest, stop, deadline);
    // What an earlier list names needs no other one.
    if (list && !*list) list = queue_->all(oldest, stop, deadline);
    if (!list) return list.error();
    if (*list) read(**list, ids);
    return {};
  }
  for (const std::uint64_t id : ids) {
    const auto answer = queue_->one(id, stop, deadline);
    if (!answer) return answer.error();
    read(*answer, {id});
  }
  return {};
}

LateResolver::Accounted LateResolver::ask(std::span<const std::uint64_t> ids,
                                          const std::stop_token& stop, SteadyTime deadline) {
  Accounted result;
  auto program = find_slurm_command(config_, "sacct");
  if (!program) {
    result.is_there = false;
    return result;
  }
  if (runner_.stuck() != 0) {
    result.failed = Error(ErrorKind::kTransient, "sacct: one that was killed has not ended yet");
    return result;
  }
  const auto answer =
      runner_.run({*std::move(program), sacct_arguments(ids),
                   slurm_client::environment(slurm_conf_of(config_), {"SLURM_TIME_FORMAT=%s"})},
                  stop, deadline);
  if (!answer) {
    result.failed = answer.error();
    result.heavy = answer.error().message().find("is larger than") != std::string::npos;
    result.late = !stop.stop_requested() && std::chrono::steady_clock::now() >= deadline;
    return result;
  }
  if (answer->status != 0) {
    if (slurm_client::says_no_accounting(answer->error)) {
      result.is_there = false;
    } else {
      result.failed =
          Error(ErrorKind::kTransient, "sacct: exit status " + std::to_string(answer->status) +
                                           ": " + last_line(answer->error));
    }
    return result;
  }
  auto rows = parse_sacct(answer->output, ids);
  if (rows) {
    result.rows = *std::move(rows);
  } else {
    result.failed = rows.error();
  }
  return result;
}

std::vector<std::uint64_t> LateResolver::ids_in_turn(const std::vector<Open>& open) const {
  std::vector<std::uint64_t> ids;
  for (const Open& query : open) ids.push_back(query.entry.job_id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::rotate(ids.begin(), std::lower_bound(ids.begin(), ids.end(), begin_at_), ids.end());
  ids.resize(std::min(ids.size(), kARound));
  return ids;
}

void LateResolver::close(std::span<const std::uint64_t> about, const std::vector<QueueRow>& rows,
                         std::vector<Open>& open, std::vector<OwnerAnswer>& answers) {
  std::erase_if(open, [&](const Open& query) {
    if (std::find(about.begin(), about.end(), query.entry.job_id) == about.end()) return false;
    if (!settle(answers[query.place], accounted_owner(rows, query.entry)) && query.not_in_queue)
      answers[query.place].state = State::kUnknown;
    return true;
  });
}

Result<bool> LateResolver::ask_accounting(std::vector<Open>& open,
                                          std::vector<OwnerAnswer>& answers,
                                          const std::stop_token& stop, SteadyTime deadline) {
  const SteadyTime begun = std::chrono::steady_clock::now();
  const SteadyTime until = begun + (deadline - clock_.steady());
  const std::vector<std::uint64_t> ids = ids_in_turn(open);
  bool answered = false;
  std::optional<Error> failed;
  for (std::span<const std::uint64_t> left(ids); !left.empty();) {
    const auto about = left.first(std::min(left.size(), at_once_));
    const Accounted accounted = ask(about, stop, until);
    if (!accounted.is_there) {
      log_no_accounting();
      close(left, {}, open, answers);
      break;
    }
    if (accounted.failed) {
      const bool alone = about.size() == 1;
      begin_at_ = about.front() + (alone ? 1 : 0);
      if (accounted.heavy || accounted.late) at_once_ = std::max<std::size_t>(about.size() / 2, 1);
      if (!accounted.heavy) {
        failed = accounted.failed;
        break;
      }
      if (alone) {
        close(about, {}, open, answers);
        left = left.subspan(1);
      }
      continue;
    }
    answered = true;
    close(about, accounted.rows, open, answers);
    begin_at_ = about.back() + 1;
    left = left.subspan(about.size());
  }
  const SteadyTime::duration took = std::chrono::steady_clock::now() - begun;
  next_round_ = clock_.steady() + std::min<SteadyTime::duration>(took * kPause, kLongestPause);
  if (!failed) {
    at_once_ = std::min(at_once_ * 2, kAtOnce);
    logged_.forget("failed");
    return answered;
  }
  if (!stop.stop_requested()) log_failed(*failed);
  if (answered) return true;
  return *std::move(failed);
}

void LateResolver::log_no_accounting() {
  if (!logged_.allows("no accounting", clock_.steady())) return;
  log_.info("SLURM_NO_ACCOUNTING",
            "this Slurm keeps no account of its jobs, or there is no sacct: whose a job was that "
            "slurmctld has forgotten cannot be told");
}

void LateResolver::log_failed(const Error& error) {
  if (!logged_.allows("failed", clock_.steady())) return;
  log_.warning("SLURM_SACCT_FAILED",
               "accounting cannot be asked whose jobs were that slurmctld has forgotten; they stay "
               "unverified until it can",
               {{"reason", error.message()}});
}

Result<std::vector<OwnerAnswer>> LateResolver::resolve(std::span<const OwnerQuery> queries,
                                                       std::stop_token stop, SteadyTime deadline) {
  std::vector<OwnerAnswer> answers(queries.size(), OwnerAnswer{.state = State::kNotAsked});
  std::vector<Open> open = open_queries(queries, answers);
  if (open.empty()) return answers;
  // A slurmctld that hangs must leave time to ask accounting.
  const SteadyTime now = clock_.steady();
  const auto queue = ask_queue(open, answers, stop, now + (deadline - now) / 2);
  if (open.empty()) return answers;
  Result<bool> accounting = false;
  if (clock_.steady() >= next_round_) accounting = ask_accounting(open, answers, stop, deadline);
  if (queue || accounting.value_or(false) ||
      std::any_of(answers.begin(), answers.end(),
                  [](const OwnerAnswer& a) { return a.state != State::kNotAsked; })) {
    return answers;
  }
  if (accounting) return queue.error();
  return Error(ErrorKind::kTransient,
               queue.error().message() + "; " + accounting.error().message());
}

}  // namespace scriptorium::slurm
