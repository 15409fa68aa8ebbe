// Events that went out without a verified owner: kept in mind until somebody can say whose they
// were.

#include <algorithm>
#include <utility>

#include "core/base/fault_point.h"
#include "core/journal/journal_impl.h"

namespace scriptorium {
namespace journal {
namespace {

// So many replaced ones in memory are looked through for those that every sink has got by now.
constexpr std::size_t kManyReplaced = 10'000;
// Metadata of one event, before compression. Users write much of it, such as the list of
// directives.
constexpr std::size_t kMostMeta = 4096;
constexpr std::uint64_t kShare =
    8;  // all of it takes at most one part in so many of the journal's limit
constexpr std::uint64_t kTrimEvery = 100;
// The scheduler did not name it just now.
constexpr std::int64_t kFirstPause = 60'000'000'000;  // in nanoseconds

std::int64_t stored(std::uint64_t value) { return static_cast<std::int64_t>(value); }
std::uint64_t loaded(std::int64_t value) { return static_cast<std::uint64_t>(value); }

}  // namespace

void Writer::note_unverified(const std::string& source, const Event& event) {
  std::string meta = encode_meta(event);
  if (meta.size() > kMostMeta) {
    // The journal or an archive gives back the whole event when its owner is known.
    Event small = event;
    small.script.reset();
    small.problems.clear();
    meta = encode_meta(small);
    if (meta.size() > kMostMeta) return;
  }
  const std::int64_t now = clock_.now().nanoseconds;
  note_unverified_.bind_id(event.id)
      .bind_text(source)
      .bind(now)
      .bind(now + kFirstPause)
      .bind_large(codec_.compress(meta))
      .run();
  if (++noted_ % kTrimEvery != 1) return;
  Statement oldest(
      *connection_,
      "DELETE FROM unverified WHERE number <= (SELECT max(number) FROM unverified) - ?1");
  oldest.bind(stored(std::min(Journal::kMostUnverified, max_bytes_ / kShare / kMostMeta))).run();
}

Result<std::uint64_t> Writer::change_unverified(const std::vector<Journal::LaterOwner>& changes) {
  Statement postpone(*connection_, "UPDATE unverified SET due=?2 WHERE number=?1");
  Statement forget(*connection_, "DELETE FROM unverified WHERE number=?1");
  for (const Journal::LaterOwner& change : changes) {
    if (change.due) {
      postpone.bind(stored(change.number)).bind(change.due->nanoseconds).run();
    } else {
      forget.bind(stored(change.number)).run();
    }
  }
  return std::uint64_t{changes.size()};
}

Result<std::uint64_t> Writer::hasten_unverified(const std::string& source, Timestamp now) {
  Statement hasten(*connection_, "UPDATE unverified SET due=min(due, ?2) WHERE source=?1");
  hasten.bind_text(source).bind(now.nanoseconds).run();
  return loaded(connection_->changes());
}

Result<std::uint64_t> Writer::replace_unverified(std::uint64_t number, const std::string& source,
                                                 const std::shared_ptr<const Event>& event) {
  FAULT_POINT("journal.before_replace");
  if (!known(source, event->id)) {
    insert_event(source, event, store_content(*event));
    // Whoever has the other one still to come gets this one as well, and only this.
    Statement note(*connection_,
                   "INSERT OR REPLACE INTO replaced(id, seq) SELECT id, ?2 FROM events WHERE id=?1 "
                   "AND target=0");
    note.bind_id(*event->replaces).bind(stored(last_seq_)).run();
    if (connection_->changes() > 0) published_replaced_.emplace_back(*event->replaces, last_seq_);
  }
  Statement forget(*connection_, "DELETE FROM unverified WHERE number=?1");
  forget.bind(stored(number)).run();
  if (shared_.with([](const Shared& s) { return s.replaced.size() > kManyReplaced; }))
    load_replaced();
  return std::uint64_t{1};
}

// Forgets those that no sink waits for any more.
void Writer::load_replaced() {
  Connection& db = *connection_;
  if (db.integer("SELECT count(*) FROM sqlite_schema WHERE name='replaced'").value_or(0) == 0)
    return;
  db.execute(
      "DELETE FROM replaced WHERE NOT EXISTS(SELECT 1 FROM events e WHERE e.id=replaced.id)");
  shared_.with([](Shared& s) { s.replaced.clear(); });
  Statement rows(db, "SELECT id, seq FROM replaced");
  while (rows.step()) published_replaced_.emplace_back(rows.id(0), loaded(rows.integer(1)));
}

}  // namespace journal

using journal::Writer;

Result<std::vector<Journal::Unverified>> Journal::unverified(const std::string& source,
                                                             Timestamp now,
                                                             std::size_t limit) const {
  std::vector<Unverified> result;
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  journal::Connection& db = *(*reader)->connection;
  if (db.integer("SELECT count(*) FROM sqlite_schema WHERE name='unverified'").value_or(0) == 0)
    return result;
  journal::Statement rows(db,
                          "SELECT number, noted_at, meta FROM unverified WHERE (source=?1 OR "
                          "?1='') AND due<=?2 ORDER BY due, number "
                          "LIMIT ?3");
  rows.bind_text(source).bind(now.nanoseconds).bind(static_cast<std::int64_t>(limit));
  while (rows.step()) {
    auto json = (*reader)->codec.decompress(rows.text(2));
    auto event = json ? event_from_json(*json) : Result<Event>(json.error());
    // Damaged: nothing can be said about it; it gives way to newer ones in time.
    if (event) {
      result.push_back({static_cast<std::uint64_t>(rows.integer(0)), Timestamp{rows.integer(1)},
                        std::make_shared<const Event>(*std::move(event))});
    }
  }
  if (auto error = db.take_error()) return *std::move(error);
  return result;
}

std::uint64_t Journal::unverified_count(const std::string& source) const {
  auto reader = impl_->readers.lease();
  if (!reader) return 0;
  journal::Connection& db = *(*reader)->connection;
  if (db.integer("SELECT count(*) FROM sqlite_schema WHERE name='unverified'").value_or(0) == 0)
    return 0;
  journal::Statement count(db, "SELECT count(*) FROM unverified WHERE source=?1");
  return count.bind_text(source).step() ? static_cast<std::uint64_t>(count.integer(0)) : 0;
}

Result<void> Journal::change_unverified(std::vector<LaterOwner> changes) {
  auto result = impl_->call(
      [changes = std::move(changes)](Writer& writer) { return writer.change_unverified(changes); });
  if (!result) return result.error();
  return {};
}

Result<std::uint64_t> Journal::hasten_unverified(const std::string& source) {
  return impl_->call([source, now = impl_->clock.now()](Writer& writer) {
    return writer.hasten_unverified(source, now);
  });
}

Result<void> Journal::replace_unverified(std::uint64_t number, const std::string& source,
                                         std::shared_ptr<const Event> event) {
  auto result = impl_->call([number, source, event = std::move(event)](Writer& writer) {
    return writer.replace_unverified(number, source, event);
  });
  if (!result) return result.error();
  return {};
}

bool Journal::is_replaced(SinkId sink, const Event& event) const {
  if (event.user.verified) return false;
  return impl_->shared.with([&](const journal::Shared& s) {
    const auto found = s.replaced.find(event.id);
    const auto row = s.sinks.find(sink);
    return found != s.replaced.end() && row != s.sinks.end() &&
           row->second.wants(event.kind, found->second, 0);
  });
}

}  // namespace scriptorium
