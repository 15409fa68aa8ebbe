#include "core/journal/shared_state.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace scriptorium::journal {

const SinkRow* Shared::sink(SinkId id) const {
  const auto it = sinks.find(id);
  return it == sinks.end() ? nullptr : it->second.get();
}

bool Shared::may_have_event(const SinkRow& row, std::uint64_t after) const {
  std::uint64_t from = std::max(after, row.cursor);
  if (const auto it = scanned.find(row.id); it != scanned.end() && from >= it->second.from)
    from = std::max(from, it->second.to);
  return row.last_wanted > from;
}

std::optional<std::uint64_t> Shared::replaced_by(const Event& event) const {
  if (event.user.verified) return std::nullopt;
  const auto found = replaced.find(event.id);
  return found == replaced.end() ? std::nullopt : std::optional(found->second);
}

bool Shared::is_replaced(SinkId id, const Event& event) const {
  const auto by = replaced_by(event);
  const SinkRow* const row = sink(id);
  return by && row != nullptr && row->wants(event.kind, *by, 0);
}

UnresolvedCount Shared::unresolved(const std::string& source) const {
  const auto it = sources.find(source);
  return it == sources.end() ? UnresolvedCount{} : it->second;
}

std::size_t Shared::question_count(const std::string& source) const {
  const auto it = questions.find(source);
  return it == questions.end() ? 0 : it->second;
}

void Shared::change_charges(const std::map<std::string, std::int64_t>& changes) {
  for (const auto& [owner, change] : changes) {
    std::uint64_t& charge = charges[owner];
    const auto amount = static_cast<std::uint64_t>(std::abs(change));
    charge = change < 0 ? charge - std::min(charge, amount) : charge + amount;
    if (charge == 0) charges.erase(owner);
  }
  if (changes.empty()) return;
  largest_charge = 0;
  for (const auto& [owner, charge] : charges) largest_charge = std::max(largest_charge, charge);
}

void Shared::replace_sinks(SinkRows rows) {
  std::erase_if(scanned, [&](const auto& entry) {
    const auto now = rows.find(entry.first);
    const SinkRow* const old = sink(entry.first);
    return now == rows.end() || old == nullptr || old->kinds != now->second->kinds;
  });
  sinks = std::move(rows);
  std::uint64_t passed = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [id, row] : sinks) {
    if (row->registered) passed = std::min(passed, row->cursor);
  }
  if (passed != std::numeric_limits<std::uint64_t>::max()) events.drop_until(passed);
}

}  // namespace scriptorium::journal
