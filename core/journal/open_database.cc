#include "core/journal/open_database.h"

#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/journal/quarantine.h"
#include "core/journal/salvage.h"
#include "core/journal/schema.h"
#include "core/journal/verify.h"

namespace scriptorium::journal {
namespace {

constexpr const char* kPutAsideRemedy = "; make room or correct the rights, then start again";

// WAL mode needs memory shared between processes, which network file systems do not provide.
std::optional<std::string> network_file_system(const std::string& directory) {
  struct statfs state{};
  if (::statfs(directory.c_str(), &state) != 0) return std::nullopt;
  switch (static_cast<std::uint32_t>(state.f_type)) {  // statfs(2)
    case 0x6969U: return "NFS";
    case 0xFF534D42U:
    case 0xFE534D42U:
    case 0x517BU: return "SMB";
    case 0x5346414FU: return "AFS";
    default: return std::nullopt;
  }
}

// What a file is found to be.
struct Inspection {
  enum class State { kEmpty, kIntact, kDamaged, kRefused } state = State::kIntact;
  std::string text;  // why it is damaged or refused
};

Inspection inspect(Connection& db, const std::string& file) {
  using State = Inspection::State;
  const auto version = db.integer("PRAGMA user_version");
  const auto application = db.integer("PRAGMA application_id");
  const auto tables = db.integer("SELECT count(*) FROM sqlite_schema WHERE type='table'");
  const auto ours = db.integer(
      "SELECT count(*) FROM sqlite_schema WHERE type='table' AND name IN "
      "('events','unresolved','blobs','sinks','exceptions','marks','positions')");
  if (auto error = db.take_error())
    return {error->kind() == ErrorKind::kCorrupt ? State::kDamaged : State::kRefused,
            error->message()};
  if (*application == 0 && *version == 0 && *tables == 0) return {State::kEmpty, ""};
  if (*application != kApplicationId && *ours < 7) {
    return {State::kRefused,
            file + ": found the database of another program (application_id " +
                std::to_string(*application) +
                "), needed a Scriptorium journal; move it away or choose another state_dir"};
  }
  if (*application == kApplicationId && *version > kFormatVersion) {
    return {State::kRefused, file + ": found journal format " + std::to_string(*version) +
                                 ", this program needs " + std::to_string(kFormatVersion) +
                                 " or older; install the newer Scriptorium again, which wrote it"};
  }
  if (*application != kApplicationId || *version < 1 || *ours < 7 ||
      (*version == 1) == has_packs(db) || (*version < 3) == marks_name_files(db))
    return {State::kDamaged, "header or schema damaged"};
  const std::string damage = verify(db, Extent::kStructure);
  return {damage.empty() ? State::kIntact : State::kDamaged, damage};
}

Result<OpenedDatabase> open_read_only(const Options& options) {
  const std::string file = options.directory + "/" + kFileName;
  const Error missing{ErrorKind::kVanished, "there is no journal in " + options.directory};
  if (::access(file.c_str(), F_OK) != 0) return missing;
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
    const Inspection found = inspect(**connection, file);
    switch (found.state) {
      case Inspection::State::kRefused: return Error{ErrorKind::kInvalidConfig, found.text};
      case Inspection::State::kDamaged: return Error{ErrorKind::kCorrupt, file + ": " + found.text};
      case Inspection::State::kEmpty: return missing;
      case Inspection::State::kIntact: break;
    }
    opened.connection = *std::move(connection);
    break;
  }
  return opened;
}

// All steps in one transaction: after a crash the journal has the old version or the new one.
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
    log.info("JOURNAL_UPGRADED",
             "the journal of an older program was changed to this program's format; its marks do "
             "not name their file yet, which the first scan adds for every entry that still stands",
             {{"file", file},
              {"from", version},
              {"to", kFormatVersion},
              {"marks", db.number("SELECT count(*) FROM marks WHERE file=''")}});
  }
  if (auto error = db.take_error()) return *std::move(error);
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
  db.execute(("PRAGMA journal_size_limit=" +
              std::to_string(std::min<std::uint64_t>(64U << 20, options.max_bytes / 8)))
                 .c_str());
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

// How one attempt to open the file ended: with a connection, or with the damage that it found.
struct Attempt {
  std::unique_ptr<Connection> connection;
  std::string damage;
};

// What the file system alone shows; `first`: not after a quarantine.
Result<Attempt> check_files(const Options& options, const std::string& file, bool first,
                            OpenReport& report) {
  const auto state = stat_path(file);
  if (state && state->size > 0) {
    if (!state->is_regular())
      return Error{ErrorKind::kInvalidConfig, file + ": found no regular file; move it away"};
    const auto wanted = asked_for_salvage(options.directory);
    return Attempt{nullptr, first && wanted ? "found while it was in use: " + *wanted : ""};
  }
  // A -wal without its database can only be the rest of one that is lost.
  if (const auto wal = stat_path(file + "-wal"); wal && wal->size > 0)
    return Attempt{nullptr, "the database of " + file + "-wal is missing or empty"};
  if (auto result = create_empty(file); !result) return result.error();
  if (auto result = sync_directory(options.directory); !result) return result.error();
  report.created = true;
  return Attempt{};
}

Result<Attempt> try_open(const Options& options, const std::string& file, bool first,
                         OpenReport& report) {
  auto attempt = check_files(options, file, first, report);
  if (!attempt || !attempt->damage.empty()) return attempt;
  auto connection = Connection::open(file, Connection::Mode::kReadWrite);
  if (!connection && connection.error().kind() != ErrorKind::kCorrupt) return connection.error();
  if (!connection) return Attempt{nullptr, connection.error().message()};
  const Inspection found = inspect(**connection, file);
  switch (found.state) {
    case Inspection::State::kRefused: return Error{ErrorKind::kInvalidConfig, found.text};
    case Inspection::State::kDamaged: return Attempt{nullptr, found.text};
    case Inspection::State::kIntact: break;
    case Inspection::State::kEmpty:
      connection->reset();
      if (auto result = create_empty(file); !result) return result.error();
      report.created = true;
      connection = Connection::open(file, Connection::Mode::kReadWrite);
      if (!connection) return connection.error();
  }
  return Attempt{*std::move(connection), ""};
}

}  // namespace

Result<OpenedDatabase> open_database(const Options& options, Logger& log, const Clock& clock) {
  if (options.read_only) return open_read_only(options);
  if (auto result = make_directories(options.directory, 0700); !result) return result.error();
  if (const auto name = network_file_system(options.directory)) {
    return Error{ErrorKind::kInvalidConfig,
                 options.directory + ": found " + *name +
                     ", needed a local file system; choose another state_dir"};
  }
  const std::string file = options.directory + "/" + kFileName;
  OpenedDatabase opened;
  if (auto result = finish_quarantine(options, log, opened.report); !result) return result.error();
  for (bool first = true;; first = false) {
    auto attempt = try_open(options, file, first, opened.report);
    if (!attempt) return attempt.error();
    if (attempt->connection) {
      set_pragmas(*attempt->connection, options);
      if (auto upgraded = upgrade(*attempt->connection, file, log); !upgraded)
        return upgraded.error();
      opened.connection = std::move(attempt->connection);
      return opened;
    }
    if (!first)
      return Error{ErrorKind::kCorrupt, file + ": damaged again at once: " + attempt->damage};
    if (auto result = put_aside(options, attempt->damage, log, clock, opened.report); !result)
      return result.error();
  }
}

}  // namespace scriptorium::journal
