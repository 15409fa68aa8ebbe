#include "core/journal/owner_tables.h"

#include <algorithm>

#include "core/journal/event_row.h"
#include "core/journal/journal.h"

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

UnresolvedTable::UnresolvedTable(Connection& connection)
    : find_id_(connection, "SELECT 1 FROM unresolved WHERE id=?1"),
      insert_(connection,
              "INSERT INTO unresolved(ticket,id,source,kind,job_id,captured_at,bytes,blobs,meta,"
              "pack,stored,entry) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)"),
      find_(connection,
            "SELECT id, source, kind, job_id, captured_at, bytes, blobs, meta, pack, stored FROM "
            "unresolved WHERE ticket=?1"),
      delete_(connection, "DELETE FROM unresolved WHERE ticket=?1") {
  Statement counts(
      connection,
      "SELECT source, count(*), max(ticket), sum(stored) FROM unresolved GROUP BY source");
  while (counts.step()) {
    now_.by_source[std::string(counts.text(0))] = {counts.number(1), counts.number(2)};
    now_.events += counts.number(1);
    now_.bytes += counts.number(3);
    now_.last_ticket = std::max(now_.last_ticket, counts.number(2));
  }
}

bool UnresolvedTable::contains(const std::string& id) {
  return now_.events > 0 && find_id_.first(Id{id});
}

void UnresolvedTable::insert(const StoredEvent& row, const std::optional<std::string>& entry) {
  const Content& content = row.content;
  insert_.run(row.number, Id{row.id}, row.source, row.kind, row.job_id, row.captured_at, row.bytes,
              content.blobs, Large{row.meta}, content.pack, content.stored, entry);
  UnresolvedCount& source = now_.by_source[row.source];
  ++source.events;
  source.last_ticket = now_.last_ticket = std::max(now_.last_ticket, row.number);
  ++now_.events;
  now_.bytes += content.stored;
}

std::optional<StoredEvent> UnresolvedTable::find(std::uint64_t ticket) {
  if (!find_.bind(ticket).step()) return std::nullopt;
  StoredEvent row{.number = ticket};
  find_.read(IdInto{row.id}, row.source, row.kind, row.job_id, row.captured_at, row.bytes,
             row.content.blobs, row.meta, row.content.pack, row.content.stored);
  find_.reset();
  return row;
}

void UnresolvedTable::remove(const StoredEvent& row) {
  delete_.run(row.number);
  --now_.events;
  --now_.by_source[row.source].events;
  now_.bytes -= std::min(now_.bytes, row.content.stored);
}

UnverifiedTable::UnverifiedTable(Connection& connection, Codec& codec, std::uint64_t max_bytes)
    : connection_(connection),
      codec_(codec),
      most_(std::min(Journal::kMostUnverified, max_bytes / kShare / kMostMeta)),
      note_(connection,
            "INSERT OR IGNORE INTO unverified(id,source,noted_at,due,meta) "
            "VALUES(?1,?2,?3,?4,?5)") {}

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
  connection_.run(
      "DELETE FROM unverified WHERE number <= (SELECT max(number) FROM unverified) - ?1", most_);
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
  connection_.run("UPDATE unverified SET due=min(due, ?2) WHERE source=?1", source, now);
  return static_cast<std::uint64_t>(connection_.changes());
}

void UnverifiedTable::forget(std::uint64_t number) {
  connection_.run("DELETE FROM unverified WHERE number=?1", number);
}

bool UnverifiedTable::replace(const std::string& id, std::uint64_t seq) {
  connection_.run(
      "INSERT OR REPLACE INTO replaced(id, seq) SELECT id, ?2 FROM events WHERE id=?1 AND target=0",
      Id{id}, seq);
  return connection_.changes() > 0;
}

std::vector<std::pair<std::string, std::uint64_t>> UnverifiedTable::load_replaced() {
  std::vector<std::pair<std::string, std::uint64_t>> replaced;
  connection_.execute(
      "DELETE FROM replaced WHERE NOT EXISTS(SELECT 1 FROM events e WHERE e.id=replaced.id)");
  Statement rows(connection_, "SELECT id, seq FROM replaced");
  while (rows.step()) replaced.emplace_back(rows.id(0), rows.number(1));
  return replaced;
}

}  // namespace scriptorium::journal
