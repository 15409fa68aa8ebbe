#include "checkpoint/migrate/migration.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"

namespace scriptorium::checkpoint {
namespace {

constexpr std::int64_t kMostSilence = 300 * kSecond;

std::string joined(const std::vector<std::string>& lists) {
  std::string result;
  for (const std::string& list : lists) {
    if (!list.empty()) result += (result.empty() ? "" : ",") + list;
  }
  return result;
}

const SlurmJob* find_job(const std::vector<SlurmJob>& jobs, const std::string& id) {
  const auto found = std::ranges::find(jobs, id, &SlurmJob::id);
  return found == jobs.end() ? nullptr : &*found;
}

// "4711" names all tasks of an array, "4711_3" one; those that wait are shown as "4711_[3-9]".
bool is_named(const std::string& id, const std::string& display_id, const std::string& name) {
  return id == name || display_id == name || display_id.starts_with(name + "_") ||
         display_id.starts_with(name.substr(0, name.find('_')) + "_[");
}

bool is_task(std::string_view display_id) { return display_id.find('_') != std::string_view::npos; }

// The job's request, or "-" for none, as an update sets it.
std::string as_before(const std::string& value) { return value.empty() ? "-" : value; }

}  // namespace

Migration::Migration(Slurm& slurm, const StateFolder& folder, const MigrateOptions& options,
                     Say say)
    : slurm_(slurm), folder_(folder), options_(options), say_(std::move(say)) {}

void Migration::report(const SlurmJob& job, MoveOutcome outcome, std::string reason,
                       bool is_as_asked) {
  MoveReport entry;
  entry.id = job.id;
  entry.job = job.display_id;
  entry.uid = job.uid;
  entry.from = job.nodes;
  entry.outcome = outcome;
  entry.reason = std::move(reason);
  entry.is_as_asked = is_as_asked;
  reports_.push_back(std::move(entry));
}

void Migration::save(const MoveState& state) {
  if (const auto written = folder_.put(state); !written)
    say_("job " + state.display_id + ": the state is not written: " + written.error().message());
}

Result<std::vector<SlurmJob>> Migration::list_jobs() const {
  return options_.drain_node.empty() ? slurm_.jobs(options_.jobs)
                                     : slurm_.jobs_on(options_.drain_node);
}

SlurmChanges Migration::changes_of(const MoveState& state) const {
  SlurmChanges changes;
  const std::string added =
      joined({options_.excluded_nodes, state.drained.empty() ? state.from : std::string{}});
  if (!added.empty()) changes.excluded_nodes = joined({state.excluded_nodes, added});
  changes.required_nodes = options_.nodes;
  changes.partition = options_.partition;
  changes.priority = options_.priority;
  return changes;
}

Verdict Migration::judge(const SlurmJob& job) const {
  const bool is_parallel = job.node_count != 1;
  if (is_parallel && options_.requeues_parallel_jobs && !why_not_requeueable(job))
    return {MoveMethod::kRequeue, {}};
  if (const auto why = why_not_movable(job, requeue_exit_)) return {std::nullopt, *why};
  const auto inspected = slurm_.inspect(job);
  Verdict verdict = classify(inspected);
  // Of a job that could not be inspected nothing is known, so its work is not given up.
  if (!verdict.method && inspected && options_.no_checkpoint == NoCheckpoint::kRequeue)
    verdict.method = MoveMethod::kRequeue;
  return verdict;
}

// When there is a place for its next life; "" = at once.
Result<std::string> Migration::find_place(const SlurmJob& job, const MoveState& state) const {
  if (!job.required_nodes.empty() && options_.nodes.empty()) {
    return Error{ErrorKind::kPermanent, "it was submitted for the nodes " + job.required_nodes +
                                            " only; name others with --nodelist"};
  }
  if (job.node_count != 1) return std::string{};  // it waits until there is room
  SlurmChanges changes = changes_of(state);
  if (changes.excluded_nodes.empty()) changes.excluded_nodes = state.excluded_nodes;
  changes.excluded_nodes = joined({changes.excluded_nodes, state.drained});
  auto place = slurm_.place(job, changes);
  if (!place) {
    // An earlier move may have left that.
    const std::string& excluded = state.excluded_nodes;
    return place.error().with_context(
        "there is no place for it" +
        (excluded.empty() ? std::string{} : " (it excludes the nodes " + excluded + ")"));
  }
  return std::move(place->start);
}

void Migration::plan(const SlurmJob& job, Timestamp now) {
  if (std::ranges::find(known_, job.id) != known_.end()) return;
  known_.push_back(job.id);
  const Verdict verdict = judge(job);
  if (!verdict.method) {
    const bool waits = options_.no_checkpoint == NoCheckpoint::kWait && job.is_running();
    if (waits && !options_.only_tests)
      waited_for_.push_back({job, now, verdict.reason});
    else
      report(job, MoveOutcome::kLeft, verdict.reason, false);
    return;
  }
  Planned planned{job, {}};
  MoveState& state = planned.state;
  state.job = job.id;
  state.display_id = job.display_id;
  state.uid = job.uid;
  state.from = job.nodes;
  state.drained = options_.drain_node;
  state.restarts = job.restarts;
  state.method = *verdict.method;
  state.lost_seconds = *verdict.method == MoveMethod::kRequeue ? job.run_seconds : 0;
  state.required_nodes = job.required_nodes;
  state.priority = job.priority;
  const auto before = folder_.move(job.id);
  const auto excluded = slurm_.excluded_nodes(job.id);
  if (!excluded || !before) {
    const Error& error = before ? excluded.error() : before.error();
    return report(job, MoveOutcome::kNotMoved, error.message(), false);
  }
  state.excluded_nodes = *excluded;
  if (*before && (*before)->has_temporary_changes) {  // of an earlier move
    state.excluded_nodes = (*before)->excluded_nodes;
    state.required_nodes = (*before)->required_nodes;
    planned.job.required_nodes = state.required_nodes;
  }
  const auto when = find_place(planned.job, state);
  if (!when) return report(job, MoveOutcome::kNotMoved, when.error().message(), false);
  const std::string waits = when->empty() ? "" : "it would wait in the queue until " + *when;
  if (options_.only_tests) {
    report(job, MoveOutcome::kMovable, waits, true);
    reports_.back().method = to_string(state.method);
    return;
  }
  if (!waits.empty()) say_("job " + job.display_id + ": " + waits);
  planned_.push_back(std::move(planned));
}

// Jobs that are new since the last call, and on the first one the moves that were broken off.
Result<void> Migration::collect(Timestamp now) {
  auto jobs = list_jobs();
  if (!jobs) return jobs.error();
  for (const SlurmJob& job : *jobs) {
    if (stops_()) return {};
    const bool is_meant_itself = std::ranges::any_of(options_.jobs, [&](const std::string& name) {
      return is_task(name) && is_named(job.id, job.display_id, name);
    });
    // By the id of an array only its tasks that run are meant.
    if (job.is_running() || !is_task(job.display_id) || is_meant_itself) plan(job, now);
  }
  for (const std::string& name : options_.jobs) {
    SlurmJob shown;
    shown.display_id = name;
    bool is_there = false;
    bool is_planned = std::ranges::any_of(active_, [&](const Active& active) {
      return is_named(active.move.state().job, active.move.state().display_id, name);
    });
    for (const SlurmJob& job : *jobs) {
      if (!is_named(job.id, job.display_id, name)) continue;
      is_there = true;
      is_planned = is_planned || std::ranges::find(known_, job.id) != known_.end();
    }
    if (!is_planned) {
      report(shown, MoveOutcome::kNotMoved,
             is_there ? "none of its tasks runs" : "Slurm does not know this job", false);
    }
  }
  return {};
}

bool Migration::is_meant(const MoveState& state) const {
  if (!options_.drain_node.empty()) return state.drained == options_.drain_node;
  return std::ranges::any_of(options_.jobs, [&](const std::string& name) {
    return is_named(state.job, state.display_id, name);
  });
}

Result<void> Migration::prepare(Timestamp now) {
  auto exit_codes = slurm_.requeue_exit();
  if (!exit_codes) return exit_codes.error();
  requeue_exit_ = *exit_codes;
  if (!options_.drain_node.empty()) {
    if (const auto node = slurm_.node(options_.drain_node); !node) return node.error();
    auto lock = folder_.lock("node-" + options_.drain_node);
    if (!lock) return lock.error().with_context("node " + options_.drain_node);
    node_lock_ = *std::move(lock);
  }
  for (MoveState& state : folder_.moves()) {
    if (!is_meant(state) || state.stage == MoveStage::kEnded || options_.only_tests) continue;
    auto seen = slurm_.jobs({state.job});
    if (!seen) return seen.error();
    const SlurmJob* job = find_job(*seen, state.job);
    // It was not signalled, or not saved: it is classified once more.
    if (job != nullptr && job->is_running() && state.stage <= MoveStage::kSignalled &&
        job->restarts == state.restarts)
      continue;
    auto lock = folder_.lock("job-" + state.job);
    if (!lock) return lock.error().with_context("job " + state.display_id);
    known_.push_back(state.job);
    say_("job " + state.display_id + ": its move is continued");
    active_.push_back({Move(std::move(state), options_.timeout, options_.holds), *std::move(lock)});
  }
  if (auto collected = collect(now); !collected) return collected;
  if (options_.drain_node.empty() || options_.only_tests || stops_()) return {};
  if (auto drained = drain(); !drained) return drained;
  return collect(now);  // jobs that were started meanwhile
}

Result<void> Migration::drain() {
  auto node = slurm_.node(options_.drain_node);
  if (!node) return node.error();
  if (node->is_drained()) return {};  // it keeps its reason
  const std::string reason = options_.reason.empty() ? "scriptorium-migrate" : options_.reason;
  if (auto written = folder_.put(DrainState{options_.drain_node, reason}); !written)
    return written.error();
  auto drained = slurm_.drain(options_.drain_node, reason);
  if (!drained) {
    folder_.remove_drain(options_.drain_node);
    return Error{drained.error().kind(),
                 "node " + options_.drain_node +
                     " cannot be drained: " + drained.error().message() +
                     " (administrators and operators of Slurm can; others name their jobs)"};
  }
  say_("node " + options_.drain_node + ": drained");
  return {};
}

void Migration::begin_next() {
  while (!planned_.empty() && active_.size() < static_cast<std::size_t>(options_.moves_at_a_time)) {
    Planned planned = std::move(planned_.front());
    planned_.erase(planned_.begin());
    auto lock = folder_.lock("job-" + planned.job.id);
    if (!lock) {
      report(planned.job, MoveOutcome::kNotMoved, lock.error().message(), false);
      continue;
    }
    active_.push_back(
        {Move(std::move(planned.state), options_.timeout, options_.holds), *std::move(lock)});
  }
}

// The job may have changed since it was classified, so it is inspected again.
void Migration::order_signal(Active& active, const SlurmJob& job) {
  Move& move = active.move;
  if (const auto written = folder_.put(move.state()); !written)
    return move.failed("the state cannot be written: " + written.error().message());
  if (move.state().method == MoveMethod::kRequeue) {
    if (const auto done = slurm_.requeue(job.id); !done) return move.failed(done.error().message());
    return say_("job " + job.display_id + ": requeued");
  }
  const Verdict verdict = classify(slurm_.inspect(job));
  if (!verdict.method) return move.failed(verdict.reason);
  move.state().method = *verdict.method;
  if (const auto done = slurm_.signal(job.id); !done) return move.failed(done.error().message());
  say_("job " + job.display_id + ": signalled on " + job.nodes);
}

void Migration::order_release(Active& active, const char* start) {
  Move& move = active.move;
  MoveState& state = move.state();
  SlurmChanges changes = changes_of(state);
  state.has_temporary_changes = !changes.excluded_nodes.empty() ||
                                !changes.required_nodes.empty() || !changes.priority.empty();
  save(state);
  if (options_.holds) {
    if (const auto held = slurm_.hold(state.job); !held) return move.failed(held.error().message());
  }
  changes.start = start;
  if (const auto done = slurm_.change(state.job, changes); !done) {
    state.has_temporary_changes = false;
    return move.failed("it is saved, but could not be changed for another node: " +
                       done.error().message() + ". Slurm runs it again within two minutes");
  }
  say_("job " + state.display_id + ": saved, " + (options_.holds ? "held" : "to be run again"));
}

void Migration::finish(Active& active) {
  const Move& move = active.move;
  MoveState state = move.state();
  // The next run waits for it again.
  if (move.outcome() == MoveOutcome::kWaiting) state.stage = MoveStage::kReleased;
  MoveReport entry;
  entry.id = state.job;
  entry.job = state.display_id;
  entry.uid = state.uid;
  entry.from = state.from;
  entry.to = state.to;
  entry.method = to_string(state.method);
  entry.outcome = move.outcome();
  entry.reason = move.reason();
  entry.downtime_seconds = move.downtime_seconds();
  entry.lost_seconds = state.lost_seconds;
  entry.is_as_asked = entry.outcome == MoveOutcome::kMoved || entry.outcome == MoveOutcome::kHeld ||
                      entry.outcome == MoveOutcome::kRequeued;
  if (state.has_temporary_changes && !options_.priority.empty() && entry.is_as_asked &&
      !options_.holds) {
    SlurmChanges priority;
    priority.priority = state.priority;
    if (const auto done = slurm_.change(state.job, priority); !done)
      say_("job " + state.display_id +
           ": its priority is not as before: " + done.error().message());
  }
  const SlurmChanges changes = changes_of(state);
  const bool has_ended = entry.outcome == MoveOutcome::kEnded;
  if (state.has_temporary_changes && !has_ended &&
      (!changes.excluded_nodes.empty() || !changes.required_nodes.empty())) {
    // Slurm changes them only while a job waits.
    save(state);
    if (!entry.reason.empty()) entry.reason += "; ";
    const std::string excludes = changes.excluded_nodes.empty()
                                     ? std::string{}
                                     : "excludes the nodes " + changes.excluded_nodes;
    const std::string needs = changes.required_nodes.empty()
                                  ? std::string{}
                                  : "needs the nodes " + changes.required_nodes;
    entry.reason += "it " + excludes + (excludes.empty() || needs.empty() ? "" : " and ") + needs +
                    " until it waits in the queue again and scriptorium-migrate --undo " +
                    state.display_id + " is run";
  } else if (entry.outcome == MoveOutcome::kWaiting) {
    save(state);
  } else {
    folder_.remove_move(state.job);
  }
  reports_.push_back(std::move(entry));
}

void Migration::advance(Active& active, const std::vector<SlurmJob>& seen, Timestamp now) {
  Move& move = active.move;
  const SlurmJob* job = find_job(seen, move.state().job);
  const MoveStage before = move.state().stage;
  switch (move.next(job == nullptr ? std::nullopt : std::optional(*job), now)) {
    case Move::Order::kSignal: order_signal(active, *job); break;
    case Move::Order::kRelease: order_release(active, "now"); break;
    case Move::Order::kInspect: move.inspected(slurm_.inspect(*job), now); break;
    case Move::Order::kWait:
    case Move::Order::kEnd: break;
  }
  if (move.state().stage != before && move.state().stage != MoveStage::kEnded) save(move.state());
}

void Migration::check_waited_for(const std::vector<SlurmJob>& seen, Timestamp now) {
  std::erase_if(waited_for_, [&](const WaitedFor& waited) {
    const SlurmJob* job = find_job(seen, waited.job.id);
    if (job == nullptr || job->has_ended() || job->nodes != waited.job.nodes) {
      report(waited.job, MoveOutcome::kEnded, "it is not on its node any more", true);
      return true;
    }
    if (now.nanoseconds - waited.since.nanoseconds < options_.timeout.count() * kSecond)
      return false;
    report(waited.job, MoveOutcome::kLeft,
           "it has not ended within " +
               format_seconds(static_cast<double>(options_.timeout.count())) + "; " + waited.reason,
           false);
    return true;
  });
}

Result<bool> Migration::step(Timestamp now) {
  begin_next();
  std::vector<std::string> ids;
  for (const Active& active : active_) ids.push_back(active.move.state().job);
  for (const WaitedFor& waited : waited_for_) ids.push_back(waited.job.id);
  if (ids.empty()) return false;
  const auto seen = slurm_.jobs(ids);
  if (!seen) {
    if (!silent_since_) silent_since_ = now;
    if (now.nanoseconds - silent_since_->nanoseconds < kMostSilence) return true;
    return Error{ErrorKind::kTransient, "Slurm does not answer: " + seen.error().message()};
  }
  silent_since_.reset();
  for (Active& active : active_) advance(active, *seen, now);
  std::erase_if(active_, [&](Active& active) {
    if (active.move.state().stage != MoveStage::kEnded) return false;
    finish(active);
    return true;
  });
  check_waited_for(*seen, now);
  return !active_.empty() || !planned_.empty() || !waited_for_.empty();
}

void Migration::break_off() {
  for (const Planned& planned : planned_)
    report(planned.job, MoveOutcome::kBrokenOff, "its move was not begun", false);
  for (const WaitedFor& waited : waited_for_)
    report(waited.job, MoveOutcome::kLeft, waited.reason, false);
  planned_.clear();
  waited_for_.clear();
  for (Active& active : active_) {
    if (active.move.broken_off() == Move::Order::kRelease) order_release(active, "now+2");
    const MoveState& state = active.move.state();
    SlurmJob job;
    job.display_id = state.display_id;
    job.uid = state.uid;
    job.nodes = state.from;
    const bool is_signalled = state.stage == MoveStage::kSignalled;
    report(job, MoveOutcome::kBrokenOff,
           is_signalled ? "it was signalled, and is run again when it is saved"
                        : "it is saved, and runs again when there is room",
           false);
  }
  active_.clear();
}

void Migration::undo_move(const MoveState& state) {
  SlurmJob job;
  job.id = state.job;
  job.display_id = state.display_id;
  job.uid = state.uid;
  const auto lock = folder_.lock("job-" + state.job);
  const auto seen = slurm_.jobs({state.job});
  if (!lock || !seen) {
    const Error& error = lock ? seen.error() : lock.error();
    return report(job, MoveOutcome::kLeft, error.message(), false);
  }
  const SlurmJob* now = find_job(*seen, state.job);
  if (now != nullptr && !now->has_ended() && state.has_temporary_changes) {
    SlurmChanges changes;
    changes.excluded_nodes = as_before(state.excluded_nodes);
    changes.required_nodes = as_before(state.required_nodes);
    if (!now->is_pending()) {
      return report(*now, MoveOutcome::kLeft,
                    "Slurm changes the nodes that a job excludes or needs only while it waits; try "
                    "again when it waits in the queue",
                    false);
    }
    if (const auto done = slurm_.change(state.job, changes); !done)
      return report(*now, MoveOutcome::kLeft, done.error().message(), false);
  }
  folder_.remove_move(state.job);
  report(job, MoveOutcome::kUndone, "it is as before the move", true);
}

Result<void> Migration::undo_drain() {
  const auto lock = folder_.lock("node-" + options_.drain_node);
  if (!lock) return lock.error().with_context("node " + options_.drain_node);
  const auto drained = folder_.drain(options_.drain_node);
  if (!drained) return drained.error();
  if (!*drained) {
    return Error{
        ErrorKind::kPermanent,
        "node " + options_.drain_node + " was not drained by this command: it remains as it is"};
  }
  const auto node = slurm_.node(options_.drain_node);
  if (!node) return node.error();
  if (node->is_drained() && node->reason != (*drained)->reason) {
    return Error{ErrorKind::kPermanent, "node " + options_.drain_node +
                                            " is drained for another reason meanwhile (" +
                                            printable(node->reason) + "): it remains as it is"};
  }
  if (node->is_drained()) {
    if (auto resumed = slurm_.resume(options_.drain_node); !resumed) return resumed;
    say_("node " + options_.drain_node + ": given back");
  }
  folder_.remove_drain(options_.drain_node);
  return {};
}

Result<void> Migration::undo() {
  for (const MoveState& state : folder_.moves()) {
    if (is_meant(state)) undo_move(state);
  }
  for (const std::string& name : options_.jobs) {
    if (std::ranges::any_of(reports_, [&](const MoveReport& report) {
          return is_named(report.id, report.job, name);
        }))
      continue;
    SlurmJob job;
    job.display_id = name;
    report(job, MoveOutcome::kUndone, "nothing is left of a move of it", true);
  }
  if (!options_.drain_node.empty()) return undo_drain();
  return {};
}

}  // namespace scriptorium::checkpoint
