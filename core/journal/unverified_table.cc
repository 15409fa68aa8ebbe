#include "core/journal/unverified_table.h"

#include <algorithm>

#include "core/journal/event_row.h"
#include "core/journal/journal.h"
#include "core/journal/schema.h"

namespace scriptorium::journal {
namespace {

// Metadata of one event in bytes, before compression. Most of it is what users write, such as the
// list of directives.
constexpr std::size_t kMostMeta = 4096;
constexpr std::uint64_t kShare = 8;  // all of it takes at most this part of the journal's limit
constexpr std::uint64_t kTrimEvery = 100;
// In nanoseconds. The scheduler could not name the owner just now.
constexpr std::int64_t kFirstPause = 60'000'000'000;

}  // namespace

UnverifiedTable::UnverifiedTable(Connection& connection, Codec& codec, std::uint64_t max_bytes)
    : connection_(connection),
      codec_(codec),
      most_(std::min(Journal::kMostUnverified, max_bytes / kShare / kMostMeta)) {
  if (!has_table(connection, "unverified")) return;  // an older version, opened only for reading
  note_ = Statement(connection,
                    "INSERT OR IGNORE INTO unverified(id,source,noted_at,due,meta) "
                    "VALUES(?1,?2,?3,?4,?5)");
}

void UnverifiedTable::note(const std::string& source, const Event& event, Timestamp now) {
  std::string meta = encode_meta(event);
  if (meta.size() > kMostMeta) {
    // Once the owner is known, the journal or an archive supplies the whole event.
    Event small = event;
    small.script.reset();
    small.problems.clear();
    meta = encode_meta(small);
    if (meta.size() > kMostMeta) return;
  }
  note_.run(Id{event.id}, source, now, now.nanoseconds + kFirstPause, Large{codec_.compress(meta)});
  if (++noted_ % kTrimEvery != 1) return;
  Statement oldest(
      connection_,
      "DELETE FROM unverified WHERE number <= (SELECT max(number) FROM unverified) - ?1");
  oldest.run(most_);
}

void UnverifiedTable::change(const std::vector<LaterOwner>& changes) {
  Statement postpone(connection_, "UPDATE unverified SET due=?2 WHERE number=?1");
  for (const LaterOwner& change : changes) {
    if (change.due) {
      postpone.run(change.number, change.due->nanoseconds);
    } else {
      forget(change.number);
    }
  }
}

std::uint64_t UnverifiedTable::hasten(const std::string& source, Timestamp now) {
  Statement hasten(connection_, "UPDATE unverified SET due=min(due, ?2) WHERE source=?1");
  hasten.run(source, now);
  return static_cast<std::uint64_t>(connection_.changes());
}

void UnverifiedTable::forget(std::uint64_t number) {
  Statement forget(connection_, "DELETE FROM unverified WHERE number=?1");
  forget.run(number);
}

bool UnverifiedTable::replace(const std::string& id, std::uint64_t seq) {
  Statement note(connection_,
                 "INSERT OR REPLACE INTO replaced(id, seq) SELECT id, ?2 FROM events WHERE id=?1 "
                 "AND target=0");
  note.run(Id{id}, seq);
  return connection_.changes() > 0;
}

std::vector<std::pair<std::string, std::uint64_t>> UnverifiedTable::load_replaced() {
  std::vector<std::pair<std::string, std::uint64_t>> replaced;
  if (!has_table(connection_, "replaced")) return replaced;
  connection_.execute(
      "DELETE FROM replaced WHERE NOT EXISTS(SELECT 1 FROM events e WHERE e.id=replaced.id)");
  Statement rows(connection_, "SELECT id, seq FROM replaced");
  while (rows.step()) replaced.emplace_back(rows.id(0), rows.number(1));
  return replaced;
}

}  // namespace scriptorium::journal
