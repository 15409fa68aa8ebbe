#include "core/journal/event_table.h"

#include <algorithm>
#include <utility>

#include "core/journal/event_row.h"
#include "core/journal/schema.h"

namespace scriptorium::journal {
namespace {

// Of a row of seq, bytes, kind, target, pack.
EventSummary summary_of(const Statement& row) {
  return {.seq = row.number(0),
          .bytes = row.number(1),
          .kind = std::string(row.text(2)),
          .target = static_cast<SinkId>(row.integer(3)),
          .in_archive = row.integer(4) == kInArchive};
}

// Of four columns blobs, pack, stored, owner.
Content content_of(const Statement& row, int first) {
  return {.blobs = std::string(row.text(first)),
          .pack = row.integer(first + 1),
          .stored = row.number(first + 2),
          .owner = std::string(row.text(first + 3))};
}

std::optional<EventSummary> only(Statement& statement) {
  std::optional<EventSummary> found;
  if (statement.step()) found = summary_of(statement);
  statement.reset();
  return found;
}

}  // namespace

EventTable::EventTable(Connection& connection, Codec& codec, ContentStore& contents)
    : connection_(connection),
      codec_(codec),
      contents_(contents),
      prune_range_(connection, "DELETE FROM events WHERE seq>?1 AND seq<=?2"),
      prune_one_(connection, "DELETE FROM events WHERE seq=?1"),
      count_(connection.number("SELECT count(*) FROM events")) {
  const std::string columns = "SELECT seq, bytes, kind, " +
                              column_or(connection, "events", "target", "0") +
                              (has_packs(connection) ? ", pack" : ", 0");
  find_ = Statement(connection, (columns + " FROM events WHERE id=?1").c_str());
  in_range_ = Statement(connection, (columns + " FROM events WHERE seq>=?1 AND seq<=?2").c_str());
  scan_ = Statement(connection, (columns + " FROM events WHERE seq>?1 ORDER BY seq").c_str());
  if (!marks_name_files(connection)) return;  // an older version, opened only for reading
  insert_ = Statement(connection,
                      "INSERT INTO events(seq,id,source,kind,job_id,captured_at,bytes,blobs,meta,"
                      "pack,target,owner,stored) "
                      "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)");
  prune_scan_ = Statement(connection,
                          "SELECT seq, bytes, kind, target, pack, blobs, pack, stored, owner FROM "
                          "events WHERE seq>?1 AND seq<=?2 ORDER BY seq LIMIT ?3");
  content_of_ = Statement(connection, "SELECT blobs, pack, stored, owner FROM events WHERE seq=?1");
  release_ = Statement(
      connection, "UPDATE events SET blobs='', pack=-1, meta=?2, owner='', stored=0 WHERE seq=?1");
}

void EventTable::begin() {
  count_before_ = count_;
  charge_changes_.clear();
}

std::uint64_t EventTable::last_seq() { return connection_.number("SELECT max(seq) FROM events"); }

std::map<std::string, std::int64_t> EventTable::charges() {
  std::map<std::string, std::int64_t> charges;
  if (!marks_name_files(connection_)) return charges;
  Statement rows(connection_,
                 "SELECT owner, sum(stored) FROM events WHERE owner<>'' GROUP BY owner");
  while (rows.step()) charges[std::string(rows.text(0))] = rows.integer(1);
  return charges;
}

std::optional<EventSummary> EventTable::find(std::uint64_t seq) {
  return only(in_range_.bind(seq, seq));
}

std::optional<EventSummary> EventTable::find(const std::string& id) {
  return only(find_.bind(Id{id}));
}

std::vector<EventSummary> EventTable::find_settled(const std::vector<Settle>& settlements) {
  std::vector<EventSummary> found;
  if (settlements.empty()) return found;
  const auto add_range = [&](std::uint64_t first, std::uint64_t last) {
    in_range_.bind(first, last);
    while (in_range_.step()) found.push_back(summary_of(in_range_));
  };
  const auto by_seq = [](const auto& a, const auto& b) { return a.sequence < b.sequence; };
  const auto [least, most] = std::minmax_element(settlements.begin(), settlements.end(), by_seq);
  if (most->sequence - least->sequence < 2 * settlements.size()) {
    add_range(least->sequence, most->sequence);
    return found;
  }
  for (const Settle& settle : settlements) add_range(settle.sequence, settle.sequence);
  std::sort(found.begin(), found.end(),
            [](const EventSummary& a, const EventSummary& b) { return a.seq < b.seq; });
  return found;
}

void EventTable::each_after(std::uint64_t seq,
                            const std::function<bool(const EventSummary&)>& take) {
  scan_.bind(seq);
  while (scan_.step()) {
    if (!take(summary_of(scan_))) break;
  }
  scan_.reset();
}

void EventTable::insert(std::uint64_t seq, const std::string& source, const Event& event,
                        const Content& content) {
  const std::string meta = encode_meta(event);
  const std::string_view frame = codec_.compress(meta);
  const std::string owner = owner_of(event);
  const auto size = static_cast<std::int64_t>(content.stored + frame.size());
  insert_.run(seq, Id{event.id}, source, event.kind, event.job.id, event.captured_at,
              event.bytes_size(), content.blobs, Large{frame}, content.pack, 0, owner, size);
  charge(owner, size);
  ++count_;
}

void EventTable::insert_damaged(std::uint64_t seq, const UnresolvedTable::Row& row) {
  insert_.run(seq, Id{row.id}, row.source, row.kind, row.job_id, row.captured_at, row.bytes,
              row.content.blobs, Large{row.meta}, row.content.pack, 0, "", row.content.stored);
  ++count_;
}

void EventTable::insert_locator(std::uint64_t seq, const Event& event, SinkId target) {
  insert_.run(seq, Id{event.id}, "", event.kind, event.job.id, event.captured_at,
              event.bytes_size(), "", Large{codec_.compress(encode_locator(event))}, kInArchive,
              target, "", 0);
  ++count_;
}

bool EventTable::release(std::uint64_t seq, std::string_view locator) {
  if (!content_of_.bind(seq).step()) return false;
  const Content content = content_of(content_of_, 0);
  content_of_.reset();
  if (content.pack == kInArchive) return false;
  release(content);
  release_.run(seq, Large{codec_.compress(locator)});
  return true;
}

void EventTable::remove(std::uint64_t seq) {
  if (!content_of_.bind(seq).step()) return;
  const Content content = content_of(content_of_, 0);
  content_of_.reset();
  prune_one_.run(seq);
  release(content);
  --count_;
}

std::vector<EventTable::Prunable> EventTable::prunable(std::uint64_t after, std::uint64_t upto,
                                                       std::int64_t limit) {
  std::vector<Prunable> rows;
  prune_scan_.bind(after, upto, limit);
  while (prune_scan_.step()) rows.push_back({summary_of(prune_scan_), content_of(prune_scan_, 5)});
  return rows;
}

void EventTable::prune(std::uint64_t after, std::uint64_t upto, const std::vector<Prunable>& rows,
                       const std::set<std::uint64_t>& kept) {
  if (rows.empty()) return;
  if (kept.empty()) prune_range_.run(after, upto);
  for (const Prunable& row : rows) {
    if (kept.contains(row.event.seq)) continue;
    if (!kept.empty()) prune_one_.run(row.event.seq);
    release(row.content);
    --count_;
  }
}

void EventTable::release(const Content& content) {
  contents_.release(content);
  charge(content.owner, -static_cast<std::int64_t>(content.stored));
}

void EventTable::charge(const std::string& owner, std::int64_t bytes) {
  if (!owner.empty()) charge_changes_[owner] += bytes;
}

}  // namespace scriptorium::journal
