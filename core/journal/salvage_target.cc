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
  const bool found = find_event_.bind(Id{event_id}).step();
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
  if (find_blob_.bind(Blob{key}).step()) blob = find_blob_.integer(0);
  find_blob_.reset();
  if (blob == 0) {
    const std::string_view frame = codec_.compress(*file.bytes);
    insert_blob_.run(Blob{key}, file.bytes->size(), Large{frame});
    stored += frame.size();
    blob = db_.integer("SELECT last_insert_rowid()").value_or(0);
  }
  add_ref_.run(blob);
  return blob;
}

std::int64_t SalvageTarget::add_pack(const Event& event, std::uint64_t& stored) {
  const std::string_view frame = codec_.compress(pack_bytes(event));
  stored += frame.size();
  insert_pack_.run(Large{frame});
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
  insert.bind(free_number(row.unresolved, row.number), Id{event.id}, row.source, event.kind,
              event.job.id, event.captured_at, bytes, encode_blobs(blobs), Large{row.meta}, pack,
              stored);
  if (row.unresolved) {
    insert.run(row.entry.empty() ? std::nullopt : std::optional(row.entry));
  } else {
    insert.run(row.target, owner_of(event));
  }
  count_insert();
}

void SalvageTarget::add_locator(const EventRow& row, const Event& event, std::int64_t bytes) {
  insert_event_.run(free_number(false, row.number), Id{event.id}, row.source, event.kind,
                    event.job.id, event.captured_at, bytes, "", Large{row.meta}, kInArchive,
                    std::int64_t{0}, row.target, "");
  count_insert();
}

void SalvageTarget::count_insert() {
  if (++pending_ < kBatch) return;
  pending_ = 0;
  db_.execute("COMMIT");
  db_.execute("BEGIN");
}

void SalvageTarget::add_sink(std::int64_t id, const Sink& sink) {
  insert_sink_.run(id, sink.name, sink.kinds, sink.cursor, sink.acknowledged, sink.last_success,
                   sink_sum(sink.name, sink.kinds, sink.cursor, sink.absences), sink.absences);
}

void SalvageTarget::add_exception(const Exception& x) {
  insert_exception_.run(x.sink, x.seq, x.state, x.reason, x.attempts, x.first, x.last,
                        exception_sum(x.sink, x.seq, x.state));
}

void SalvageTarget::add_mark(const std::string& source, const CaptureMark& mark) {
  insert_mark_.run(source, mark.entry, mark.identity.device, mark.identity.inode,
                   mark.identity.mtime_ns, mark.size, Id{mark.event_id}, mark.identity.file,
                   mark.identity.size);
}

void SalvageTarget::add_position(const std::string& source, const std::string& position) {
  Statement insert(db_, "INSERT OR IGNORE INTO positions(source,position) VALUES(?1,?2)");
  insert.run(source, Blob{position});
}

}  // namespace scriptorium::journal
