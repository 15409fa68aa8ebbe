#include "core/journal/salvage_target.h"

#include <algorithm>

#include "core/journal/event_row.h"

namespace scriptorium::journal {
namespace {

constexpr std::uint64_t kBatch = 1000;  // events in one transaction

}  // namespace

SalvageTarget::SalvageTarget(Connection& db)
    : db_(db),
      find_blob_(db, "SELECT id FROM blobs WHERE sha256=?1"),
      insert_blob_(db, "INSERT INTO blobs(sha256,refs,size,data) VALUES(?1,0,?2,?3)"),
      insert_pack_(db, "INSERT INTO packs(data) VALUES(?1)"),
      add_ref_(db, "UPDATE blobs SET refs=refs+1 WHERE id=?1"),
      find_event_(
          db, "SELECT 1 FROM events WHERE id=?1 UNION ALL SELECT 1 FROM unresolved WHERE id=?1"),
      find_seq_(db, "SELECT 1 FROM events WHERE seq=?1"),
      find_ticket_(db, "SELECT 1 FROM unresolved WHERE ticket=?1"),
      insert_event_(db,
                    "INSERT INTO events(seq,id,source,kind,job_id,captured_at,bytes,blobs,meta,"
                    "pack,stored,target,owner) "
                    "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)"),
      insert_unresolved_(db,
                         "INSERT INTO unresolved(ticket,id,source,kind,job_id,captured_at,bytes,"
                         "blobs,meta,pack,stored,entry) "
                         "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)"),
      insert_sink_(db,
                   "INSERT INTO sinks(id,name,kinds,cursor,acknowledged,last_success,sum,absences) "
                   "VALUES(?1,?2,?3,?4,?5,?6,?7,?8)"),
      insert_exception_(
          db,
          "INSERT OR IGNORE INTO "
          "exceptions(sink,seq,state,reason,attempts,first_attempt,last_attempt,sum) "
          "SELECT ?1,?2,?3,?4,?5,?6,?7,?8 WHERE EXISTS(SELECT 1 FROM events WHERE seq=?2)"),
      insert_mark_(db,
                   "INSERT OR IGNORE INTO "
                   "marks(source,entry,device,inode,mtime_ns,size,event_id,file,file_size) "
                   "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)") {}

bool SalvageTarget::has(const std::string& event_id) {
  const bool found = find_event_.bind_id(event_id).step();
  find_event_.reset();
  return found;
}

// If another event has the number already, which only a damaged page can cause, the next free one.
std::int64_t SalvageTarget::free_number(bool unresolved, std::int64_t wanted) {
  Statement& find = unresolved ? find_ticket_ : find_seq_;
  while (true) {
    const bool taken = find.bind(wanted).step();
    find.reset();
    if (!taken) return wanted;
    ++wanted;
  }
}

std::int64_t SalvageTarget::add_blob(const EventFile& file, std::uint64_t& stored) {
  const std::string key = content_key(file);
  std::int64_t blob = 0;
  if (find_blob_.bind_blob(key).step()) blob = find_blob_.integer(0);
  find_blob_.reset();
  if (blob == 0) {
    const std::string_view frame = codec_.compress(*file.bytes);
    insert_blob_.bind_blob(key).bind_number(file.bytes->size()).bind_large(frame).run();
    stored += frame.size();
    blob = db_.integer("SELECT last_insert_rowid()").value_or(0);
  }
  add_ref_.bind(blob).run();
  return blob;
}

std::int64_t SalvageTarget::add_pack(const Event& event, std::uint64_t& stored) {
  const std::string_view frame = codec_.compress(pack_bytes(event));
  stored += frame.size();
  insert_pack_.bind_large(frame).run();
  return db_.integer("SELECT last_insert_rowid()").value_or(0);
}

void SalvageTarget::add_event(const EventRow& row, const Event& event) {
  std::uint64_t stored = row.unresolved ? 0 : row.meta.size();
  std::uint64_t bytes = 0;
  // A file stays in a pack or a blob of its own, as it was.
  std::vector<std::int64_t> blobs = decode_blobs(row.blobs);
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    const EventFile& file = event.files[i];
    if (blobs[i] != kNoBytes) bytes += file.bytes->size();
    if (blobs[i] > 0) blobs[i] = add_blob(file, stored);
  }
  const bool packed = std::find(blobs.begin(), blobs.end(), kInPack) != blobs.end();
  const std::int64_t pack = packed ? add_pack(event, stored) : 0;
  Statement& insert = row.unresolved ? insert_unresolved_ : insert_event_;
  insert.bind(free_number(row.unresolved, row.number))
      .bind_id(event.id)
      .bind_text(row.source)
      .bind_text(event.kind)
      .bind_text(event.job.id)
      .bind(event.captured_at.nanoseconds)
      .bind_number(bytes)
      .bind_text(encode_blobs(blobs))
      .bind_large(row.meta)
      .bind(pack)
      .bind_number(stored);
  if (!row.unresolved) {
    insert.bind(row.target).bind_text(owner_of(event));
  } else if (row.entry.empty()) {
    insert.bind_null();
  } else {
    insert.bind_text(row.entry);
  }
  insert.run();
  count_insert();
}

void SalvageTarget::add_locator(const EventRow& row, const Event& event, std::int64_t bytes) {
  insert_event_.bind(free_number(false, row.number))
      .bind_id(event.id)
      .bind_text(row.source)
      .bind_text(event.kind)
      .bind_text(event.job.id)
      .bind(event.captured_at.nanoseconds)
      .bind(bytes)
      .bind_text("")
      .bind_large(row.meta)
      .bind(kInArchive)
      .bind(std::int64_t{0})
      .bind(row.target)
      .bind_text("")
      .run();
  count_insert();
}

void SalvageTarget::count_insert() {
  if (++pending_ < kBatch) return;
  pending_ = 0;
  db_.execute("COMMIT");
  db_.execute("BEGIN");
}

void SalvageTarget::add_sink(std::int64_t id, const Sink& sink) {
  insert_sink_.bind(id)
      .bind_text(sink.name)
      .bind_text(sink.kinds)
      .bind(sink.cursor)
      .bind(sink.acknowledged);
  (sink.last_success ? insert_sink_.bind(*sink.last_success) : insert_sink_.bind_null())
      .bind(sink_sum(sink.name, sink.kinds, sink.cursor, sink.absences))
      .bind_text(sink.absences)
      .run();
}

void SalvageTarget::add_exception(const Exception& x) {
  insert_exception_.bind(x.sink)
      .bind(x.seq)
      .bind(static_cast<std::int64_t>(x.state))
      .bind_text(x.reason)
      .bind(x.attempts)
      .bind(x.first)
      .bind(x.last)
      .bind(exception_sum(x.sink, x.seq, x.state))
      .run();
}

void SalvageTarget::add_mark(const std::string& source, const CaptureMark& mark) {
  insert_mark_.bind_text(source)
      .bind_text(mark.entry)
      .bind_number(mark.identity.device)
      .bind_number(mark.identity.inode)
      .bind(mark.identity.mtime_ns)
      .bind_number(mark.size)
      .bind_id(mark.event_id)
      .bind_text(mark.identity.file)
      .bind_number(mark.identity.size)
      .run();
}

void SalvageTarget::add_position(const std::string& source, const std::string& position) {
  Statement insert(db_, "INSERT OR IGNORE INTO positions(source,position) VALUES(?1,?2)");
  insert.bind_text(source).bind_blob(position).run();
}

}  // namespace scriptorium::journal
