#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "core/base/fault_point.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/journal/journal_impl.h"
#include "core/journal/salvage.h"

namespace scriptorium::journal {
namespace {

constexpr const char* kName = "journal.db";
constexpr const char* kDraft = "journal.salvage";  // a salvaged journal that is not yet the journal
constexpr const char* kPending =
    "salvage.pending";  // stands in a quarantine until its salvage is the journal
constexpr const char* kMoved =
    "salvage.moved";  // beside it from the moment that all damaged files lie there, synced
constexpr const char* kWanted =
    "salvage.wanted";  // beside a journal that was found damaged while it was in use

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Result<void> sync_directory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return system_error("open " + path, errno);
  return sync_fd(fd.get(), path);
}

Result<void> move(const std::string& from, const std::string& to) {
  if (const int code = FAULT_ERROR("journal.quarantine_rename"); code != 0)
    return system_error("rename " + from, code);
  if (::rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT)
    return system_error("rename " + from, errno);
  return {};
}

// Its absence is on disk when it returns.
Result<void> remove_marker(const std::string& directory, const char* name) {
  const std::string path = directory + "/" + name;
  int code = FAULT_ERROR("journal.quarantine_unlink");
  if (code == 0 && ::unlink(path.c_str()) != 0) code = errno;
  if (code != 0 && code != ENOENT) return system_error("remove " + path, code);
  return sync_directory(directory);
}

Result<void> make_marker(const std::string& directory, const char* name, std::string_view text) {
  const std::string path = directory + "/" + name;
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return system_error("create " + path, errno);
  if (auto result = write_fd(fd.get(), text); !result) return result;
  if (auto result = sync_fd(fd.get(), path); !result) return result;
  return sync_directory(directory);
}

// -wal needs shared memory between processes, which network file systems do not give.
std::optional<std::string> network_file_system(const std::string& directory) {
  struct statfs state{};
  if (::statfs(directory.c_str(), &state) != 0) return std::nullopt;
  switch (static_cast<std::uint32_t>(state.f_type)) {
    case 0x6969U: return "NFS";
    case 0xFF534D42U:
    case 0xFE534D42U:
    case 0x517BU: return "SMB";
    case 0x5346414FU: return "AFS";
    default: return std::nullopt;
  }
}

// A quarantine whose salvage was not finished: the process ended in between.
std::string unfinished(const std::string& directory) {
  std::string found;
  DIR* handle = ::opendir(directory.c_str());
  if (handle == nullptr) return found;
  while (const dirent* entry = ::readdir(handle)) {
    const std::string name = entry->d_name;
    if (name.starts_with("bad.") && exists(directory + "/" + name + "/" + kPending))
      found = directory + "/" + name;
  }
  ::closedir(handle);
  return found;
}

Result<std::string> new_quarantine(const std::string& directory, const Clock& clock) {
  std::string stamp = format_rfc3339(clock.now(), TimePrecision::kSeconds);
  std::erase_if(stamp, [](char c) { return c == ':' || c == '-'; });
  for (int i = 1; i < 1000; ++i) {
    std::string path = directory + "/bad." + stamp + (i == 1 ? "" : "-" + std::to_string(i));
    if (::mkdir(path.c_str(), 0700) == 0) {
      if (auto result = make_marker(path, kPending, ""); !result) return result.error();
      if (auto result = sync_directory(directory); !result) return result.error();
      return path;
    }
    if (errno != EEXIST) return system_error("mkdir " + path, errno);
  }
  return Error{ErrorKind::kTransient, "no free name for a quarantine in " + directory};
}

// Moves the damaged files away and puts what can be read of them in their place. Ended at any
// moment, it is taken up again by the next open. Until kMoved stands, all that lies in the
// journal's place belongs to the damaged one; from then on, a database there is the salvaged one,
// and perhaps more: it must not be replaced.
Result<void> quarantine(const std::string& directory, const std::string& bad,
                        const std::string& damage, Logger& log, Journal::OpenReport& report) {
  if (!exists(bad + "/" + kMoved)) {
    for (const char* suffix : {"-wal", "-shm", ""}) {
      FAULT_POINT("journal.quarantine");
      if (auto result = move(directory + "/" + kName + suffix, bad + "/" + kName + suffix); !result)
        return result;
    }
    if (auto result = sync_directory(bad); !result) return result;
    if (auto result = sync_directory(directory); !result) return result;
    if (auto result = make_marker(bad, kMoved, ""); !result) return result;
  }
  if (exists(directory + "/" + kName))
    return remove_marker(bad, kPending);  // it was finished, but for this
  FAULT_POINT("journal.quarantine");
  auto salvaged = salvage(bad, directory + "/" + kDraft, log);
  if (!salvaged) return salvaged.error();
  FAULT_POINT("journal.quarantine");
  if (auto result = move(directory + "/" + kDraft, directory + "/" + kName); !result) return result;
  if (auto result = sync_directory(directory); !result) return result;
  FAULT_POINT("journal.quarantine");
  if (auto result = remove_marker(bad, kPending); !result) return result;
  report.quarantined = bad;
  report.salvaged_events = salvaged->events;
  report.lost_events = salvaged->lost_events;
  report.damage = damage;
  log.error("JOURNAL_QUARANTINED",
            "the journal was damaged; it was put aside, and what could be read of it is in a new "
            "one; keep the old one until you "
            "know what was lost",
            {{"quarantine", bad},
             {"damage", printable(damage, 400)},
             {"salvaged_events", salvaged->events},
             {"lost_events", salvaged->lost_events},
             {"dead_letters", salvaged->dead_letters},
             {"marks", salvaged->marks},
             {"redelivers", salvaged->redelivers ? "yes" : "no"}});
  return {};
}

// What open() finds in a file.
struct Look {
  enum class State { kEmpty, kGood, kDamaged, kRefused } state = State::kGood;
  std::string text;
};

Look look(Connection& db, const std::string& file) {
  const auto version = db.integer("PRAGMA user_version");
  const auto application = db.integer("PRAGMA application_id");
  const auto tables = db.integer("SELECT count(*) FROM sqlite_schema WHERE type='table'");
  const auto ours = db.integer(
      "SELECT count(*) FROM sqlite_schema WHERE type='table' AND name IN "
      "('events','unresolved','blobs','sinks','exceptions','marks','positions')");
  if (auto error = db.take_error()) {
    if (error->kind() == ErrorKind::kCorrupt) return {Look::State::kDamaged, error->message()};
    return {Look::State::kRefused, error->message()};
  }
  if (*application == 0 && *version == 0 && *tables == 0) return {Look::State::kEmpty, ""};
  if (*application != kApplicationId && *ours < 7) {
    return {Look::State::kRefused,
            file + ": found the database of another program (application_id " +
                std::to_string(*application) +
                "), needed a Scriptorium journal; move it away or choose another state_dir"};
  }
  if (*application == kApplicationId && *version > kFormatVersion) {
    return {Look::State::kRefused,
            file + ": found journal format " + std::to_string(*version) + ", this program needs " +
                std::to_string(kFormatVersion) +
                " or older; install the newer Scriptorium again, which wrote it"};
  }
  if (*application != kApplicationId || *version < 1 || *ours < 7 ||
      (*version == 1) == has_packs(db) || (*version < 3) == marks_name_files(db))
    return {Look::State::kDamaged, "header or schema damaged"};
  const std::string damage = verify(db, false);
  if (!damage.empty()) return {Look::State::kDamaged, damage};
  return {Look::State::kGood, ""};
}

Result<OpenedDatabase> open_read_only(const Journal::Options& options) {
  const std::string file = options.directory + "/" + kName;
  if (!exists(file))
    return Error{ErrorKind::kVanished, "there is no journal in " + options.directory};
  OpenedDatabase opened;
  for (const auto mode : {Connection::Mode::kReadOnly, Connection::Mode::kImmutable}) {
    auto connection = Connection::open(file, mode);
    if (!connection) return connection.error();
    opened.immutable = mode == Connection::Mode::kImmutable;
    // Without a daemon there may be no -shm, and it cannot be made where we may not write; then no
    // -wal with content may be left out.
    if (!opened.immutable && !(*connection)->integer("PRAGMA user_version")) {
      const auto error = (*connection)->take_error();
      const auto wal = stat_path(file + "-wal");
      if (error && error->kind() != ErrorKind::kCorrupt && (!wal || wal->size == 0)) continue;
      if (error && error->kind() != ErrorKind::kCorrupt) return *error;
    }
    const Look found = look(**connection, file);
    if (found.state == Look::State::kRefused) return Error{ErrorKind::kInvalidConfig, found.text};
    if (found.state == Look::State::kDamaged)
      return Error{ErrorKind::kCorrupt, file + ": " + found.text};
    if (found.state == Look::State::kEmpty)
      return Error{ErrorKind::kVanished, "there is no journal in " + options.directory};
    opened.connection = *std::move(connection);
    break;
  }
  return opened;
}

}  // namespace

namespace {

// A flipped bit in a column's name leaves a table that SQLite finds sound and our statements do not
// find. What a later release of this version adds at a table's end is no damage. "" = all is as we
// made it.
std::string altered_table(Connection& db) {
  std::string stored;
  Statement statement(db, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL");
  while (statement.step()) stored.append("\n").append(statement.text(0));
  std::string_view schema = kSchema;
  // Columns that a version added at the end of a table, and tables that it added.
  struct Addition {
    std::int64_t version;
    std::string_view text;
  };
  constexpr Addition kColumns[] = {
      {2, ", pack INTEGER NOT NULL DEFAULT 0"},
      {3, ", target INTEGER NOT NULL DEFAULT 0"},
      {3, ", absences TEXT NOT NULL DEFAULT ''"},
      {3, ", owner TEXT NOT NULL DEFAULT ''"},
      {3, ", stored INTEGER NOT NULL DEFAULT 0"},
      {3, ", file TEXT NOT NULL DEFAULT '', file_size INTEGER NOT NULL DEFAULT 0"}};
  constexpr Addition kTables[] = {{2, "CREATE TABLE packs"},
                                  {3, "CREATE TABLE fills"},
                                  {3, "CREATE TABLE unverified"},
                                  {3, "CREATE INDEX unverified_due"},
                                  {3, "CREATE TABLE replaced"}};
  const std::int64_t version = db.integer("PRAGMA user_version").value_or(0);
  for (auto end = schema.find(';'); end != std::string_view::npos; end = schema.find(';')) {
    std::string made(schema.substr(0, end));
    schema.remove_prefix(end + 1);
    made = made.substr(made.find("CREATE"));
    if (std::ranges::any_of(kTables, [&](const Addition& t) {
          return version < t.version && made.starts_with(t.text);
        }))
      continue;
    for (const Addition& column : kColumns) {
      const auto at = version < column.version ? made.find(column.text) : std::string::npos;
      if (at != std::string::npos) made.erase(at, column.text.size());
    }
    made.resize(made.rfind(')'));
    if (stored.find(made) == std::string::npos) return made.substr(0, made.find('('));
  }
  return "";
}

}  // namespace

std::string verify(Connection& db, bool whole) {
  std::string damage;
  const auto note = [&](const std::string& text) {
    if (!damage.empty()) damage += "; ";
    damage += text;
  };
  {
    Statement statement(db, whole ? "PRAGMA integrity_check(10)" : "PRAGMA quick_check(1)");
    while (statement.step()) {
      if (statement.text(0) != "ok") note(std::string(statement.text(0)));
    }
  }
  if (damage.empty() && db.ok()) {
    if (const std::string made = altered_table(db); !made.empty())
      note("not as it was made: " + made);
  }
  if (damage.empty()) {
    Statement sinks(db, ("SELECT name, kinds, cursor, sum, " +
                         column_or(db, "sinks", "absences", "''") + " FROM sinks")
                            .c_str());
    while (sinks.step()) {
      if (sinks.integer(3) !=
          sink_sum(sinks.text(0), sinks.text(1), sinks.integer(2), sinks.text(4)))
        note("sink " + std::string(sinks.text(0)) + ": checksum differs");
    }
    Statement exceptions(db, "SELECT sink, seq, state, sum FROM exceptions");
    std::uint64_t wrong = 0;
    while (exceptions.step()) {
      if (exceptions.integer(3) != exception_sum(exceptions.integer(0), exceptions.integer(1),
                                                 static_cast<State>(exceptions.integer(2))))
        ++wrong;
    }
    if (wrong > 0) note("checksum of " + std::to_string(wrong) + " exceptions differs");
  }
  if (whole && damage.empty() && db.ok()) {
    const auto wrong_refs = db.integer(
        "WITH used(id, n) AS (SELECT value, count(*) FROM (SELECT blobs FROM events UNION ALL "
        "SELECT blobs FROM unresolved) t, "
        "json_each('['||t.blobs||']') WHERE value>0 GROUP BY value) "
        "SELECT (SELECT count(*) FROM blobs b LEFT JOIN used u ON u.id=b.id WHERE "
        "b.refs<>coalesce(u.n,0)) + "
        "(SELECT count(*) FROM used u WHERE NOT EXISTS(SELECT 1 FROM blobs b WHERE b.id=u.id))");
    if (wrong_refs.value_or(0) > 0)
      note(std::to_string(*wrong_refs) + " file contents are missing or counted wrongly");
    const auto wrong_packs = !has_packs(db)
                                 ? std::optional<std::int64_t>(0)
                                 : db.integer(
                                       "WITH used(id) AS (SELECT pack FROM events WHERE pack>0 "
                                       "UNION ALL SELECT pack FROM unresolved WHERE pack<>0) "
                                       "SELECT (SELECT count(*) FROM packs p WHERE NOT "
                                       "EXISTS(SELECT 1 FROM used u WHERE u.id=p.id)) + "
                                       "(SELECT count(*) FROM used u WHERE NOT EXISTS(SELECT 1 "
                                       "FROM packs p WHERE p.id=u.id)) + "
                                       "(SELECT count(*)-count(DISTINCT id) FROM used)");
    if (wrong_packs.value_or(0) > 0)
      note(std::to_string(*wrong_packs) + " packs are missing, of no event or of two");
    const auto orphans = db.integer(
        "SELECT count(*) FROM exceptions x WHERE NOT EXISTS(SELECT 1 FROM events e WHERE "
        "e.seq=x.seq)");
    if (orphans.value_or(0) > 0) note(std::to_string(*orphans) + " exceptions without event");
    Codec codec;
    EventReader reader(db, codec, Proof::kSha256);
    std::uint64_t wrong = 0;
    std::string first;
    for (const std::string table : {"events", "unresolved"}) {
      const std::string columns = table == "events" ? event_columns(db) : content_columns(db);
      Statement rows(db, ("SELECT " + columns + " FROM " + table).c_str());
      while (rows.step()) {
        std::optional<Error> error;
        if (EventReader::is_in_archive(rows)) {
          if (auto locator = reader.locator(rows); !locator) error = locator.error();
        } else if (auto event = reader.load(rows); !event) {
          error = event.error();
        }
        if (error && wrong++ == 0) first = error->message();
      }
    }
    if (wrong > 0) note(std::to_string(wrong) + " events damaged, the first: " + first);
  }
  if (auto error = db.take_error()) note(error->message());
  return damage;
}

Result<void> ask_for_salvage(const std::string& directory, const std::string& why) {
  return make_marker(directory, kWanted, why);
}

namespace {

// All steps in one transaction: after a crash the journal is of the old version or of the new one.
Result<void> upgrade(Connection& db, const std::string& file, Logger& log) {
  const std::int64_t version = db.integer("PRAGMA user_version").value_or(kFormatVersion);
  if (version < kFormatVersion) {
    db.execute("BEGIN IMMEDIATE");
    if (version < 2) db.execute(kFromVersion1);
    if (version < 3) db.execute(kFromVersion2);
    db.execute("COMMIT");
    if (!db.ok()) db.rollback();
  }
  if (auto error = db.take_error()) return *std::move(error);
  if (version < kFormatVersion) {
    const std::int64_t nameless =
        db.integer("SELECT count(*) FROM marks WHERE file=''").value_or(0);
    log.info("JOURNAL_UPGRADED",
             "the journal of an older program was changed to this program's format; its marks do "
             "not name their file yet, which "
             "the first scan adds for every entry that still stands",
             {{"file", file}, {"from", version}, {"to", kFormatVersion}, {"marks", nameless}});
  }
  if (auto error = db.take_error()) return *std::move(error);
  return {};
}

}  // namespace

Result<OpenedDatabase> open_database(const Journal::Options& options, Logger& log,
                                     const Clock& clock) {
  if (options.read_only) return open_read_only(options);
  if (auto result = make_directories(options.directory, 0700); !result) return result.error();
  if (const auto name = network_file_system(options.directory)) {
    return Error{ErrorKind::kInvalidConfig,
                 options.directory + ": found " + *name +
                     ", needed a local file system; choose another state_dir"};
  }
  const std::string file = options.directory + "/" + kName;
  OpenedDatabase opened;
  if (const std::string bad = unfinished(options.directory); !bad.empty()) {
    if (auto result = quarantine(options.directory, bad,
                                 "found before, and the process ended while it was put aside", log,
                                 opened.report);
        !result) {
      return result.error().with_context(
          "the damaged journal in " + bad +
          " cannot be put aside; make room or correct the rights, then start again");
    }
  }
  for (int attempt = 0;; ++attempt) {
    const auto state = stat_path(file);
    const bool there = state && state->size > 0;
    // -wal without its database can only be the rest of one that is gone.
    bool damaged =
        !there && stat_path(file + "-wal").has_value() && stat_path(file + "-wal")->size > 0;
    std::string damage = damaged ? "the database of " + file + "-wal is missing or empty" : "";
    if (there && attempt == 0) {
      if (const auto found = read_file(options.directory + "/" + kWanted)) {
        damaged = true;
        damage = "found while it was in use: " + *found;
      }
    }
    if (there && !state->is_regular())
      return Error{ErrorKind::kInvalidConfig, file + ": found no regular file; move it away"};
    if (!there && !damaged) {
      if (auto result = create_empty(file); !result) return result.error();
      if (auto result = sync_directory(options.directory); !result) return result.error();
      opened.report.created = true;
    }
    if (!damaged) {
      auto connection = Connection::open(file, Connection::Mode::kReadWrite);
      if (!connection && connection.error().kind() != ErrorKind::kCorrupt)
        return connection.error();
      const Look found = connection ? look(**connection, file)
                                    : Look{Look::State::kDamaged, connection.error().message()};
      if (found.state == Look::State::kRefused) return Error{ErrorKind::kInvalidConfig, found.text};
      if (found.state == Look::State::kEmpty) {
        connection = Result<std::unique_ptr<Connection>>(std::unique_ptr<Connection>());
        if (auto result = create_empty(file); !result) return result.error();
        opened.report.created = true;
        connection = Connection::open(file, Connection::Mode::kReadWrite);
        if (!connection) return connection.error();
      }
      if (found.state != Look::State::kDamaged) {
        Connection& db = **connection;
        db.execute("PRAGMA journal_mode=WAL");
        db.execute("PRAGMA synchronous=FULL");
        db.execute("PRAGMA cache_size=-16384");
        // Debian's SQLite is built to fill what it frees with zeros, so each page would be written
        // once more to become free.
        db.execute("PRAGMA secure_delete=OFF");
        db.execute("PRAGMA wal_autocheckpoint=0");
        // Once SQLite restarts the -wal, it is cut to this; until then it is as long as it had to
        // be.
        db.execute(("PRAGMA journal_size_limit=" +
                    std::to_string(std::min<std::uint64_t>(64U << 20, options.max_bytes / 8)))
                       .c_str());
        if (auto upgraded = upgrade(db, file, log); !upgraded) return upgraded.error();
        opened.connection = *std::move(connection);
        return opened;
      }
      damage = found.text;
    }
    if (attempt > 0) return Error{ErrorKind::kCorrupt, file + ": damaged again at once: " + damage};
    auto bad = new_quarantine(options.directory, clock);
    if (!bad) return bad.error();
    Result<void> put_aside = remove_marker(options.directory, kWanted);
    if (put_aside) put_aside = quarantine(options.directory, *bad, damage, log, opened.report);
    if (!put_aside) {
      return put_aside.error().with_context("the journal is damaged (" + printable(damage, 200) +
                                            ") and cannot be put aside in " + *bad +
                                            "; make room or correct the rights, then start again");
    }
  }
}

}  // namespace scriptorium::journal
