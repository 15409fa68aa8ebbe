// Journal: events whose owner is still to be asked for, and those that were published without one.
#include <utility>

#include "core/journal/journal_impl.h"
#include "core/journal/schema.h"

namespace scriptorium {
namespace {

using journal::Connection;
using journal::Shared;
using journal::Statement;
using journal::Writer;

constexpr std::uint64_t kUnresolvedBytes = 24U << 20;  // of the events in one unresolved()

// Tickets and marks of what waits, without the events.
std::vector<Journal::Unresolved> waiting(Connection& db, const std::string& source,
                                         std::uint64_t after, std::size_t limit) {
  std::vector<Journal::Unresolved> result;
  Statement rows(db,
                 "SELECT ticket, id, entry FROM unresolved WHERE source=?1 AND ticket>?2 ORDER BY "
                 "ticket LIMIT ?3");
  Statement mark(db, journal::kSelectMarks + std::string("source=?1 AND entry=?2"));
  rows.bind(source, after, limit);
  while (rows.step()) {
    Journal::Unresolved& item = result.emplace_back();
    item.ticket = rows.number(0);
    if (!rows.is_null(2) && mark.bind(source, rows.text(2)).step()) {
      // A later entry of the same name may have the mark now.
      if (CaptureMark found = journal::mark_of_row(mark); found.event_id == rows.id(1))
        item.mark = std::move(found);
    }
    mark.reset();
  }
  return result;
}

}  // namespace

std::vector<Journal::Unresolved> Journal::unresolved(const std::string& source, std::uint64_t after,
                                                     std::size_t limit) const {
  const auto count = impl_->shared.with([&](const Shared& s) { return s.unresolved(source); });
  if (count.events == 0 || count.last_ticket <= after || limit == 0) return {};
  auto reader = impl_->readers.lease();
  if (!reader) return {};
  Connection& db = *(*reader)->connection;
  std::vector<Unresolved> result = waiting(db, source, after, limit);
  // While commits fail, resolutions wait in the queue: to resolve an event again would only make it
  // longer.
  impl_->resolving.with([&](const auto& tickets) {
    std::erase_if(result, [&](const Unresolved& item) { return tickets.contains(item.ticket); });
  });
  Statement row(db, journal::kSelectUnresolved + std::string("ticket=?1"));
  std::uint64_t bytes = 0;
  for (Unresolved& item : result) {
    if (bytes > kUnresolvedBytes || !db.ok()) break;
    if (!row.bind(item.ticket).step()) continue;  // resolved meanwhile
    auto event = (*reader)->events.load_for_owner(row);
    row.reset();
    if (event) {
      bytes += (*event)->memory_size();
      item.event = *std::move(event);
    } else if (event.error().kind() == ErrorKind::kCorrupt) {
      // Nobody can resolve what cannot be read: each sink gets it as a dead letter instead.
      impl_->put({.what = journal::PublishDamaged{item.ticket}});
    }
  }
  if (auto error = db.take_error(); error && db.damaged()) impl_->note_damage(error->message());
  std::erase_if(result, [](const Unresolved& item) { return !item.event; });
  return result;
}

Result<std::vector<Journal::Unverified>> Journal::unverified(const std::string& source,
                                                             Timestamp now,
                                                             std::size_t limit) const {
  std::vector<Unverified> result;
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  Connection& db = *(*reader)->connection;
  Statement rows(db,
                 "SELECT number, noted_at, meta FROM unverified WHERE (source=?1 OR ?1='') AND "
                 "due<=?2 ORDER BY due, number LIMIT ?3");
  rows.bind(source, now, limit);
  while (rows.step()) {
    auto json = (*reader)->codec.decompress(rows.text(2));
    auto event = json ? event_from_json(*json) : Result<Event>(json.error());
    // A damaged one cannot be asked about; newer ones replace it in time.
    if (event) {
      result.push_back({rows.number(0), Timestamp{rows.integer(1)},
                        std::make_shared<const Event>(*std::move(event))});
    }
  }
  if (auto error = db.take_error()) return *std::move(error);
  return result;
}

std::uint64_t Journal::unverified_count(const std::string& source, Timestamp noted_since) const {
  auto reader = impl_->readers.lease();
  if (!reader) return 0;
  Connection& db = *(*reader)->connection;
  if (noted_since == Timestamp{})
    return db.number("SELECT count(*) FROM unverified WHERE source=?1", source);
  return db.number("SELECT count(*) FROM unverified WHERE source=?1 AND noted_at>=?2", source,
                   noted_since);
}

std::vector<std::uint64_t> Journal::unverified_numbers(const std::string& source,
                                                       std::uint64_t after) const {
  std::vector<std::uint64_t> numbers;
  auto reader = impl_->readers.lease();
  if (!reader) return numbers;
  Statement rows(*(*reader)->connection,
                 "SELECT number FROM unverified WHERE number>?2 AND source=?1 ORDER BY number");
  rows.bind(source, after);
  while (rows.step()) numbers.push_back(rows.number(0));
  return numbers;
}

Result<void> Journal::change_unverified(std::vector<LaterOwner> changes) {
  return impl_->change(
      [changes = std::move(changes)](Writer& writer) { return writer.change_unverified(changes); });
}

Result<std::uint64_t> Journal::hasten_unverified(const std::string& source) {
  return impl_->call([source, now = impl_->clock.now()](Writer& writer) {
    return writer.hasten_unverified(source, now);
  });
}

Result<void> Journal::replace_unverified(std::uint64_t number, const std::string& source,
                                         std::shared_ptr<const Event> event) {
  return impl_->change([number, source, event = std::move(event)](Writer& writer) {
    return writer.replace_unverified(number, source, event);
  });
}

bool Journal::is_replaced(SinkId sink, const Event& event) const {
  return impl_->shared.with([&](const Shared& s) { return s.is_replaced(sink, event); });
}

}  // namespace scriptorium
