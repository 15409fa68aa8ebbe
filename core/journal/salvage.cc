#include "core/journal/salvage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/base/fault_point.h"
#include "core/base/file.h"
#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/journal/format.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {
namespace {

constexpr std::uint64_t kBatch = 1000;  // events a transaction
constexpr std::uint64_t kMostFailures =
    2'000'000;  // probes of unreadable ranges before the rest is given up

struct File {
  std::string key;  // sha256, raw
  std::int64_t size = 0;
  std::string frame;
  bool in_pack = false;
  bool absent = false;  // the event came without its bytes
};

// Writes the new journal.
class Target {
 public:
  explicit Target(Connection& db)
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
                      "INSERT INTO "
                      "events(seq,id,source,kind,job_id,captured_at,bytes,blobs,meta,pack,stored,"
                      "target,owner) "
                      "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)"),
        insert_unresolved_(db,
                           "INSERT INTO "
                           "unresolved(ticket,id,source,kind,job_id,captured_at,bytes,blobs,meta,"
                           "pack,stored,entry) "
                           "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)") {}

  bool has(const std::string& id) {
    const bool found = find_event_.bind_id(id).step();
    find_event_.reset();
    return found;
  }
  // A number that another event has already (only a damaged page can bring that) is passed on to
  // the next free one.
  std::int64_t free_number(bool unresolved, std::int64_t wanted) {
    Statement& find = unresolved ? find_ticket_ : find_seq_;
    while (true) {
      const bool taken = find.bind(wanted).step();
      find.reset();
      if (!taken) return wanted;
      ++wanted;
    }
  }
  std::string add_files(const std::vector<File>& files, std::uint64_t& stored) {
    std::vector<std::int64_t> blobs;
    for (const File& file : files) {
      if (file.in_pack) {
        blobs.push_back(kInPack);
        continue;
      }
      if (file.absent) {
        blobs.push_back(kNoBytes);
        continue;
      }
      std::int64_t blob = 0;
      if (find_blob_.bind_blob(file.key).step()) blob = find_blob_.integer(0);
      find_blob_.reset();
      if (blob == 0) {
        insert_blob_.bind_blob(file.key).bind(file.size).bind_large(file.frame).run();
        stored += file.frame.size();
        blob = db_.integer("SELECT last_insert_rowid()").value_or(0);
      }
      add_ref_.bind(blob).run();
      blobs.push_back(blob);
    }
    return encode_blobs(blobs);
  }
  void add_event(bool unresolved, std::int64_t number, const std::string& source,
                 const Event& event, const std::vector<File>& files, std::string_view pack,
                 std::string_view meta, const std::string& entry, std::int64_t target) {
    std::uint64_t stored = pack.size() + (unresolved ? 0 : meta.size());
    const std::string blobs = add_files(files, stored);
    std::int64_t pack_id = 0;
    if (!pack.empty()) {
      insert_pack_.bind_large(pack).run();
      pack_id = db_.integer("SELECT last_insert_rowid()").value_or(0);
    }
    std::uint64_t bytes = 0;
    for (const File& file : files) bytes += static_cast<std::uint64_t>(file.size);
    Statement& insert = unresolved ? insert_unresolved_ : insert_event_;
    insert.bind(free_number(unresolved, number))
        .bind_id(event.id)
        .bind_text(source)
        .bind_text(event.kind)
        .bind_text(event.job.id);
    insert.bind(event.captured_at.nanoseconds)
        .bind(static_cast<std::int64_t>(bytes))
        .bind_text(blobs)
        .bind_large(meta)
        .bind(pack_id)
        .bind(static_cast<std::int64_t>(stored));
    if (unresolved) {
      if (entry.empty()) {
        insert.bind_null();
      } else {
        insert.bind_text(entry);
      }
    } else {
      insert.bind(target).bind_text(owner_of(event));
    }
    insert.run();
    count_insert();
  }
  // Of an event that an archive holds.
  void add_locator(std::int64_t number, const std::string& source, const Event& event,
                   std::int64_t bytes, std::string_view meta, std::int64_t target) {
    insert_event_.bind(free_number(false, number))
        .bind_id(event.id)
        .bind_text(source)
        .bind_text(event.kind)
        .bind_text(event.job.id);
    insert_event_.bind(event.captured_at.nanoseconds)
        .bind(bytes)
        .bind_text("")
        .bind_large(meta)
        .bind(kInArchive)
        .bind(std::int64_t{0})
        .bind(target)
        .bind_text("")
        .run();
    count_insert();
  }

 private:
  void count_insert() {
    if (++pending_ < kBatch) return;
    pending_ = 0;
    db_.execute("COMMIT");
    db_.execute("BEGIN");
  }

  Connection& db_;
  Statement find_blob_, insert_blob_, insert_pack_, add_ref_, find_event_, find_seq_, find_ticket_,
      insert_event_, insert_unresolved_;
  std::uint64_t pending_ = 0;
};

class Salvager {
 public:
  Salvager(Connection& to, Logger& log) : to_(to), target_(to), log_(log) {}

  // One look at the damaged file. False if it could not be opened, or a table could not be read to
  // its end.
  bool pass(const std::string& file, Connection::Mode mode) {
    auto opened = Connection::open(file, mode);
    if (!opened) {
      if (opened.error().kind() == ErrorKind::kExhausted) exhausted_ = opened.error();
      return false;
    }
    from_ = opened->get();
    whole_ = true;
    from_->execute("PRAGMA cache_size=-8192");
    if (!from_->integer("SELECT count(*) FROM sqlite_schema")) {
      forgive();
      from_ = nullptr;
      return false;
    }
    // What stands first in the list is what the rest is judged by.
    sinks();
    events(false);
    events(true);
    marks();
    from_ = nullptr;
    return whole_;
  }

  // What kept a pass from reading, if it was want of disk, memory or descriptors.
  const std::optional<Error>& exhausted() const noexcept { return exhausted_; }

  // After the passes.
  Salvaged finish() {
    const bool lost = !lost_.empty() || events_damaged_;
    result_.lost_events = lost_.size();
    // A cursor says what need not be delivered again, so it counts only where nothing speaks
    // against it.
    const bool trusted = sinks_whole_ && exceptions_whole_;
    result_.redelivers = !trusted;
    for (auto& [id, sink] : sinks_) {
      const std::int64_t cursor = trusted && sink.sum_matches ? sink.cursor : 0;
      if (!sink.sum_matches) result_.redelivers = true;
      Statement insert(
          to_,
          "INSERT INTO sinks(id,name,kinds,cursor,acknowledged,last_success,sum,absences) "
          "VALUES(?1,?2,?3,?4,?5,?6,?7,?8)");
      const std::string absences = sink.sum_matches ? sink.absences : std::string{};
      insert.bind(id)
          .bind_text(sink.name)
          .bind_text(sink.kinds)
          .bind(cursor)
          .bind(sink.acknowledged);
      (sink.last_success ? insert.bind(*sink.last_success) : insert.bind_null())
          .bind(sink_sum(sink.name, sink.kinds, cursor, absences))
          .bind_text(absences)
          .run();
    }
    Statement exception(
        to_,
        "INSERT OR IGNORE INTO "
        "exceptions(sink,seq,state,reason,attempts,first_attempt,last_attempt,sum) "
        "SELECT ?1,?2,?3,?4,?5,?6,?7,?8 WHERE EXISTS(SELECT 1 FROM events WHERE seq=?2)");
    for (const Exception& x : exceptions_) {
      if (!sinks_.contains(x.sink)) continue;
      exception.bind(x.sink)
          .bind(x.seq)
          .bind(static_cast<std::int64_t>(x.state))
          .bind_text(x.reason)
          .bind(x.attempts)
          .bind(x.first)
          .bind(x.last);
      exception.bind(exception_sum(x.sink, x.seq, x.state)).run();
      if (x.state == State::kDead) ++result_.dead_letters;
    }
    // Where an event was lost, its spool entry may still be there: without its mark it is captured
    // again.
    Statement mark(to_,
                   "INSERT OR IGNORE INTO "
                   "marks(source,entry,device,inode,mtime_ns,size,event_id,file,file_size) "
                   "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)");
    for (const auto& [source, m] : marks_) {
      if (lost && !target_.has(m.event_id)) continue;
      mark.bind_text(source)
          .bind_text(m.entry)
          .bind(static_cast<std::int64_t>(m.identity.device))
          .bind(static_cast<std::int64_t>(m.identity.inode))
          .bind(m.identity.mtime_ns)
          .bind(static_cast<std::int64_t>(m.size))
          .bind_id(m.event_id)
          .bind_text(m.identity.file)
          .bind(static_cast<std::int64_t>(m.identity.size))
          .run();
      ++result_.marks;
    }
    if (!lost) {
      Statement position(to_, "INSERT OR IGNORE INTO positions(source,position) VALUES(?1,?2)");
      for (const auto& [source, value] : positions_)
        position.bind_text(source).bind_blob(value).run();
    }
    return result_;
  }

 private:
  struct Sink {
    std::string name, kinds, absences;
    std::int64_t cursor = 0, acknowledged = 0;
    std::optional<std::int64_t> last_success;
    bool sum_matches = false;
  };
  struct Exception {
    std::int64_t sink = 0, seq = 0;
    State state = State::kParked;
    std::string reason;
    std::int64_t attempts = 0, first = 0, last = 0;
  };
  struct Mark {
    std::string source;
    CaptureMark mark;
  };

  // Takes the standing error; false if there was none.
  bool forgive() {
    auto error = from_->take_error();
    if (error && error->kind() == ErrorKind::kExhausted && !exhausted_) exhausted_ = *error;
    return error.has_value();
  }

  // True if the query went to its end.
  bool each(const char* sql, const std::function<void(Statement&)>& row) {
    Statement statement(*from_, sql);
    while (statement.step()) row(statement);
    statement.reset();
    if (!forgive()) return true;
    return whole_ = false;
  }
  bool structure_of(const char* table) {
    const auto answer = from_->text((std::string("PRAGMA quick_check('") + table + "')").c_str());
    from_->take_error();
    return answer == "ok";
  }

  void sinks() {
    if (from_->integer("SELECT count(*) FROM sqlite_schema WHERE name='sinks'").value_or(0) == 0) {
      from_->take_error();
      whole_ = false;
      return;
    }
    const bool first = sinks_.empty();
    const bool sinks_sound = structure_of("sinks");
    const bool sinks_read = each(
        ("SELECT id, name, kinds, cursor, acknowledged, last_success, sum, " +
         column_or(*from_, "sinks", "absences", "''") + " FROM sinks")
            .c_str(),
        [&](Statement& row) {
          Sink sink;
          sink.name = row.text(1);
          sink.kinds = row.text(2);
          sink.cursor = row.integer(3);
          sink.acknowledged = std::max<std::int64_t>(row.integer(4), 0);
          if (!row.is_null(5)) sink.last_success = row.integer(5);
          sink.absences = row.text(7);
          sink.sum_matches =
              row.integer(6) == sink_sum(sink.name, sink.kinds, sink.cursor, sink.absences);
          const bool known = std::any_of(sinks_.begin(), sinks_.end(),
                                         [&](const auto& s) { return s.second.name == sink.name; });
          if (!sink.name.empty() && row.integer(0) > 0 && !known)
            sinks_.try_emplace(row.integer(0), std::move(sink));
        });
    const bool exceptions_sound = structure_of("exceptions");
    const bool exceptions_read = each(
        "SELECT sink, seq, state, reason, attempts, first_attempt, last_attempt, sum FROM "
        "exceptions",
        [&](Statement& row) {
          Exception x{row.integer(0),
                      row.integer(1),
                      static_cast<State>(row.integer(2)),
                      std::string(row.text(3)),
                      row.integer(4),
                      row.integer(5),
                      row.integer(6)};
          if (row.integer(7) != exception_sum(x.sink, x.seq, x.state)) {
            exceptions_damaged_ = true;  // what it was about is unknown: deliver again
          } else if (first) {
            exceptions_.push_back(std::move(x));
          }
        });
    if (!first) return;
    sinks_whole_ = sinks_sound && sinks_read;
    exceptions_whole_ = exceptions_sound && exceptions_read && !exceptions_damaged_;
    each("SELECT source, position FROM positions",
         [&](Statement& row) { positions_.emplace(row.text(0), row.text(1)); });
  }

  void events(bool unresolved) {
    const std::string number = unresolved ? "ticket" : "seq";
    const std::string table = unresolved ? "unresolved" : "events";
    const auto bound = [&](const char* function) {
      const auto value = from_->integer(
          ("SELECT coalesce(" + std::string(function) + "(" + number + "),0) FROM " + table)
              .c_str());
      if (from_->take_error()) whole_ = !(events_damaged_ = true);
      return value;
    };
    const auto low = bound("min");
    auto high = bound("max");
    if (!low && !high) {
      // The tree's root is gone. Its index names every number, if it is whole.
      each(("SELECT max(" + number + ") FROM (SELECT " + number + " FROM " + table +
            " INDEXED BY sqlite_autoindex_" + table + "_1)")
               .c_str(),
           [&](Statement& row) { high = row.integer(0); });
      for (const auto& x : exceptions_) high = std::max(high.value_or(0), x.seq);
      for (const auto& [id, sink] : sinks_) high = std::max(high.value_or(0), sink.cursor);
    }
    std::int64_t top = high.value_or(0);
    if (!high) {
      // Unknown how far they went; there cannot be more rows than the file has room for.
      top += from_->integer("PRAGMA page_count").value_or(0) * 32;
      from_->take_error();
    }
    const std::string columns = unresolved ? std::string(content_columns(*from_)) +
                                                 ", ticket, '', 0, 0, id, '', 0, source, entry"
                                           : event_columns(*from_) + ", source, NULL";
    read_range(unresolved,
               "SELECT " + columns + " FROM " + table + " WHERE " + number + ">=?1 AND " + number +
                   "<=?2 ORDER BY " + number,
               low.value_or(1), top);
  }

  // Everything in [low, high]; where reading fails, the rest by halves, so that one bad page costs
  // its own rows only.
  void read_range(bool unresolved, const std::string& sql, std::int64_t low, std::int64_t high) {
    std::uint64_t failures = 0;
    Statement rows(*from_, sql.c_str());
    EventReader reader(*from_, codec_, Proof::kSha256);
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges{{low, high}};  // the lowest last
    while (!ranges.empty() && failures < kMostFailures) {
      const auto [first, last] = ranges.back();
      ranges.pop_back();
      std::int64_t next = first;
      rows.bind(first).bind(last);
      while (rows.step()) {
        next = rows.integer(3) + 1;
        take(unresolved, rows, reader);
      }
      rows.reset();
      if (!forgive()) continue;
      events_damaged_ = true;
      whole_ = false;
      ++failures;
      if (next > last || (next == first && first == last)) continue;
      if (next == last) {
        ranges.emplace_back(next, last);
        continue;
      }
      const std::int64_t middle = next + (last - next) / 2;
      ranges.emplace_back(middle + 1, last);
      ranges.emplace_back(next, middle);
    }
  }

  void take(bool unresolved, Statement& row, EventReader& reader) {
    const std::string meta(row.text(0));
    const std::string blobs(row.text(1));
    const std::int64_t number = row.integer(3);
    const std::string id = row.id(7);
    const std::string source(row.text(10));
    const std::string entry(row.text(11));
    if (EventReader::is_in_archive(row)) {
      const auto locator = reader.locator(row);
      if (locator && !target_.has(id)) {
        target_.add_locator(number, source, *locator, row.integer(5), meta, row.integer(6));
        ++result_.events;
      }
      if (locator) {
        lost_.erase(id);
        return;
      }
    }
    const std::int64_t target = row.integer(6);
    auto loaded = reader.load(row);
    from_->take_error();
    if (!loaded || (*loaded)->id != id) {
      const std::string why = loaded ? "id differs" : loaded.error().message();
      if (!target_.has(id) && lost_.insert(id).second) {
        log_.error("JOURNAL_EVENT_LOST",
                   "an event of the damaged journal cannot be read; if its spool entry is still "
                   "there, it is captured again",
                   {{"event_id", printable(id, 80)}, {"reason", why}});
      }
      return;
    }
    const Event& event = **loaded;
    lost_.erase(event.id);
    if (target_.has(event.id)) return;
    std::vector<File> files;
    const std::vector<std::int64_t> were = decode_blobs(blobs);
    for (std::size_t i = 0; i < were.size(); ++i) {
      const EventFile& file = event.files[i];
      File& kept = files.emplace_back();
      kept.absent = were[i] == kNoBytes;
      if (kept.absent) continue;
      kept.size = static_cast<std::int64_t>(file.bytes->size());
      kept.in_pack = were[i] == kInPack;
      if (kept.in_pack) continue;
      kept.key = content_key(file);
      kept.frame = codec_.compress(*file.bytes);
    }
    const bool packed = std::find(were.begin(), were.end(), kInPack) != were.end();
    target_.add_event(unresolved, number, source, event, files,
                      packed ? codec_.compress(pack_bytes(event)) : std::string_view{}, meta, entry,
                      target);
    ++result_.events;
  }

  void marks() {
    const std::string columns = mark_columns(*from_);
    from_->take_error();
    each(("SELECT source, entry, " + columns + " FROM marks").c_str(), [&](Statement& row) {
      marks_.push_back({std::string(row.text(0)), mark_of_row(row, 1)});
    });
  }

  Connection& to_;
  Target target_;
  Logger& log_;
  Codec codec_;
  Connection* from_ = nullptr;
  bool whole_ = true;
  bool sinks_whole_ = false, exceptions_whole_ = false, exceptions_damaged_ = false,
       events_damaged_ = false;
  std::map<std::int64_t, Sink> sinks_;
  std::vector<Exception> exceptions_;
  std::vector<Mark> marks_;
  std::map<std::string, std::string> positions_;
  std::set<std::string> lost_;
  std::optional<Error> exhausted_;
  Salvaged result_;
};

bool exists(const std::string& file) { return ::access(file.c_str(), F_OK) == 0; }

Result<void> copy_file(const std::string& from, const std::string& to) {
  UniqueFd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!in) return system_error("open " + from, errno);
  UniqueFd out(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out) return system_error("open " + to, errno);
  std::string buffer(std::size_t{1} << 20, '\0');
  while (true) {
    const ssize_t n = ::read(in.get(), buffer.data(), buffer.size());
    if (n < 0) return system_error("read " + from, errno);
    if (n == 0) return {};
    if (auto result = write_fd(out.get(), {buffer.data(), static_cast<std::size_t>(n)}); !result)
      return result;
  }
}

// A rest of another database beside ours would be taken for ours.
Result<void> remove_database(const std::string& file) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    const std::string path = file + suffix;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT)
      return system_error("remove " + path, errno);
  }
  return {};
}

// Moves -wal into the file, so that the file alone is the whole database.
Result<void> fold_in(Connection& db, const std::string& file) {
  if (const int code = FAULT_ERROR("journal.salvage_fold"); code != 0)
    return system_error("write " + file, code);
  const auto left = db.integer("PRAGMA wal_checkpoint(TRUNCATE)");  // 0 = done, 1 = somebody reads
  if (auto error = db.take_error()) return *std::move(error);
  const auto wal = stat_path(file + "-wal");
  if (left != 0 || (wal && wal->size > 0))
    return Error{ErrorKind::kTransient, file + "-wal could not be moved into the database"};
  return {};
}

// The first page holds only what every journal of this format has: the header and where each table
// begins. The tables are made once, in one order, and never moved, so a new journal's first page
// fits every old one.
Result<void> replace_first_page(const std::string& file, const std::string& fresh) {
  auto page = read_file(fresh);
  if (!page) return page.error();
  if (page->size() < static_cast<std::size_t>(kPageSize))
    return Error{ErrorKind::kCorrupt, "short page"};
  auto state = stat_path(file);
  if (!state) return state.error();
  UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return system_error("open " + file, errno);
  // A small journal of an older version ends before the first page of a table that came later.
  if (const auto size = static_cast<std::size_t>(state->size); size < page->size()) {
    if (::lseek(fd.get(), static_cast<off_t>(size), SEEK_SET) < 0)
      return system_error("seek " + file, errno);
    if (auto added = write_fd(fd.get(), std::string_view(*page).substr(size)); !added) return added;
    if (::lseek(fd.get(), 0, SEEK_SET) < 0) return system_error("seek " + file, errno);
    state->size = page->size();
  }
  page->resize(static_cast<std::size_t>(kPageSize));
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) (*page)[at + i] = static_cast<char>(value >> (24 - 8 * i));
  };
  put(28, static_cast<std::uint32_t>(state->size / kPageSize));  // pages in the file
  put(32, 0);  // no free pages: the copy is only read
  put(36, 0);
  put(24, 1);  // change counter, and the version for which the number of pages is valid
  put(92, 1);
  return write_fd(fd.get(), *page);
}

}  // namespace

Result<void> create_empty(const std::string& file) {
  {
    UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return system_error("create " + file, errno);
  }
  auto opened = Connection::open(file, Connection::Mode::kReadWrite);
  if (!opened) return opened.error();
  Connection& db = **opened;
  db.execute(("PRAGMA page_size=" + std::to_string(kPageSize)).c_str());
  db.execute("PRAGMA journal_mode=WAL");
  db.execute("PRAGMA synchronous=FULL");
  db.execute("BEGIN IMMEDIATE");
  db.execute(("PRAGMA application_id=" + std::to_string(kApplicationId)).c_str());
  db.execute(("PRAGMA user_version=" + std::to_string(kFormatVersion)).c_str());
  db.execute(kSchema);
  db.execute("COMMIT");
  if (auto error = db.take_error()) return *std::move(error);
  return {};
}

Result<Salvaged> salvage(const std::string& quarantine, const std::string& target, Logger& log) {
  const std::string damaged = quarantine + "/journal.db";
  if (auto result = remove_database(target); !result) return result.error();
  if (auto result = create_empty(target); !result) return result.error();
  Salvaged salvaged;
  {
    auto opened = Connection::open(target, Connection::Mode::kReadWrite);
    if (!opened) return opened.error();
    Connection& db = **opened;
    db.execute(
        "PRAGMA synchronous=OFF");  // synced as a whole at the end; until then it is only a draft
    db.execute("BEGIN");
    Salvager salvager(db, log);
    bool whole = exists(damaged);
    // Read in copies: reading -wal would change the files, and they are evidence.
    const std::string copy = target + ".read";
    if (exists(damaged)) {
      if (auto result = remove_database(copy); !result) return result.error();
      const auto copied = copy_file(damaged, copy);
      if (!copied) return copied.error();
      if (exists(damaged + "-wal")) {
        if (auto result = copy_file(damaged + "-wal", copy + "-wal"); !result)
          return result.error();
      }
      whole = salvager.pass(copy, Connection::Mode::kReadWrite);
      if (!whole) {
        // Perhaps -wal is another's or the damage: the database alone.
        if (auto result = remove_database(copy); !result) return result.error();
        if (auto result = copy_file(damaged, copy); !result) return result.error();
        whole = salvager.pass(copy, Connection::Mode::kImmutable);
      }
      if (!whole) {
        if (auto result = remove_database(copy); !result) return result.error();
        if (auto result = copy_file(damaged, copy); !result) return result.error();
        const std::string fresh = target + ".fresh";
        if (auto result = remove_database(fresh); !result) return result.error();
        if (auto result = create_empty(fresh); !result) return result.error();
        if (auto result = replace_first_page(copy, fresh); !result) return result.error();
        salvager.pass(copy, Connection::Mode::kImmutable);
        if (auto result = remove_database(fresh); !result) return result.error();
      }
      if (auto result = remove_database(copy); !result) return result.error();
    }
    // Not damage, but want of room or memory: what was not read for that may be there.
    if (auto error = salvager.exhausted()) return error->with_context("salvage");
    salvaged = salvager.finish();
    db.execute("COMMIT");
    if (auto error = db.take_error()) return error->with_context("salvage");
    if (auto result = fold_in(db, target); !result) return result.error().with_context("salvage");
  }
  UniqueFd fd(::open(target.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return system_error("open " + target, errno);
  if (auto result = sync_fd(fd.get(), target); !result) return result.error();
  return salvaged;
}

}  // namespace scriptorium::journal
