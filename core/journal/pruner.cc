#include "core/journal/pruner.h"

#include <set>

#include "core/base/fault_point.h"

namespace scriptorium::journal {
namespace {

constexpr std::int64_t kChunk = 5000;        // events removed in one transaction
constexpr std::int64_t kUrgentChunk = 1000;  // the same, beside something that a caller waits for
// Bytes of settled events after which they are removed: their pages are then still in SQLite's
// cache, from settling them.
constexpr std::uint64_t kSettledBytes = 24U << 20;

}  // namespace

void Pruner::begin() {
  before_ = now_;
  reconsidered_.clear();
}

void Pruner::rollback(SteadyTime now) {
  now_ = before_;
  if (!deferred_since_ && ledger_.lowest_cursor() > now_.upto) deferred_since_ = now;
}

void Pruner::prune(Extent extent, bool urgent, SteadyTime now) {
  const std::uint64_t lowest = ledger_.lowest_cursor();
  FAULT_POINT("journal.before_prune");
  prune_reconsidered(lowest);
  now_.more = extent == Extent::kReconsidered && lowest > now_.upto;
  if (extent == Extent::kReconsidered) return;
  if (extent == Extent::kIfMuch && lowest > now_.upto &&
      lowest - now_.upto < static_cast<std::uint64_t>(kChunk) && settled_bytes_ < kSettledBytes) {
    if (!deferred_since_) deferred_since_ = now;
    return;
  }
  deferred_since_.reset();
  settled_bytes_ = 0;
  if (lowest > now_.upto) prune_chunk(lowest, urgent ? kUrgentChunk : kChunk);
}

void Pruner::prune_reconsidered(std::uint64_t lowest) {
  for (const std::uint64_t seq : reconsidered_) {
    if (seq > lowest || exceptions_.any_of(seq)) continue;
    const auto event = events_.find(seq);
    if (event && !ledger_.is_kept_for_absent(*event)) events_.remove(seq);
  }
}

void Pruner::prune_chunk(std::uint64_t lowest, std::int64_t most) {
  const auto rows = events_.prunable(now_.upto, lowest, most);
  std::set<std::uint64_t> held;
  for (const auto& row : rows) {
    if (ledger_.is_kept_for_absent(row.event)) held.insert(row.event.seq);
  }
  now_.more = static_cast<std::int64_t>(rows.size()) == most;
  const std::uint64_t upto = now_.more ? rows.back().event.seq : lowest;
  held.merge(exceptions_.events_between(now_.upto, upto));
  if (!connection_.ok()) return;
  if (!rows.empty()) FAULT_POINT("journal.during_prune");
  events_.prune(now_.upto, upto, rows, held);
  now_.upto = upto;
}

}  // namespace scriptorium::journal
