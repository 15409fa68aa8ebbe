#include "core/journal/sink_ledger.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace scriptorium::journal {
namespace {

void subtract(std::uint64_t& from, std::uint64_t amount) { from -= std::min(from, amount); }

void add_pending(SinkRow& row, const EventSummary& event) {
  ++row.pending;
  row.pending_bytes += event.bytes;
  if (event.in_archive) ++row.in_archive;
  row.last_wanted = event.seq;
}

void add_parked(SinkRow& row, const EventSummary& event) {
  ++row.parked;
  row.parked_bytes += event.bytes;
}

void subtract_parked(SinkRow& row, const EventSummary& event) {
  subtract(row.parked, 1);
  subtract(row.parked_bytes, event.bytes);
  if (event.in_archive) subtract(row.in_archive, 1);
}

}  // namespace

const SinkRow* SinkLedger::find(SinkId id) const {
  const auto it = now_.rows.find(id);
  return it == now_.rows.end() ? nullptr : it->second.get();
}

const SinkRow* SinkLedger::find_named(const std::string& name) const {
  const auto it = std::find_if(now_.rows.begin(), now_.rows.end(),
                               [&](const auto& sink) { return sink.second->name == name; });
  return it == now_.rows.end() ? nullptr : it->second.get();
}

SinkRow& SinkLedger::change(SinkId id) {
  std::shared_ptr<SinkRow>& row = now_.rows.at(id);
  const auto old = before_.rows.find(id);
  if (old != before_.rows.end() && old->second == row) row = std::make_shared<SinkRow>(*row);
  return *row;
}

std::vector<const SinkRow*> SinkLedger::to_store() const {
  std::vector<const SinkRow*> changed;
  const SinkRow fresh;
  for (const auto& [id, row] : now_.rows) {
    const auto it = before_.rows.find(id);
    const SinkRow& old = it == before_.rows.end() ? fresh : *it->second;
    if (row->cursor != old.cursor || row->acknowledged != old.acknowledged ||
        row->last_success != old.last_success)
      changed.push_back(row.get());
  }
  return changed;
}

void SinkLedger::add(SinkRow row) {
  const SinkId id = row.id;
  start_after(row.cursor);
  for (const Absence& absence : row.absences)
    start_after(absence.upto == Absence::kOpen ? absence.after : absence.upto);
  now_.rows[id] = std::make_shared<SinkRow>(std::move(row));
}

void SinkLedger::count_exception(SinkId sink, const EventSummary& event, State state) {
  SinkRow& row = change(sink);
  if (state == State::kParked) {
    add_parked(row, event);
    if (event.in_archive) ++row.in_archive;
  }
  if (state == State::kDead) ++row.dead;
  if (event.seq > row.cursor) row.ahead[event.seq] = {state, true};
}

std::uint64_t SinkLedger::passed_by_all() const {
  std::uint64_t lowest = now_.last_seq;
  for (const auto& [id, row] : now_.rows) lowest = std::min(lowest, row->cursor);
  return lowest;
}

void SinkLedger::start_after(std::uint64_t seq) { now_.last_seq = std::max(now_.last_seq, seq); }

void SinkLedger::count_pending(const EventSummary& event) {
  for (const auto& [id, row] : now_.rows) {
    if (row->is_pending(event)) add_pending(change(id), event);
  }
}

void SinkLedger::moved_to_archive(const EventSummary& event, const std::vector<SinkId>& parked_by) {
  for (const auto& [id, row] : now_.rows) {
    if (row->is_pending(event)) ++change(id).in_archive;
  }
  for (const SinkId id : parked_by) {
    if (now_.rows.contains(id)) ++change(id).in_archive;
  }
}

std::vector<SinkId> SinkLedger::withdrawn(const EventSummary& event,
                                          const std::map<SinkId, State>& exceptions) {
  std::vector<SinkId> owed;
  for (const auto& [id, unchanged] : now_.rows) {
    const auto exception = exceptions.find(id);
    const bool pending = unchanged->is_pending(event);
    if (!pending && exception == exceptions.end() && !unchanged->ahead.contains(event.seq))
      continue;
    SinkRow& row = change(id);
    if (pending) {
      subtract(row.pending, 1);
      subtract(row.pending_bytes, event.bytes);
      if (event.in_archive) subtract(row.in_archive, 1);
    } else if (exception != exceptions.end() && exception->second == State::kParked) {
      subtract_parked(row, event);
    } else if (exception != exceptions.end() && exception->second == State::kDead) {
      subtract(row.dead, 1);
    }
    if (row.is_absent() && (pending || exception != exceptions.end())) owed.push_back(id);
    row.ahead.erase(event.seq);
  }
  return owed;
}

bool SinkLedger::is_kept_for_absent(const EventSummary& event) const {
  return std::any_of(now_.rows.begin(), now_.rows.end(), [&](const auto& sink) {
    return sink.second->is_absent() && sink.second->is_pending(event);
  });
}

std::uint64_t SinkLedger::lowest_cursor() const {
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t lowest = kNone;
  for (const auto& [id, row] : now_.rows) {
    if (!row->is_absent()) lowest = std::min(lowest, row->cursor);
  }
  return lowest == kNone ? 0 : lowest;
}

SinkLedger::Settled SinkLedger::settle(SinkId sink, const EventSummary& event, Outcome outcome,
                                       std::optional<State> stored, Timestamp now) {
  SinkRow& row = change(sink);
  const bool beyond = event.seq > row.cursor;
  std::optional<State> before = stored;
  if (beyond) {
    const auto it = row.ahead.find(event.seq);
    before = it == row.ahead.end() ? std::nullopt : std::optional(it->second.state);
  } else if (!before) {
    return {};  // acknowledged before
  }
  if (before && before != State::kParked) return {};  // settled before
  if (!before && row.wants(event.kind, event.seq, event.target)) {
    subtract(row.pending, 1);
    subtract(row.pending_bytes, event.bytes);
    if (event.in_archive && outcome != Outcome::kRetry) subtract(row.in_archive, 1);
  }
  if (before && outcome != Outcome::kRetry) subtract_parked(row, event);
  switch (outcome) {
    case Outcome::kAcknowledged:
      ++row.acknowledged;
      row.last_success = now;
      if (beyond) row.ahead[event.seq] = {State::kSettled, false};
      return {before ? ExceptionChange::kErase : ExceptionChange::kNone, true};
    case Outcome::kRetry:
      if (!before) add_parked(row, event);
      if (beyond) row.ahead[event.seq] = {State::kParked, true};
      return {ExceptionChange::kPark, false};
    case Outcome::kRejected:
      ++row.dead;
      if (beyond) row.ahead[event.seq] = {State::kDead, true};
      return {ExceptionChange::kBury, false};
  }
  return {};
}

SinkLedger::Passed SinkLedger::pass(SinkId sink, std::uint64_t cursor) {
  SinkRow& row = change(sink);
  const std::uint64_t old = row.cursor;
  row.cursor = std::clamp(cursor, old, std::max(old, now_.last_seq));
  Passed passed{.erase_after = std::nullopt, .upto = row.cursor, .to_store = {}};
  const auto end = row.ahead.upper_bound(row.cursor);
  for (auto it = row.ahead.begin(); it != end; it = row.ahead.erase(it)) {
    if (it->second.state == State::kSettled && it->second.stored) passed.erase_after = old;
  }
  for (auto& [seq, ahead] : row.ahead) {
    if (ahead.state != State::kSettled || ahead.stored) continue;
    passed.to_store.push_back(seq);
    ahead.stored = true;
  }
  return passed;
}

void SinkLedger::park(SinkId sink, const EventSummary& event) {
  SinkRow& row = change(sink);
  add_parked(row, event);
  if (event.in_archive) ++row.in_archive;
  ++row.generation;
  if (event.seq > row.cursor) row.ahead[event.seq] = {State::kParked, true};
}

void SinkLedger::retry_dead(SinkId sink, const EventSummary& event) {
  subtract(change(sink).dead, 1);
  park(sink, event);
}

bool SinkLedger::discard_dead(SinkId sink, std::uint64_t seq) {
  SinkRow& row = change(sink);
  subtract(row.dead, 1);
  if (seq <= row.cursor) return false;
  row.ahead[seq] = {State::kSettled, true};
  return true;
}

SinkLedger::Registered SinkLedger::register_sink(const std::string& name,
                                                 const std::vector<std::string>& kinds,
                                                 SinkId id_if_new) {
  Registered result;
  if (const SinkRow* found = find_named(name)) {
    result.id = found->id;
  } else {
    result.id = id_if_new;
    result.is_new = true;
    now_.rows[result.id] = std::make_shared<SinkRow>();
  }
  SinkRow& row = change(result.id);
  row.id = result.id;
  row.name = name;
  row.registered = true;
  if (row.is_absent()) {
    result.returned = true;
    row.absences.back().upto = now_.last_seq;
    std::erase_if(row.absences,
                  [&](const Absence& a) { return a.upto <= std::max(a.after, row.cursor); });
  }
  std::string joined = join_kinds(kinds);
  if (result.is_new || row.kinds != joined) {
    result.kinds_changed = true;
    row.kinds = std::move(joined);
    row.patterns = kinds;
  }
  return result;
}

std::vector<SinkId> SinkLedger::retire_others(const std::vector<std::string>& configured) {
  std::vector<SinkId> retired;
  for (const auto& [id, unchanged] : now_.rows) {
    if (std::find(configured.begin(), configured.end(), unchanged->name) != configured.end())
      continue;
    SinkRow& row = change(id);
    row.registered = false;
    if (row.is_absent()) continue;
    row.absences.push_back({.after = now_.last_seq});
    retired.push_back(id);
  }
  return retired;
}

std::vector<SinkId> SinkLedger::idle() const {
  std::vector<SinkId> ids;
  for (const auto& [id, row] : now_.rows) {
    const bool waits_for_nothing =
        row->pending == 0 && std::ranges::all_of(row->ahead, [](const auto& ahead) {
          return ahead.second.state == State::kDead;
        });
    if (!row->is_absent() && row->cursor < now_.last_seq && waits_for_nothing) ids.push_back(id);
  }
  return ids;
}

void SinkLedger::pass_idle(SinkId id) {
  SinkRow& row = change(id);
  row.cursor = now_.last_seq;
  row.ahead.clear();
}

void SinkLedger::restart_count(SinkId id, std::uint64_t parked_in_archive) {
  SinkRow& row = change(id);
  row.pending = row.pending_bytes = row.last_wanted = 0;
  row.in_archive = parked_in_archive;
}

void SinkLedger::recount(SinkId id, const EventSummary& event) {
  SinkRow& row = change(id);
  if (row.is_pending(event)) add_pending(row, event);
}

}  // namespace scriptorium::journal
