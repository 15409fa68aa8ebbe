#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <set>
#include <utility>

#include "core/base/fault_point.h"
#include "core/base/text.h"
#include "core/journal/journal_impl.h"

namespace scriptorium::journal {
namespace {

constexpr std::int64_t kPruneChunk = 5000;  // events removed in one transaction
constexpr std::int64_t kPruneStep = 1000;   // the same, beside something that somebody waits for
// Bytes of settled events after which they are removed: their pages are then still in SQLite's
// cache, from settling them.
constexpr std::uint64_t kPruneBytes = 24U << 20;
constexpr std::uint64_t kCheckpointBytes =
    32U << 20;  // of -wal; a small journal's is a sixteenth of it
constexpr std::uint64_t kFewestCheckpointPages = 16;
constexpr std::uint64_t kFrameHeader = 24;  // of each page in -wal
// How long a commit may be late because somebody reads. Only where -wal has grown far beyond its
// usual length.
constexpr std::chrono::milliseconds kReaderPatience{50};

std::int64_t stored(std::uint64_t value) { return static_cast<std::int64_t>(value); }
std::uint64_t loaded(std::int64_t value) { return static_cast<std::uint64_t>(value); }
void subtract(std::uint64_t& from, std::uint64_t amount) { from -= std::min(from, amount); }

}  // namespace

bool SinkRow::wants(std::string_view kind, std::uint64_t seq, SinkId target) const {
  if (target != 0) return target == id;
  for (const Absence& absence : absences) {
    if (seq > absence.after && seq <= absence.upto) return false;
  }
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& p) { return p == kind || glob_match(p, kind); });
}

std::string encode_absences(const std::vector<SinkRow::Absence>& absences) {
  std::string text;
  for (const SinkRow::Absence& absence : absences) {
    if (!text.empty()) text += ' ';
    text += std::to_string(absence.after) + '-';
    if (absence.upto != SinkRow::Absence::kStill) text += std::to_string(absence.upto);
  }
  return text;
}

std::vector<SinkRow::Absence> decode_absences(std::string_view text) {
  std::vector<SinkRow::Absence> absences;
  const auto number = [&](std::uint64_t& value) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  };
  while (!text.empty()) {
    SinkRow::Absence& absence = absences.emplace_back();
    number(absence.after);
    if (text.starts_with('-')) text.remove_prefix(1);
    number(absence.upto);  // stays kStill if there is none
    const auto next = text.find(' ');
    text = next == std::string_view::npos ? std::string_view{} : text.substr(next + 1);
  }
  return absences;
}

std::string join_kinds(const std::vector<std::string>& kinds) {
  std::string text;
  for (const std::string& kind : kinds) text.append(text.empty() ? "" : "\n").append(kind);
  return text;
}

std::vector<std::string> split_kinds(std::string_view kinds) {
  std::vector<std::string> list;
  while (!kinds.empty()) {
    const auto end = kinds.find('\n');
    list.emplace_back(kinds.substr(0, end));
    kinds = end == std::string_view::npos ? std::string_view{} : kinds.substr(end + 1);
  }
  return list;
}

Writer::Writer(std::unique_ptr<Connection> connection, const Journal::Options& options,
               Guarded<Shared>& shared, const Clock& clock)
    : connection_(std::move(connection)),
      shared_(shared),
      clock_(clock),
      max_bytes_(options.max_bytes),
      checkpoint_pages_(std::max(std::min(kCheckpointBytes, options.max_bytes / 16) / kPageSize,
                                 kFewestCheckpointPages)) {
  Connection& db = *connection_;
  db.manual_checkpoints();
  begin_ = Statement(db, "BEGIN IMMEDIATE");
  commit_ = Statement(db, "COMMIT");
  find_unresolved_ = Statement(db, "SELECT 1 FROM unresolved WHERE id=?1");
  find_blob_ = Statement(db, "SELECT id, size FROM blobs WHERE sha256=?1");
  insert_blob_ = Statement(db, "INSERT INTO blobs(id,sha256,refs,size,data) VALUES(?1,?2,1,?3,?4)");
  drop_blobs_ = Statement(db, "DELETE FROM blobs WHERE id>=?1 AND id<=?2 AND refs<=?3");
  change_blobs_ = Statement(db, "UPDATE blobs SET refs=refs+?3 WHERE id>=?1 AND id<=?2");
  // An older journal can only be opened for reading.
  if (marks_name_files(db))
    put_mark_ = Statement(
        db,
        "INSERT INTO marks(source,entry,device,inode,mtime_ns,size,event_id,file,file_size) "
        "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9) ON CONFLICT(source,entry) DO UPDATE SET device=?3, "
        "inode=?4, "
        "mtime_ns=?5, size=?6, event_id=?7, file=?8, file_size=?9");
  forget_mark_ = Statement(db, "DELETE FROM marks WHERE source=?1 AND entry=?2");
  put_position_ = Statement(db,
                            "INSERT INTO positions(source,position) VALUES(?1,?2) ON "
                            "CONFLICT(source) DO UPDATE SET position=?2");
  delete_unresolved_ = Statement(db, "DELETE FROM unresolved WHERE ticket=?1");
  const std::string target = column_or(db, "events", "target", "0");
  const std::string pack = has_packs(db) ? "pack" : "0";
  find_event_ =
      Statement(db, ("SELECT seq, " + target + ", " + pack + " FROM events WHERE id=?1").c_str());
  event_info_ = Statement(db, ("SELECT seq, bytes, kind, " + target + ", " + pack +
                               " FROM events WHERE seq>=?1 AND seq<=?2")
                                  .c_str());
  exception_state_ = Statement(db, "SELECT state FROM exceptions WHERE sink=?1 AND seq=?2");
  put_exception_ = Statement(
      db,
      "INSERT INTO exceptions(sink,seq,state,reason,attempts,first_attempt,last_attempt,sum) "
      "VALUES(?1,?2,?3,?4,?5,?6,?7,?8) "
      "ON CONFLICT(sink,seq) DO UPDATE SET state=?3, reason=?4, attempts=?5, last_attempt=?7, "
      "sum=?8");
  erase_exception_ = Statement(db, "DELETE FROM exceptions WHERE sink=?1 AND seq=?2");
  erase_settled_ =
      Statement(db, "DELETE FROM exceptions WHERE sink=?1 AND seq<=?2 AND seq>?3 AND state=3");
  store_sink_ = Statement(
      db, "UPDATE sinks SET cursor=?2, acknowledged=?3, last_success=?4, sum=?5 WHERE id=?1");
  exceptions_in_ = Statement(db, "SELECT DISTINCT seq FROM exceptions WHERE seq>?1 AND seq<=?2");
  exception_of_ = Statement(db, "SELECT 1 FROM exceptions WHERE seq=?1");
  parked_by_ = Statement(db, "SELECT sink FROM exceptions WHERE seq=?1 AND state=1");
  prune_range_ = Statement(db, "DELETE FROM events WHERE seq>?1 AND seq<=?2");
  prune_one_ = Statement(db, "DELETE FROM events WHERE seq=?1");
  scan_kinds_ = Statement(db, ("SELECT seq, kind, bytes, " + target + ", " + pack +
                               " FROM events WHERE seq>?1 ORDER BY seq")
                                  .c_str());
  // Else it is of an older format, and only read.
  if (marks_name_files(db)) {
    insert_event_ = Statement(
        db,
        "INSERT INTO "
        "events(seq,id,source,kind,job_id,captured_at,bytes,blobs,meta,pack,target,owner,stored) "
        "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)");
    insert_unresolved_ = Statement(
        db,
        "INSERT INTO "
        "unresolved(ticket,id,source,kind,job_id,captured_at,bytes,blobs,meta,pack,stored,"
        "entry) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)");
    insert_pack_ = Statement(db, "INSERT INTO packs(id,data) VALUES(?1,?2)");
    drop_packs_ = Statement(db, "DELETE FROM packs WHERE id>=?1 AND id<=?2");
    take_unresolved_ = Statement(db,
                                 "SELECT source, kind, job_id, captured_at, bytes, blobs, meta, "
                                 "id, pack, stored FROM unresolved WHERE ticket=?1");
    prune_scan_ = Statement(db, ("SELECT seq, blobs, pack, stored, owner, kind, " + target +
                                 " FROM events WHERE seq>?1 AND seq<=?2 ORDER BY seq LIMIT ?3")
                                    .c_str());
    note_unverified_ = Statement(
        db, "INSERT OR IGNORE INTO unverified(id,source,noted_at,due,meta) VALUES(?1,?2,?3,?4,?5)");
    release_one_ = Statement(
        db, "UPDATE events SET blobs='', pack=-1, meta=?2, owner='', stored=0 WHERE seq=?1");
    content_of_ = Statement(db, "SELECT blobs, pack, stored, owner FROM events WHERE seq=?1");
  }
  page_count_ = Statement(db, "PRAGMA page_count");
  free_pages_ = Statement(db, "PRAGMA freelist_count");
  shared_.with([&](Shared& s) {
    s.events = RecentEvents(options.cache_bytes - options.cache_bytes / 2);
    s.tickets = RecentEvents(options.cache_bytes / 2);
  });
}

Result<void> Writer::load() {
  Connection& db = *connection_;
  std::map<std::string, std::int64_t> initial_charges;
  page_size_ = loaded(db.integer("PRAGMA page_size").value_or(kPageSize));
  {
    Statement statement(db, ("SELECT id, name, kinds, cursor, acknowledged, last_success, " +
                             column_or(db, "sinks", "absences", "''") + " FROM sinks")
                                .c_str());
    while (statement.step()) {
      SinkRow row;
      row.id = static_cast<SinkId>(statement.integer(0));
      row.absences = decode_absences(statement.text(6));
      row.name = statement.text(1);
      row.kinds = statement.text(2);
      row.patterns = split_kinds(row.kinds);
      row.cursor = loaded(statement.integer(3));
      row.acknowledged = loaded(statement.integer(4));
      if (!statement.is_null(5)) row.last_success = Timestamp{statement.integer(5)};
      sinks_.emplace(static_cast<SinkId>(statement.integer(0)), std::move(row));
    }
  }
  last_seq_ = loaded(db.integer("SELECT coalesce(max(seq),0) FROM events").value_or(0));
  // A number is never given twice, even if all events are gone.
  for (const auto& [id, row] : sinks_) {
    last_seq_ = std::max(last_seq_, row.cursor);
    for (const SinkRow::Absence& absence : row.absences) {
      last_seq_ = std::max(last_seq_,
                           absence.upto == SinkRow::Absence::kStill ? absence.after : absence.upto);
    }
  }
  last_seq_ = std::max(
      last_seq_, loaded(db.integer("SELECT coalesce(max(seq),0) FROM exceptions").value_or(0)));
  last_ticket_ = loaded(db.integer("SELECT coalesce(max(ticket),0) FROM unresolved").value_or(0));
  last_blob_ = loaded(db.integer("SELECT coalesce(max(id),0) FROM blobs").value_or(0));
  if (has_packs(db))
    last_pack_ = loaded(db.integer("SELECT coalesce(max(id),0) FROM packs").value_or(0));
  {
    const std::string pack = has_packs(db) ? "e.pack" : "0";
    Statement statement(db, ("SELECT x.sink, x.seq, x.state, e.bytes, " + pack +
                             " FROM exceptions x LEFT JOIN events e ON e.seq=x.seq")
                                .c_str());
    while (statement.step()) {
      const auto it = sinks_.find(static_cast<SinkId>(statement.integer(0)));
      if (it == sinks_.end()) continue;
      SinkRow& row = it->second;
      const std::uint64_t seq = loaded(statement.integer(1));
      const auto state = static_cast<State>(statement.integer(2));
      if (state == State::kParked) {
        ++row.parked;
        row.parked_bytes += loaded(statement.integer(3));
        if (statement.integer(4) == kInArchive) ++row.in_archive;
      }
      if (state == State::kDead) ++row.dead;
      if (seq > row.cursor) row.ahead[seq] = {state, true};
    }
  }
  {
    std::uint64_t from = last_seq_;
    for (const auto& [id, row] : sinks_) from = std::min(from, row.cursor);
    scan_kinds_.bind(stored(from));
    while (scan_kinds_.step()) {
      const std::uint64_t seq = loaded(scan_kinds_.integer(0));
      for (auto& [id, row] : sinks_) {
        if (seq <= row.cursor ||
            !row.wants(scan_kinds_.text(1), seq, static_cast<SinkId>(scan_kinds_.integer(3))) ||
            row.ahead.contains(seq)) {
          continue;
        }
        ++row.pending;
        row.pending_bytes += loaded(scan_kinds_.integer(2));
        if (scan_kinds_.integer(4) == kInArchive) ++row.in_archive;
        row.last_wanted = seq;
      }
    }
  }
  {
    const bool charged = marks_name_files(db);
    Statement statement(
        db,
        charged
            ? "SELECT source, count(*), max(ticket), sum(stored) FROM unresolved GROUP BY source"
            : "SELECT source, count(*), max(ticket), 0 FROM unresolved GROUP BY source");
    while (statement.step()) {
      sources_[std::string(statement.text(0))] = {loaded(statement.integer(1)),
                                                  loaded(statement.integer(2))};
      unresolved_count_ += loaded(statement.integer(1));
      unresolved_bytes_ += loaded(statement.integer(3));
    }
    if (charged) {
      Statement charges(db, "SELECT owner, sum(stored) FROM events WHERE owner<>'' GROUP BY owner");
      while (charges.step()) initial_charges[std::string(charges.text(0))] = charges.integer(1);
    }
  }
  {
    Statement statement(db, "SELECT source, entry, event_id FROM marks");
    while (statement.step()) marks_.put(statement.text(0), statement.text(1), statement.id(2));
    marks_.commit();
  }
  event_count_ = loaded(db.integer("SELECT count(*) FROM events").value_or(0)) + unresolved_count_;
  prune_waiting_ = !sinks_.empty();
  begin_memory();
  load_replaced();
  charge_changes_ = std::move(initial_charges);
  for (auto& [id, row] : sinks_) before_.sinks.emplace(id, row);  // so that publish() shows all
  for (auto& [name, source] : sources_) before_.sources.emplace(name, source);
  shared_.with([&](Shared& s) {
    s.events.start_after(last_seq_);
    s.tickets.start_after(last_ticket_);
  });
  publish();
  if (auto error = db.take_error()) return *std::move(error);
  return {};
}

void Writer::begin_memory() {
  before_ = Before{};
  before_.last_seq = last_seq_;
  before_.last_ticket = last_ticket_;
  before_.last_blob = last_blob_;
  before_.last_pack = last_pack_;
  before_.event_count = event_count_;
  before_.unresolved_count = unresolved_count_;
  before_.unresolved_bytes = unresolved_bytes_;
  before_.pruned = pruned_;
  before_.prune_waiting = prune_waiting_;
  published_.clear();
  published_tickets_.clear();
  resolved_tickets_.clear();
  removed_sinks_.clear();
  callbacks_.clear();
  published_replaced_.clear();
  candidates_.clear();
  blob_changes_.clear();
  released_packs_.clear();
  charge_changes_.clear();
}

void Writer::undo_memory() {
  for (auto& [id, row] : before_.sinks) sinks_[id] = std::move(row);
  for (const SinkId id : before_.added) sinks_.erase(id);
  for (auto& [name, source] : before_.sources) sources_[name] = source;
  last_seq_ = before_.last_seq;
  last_ticket_ = before_.last_ticket;
  last_blob_ = before_.last_blob;
  last_pack_ = before_.last_pack;
  event_count_ = before_.event_count;
  unresolved_count_ = before_.unresolved_count;
  unresolved_bytes_ = before_.unresolved_bytes;
  pruned_ = before_.pruned;
  prune_waiting_ = before_.prune_waiting;
  if (!prune_deferred_since_ && lowest_cursor() > pruned_)
    prune_deferred_since_ = std::chrono::steady_clock::now();
  marks_.rollback();
  begin_memory();
}

Result<void> Writer::commit(std::vector<Entry>& batch, bool prune_all) {
  Connection& db = *connection_;
  begin_memory();
  std::optional<Result<std::uint64_t>> answer;
  Command* command = nullptr;
  const auto give_up = [&](Error error) -> Result<void> {
    db.rollback();
    undo_memory();
    if (command == nullptr) return error;
    command->done(error);  // a command is tried once; the one who called decides
    return {};
  };
  if (!batch.empty()) command = std::get_if<Command>(&batch.front().what);
  begin_.run();
  FAULT_POINT("journal.after_begin");
  if (command != nullptr && db.ok()) {
    answer = command->run(*this);
    if (!*answer && db.ok()) return give_up(answer->error());
  }
  for (Entry& entry : batch) {
    if (!db.ok()) break;
    std::visit([this](auto& what) { apply(what); }, entry.what);
  }
  if (db.ok()) advance_idle_cursors();
  if (db.ok()) store_sinks();
  if (db.ok()) {
    // Nobody shall wait long for a commit of his own.
    const bool urgent =
        std::any_of(batch.begin(), batch.end(), [](const Entry& entry) { return entry.urgent; });
    prune(command != nullptr            ? Prune::kCandidates
          : prune_all || prune_waiting_ ? Prune::kAll
                                        : Prune::kIfMuch,
          urgent ? kPruneStep : kPruneChunk);
  }
  if (db.ok()) store_blob_counts();
  if (db.ok()) drop_packs();
  if (auto error = db.take_error()) return give_up(*std::move(error));
  FAULT_POINT("journal.before_commit");
  if (const int code = FAULT_ERROR("journal.commit"); code != 0)
    return give_up(system_error("journal: commit", code));
  commit_.run();
  if (auto error = db.take_error()) return give_up(*std::move(error));
  marks_.commit();
  FAULT_POINT("journal.after_commit");
  publish();
  if (command != nullptr && answer) command->done(*std::move(answer));
  return {};
}

void Writer::measure() {
  std::uint64_t pages = 0, free_pages = 0;
  if (page_count_.step()) pages = loaded(page_count_.integer(0));
  page_count_.reset();
  if (free_pages_.step()) free_pages = loaded(free_pages_.integer(0));
  free_pages_.reset();
  connection_->take_error();  // of these two no harm comes
  used_bytes_ = (pages - std::min(pages, free_pages)) * page_size_ + wal_bytes();
}

std::uint64_t Writer::wal_bytes() const noexcept {
  return wal_pages_ * (page_size_ + kFrameHeader);
}

void Writer::publish() {
  wal_pages_ = connection_->wal_pages();
  measure();
  uncharged_ = std::any_of(charge_changes_.begin(), charge_changes_.end(),
                           [](const auto& change) { return change.second < 0; });
  shared_.with_notify([&](Shared& s) {
    s.last_seq = last_seq_;
    s.event_count = event_count_;
    s.used_bytes = used_bytes_;
    s.wal_bytes = wal_bytes();
    s.unresolved_bytes = unresolved_bytes_;
    for (const auto& [owner, change] : charge_changes_) {
      std::uint64_t& charge = s.charges[owner];
      charge = change < 0 ? charge - std::min(charge, loaded(-change)) : charge + loaded(change);
      if (charge == 0) s.charges.erase(owner);
    }
    if (!charge_changes_.empty()) {
      s.largest_charge = 0;
      for (const auto& [owner, charge] : s.charges)
        s.largest_charge = std::max(s.largest_charge, charge);
    }
    for (auto& [id, seq] : published_replaced_) s.replaced[std::move(id)] = seq;
    for (Published& p : published_) s.events.add(p.seq, std::move(p.event));
    for (PublishedTicket& p : published_tickets_) s.tickets.add(p.ticket, std::move(p.event));
    for (const std::uint64_t ticket : resolved_tickets_) s.tickets.erase(ticket);
    for (const SinkId id : removed_sinks_) s.sinks.erase(id);
    for (const auto& [id, old] : before_.sinks) {
      const auto it = sinks_.find(id);
      if (it == sinks_.end()) continue;
      SinkRow& there = s.sinks[id];
      const std::uint64_t from = there.scanned_from, to = there.scanned_to;
      const bool same_kinds = there.kinds == it->second.kinds;
      there = it->second;
      if (same_kinds) {
        there.scanned_from = from;
        there.scanned_to = to;
      }
    }
    for (const auto& [name, old] : before_.sources) s.sources[name] = sources_[name];
    std::uint64_t passed = std::numeric_limits<std::uint64_t>::max();
    for (const auto& [id, row] : s.sinks) {
      if (row.registered) passed = std::min(passed, row.cursor);
    }
    if (passed != std::numeric_limits<std::uint64_t>::max()) s.events.drop_until(passed);
  });
}

SinkRow& Writer::touch(SinkId id) {
  SinkRow& row = sinks_.at(id);
  before_.sinks.try_emplace(id, row);
  return row;
}

// ---- sources
// ---------------------------------------------------------------------------------------------------

bool Writer::known(std::string_view source, const std::string& id) {
  if (marks_.has(source, id)) return true;
  bool found = in_events(id);
  if (!found && unresolved_count_ > 0) {
    found = find_unresolved_.bind_id(id).step();
    find_unresolved_.reset();
  }
  return found;
}

bool Writer::in_events(const std::string& id) {
  const bool found = find_event_.bind_id(id).step();
  const std::uint64_t seq = found ? loaded(find_event_.integer(0)) : 0;
  const SinkId target = found ? static_cast<SinkId>(find_event_.integer(1)) : 0;
  find_event_.reset();
  if (!found || target == 0) return found;
  event_info_.bind(stored(seq)).bind(stored(seq));
  EventInfo event;
  if (event_info_.step()) {
    event = {seq, loaded(event_info_.integer(1)), std::string(event_info_.text(2)), target,
             event_info_.integer(4) == kInArchive};
  }
  event_info_.reset();
  if (event.seq != 0) remove_fill_event(event);
  return false;
}

void Writer::remove_fill_event(const EventInfo& event) {
  if (sinks_.contains(event.target)) {
    SinkRow& row = touch(event.target);
    const auto state = exception_state(event.target, event.seq);
    if (still_to_come(row, event)) {
      subtract(row.pending, 1);
      subtract(row.pending_bytes, event.bytes);
      if (event.in_archive) subtract(row.in_archive, 1);
    } else if (state == State::kParked) {
      subtract(row.parked, 1);
      subtract(row.parked_bytes, event.bytes);
      if (event.in_archive) subtract(row.in_archive, 1);
    } else if (state == State::kDead) {
      subtract(row.dead, 1);
    }
    row.ahead.erase(event.seq);
  }
  Statement exceptions(*connection_, "DELETE FROM exceptions WHERE seq=?1");
  exceptions.bind(stored(event.seq)).run();
  delete_event(event.seq);
}

void Writer::put_mark(const std::string& source, const CaptureMark& mark) {
  const FileIdentity& identity = mark.identity;
  put_mark_.bind_text(source)
      .bind_text(mark.entry)
      .bind(stored(identity.device))
      .bind(stored(identity.inode));
  put_mark_.bind(identity.mtime_ns).bind(stored(mark.size)).bind_id(mark.event_id);
  put_mark_.bind_text(identity.file).bind(stored(identity.size)).run();
  marks_.put(source, mark.entry, mark.event_id);
}

Writer::Content Writer::store_content(const Event& event) {
  std::vector<std::int64_t> blobs;
  Content content;
  for (const EventFile& file : event.files) {
    if (file.bytes == nullptr) {
      blobs.push_back(kNoBytes);
      continue;
    }
    if (lies_in_pack(file)) {
      blobs.push_back(kInPack);
      continue;
    }
    const std::string key = content_key(file);
    if (find_blob_.bind_blob(key).step()) {
      blobs.push_back(find_blob_.integer(0));
      ++blob_changes_[blobs.back()];
    } else {
      blobs.push_back(stored(++last_blob_));
      const std::string_view frame = codec_.compress(*file.bytes);
      content.stored += frame.size();
      insert_blob_.bind(blobs.back())
          .bind_blob(key)
          .bind(static_cast<std::int64_t>(file.bytes->size()))
          .bind_large(frame)
          .run();
    }
    find_blob_.reset();
  }
  content.blobs = encode_blobs(blobs);
  if (std::find(blobs.begin(), blobs.end(), kInPack) != blobs.end()) {
    content.pack = stored(++last_pack_);
    const std::string_view frame = codec_.compress(pack_bytes(event));
    content.stored += frame.size();
    insert_pack_.bind(content.pack).bind_large(frame).run();
  }
  FAULT_POINT("journal.after_blob");
  return content;
}

Writer::Content Writer::content_of_row(const Statement& row, int first) {
  return {.blobs = std::string(row.text(first)),
          .pack = row.integer(first + 1),
          .stored = loaded(row.integer(first + 2)),
          .owner = std::string(row.text(first + 3))};
}

void Writer::release(const Content& content) {
  for (const std::int64_t blob : decode_blobs(content.blobs)) {
    if (blob > 0) --blob_changes_[blob];
  }
  if (content.pack > 0) released_packs_.push_back(content.pack);
  charge(content.owner, -stored(content.stored));
}

void Writer::charge(const std::string& owner, std::int64_t bytes) {
  if (!owner.empty()) charge_changes_[owner] += bytes;
}

void Writer::count_new(std::uint64_t seq, std::string_view kind, std::uint64_t bytes, SinkId target,
                       bool in_archive) {
  for (auto& [id, unused] : sinks_) {
    if (!unused.wants(kind, seq, target)) continue;
    SinkRow& row = touch(id);
    ++row.pending;
    row.pending_bytes += bytes;
    if (in_archive) ++row.in_archive;
    row.last_wanted = seq;
  }
}

void Writer::insert_event(const std::string& source, const std::shared_ptr<const Event>& event,
                          const Content& content) {
  const std::uint64_t seq = ++last_seq_;
  const std::uint64_t bytes = event->bytes_size();
  const std::string meta = encode_meta(*event);
  const std::string_view frame = codec_.compress(meta);
  const std::string owner = owner_of(*event);
  const std::int64_t size = stored(content.stored + frame.size());
  insert_event_.bind(stored(seq))
      .bind_id(event->id)
      .bind_text(source)
      .bind_text(event->kind)
      .bind_text(event->job.id);
  insert_event_.bind(event->captured_at.nanoseconds)
      .bind(stored(bytes))
      .bind_text(content.blobs)
      .bind_large(frame)
      .bind(content.pack)
      .bind(0)
      .bind_text(owner)
      .bind(size)
      .run();
  charge(owner, size);
  ++event_count_;
  count_new(seq, event->kind, bytes, 0, false);
  const bool whole = std::all_of(event->files.begin(), event->files.end(),
                                 [](const EventFile& f) { return f.bytes != nullptr; });
  published_.push_back({seq, whole ? event : nullptr});
}

void Writer::apply(Journal::Append& item) {
  if (item.mark && item.mark->event_id.empty()) item.mark->event_id = item.event->id;
  const bool fresh = !known(item.source, item.event->id);
  if (fresh && !item.resolve_first)
    insert_event(item.source, item.event, store_content(*item.event));
  if (fresh && item.resolve_first) {
    const Content content = store_content(*item.event);
    const std::uint64_t ticket = ++last_ticket_;
    const std::string meta = encode_meta(*item.event);
    const Event& event = *item.event;
    insert_unresolved_.bind(stored(ticket))
        .bind_id(event.id)
        .bind_text(item.source)
        .bind_text(event.kind)
        .bind_text(event.job.id);
    insert_unresolved_.bind(event.captured_at.nanoseconds)
        .bind(stored(event.bytes_size()))
        .bind_text(content.blobs)
        .bind_large(codec_.compress(meta))
        .bind(content.pack)
        .bind(stored(content.stored));
    unresolved_bytes_ += content.stored;
    (item.mark ? insert_unresolved_.bind_text(item.mark->entry) : insert_unresolved_.bind_null())
        .run();
    ++event_count_;
    ++unresolved_count_;
    SourceState& source = sources_[item.source];
    before_.sources.try_emplace(item.source, source);
    ++source.unresolved;
    source.last_ticket = ticket;
    published_tickets_.push_back({ticket, item.source, item.event});
  }
  if (item.mark) put_mark(item.source, *item.mark);
  if (item.durable) callbacks_.push_back({item.durable, fresh});
}

void Writer::apply(AppendMany& item) {
  for (const auto& event : item.events) {
    if (!known(item.source, event->id)) insert_event(item.source, event, store_content(*event));
  }
  if (item.position) put_position_.bind_text(item.source).bind_blob(*item.position).run();
}

void Writer::apply(PutMark& item) { put_mark(item.source, item.mark); }

void Writer::apply(ForgetMarks& item) {
  for (const std::string& entry : item.entries) {
    forget_mark_.bind_text(item.source).bind_text(entry).run();
    marks_.forget(item.source, entry);
  }
}

void Writer::apply(ResolveMany& item) {
  FAULT_POINT("journal.before_resolved");
  for (const Journal::Resolved& resolved : item.events) {
    if (!resolved.event || !take_unresolved_.bind(stored(resolved.ticket)).step()) {
      take_unresolved_.reset();
      continue;  // resolved before
    }
    const std::string source(take_unresolved_.text(0));
    // Its bytes stay what they are, and move as they are.
    const Content content{.blobs = std::string(take_unresolved_.text(5)),
                          .pack = take_unresolved_.integer(8),
                          .stored = loaded(take_unresolved_.integer(9)),
                          .owner = ""};
    std::shared_ptr<const Event> event =
        shared_.with([&](Shared& s) { return s.tickets.find(resolved.ticket); });
    if (event != nullptr) {
      event = std::make_shared<const Event>(with_resolution(*event, *resolved.event));
    } else if (auto json = codec_.decompress(take_unresolved_.text(6))) {
      if (auto captured = event_from_json(*json)) {
        event = std::make_shared<const Event>(with_resolution(*captured, *resolved.event));
      }
    }
    take_unresolved_.reset();
    if (event == nullptr) {
      publish_damaged(resolved.ticket);
      continue;
    }
    delete_unresolved_.bind(stored(resolved.ticket)).run();
    --event_count_;
    --unresolved_count_;
    subtract(unresolved_bytes_, content.stored);
    SourceState& state = sources_[source];
    before_.sources.try_emplace(source, state);
    --state.unresolved;
    resolved_tickets_.push_back(resolved.ticket);
    // An id that is there already can only be another's by mistake; two events with one id are one.
    if (in_events(event->id)) {
      release(content);
    } else {
      insert_event(source, event, content);
      if (!event->user.verified) note_unverified(source, *event);
    }
  }
}

void Writer::apply(PublishDamaged& item) { publish_damaged(item.ticket); }

void Writer::publish_damaged(std::uint64_t ticket) {
  if (!take_unresolved_.bind(stored(ticket)).step()) return;
  const std::string source(take_unresolved_.text(0));
  const std::string kind(take_unresolved_.text(1));
  const std::uint64_t bytes = loaded(take_unresolved_.integer(4));
  const std::string meta(take_unresolved_.text(6));
  const std::uint64_t seq = last_seq_ + 1;
  insert_event_.bind(stored(seq))
      .bind_id(take_unresolved_.id(7))
      .bind_text(source)
      .bind_text(kind)
      .bind_text(take_unresolved_.text(2));
  insert_event_.bind(take_unresolved_.integer(3))
      .bind(stored(bytes))
      .bind_text(take_unresolved_.text(5))
      .bind_large(meta);
  insert_event_.bind(take_unresolved_.integer(8))
      .bind(0)
      .bind_text("")
      .bind(take_unresolved_.integer(9))
      .run();
  subtract(unresolved_bytes_, loaded(take_unresolved_.integer(9)));
  take_unresolved_.reset();
  delete_unresolved_.bind(stored(ticket)).run();
  ++last_seq_;
  --unresolved_count_;
  SourceState& state = sources_[source];
  before_.sources.try_emplace(source, state);
  --state.unresolved;
  resolved_tickets_.push_back(ticket);
  count_new(seq, kind, bytes, 0, false);
  published_.push_back({seq, nullptr});
}

// An archive holds them too, so here their locators are enough. Whoever still needs one keeps its
// place in the order.
void Writer::apply(ReleaseMany& item) {
  FAULT_POINT("journal.before_release");
  for (const ReleaseMany::Item& released : item.items) {
    const std::int64_t seq = stored(released.sequence);
    if (!content_of_.bind(seq).step()) continue;  // nobody needs it any more
    const Content content = content_of_row(content_of_, 0);
    content_of_.reset();
    if (content.pack == kInArchive) continue;
    release(content);
    release_one_.bind(seq).bind_large(codec_.compress(released.locator)).run();
    event_info_.bind(seq).bind(seq);
    EventInfo event;
    if (event_info_.step())
      event = {released.sequence, 0, std::string(event_info_.text(2)),
               static_cast<SinkId>(event_info_.integer(3))};
    event_info_.reset();
    for (auto& [id, row] : sinks_) {
      if (still_to_come(row, event)) ++touch(id).in_archive;
    }
    parked_by_.bind(seq);
    while (parked_by_.step()) {
      if (const auto id = static_cast<SinkId>(parked_by_.integer(0)); sinks_.contains(id))
        ++touch(id).in_archive;
    }
  }
  FAULT_POINT("journal.after_release");
}

bool Writer::still_to_come(const SinkRow& row, const EventInfo& event) const {
  return event.seq > row.cursor && row.wants(event.kind, event.seq, event.target) &&
         !row.ahead.contains(event.seq);
}

bool Writer::kept_for_absent(const EventInfo& event) const {
  return std::any_of(sinks_.begin(), sinks_.end(), [&](const auto& sink) {
    return sink.second.absent() && still_to_come(sink.second, event);
  });
}

// ---- sinks
// -----------------------------------------------------------------------------------------------------

// What is known of the events that these settle. They mostly lie side by side: then one statement
// finds them all.
void Writer::look_up(const std::vector<Journal::Settle>& settlements) {
  infos_.clear();
  if (settlements.empty()) return;
  const auto range = [this](std::uint64_t first, std::uint64_t last) {
    event_info_.bind(stored(first)).bind(stored(last));
    while (event_info_.step()) {
      infos_.push_back({loaded(event_info_.integer(0)), loaded(event_info_.integer(1)),
                        std::string(event_info_.text(2)),
                        static_cast<SinkId>(event_info_.integer(3)),
                        event_info_.integer(4) == kInArchive});
    }
  };
  const auto by_seq = [](const auto& a, const auto& b) { return a.sequence < b.sequence; };
  const auto [least, most] = std::minmax_element(settlements.begin(), settlements.end(), by_seq);
  if (most->sequence - least->sequence < 2 * settlements.size()) {
    range(least->sequence, most->sequence);
    return;
  }
  for (const Journal::Settle& settle : settlements) range(settle.sequence, settle.sequence);
  std::sort(infos_.begin(), infos_.end(),
            [](const EventInfo& a, const EventInfo& b) { return a.seq < b.seq; });
}

const Writer::EventInfo* Writer::info(std::uint64_t seq) const {
  const auto found =
      std::lower_bound(infos_.begin(), infos_.end(), seq,
                       [](const EventInfo& event, std::uint64_t n) { return event.seq < n; });
  return found == infos_.end() || found->seq != seq ? nullptr : &*found;
}

std::optional<State> Writer::exception_state(SinkId sink, std::uint64_t seq) {
  std::optional<State> result;
  if (exception_state_.bind(sink).bind(stored(seq)).step())
    result = static_cast<State>(exception_state_.integer(0));
  exception_state_.reset();
  return result;
}

void Writer::put_exception(SinkId sink, const Journal::Settle& settle, State state) {
  put_exception_.bind(sink)
      .bind(stored(settle.sequence))
      .bind(static_cast<std::int64_t>(state))
      .bind_text(settle.reason)
      .bind(settle.attempts);
  put_exception_.bind(settle.first_attempt.nanoseconds).bind(settle.last_attempt.nanoseconds);
  put_exception_.bind(exception_sum(sink, stored(settle.sequence), state)).run();
}

void Writer::erase_exception(SinkId sink, std::uint64_t seq) {
  erase_exception_.bind(sink).bind(stored(seq)).run();
  candidates_.push_back(seq);
}

void Writer::apply(SettleMany& item) {
  if (!sinks_.contains(item.sink)) return;  // removed meanwhile
  FAULT_POINT("journal.before_settle");
  SinkRow& row = touch(item.sink);
  const std::uint64_t old_cursor = row.cursor;
  const std::uint64_t cursor = std::clamp(item.cursor, old_cursor, std::max(old_cursor, last_seq_));
  look_up(item.settlements);
  for (const Journal::Settle& settle : item.settlements) {
    const std::uint64_t seq = settle.sequence;
    const EventInfo* const event = info(seq);
    if (event == nullptr) continue;  // settled and removed before
    const bool beyond = seq > old_cursor;
    std::optional<State> before;
    if (beyond) {
      if (const auto it = row.ahead.find(seq); it != row.ahead.end()) before = it->second.state;
    } else {
      before = exception_state(item.sink, seq);
      if (!before) continue;  // acknowledged before
    }
    if (before && before != State::kParked) continue;  // settled before
    if (!before && row.wants(event->kind, seq, event->target)) {
      subtract(row.pending, 1);
      subtract(row.pending_bytes, event->bytes);
      if (event->in_archive && settle.outcome != Outcome::kRetry) subtract(row.in_archive, 1);
    }
    if (before == State::kParked && settle.outcome != Outcome::kRetry) {
      subtract(row.parked, 1);
      subtract(row.parked_bytes, event->bytes);
      if (event->in_archive) subtract(row.in_archive, 1);
    }
    switch (settle.outcome) {
      case Outcome::kAcknowledged:
        if (before) erase_exception(item.sink, seq);
        ++row.acknowledged;
        row.last_success = clock_.now();
        settled_bytes_ += event->bytes;
        if (beyond) row.ahead[seq] = {State::kSettled, false};
        break;
      case Outcome::kRetry:
        if (!before) {
          ++row.parked;
          row.parked_bytes += event->bytes;
        }
        put_exception(item.sink, settle, State::kParked);
        if (beyond) row.ahead[seq] = {State::kParked, true};
        break;
      case Outcome::kRejected:
        ++row.dead;
        put_exception(item.sink, settle, State::kDead);
        if (beyond) row.ahead[seq] = {State::kDead, true};
        break;
    }
  }
  bool stored_ones = false;
  for (auto it = row.ahead.begin(); it != row.ahead.end() && it->first <= cursor;
       it = row.ahead.erase(it)) {
    stored_ones = stored_ones || (it->second.state == State::kSettled && it->second.stored);
  }
  if (stored_ones)
    erase_settled_.bind(item.sink).bind(stored(cursor)).bind(stored(old_cursor)).run();
  row.cursor = cursor;
  for (auto& [seq, ahead] : row.ahead) {
    if (ahead.state != State::kSettled || ahead.stored) continue;
    put_exception(item.sink, {.sequence = seq, .outcome = Outcome::kAcknowledged}, State::kSettled);
    ahead.stored = true;
  }
  FAULT_POINT("journal.after_settle");
}

// A sink whose kinds leave out the newest events shall not hold them. What is passed over is looked
// at, not counted: no mistake in a counter may make an event vanish.
void Writer::advance_idle_cursors() {
  for (auto& [id, unused] : sinks_) {
    if (unused.absent() || unused.pending != 0 || unused.cursor >= last_seq_ ||
        !unused.ahead.empty())
      continue;
    SinkRow& row = touch(id);
    bool wanted = false;
    scan_kinds_.bind(stored(row.cursor));
    while (scan_kinds_.step()) {
      if (!row.wants(scan_kinds_.text(1), loaded(scan_kinds_.integer(0)),
                     static_cast<SinkId>(scan_kinds_.integer(3))))
        continue;
      wanted = true;
      break;
    }
    scan_kinds_.reset();
    if (wanted) {
      recount(row);
    } else if (connection_->ok()) {
      row.cursor = last_seq_;
    }
  }
}

void Writer::recount(SinkRow& row) {
  row.pending = row.pending_bytes = row.in_archive = row.last_wanted = 0;
  scan_kinds_.bind(stored(row.cursor));
  while (scan_kinds_.step()) {
    const std::uint64_t seq = loaded(scan_kinds_.integer(0));
    if (!row.wants(scan_kinds_.text(1), seq, static_cast<SinkId>(scan_kinds_.integer(3))) ||
        row.ahead.contains(seq))
      continue;
    ++row.pending;
    row.pending_bytes += loaded(scan_kinds_.integer(2));
    if (scan_kinds_.integer(4) == kInArchive) ++row.in_archive;
    row.last_wanted = seq;
  }
  Statement parked(*connection_,
                   "SELECT count(*) FROM exceptions x JOIN events e ON e.seq=x.seq WHERE x.sink=?1 "
                   "AND x.state=1 AND e.pack=-1");
  if (parked.bind(row.id).step()) row.in_archive += loaded(parked.integer(0));
}

void Writer::store_sinks() {
  for (const auto& [id, old] : before_.sinks) {
    const auto it = sinks_.find(id);
    if (it == sinks_.end()) continue;
    const SinkRow& row = it->second;
    if (row.cursor == old.cursor && row.acknowledged == old.acknowledged &&
        row.last_success == old.last_success)
      continue;
    store_sink_.bind(id).bind(stored(row.cursor)).bind(stored(row.acknowledged));
    (row.last_success ? store_sink_.bind(row.last_success->nanoseconds) : store_sink_.bind_null())
        .bind(sink_sum(row.name, row.kinds, stored(row.cursor), encode_absences(row.absences)))
        .run();
  }
}

std::uint64_t Writer::lowest_cursor() const {
  if (sinks_.empty()) return 0;  // nobody to deliver to yet: everything stays
  // What a sink that is not configured keeps is looked at event by event: all else it does not
  // hold.
  std::uint64_t lowest = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [id, row] : sinks_) {
    if (!row.absent()) lowest = std::min(lowest, row.cursor);
  }
  return lowest == std::numeric_limits<std::uint64_t>::max() ? 0 : lowest;
}

void Writer::prune(Prune what, std::int64_t most) {
  const std::uint64_t lowest = lowest_cursor();
  FAULT_POINT("journal.before_prune");
  for (const std::uint64_t seq : candidates_) {
    if (seq > lowest) continue;
    bool held = exception_of_.bind(stored(seq)).step();
    exception_of_.reset();
    if (!held) {
      event_info_.bind(stored(seq)).bind(stored(seq));
      held = event_info_.step() && kept_for_absent({seq, 0, std::string(event_info_.text(2)),
                                                    static_cast<SinkId>(event_info_.integer(3))});
      event_info_.reset();
    }
    if (!held) delete_event(seq);
  }
  // A command is tried once, so it does no more than it must.
  prune_waiting_ = what == Prune::kCandidates && lowest > pruned_;
  if (what == Prune::kCandidates) return;
  if (what == Prune::kIfMuch && lowest > pruned_ && lowest - pruned_ < loaded(kPruneChunk) &&
      settled_bytes_ < kPruneBytes) {
    if (!prune_deferred_since_) prune_deferred_since_ = std::chrono::steady_clock::now();
    return;
  }
  prune_deferred_since_.reset();
  settled_bytes_ = 0;
  if (lowest <= pruned_) return;
  std::vector<std::pair<std::int64_t, Content>> chunk;
  prune_scan_.bind(stored(pruned_)).bind(stored(lowest)).bind(most);
  std::set<std::int64_t> held;
  while (prune_scan_.step()) {
    const std::int64_t seq = prune_scan_.integer(0);
    chunk.emplace_back(seq, content_of_row(prune_scan_, 1));
    if (kept_for_absent({loaded(seq), 0, std::string(prune_scan_.text(5)),
                         static_cast<SinkId>(prune_scan_.integer(6))}))
      held.insert(seq);
  }
  prune_waiting_ = static_cast<std::int64_t>(chunk.size()) == most;
  const std::uint64_t upto = prune_waiting_ ? loaded(chunk.back().first) : lowest;
  exceptions_in_.bind(stored(pruned_)).bind(stored(upto));
  while (exceptions_in_.step()) held.insert(exceptions_in_.integer(0));
  if (!connection_->ok()) return;
  if (!chunk.empty()) FAULT_POINT("journal.during_prune");
  if (held.empty() && !chunk.empty()) {
    prune_range_.bind(stored(pruned_)).bind(stored(upto)).run();
  }
  for (const auto& [seq, content] : chunk) {
    if (held.contains(seq)) continue;
    if (!held.empty()) prune_one_.bind(seq).run();
    release(content);
    --event_count_;
  }
  pruned_ = upto;
}

void Writer::delete_event(std::uint64_t seq) {
  if (content_of_.bind(stored(seq)).step()) {
    const Content content = content_of_row(content_of_, 0);
    content_of_.reset();
    prune_one_.bind(stored(seq)).run();
    release(content);
    --event_count_;
  }
}

void Writer::store_blob_counts() {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes(blob_changes_.begin(),
                                                             blob_changes_.end());
  std::erase_if(changes, [](const auto& change) { return change.second == 0; });
  std::sort(changes.begin(), changes.end());
  for (auto from = changes.begin(); from != changes.end();) {
    // Neighbours that change alike, as those of events that leave one after the other.
    auto to = from;
    while (to + 1 != changes.end() && (to + 1)->first == to->first + 1 &&
           (to + 1)->second == from->second)
      ++to;
    change_blobs(from->first, to->first, from->second);
    if (!connection_->ok()) return;
    from = to + 1;
  }
}

void Writer::drop_packs() {
  // Those of events that leave one after the other lie side by side.
  std::sort(released_packs_.begin(), released_packs_.end());
  for (auto from = released_packs_.begin(); from != released_packs_.end() && connection_->ok();) {
    auto to = from;
    while (to + 1 != released_packs_.end() && *(to + 1) == *to + 1) ++to;
    FAULT_POINT("journal.before_blob_delete");
    drop_packs_.bind(*from).bind(*to).run();
    from = to + 1;
  }
}

// The contents first to last have `change` users more, each; those without any go.
void Writer::change_blobs(std::int64_t first, std::int64_t last, std::int64_t change) {
  if (change < 0) {
    FAULT_POINT("journal.before_blob_delete");
    drop_blobs_.bind(first).bind(last).bind(-change).run();
    if (!connection_->ok() || connection_->changes() > last - first) return;
  }
  change_blobs_.bind(first).bind(last).bind(change).run();
}

// ---- commands
// --------------------------------------------------------------------------------------------------

Result<std::uint64_t> Writer::register_sink(const std::string& name,
                                            const std::vector<std::string>& kinds) {
  const std::string joined = join_kinds(kinds);
  const auto it = std::find_if(sinks_.begin(), sinks_.end(),
                               [&](const auto& sink) { return sink.second.name == name; });
  if (it != sinks_.end()) {
    SinkRow& row = touch(it->first);
    row.registered = true;
    if (row.absent()) {
      row.absences.back().upto = last_seq_;
      std::erase_if(row.absences, [&](const SinkRow::Absence& a) {
        return a.upto <= std::max(a.after, row.cursor);
      });
      pruned_ = std::min(
          pruned_,
          row.cursor);  // what it kept is again held by its cursor, and removed when that passes
      store_absences(row);
      recount(row);
    }
    if (row.kinds == joined) return it->first;
    row.kinds = joined;
    row.patterns = kinds;
    recount(row);
    Statement statement(*connection_, "UPDATE sinks SET kinds=?2, sum=?3 WHERE id=?1");
    statement.bind(it->first)
        .bind_text(joined)
        .bind(sink_sum(name, joined, stored(row.cursor), encode_absences(row.absences)))
        .run();
    return it->first;
  }
  const SinkId id = static_cast<SinkId>(
      connection_->integer("SELECT coalesce(max(id),0)+1 FROM sinks").value_or(1));
  Statement statement(*connection_,
                      "INSERT INTO sinks(id,name,kinds,cursor,acknowledged,last_success,sum) "
                      "VALUES(?1,?2,?3,0,0,NULL,?4)");
  statement.bind(id).bind_text(name).bind_text(joined).bind(sink_sum(name, joined, 0, "")).run();
  SinkRow& row = sinks_[id];
  before_.added.push_back(id);
  row.id = id;
  row.name = name;
  row.kinds = joined;
  row.patterns = kinds;
  row.registered = true;
  touch(id);
  recount(row);
  pruned_ = 0;  // what only an exception held has a second holder now
  return id;
}

Result<std::uint64_t> Writer::remove_sink(const std::string& name) {
  const auto it = std::find_if(sinks_.begin(), sinks_.end(),
                               [&](const auto& sink) { return sink.second.name == name; });
  if (it == sinks_.end())
    return Error{ErrorKind::kPermanent, "the journal knows no sink " + printable(name)};
  if (it->second.registered)
    return Error{
        ErrorKind::kPermanent,
        "sink " + printable(name) + " is configured; remove it from the configuration first"};
  const SinkId id = it->first;
  pruned_ = std::min(pruned_, it->second.cursor);
  {
    Statement statement(*connection_, "SELECT seq FROM exceptions WHERE sink=?1");
    statement.bind(id);
    while (statement.step()) candidates_.push_back(loaded(statement.integer(0)));
  }
  Statement exceptions(*connection_, "DELETE FROM exceptions WHERE sink=?1");
  exceptions.bind(id).run();
  Statement sink(*connection_, "DELETE FROM sinks WHERE id=?1");
  sink.bind(id).run();
  Statement fills(*connection_, "DELETE FROM fills WHERE sink=?1");
  fills.bind_text(name).run();
  touch(id);
  sinks_.erase(id);
  removed_sinks_.push_back(id);
  if (sinks_.empty()) candidates_.clear();
  return std::uint64_t{1};
}

Result<std::uint64_t> Writer::retire_other_sinks(const std::vector<std::string>& configured) {
  std::uint64_t retired = 0;
  for (auto& [id, unused] : sinks_) {
    if (std::find(configured.begin(), configured.end(), unused.name) != configured.end()) continue;
    SinkRow& row = touch(id);
    row.registered = false;
    if (row.absent()) continue;
    row.absences.push_back({.after = last_seq_});
    store_absences(row);
    ++retired;
  }
  return retired;
}

void Writer::store_absences(SinkRow& row) {
  const std::string text = encode_absences(row.absences);
  Statement statement(*connection_, "UPDATE sinks SET absences=?2, sum=?3 WHERE id=?1");
  statement.bind(row.id)
      .bind_text(text)
      .bind(sink_sum(row.name, row.kinds, stored(row.cursor), text))
      .run();
}

Result<std::uint64_t> Writer::set_fill(const Journal::Fill& fill) {
  Statement statement(
      *connection_,
      "INSERT OR REPLACE INTO fills(sink,archive,since,position,sent,present,skipped,total,state) "
      "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)");
  statement.bind_text(fill.sink)
      .bind_text(fill.archive)
      .bind(fill.since.nanoseconds)
      .bind_text(fill.position);
  statement.bind(stored(fill.sent))
      .bind(stored(fill.present))
      .bind(stored(fill.skipped))
      .bind(stored(fill.total));
  statement.bind(static_cast<std::int64_t>(fill.state)).run();
  return std::uint64_t{1};
}

Result<std::uint64_t> Writer::fill(Journal::Fill progress,
                                   const std::vector<std::shared_ptr<const Event>>& events) {
  const auto it = std::find_if(sinks_.begin(), sinks_.end(),
                               [&](const auto& sink) { return sink.second.name == progress.sink; });
  if (it == sinks_.end() || !it->second.registered)
    return Error{ErrorKind::kPermanent, "sink " + printable(progress.sink) + " is not configured"};
  const SinkId id = it->first;
  for (const auto& event : events) {
    find_unresolved_.bind_id(event->id);
    const bool unresolved = unresolved_count_ > 0 && find_unresolved_.step();
    find_unresolved_.reset();
    const bool found = find_event_.bind_id(event->id).step();
    const std::uint64_t there = found ? loaded(find_event_.integer(0)) : 0;
    const SinkId target = found ? static_cast<SinkId>(find_event_.integer(1)) : 0;
    const bool in_archive = found && find_event_.integer(2) == kInArchive;
    find_event_.reset();
    if (unresolved ||
        (found && (it->second.wants(event->kind, there, target) || exception_state(id, there)))) {
      ++progress.present;
      continue;
    }
    ++progress.sent;
    if (found) {
      // Others wait for it; this sink gets it as one that is to be tried again.
      SinkRow& row = touch(id);
      put_exception(id, {.sequence = there, .outcome = Outcome::kRetry, .reason = "fill"},
                    State::kParked);
      ++row.parked;
      row.parked_bytes += event->bytes_size();
      if (in_archive) ++row.in_archive;
      ++row.generation;
      if (there > row.cursor) row.ahead[there] = {State::kParked, true};
      continue;
    }
    const std::uint64_t seq = ++last_seq_;
    const std::uint64_t bytes = event->bytes_size();
    insert_event_.bind(stored(seq))
        .bind_id(event->id)
        .bind_text("")
        .bind_text(event->kind)
        .bind_text(event->job.id);
    insert_event_.bind(event->captured_at.nanoseconds).bind(stored(bytes)).bind_text("");
    insert_event_.bind_large(codec_.compress(encode_locator(*event)))
        .bind(kInArchive)
        .bind(id)
        .bind_text("")
        .bind(0)
        .run();
    ++event_count_;
    count_new(seq, event->kind, bytes, id, true);
    published_.push_back({seq, nullptr});
  }
  return set_fill(progress);
}

Result<std::uint64_t> Writer::change_dead(const std::optional<std::string>& sink,
                                          const std::string& event_id, bool retry) {
  struct Letter {
    SinkId sink;
    std::uint64_t seq;
    std::string id;
    std::uint64_t bytes;
    bool in_archive;
  };
  std::vector<Letter> letters;
  {
    Statement statement(*connection_,
                        "SELECT x.sink, x.seq, e.id, e.bytes, e.pack FROM exceptions x JOIN events "
                        "e ON e.seq=x.seq WHERE x.state=2 "
                        "ORDER BY x.sink, x.seq");
    while (statement.step()) {
      const auto it = sinks_.find(static_cast<SinkId>(statement.integer(0)));
      if (it == sinks_.end() || (sink && it->second.name != *sink)) continue;
      Letter letter{it->first, loaded(statement.integer(1)), statement.id(2),
                    loaded(statement.integer(3)), statement.integer(4) == kInArchive};
      if (letter.id.starts_with(event_id)) letters.push_back(std::move(letter));
    }
  }
  if (!event_id.empty()) {
    if (std::any_of(letters.begin(), letters.end(),
                    [&](const Letter& l) { return l.id == event_id; })) {
      std::erase_if(letters, [&](const Letter& l) { return l.id != event_id; });
    } else if (event_id.size() < 8) {
      return Error{ErrorKind::kPermanent,
                   "event id " + printable(event_id) + ": give at least 8 digits"};
    } else if (std::any_of(letters.begin(), letters.end(),
                           [&](const Letter& l) { return l.id != letters.front().id; })) {
      return Error{ErrorKind::kPermanent, "event id " + printable(event_id) +
                                              ": several events begin so; give more digits"};
    }
  }
  Statement park(*connection_, "UPDATE exceptions SET state=1, sum=?3 WHERE sink=?1 AND seq=?2");
  for (const Letter& letter : letters) {
    SinkRow& row = touch(letter.sink);
    subtract(row.dead, 1);
    const bool beyond = letter.seq > row.cursor;
    if (retry) {
      park.bind(letter.sink)
          .bind(stored(letter.seq))
          .bind(exception_sum(letter.sink, stored(letter.seq), State::kParked))
          .run();
      ++row.parked;
      row.parked_bytes += letter.bytes;
      if (letter.in_archive) ++row.in_archive;
      ++row.generation;
      if (beyond) row.ahead[letter.seq] = {State::kParked, true};
    } else if (beyond) {  // its row still says that the cursor may pass
      put_exception(letter.sink, {.sequence = letter.seq, .outcome = Outcome::kAcknowledged},
                    State::kSettled);
      row.ahead[letter.seq] = {State::kSettled, true};
    } else {
      erase_exception(letter.sink, letter.seq);
    }
  }
  return static_cast<std::uint64_t>(letters.size());
}

void Writer::checkpoint(bool now) {
  const std::uint64_t pages = connection_->wal_pages();
  if (pages < checkpointed_at_) checkpointed_at_ = 0;  // -wal was restarted
  if (pages == 0 || (!now && pages < checkpointed_at_ + checkpoint_pages_)) return;
  FAULT_POINT("journal.checkpoint");
  checkpointed_at_ = pages;
  // A failure shows again at the next commit that needs the room, and is reported there. Readers
  // hold -wal only for moments, but if one is always there it is never restarted: then wait for
  // them a little.
  const bool patient = !now && pages >= 4 * checkpoint_pages_;
  const bool whole =
      connection_->checkpoint(patient ? kReaderPatience : std::chrono::milliseconds{0});
  wal_pages_ = whole ? 0 : pages;
  measure();
  shared_.with([&](Shared& s) {
    s.used_bytes = used_bytes_;
    s.wal_bytes = wal_bytes();
  });
}

}  // namespace scriptorium::journal
