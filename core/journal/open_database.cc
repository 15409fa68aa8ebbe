#include "core/journal/open_database.h"

#include <algorithm>

#include "core/base/file.h"
#include "core/base/file_system.h"
#include "core/base/text.h"
#include "core/journal/quarantine.h"
#include "core/journal/salvage.h"
#include "core/journal/schema.h"

namespace scriptorium::journal {
namespace {

constexpr const char* kPutAsideRemedy = "; make room or correct the rights, then start again";

// Checks what a file is. kInvalidConfig: it is refused; kCorrupt: damaged; kVanished: empty.
Result<void> inspect(Connection& db, const std::string& file) {
  const auto version = db.integer("PRAGMA user_version");
  const auto application = db.integer("PRAGMA application_id");
  const auto tables = db.integer("SELECT count(*) FROM sqlite_schema WHERE type='table'");
  const auto ours = db.integer(
      "SELECT count(*) FROM sqlite_schema WHERE type='table' AND name IN "
      "('events','unresolved','blobs','sinks','exceptions','marks','positions')");
  if (auto error = db.take_error()) {
    const bool damaged = error->kind() == ErrorKind::kCorrupt;
    return Error{damaged ? ErrorKind::kCorrupt : ErrorKind::kInvalidConfig, error->message()};
  }
  if (*application == 0 && *version == 0 && *tables == 0)
    return Error{ErrorKind::kVanished, "there is no journal in " + file};
  if (*application != kApplicationId && *ours < 7) {
    return Error{ErrorKind::kInvalidConfig,
                 file + ": found the database of another program (application_id " +
                     std::to_string(*application) +
                     "), needed a Scriptorium journal; move it away or choose another state_dir"};
  }
  if (*application == kApplicationId && *version > kFormatVersion) {
    return Error{ErrorKind::kInvalidConfig,
                 file + ": found journal format " + std::to_string(*version) +
                     ", this program needs " + std::to_string(kFormatVersion) +
                     "; install the newer Scriptorium again, which wrote it"};
  }
  // Else the number in the header is what is damaged.
  const bool has_keys = has_column(db, "marks", "capture_key");
  if (*application == kApplicationId && *version >= 1 && *version < kFormatVersion && !has_keys) {
    return Error{ErrorKind::kInvalidConfig,
                 file + ": found journal format " + std::to_string(*version) +
                     ", this program needs " + std::to_string(kFormatVersion) +
                     "; let the older Scriptorium, which wrote it, deliver what it holds (until "
                     "`scriptorium status` says that nothing waits), then move the file away"};
  }
  if (*application != kApplicationId || *version != kFormatVersion || *ours < 7)
    return Error{ErrorKind::kCorrupt, "header or schema damaged"};
  const std::string damage = verify(db, Extent::kStructure);
  if (!damage.empty()) return Error{ErrorKind::kCorrupt, damage};
  return {};
}

Result<OpenedDatabase> open_read_only(const Options& options) {
  const std::string file = options.directory + "/" + kFileName;
  const Error missing{ErrorKind::kVanished, "there is no journal in " + options.directory};
  if (!stat_path(file)) return missing;
  OpenedDatabase opened;
  for (const auto mode : {Connection::Mode::kReadOnly, Connection::Mode::kImmutable}) {
    auto connection = Connection::open(file, mode);
    if (!connection) return connection.error();
    opened.immutable = mode == Connection::Mode::kImmutable;
    // Without a daemon -shm may be missing, and cannot be created where we may not write. The
    // database may then be read alone, unless -wal has content.
    if (!opened.immutable && !(*connection)->integer("PRAGMA user_version")) {
      const auto error = (*connection)->take_error();
      if (error && error->kind() != ErrorKind::kCorrupt) {
        const auto wal = stat_path(file + "-wal");
        if (!wal || wal->size == 0) continue;
        return *error;
      }
    }
    if (auto found = inspect(**connection, file); !found) {
      if (found.error().kind() == ErrorKind::kVanished) return missing;
      if (found.error().kind() == ErrorKind::kCorrupt) return found.error().with_context(file);
      return found.error();
    }
    opened.connection = *std::move(connection);
    break;
  }
  return opened;
}

// The secret of the capture keys, on disk or not yet.
struct Secret {
  CaptureSecret secret;
  bool is_new = false;
};
Result<Secret> load_secret(const std::string& directory) {
  auto loaded = CaptureSecret::load(directory);
  if (loaded) return Secret{*std::move(loaded)};
  if (loaded.error().kind() != ErrorKind::kVanished) return loaded.error();
  auto made = CaptureSecret::make();
  if (!made) return made.error();
  return Secret{*std::move(made), true};
}

// After the secret was lost, each mark gets a new key. Nothing was removed from the events of those
// marks, as far as is known, so their ids are the original ones.
Result<void> put_new_keys(Connection& db, const std::string& file, const CaptureSecret& secret,
                          Logger& log) {
  struct Row {
    std::string source, entry, event_id;
  };
  std::vector<Row> marks;
  {
    Statement rows(db, "SELECT source, entry, event_id FROM marks");
    while (rows.step())
      marks.push_back({std::string(rows.text(0)), std::string(rows.text(1)), rows.id(2)});
  }
  if (!marks.empty()) {
    Statement put(db, "UPDATE marks SET capture_key=?3 WHERE source=?1 AND entry=?2");
    db.execute("BEGIN IMMEDIATE");
    for (const Row& mark : marks)
      put.run(mark.source, mark.entry, Id{secret.key_of(mark.event_id)});
    db.execute("COMMIT");
    if (!db.ok()) db.rollback();
  }
  if (auto error = db.take_error()) return *std::move(error);
  if (!marks.empty()) {
    log.warning("CAPTURE_KEY_LOST",
                "the key that recognises captured entries was missing; a new one is made; entries "
                "whose files are unchanged are still recognised, others may be captured again if "
                "the rules for secrets have changed",
                {{"file", file}, {"marks", marks.size()}});
  }
  return {};
}

void set_pragmas(Connection& db, const Options& options) {
  db.execute("PRAGMA journal_mode=WAL");
  db.execute("PRAGMA synchronous=FULL");
  db.execute("PRAGMA cache_size=-16384");
  // Debian builds SQLite to fill with zeros what it frees, so that each page would be written once
  // more to become free.
  db.execute("PRAGMA secure_delete=OFF");
  db.execute("PRAGMA wal_autocheckpoint=0");
  // SQLite cuts -wal to this length when it restarts it; until then it keeps its length.
  db.execute("PRAGMA journal_size_limit=" +
             std::to_string(std::min<std::uint64_t>(64U << 20, options.max_bytes / 8)));
}

// Finishes what an earlier start left undone.
Result<void> finish_quarantine(const Options& options, Logger& log, OpenReport& report) {
  const std::string bad = unfinished_quarantine(options.directory);
  if (bad.empty()) return {};
  auto result =
      quarantine(options.directory, bad,
                 "found before, and the process ended while it was put aside", log, report);
  if (!result)
    return result.error().with_context("the damaged journal in " + bad + " cannot be put aside" +
                                       kPutAsideRemedy);
  return {};
}

Result<void> put_aside(const Options& options, const std::string& damage, Logger& log,
                       const Clock& clock, OpenReport& report) {
  auto bad = new_quarantine(options.directory, clock);
  if (!bad) return bad.error();
  Result<void> result = withdraw_salvage(options.directory);
  if (result) result = quarantine(options.directory, *bad, damage, log, report);
  if (!result)
    return result.error().with_context("the journal is damaged (" + printable(damage, 200) +
                                       ") and cannot be put aside in " + *bad + kPutAsideRemedy);
  return {};
}

// What the file system alone shows; `first`: not after a quarantine. kCorrupt: damaged.
Result<void> check_files(const Options& options, const std::string& file, bool first,
                         OpenReport& report) {
  const auto state = stat_path(file);
  if (state && state->size > 0) {
    if (!state->is_regular())
      return Error{ErrorKind::kInvalidConfig, file + ": found no regular file; move it away"};
    const auto wanted = asked_for_salvage(options.directory);
    if (first && wanted) return Error{ErrorKind::kCorrupt, "found while it was in use: " + *wanted};
    return {};
  }
  // A -wal without its database can only be the rest of one that is lost.
  if (const auto wal = stat_path(file + "-wal"); wal && wal->size > 0)
    return Error{ErrorKind::kCorrupt, "the database of " + file + "-wal is missing or empty"};
  if (auto result = create_empty(file); !result) return result;
  report.created = true;
  return sync_parent(file);
}

// kCorrupt: the file is damaged.
Result<std::unique_ptr<Connection>> try_open(const Options& options, const std::string& file,
                                             bool first, OpenReport& report) {
  if (auto result = check_files(options, file, first, report); !result) return result.error();
  auto connection = Connection::open(file, Connection::Mode::kReadWrite);
  if (!connection) return connection;
  const auto found = inspect(**connection, file);
  if (found) return connection;
  if (found.error().kind() != ErrorKind::kVanished) return found.error();
  connection->reset();
  if (auto result = create_empty(file); !result) return result.error();
  report.created = true;
  return Connection::open(file, Connection::Mode::kReadWrite);
}

}  // namespace

Result<OpenedDatabase> open_database(const Options& options, Logger& log, const Clock& clock) {
  if (options.read_only) return open_read_only(options);
  if (auto result = make_directories(options.directory, 0700); !result) return result.error();
  // WAL mode needs memory shared between processes.
  if (const auto shared = shared_file_system(options.directory); shared && !shared->locks_work) {
    return Error{ErrorKind::kInvalidConfig,
                 options.directory + ": found " + shared->name +
                     ", needed a local file system; choose another state_dir"};
  }
  const std::string file = options.directory + "/" + kFileName;
  OpenedDatabase opened;
  auto secret = load_secret(options.directory);
  if (!secret) return secret.error();
  if (auto result = finish_quarantine(options, log, opened.report); !result) return result.error();
  for (bool first = true;; first = false) {
    auto connection = try_open(options, file, first, opened.report);
    if (connection) {
      set_pragmas(**connection, options);
      if (secret->is_new) {
        // In this order: if the process ends in between, the next start makes another secret and
        // all keys again.
        auto stored = put_new_keys(**connection, file, secret->secret, log);
        if (stored) stored = secret->secret.store(options.directory);
        if (!stored) return stored.error();
      }
      opened.secret = std::move(secret->secret);
      opened.connection = *std::move(connection);
      return opened;
    }
    const Error& error = connection.error();
    if (error.kind() != ErrorKind::kCorrupt) return error;
    if (!first)
      return Error{ErrorKind::kCorrupt, file + ": damaged again at once: " + error.message()};
    if (auto result = put_aside(options, error.message(), log, clock, opened.report); !result)
      return result.error();
  }
}

}  // namespace scriptorium::journal
