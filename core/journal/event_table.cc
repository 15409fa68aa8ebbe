#include "core/journal/event_table.h"

#include <algorithm>

#include "core/journal/event_row.h"

namespace scriptorium::journal {
namespace {

constexpr const char* kSelectSummary =
    "SELECT seq, bytes, kind, target, pack=-1 FROM events WHERE ";

EventSummary summary_of(const Statement& row) {
  EventSummary event;
  row.read(event.seq, event.bytes, event.kind, event.target, event.in_archive);
  return event;
}

std::optional<EventSummary> only(Statement& statement) {
  std::optional<EventSummary> found;
  if (statement.step()) found = summary_of(statement);
  statement.reset();
  return found;
}

}  // namespace

StoredEvent row_of(std::uint64_t number, const std::string& source, const Event& event) {
  return {.number = number,
          .id = event.id,
          .source = source,
          .kind = event.kind,
          .job_id = event.job.id,
          .captured_at = event.captured_at,
          .bytes = event.bytes_size(),
          .content = {},
          .meta = ""};
}

EventTable::EventTable(Connection& connection, Codec& codec, ContentStore& contents)
    : connection_(connection),
      codec_(codec),
      contents_(contents),
      find_(connection, kSelectSummary + std::string("id=?1")),
      in_range_(connection, kSelectSummary + std::string("seq>=?1 AND seq<=?2")),
      scan_(connection, kSelectSummary + std::string("seq>?1 ORDER BY seq")),
      insert_(connection,
              "INSERT INTO events(seq,id,source,kind,job_id,captured_at,bytes,blobs,meta,pack,"
              "target,owner,stored) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)"),
      prune_range_(connection, "DELETE FROM events WHERE seq>?1 AND seq<=?2"),
      prune_one_(connection, "DELETE FROM events WHERE seq=?1"),
      prune_scan_(connection,
                  "SELECT seq, bytes, kind, target, pack=-1, blobs, pack, stored, owner FROM "
                  "events WHERE seq>?1 AND seq<=?2 ORDER BY seq LIMIT ?3"),
      content_of_(connection, "SELECT blobs, pack, stored, owner FROM events WHERE seq=?1"),
      release_(connection,
               "UPDATE events SET blobs='', pack=-1, meta=?2, owner='', stored=0 WHERE seq=?1"),
      count_(connection.number("SELECT count(*) FROM events")) {}

void EventTable::begin() {
  count_before_ = count_;
  charge_changes_.clear();
}

std::uint64_t EventTable::last_seq() { return connection_.number("SELECT max(seq) FROM events"); }

std::map<std::string, std::int64_t> EventTable::charges() {
  std::map<std::string, std::int64_t> charges;
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

void EventTable::insert(const StoredEvent& row, SinkId target) {
  const Content& content = row.content;
  insert_.run(row.number, Id{row.id}, row.source, row.kind, row.job_id, row.captured_at, row.bytes,
              content.blobs, Large{row.meta}, content.pack, target, content.owner, content.stored);
  charge(content.owner, static_cast<std::int64_t>(content.stored));
  ++count_;
}

void EventTable::insert(std::uint64_t seq, const std::string& source, const Event& event,
                        const Content& content, SinkId target) {
  StoredEvent row = row_of(seq, source, event);
  row.meta = codec_.compress(encode_meta(event));
  row.content = content;
  row.content.owner = charged_to(event, target);
  row.content.stored += row.meta.size();
  insert(row, target);
}

void EventTable::insert_locator(std::uint64_t seq, const Event& event, SinkId target) {
  StoredEvent row = row_of(seq, "", event);
  row.meta = codec_.compress(encode_locator(event));
  row.content.pack = kInArchive;
  insert(row, target);
}

std::optional<Content> EventTable::content_of(std::uint64_t seq) {
  if (!content_of_.bind(seq).step()) return std::nullopt;
  Content content;
  content_of_.read(content.blobs, content.pack, content.stored, content.owner);
  content_of_.reset();
  return content;
}

bool EventTable::release(std::uint64_t seq, std::string_view locator) {
  const auto content = content_of(seq);
  if (!content || content->pack == kInArchive) return false;
  release(*content);
  release_.run(seq, Large{codec_.compress(locator)});
  return true;
}

void EventTable::remove(std::uint64_t seq) {
  const auto content = content_of(seq);
  if (!content) return;
  prune_one_.run(seq);
  release(*content);
  --count_;
}

std::vector<EventTable::Prunable> EventTable::prunable(std::uint64_t after, std::uint64_t upto,
                                                       std::int64_t limit) {
  std::vector<Prunable> rows;
  prune_scan_.bind(after, upto, limit);
  while (prune_scan_.step()) {
    auto& [event, content] = rows.emplace_back();
    prune_scan_.read(event.seq, event.bytes, event.kind, event.target, event.in_archive,
                     content.blobs, content.pack, content.stored, content.owner);
  }
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
