#include "core/journal/unresolved_table.h"

#include <algorithm>

#include "core/journal/event_row.h"
#include "core/journal/schema.h"

namespace scriptorium::journal {

UnresolvedTable::UnresolvedTable(Connection& connection, Codec& codec)
    : codec_(codec),
      find_id_(connection, "SELECT 1 FROM unresolved WHERE id=?1"),
      delete_(connection, "DELETE FROM unresolved WHERE ticket=?1") {
  const bool current = marks_name_files(connection);  // else opened only for reading
  Statement counts(
      connection,
      current ? "SELECT source, count(*), max(ticket), sum(stored) FROM unresolved GROUP BY source"
              : "SELECT source, count(*), max(ticket), 0 FROM unresolved GROUP BY source");
  while (counts.step()) {
    now_.by_source[std::string(counts.text(0))] = {counts.number(1), counts.number(2)};
    now_.events += counts.number(1);
    now_.bytes += counts.number(3);
    now_.last_ticket = std::max(now_.last_ticket, counts.number(2));
  }
  if (!current) return;
  insert_ = Statement(
      connection,
      "INSERT INTO unresolved(ticket,id,source,kind,job_id,captured_at,bytes,blobs,meta,pack,"
      "stored,entry) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)");
  find_ = Statement(connection,
                    "SELECT source, kind, job_id, id, meta, captured_at, bytes, blobs, pack, "
                    "stored FROM unresolved WHERE ticket=?1");
}

bool UnresolvedTable::contains(const std::string& id) {
  if (now_.events == 0) return false;
  const bool found = find_id_.bind(Id{id}).step();
  find_id_.reset();
  return found;
}

std::uint64_t UnresolvedTable::insert(const Append& item, const Content& content) {
  const Event& event = *item.event;
  const std::uint64_t ticket = ++now_.last_ticket;
  insert_.bind(ticket, Id{event.id}, item.source, event.kind, event.job.id, event.captured_at,
               event.bytes_size(), content.blobs, Large{codec_.compress(encode_meta(event))},
               content.pack, content.stored);
  insert_.run(item.mark ? std::optional(item.mark->entry) : std::nullopt);
  UnresolvedCount& source = now_.by_source[item.source];
  ++source.events;
  source.last_ticket = ticket;
  ++now_.events;
  now_.bytes += content.stored;
  return ticket;
}

std::optional<UnresolvedTable::Row> UnresolvedTable::find(std::uint64_t ticket) {
  std::optional<Row> row;
  if (find_.bind(ticket).step()) {
    row = Row{.ticket = ticket,
              .source = std::string(find_.text(0)),
              .kind = std::string(find_.text(1)),
              .job_id = std::string(find_.text(2)),
              .id = find_.id(3),
              .meta = std::string(find_.text(4)),
              .captured_at = find_.integer(5),
              .bytes = find_.number(6),
              .content = {.blobs = std::string(find_.text(7)),
                          .pack = find_.integer(8),
                          .stored = find_.number(9),
                          .owner = ""}};
  }
  find_.reset();
  return row;
}

void UnresolvedTable::remove(const Row& row) {
  delete_.run(row.ticket);
  --now_.events;
  --now_.by_source[row.source].events;
  now_.bytes -= std::min(now_.bytes, row.content.stored);
}

}  // namespace scriptorium::journal
