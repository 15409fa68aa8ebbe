#include "backends/catalog/segments.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "backends/catalog/convert.h"
#include "core/base/accounts.h"
#include "core/base/fault_point.h"
#include "core/base/file.h"
#include "core/base/file_system.h"
#include "core/base/number.h"
#include "core/base/path.h"

namespace scriptorium::catalog {
namespace {

constexpr mode_t kDatabaseMode = 0640;
// With the set-group-ID bit a new file gets the directory's group.
constexpr mode_t kSharedDirectory = 02750;
constexpr mode_t kOwnDirectory = 0750;
// A reader must not wait as long as a writer: a query has its own deadline.
constexpr int kSegmentBusyMs = 2'000;

std::string segments_directory(const std::string& root) { return root + "/segments"; }

Error root_problem(const std::string& what, int code) {
  const Error error = system_error(what, code);
  switch (code) {
    case ENOENT:
      return {ErrorKind::kInvalidConfig, error.message() + "; make the directory above it"};
    case ENOTDIR: return {ErrorKind::kInvalidConfig, error.message() + "; correct root"};
    case EACCES:
    case EPERM:
      return {ErrorKind::kInvalidConfig,
              error.message() + "; let the daemon's user write there (chown), or correct root"};
    default:
      return {error.kind() == ErrorKind::kVanished ? ErrorKind::kTransient : error.kind(),
              error.message()};
  }
}

Result<std::optional<gid_t>> find_reader_group(const std::optional<std::string>& name) {
  if (!name) return std::optional<gid_t>{};
  if (const std::optional<gid_t> gid = parse_number<gid_t>(*name)) return gid;
  auto found = find_group(*name);
  if (!found) return found.error().with_context("reader_group");
  if (!*found) {
    return Error{ErrorKind::kInvalidConfig, "reader_group: there is no group \"" + *name + "\""};
  }
  return std::optional<gid_t>((*found)->gid);
}

// Group and mode of an open directory or file, changed only if they differ: an administrator may
// have made the directory, and then it does not belong to us.
Result<void> share(const std::string& path, std::optional<gid_t> group, mode_t mode) {
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) return root_problem("stat " + path, errno);
  if (group && st.st_gid != *group) {
    if (::chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0) {
      return Error{ErrorKind::kInvalidConfig,
                   root_problem("give " + path + " to reader_group", errno).message() +
                       "; the daemon's user must be a member of the group"};
    }
    st.st_mode &= ~mode_t{S_ISGID};  // chown() clears it
  }
  if (group && (st.st_mode & 07777) != mode && ::chmod(path.c_str(), mode) != 0)
    return root_problem("chmod " + path, errno);
  return {};
}

Result<void> make_directory(const std::string& path, std::optional<gid_t> group) {
  const mode_t mode = group ? kSharedDirectory : kOwnDirectory;
  if (::mkdir(path.c_str(), kOwnDirectory) == 0) {
    // The process may have a stricter umask.
    if (::chmod(path.c_str(), kOwnDirectory) != 0) return root_problem("chmod " + path, errno);
    if (auto synced = sync_parent(path); !synced) return synced;
  } else if (errno != EEXIST) {
    return root_problem("make " + path, errno);
  }
  return share(path, group, mode);
}

// The files that were made before the group was configured.
Result<void> share_files(const std::string& directory, gid_t group) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (!entry.is_regular_file(error) || entry.is_symlink(error)) continue;
    if (auto shared = share(entry.path().string(), group, kDatabaseMode); !shared) return shared;
  }
  if (error) return root_problem("read " + directory, error.value());
  return {};
}

// An empty file for SQLite, which gives -wal and -shm its mode and owner. Made before, since SQLite
// itself would use 0644.
Result<void> make_database_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kDatabaseMode));
  if (!fd) return root_problem("make " + path, errno);
  if (::fchmod(fd.get(), kDatabaseMode) != 0) return root_problem("chmod " + path, errno);
  return {};
}

Error not_ours(const Error& error, const std::string& path) {
  return error.kind() == ErrorKind::kCorrupt ? error.with_context(path) : error;
}

// A reader without the right to write could not make it.
void keep_wal(Connection& db) {
  int keep = 1;
  sqlite3_file_control(db.handle(), "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
}

Result<ConnectionPtr> open_unchecked(const std::string& path, const std::string& name, bool write) {
  auto db = Connection::open(
      path, write ? Connection::Mode::kReadWrite : Connection::Mode::kReadOnly, "catalog: " + name);
  if (!db) return db;
  Connection& connection = **db;
  if (write) {
    keep_wal(connection);
    prepare_writer(connection);
  } else {
    sqlite3_busy_timeout(connection.handle(), kSegmentBusyMs);
    prepare_reader(connection);
  }
  if (auto error = connection.take_error()) return not_ours(*std::move(error), path);
  return db;
}

Result<ConnectionPtr> open_checked(const std::string& path, const std::string& name, bool write) {
  auto db = open_unchecked(path, name, write);
  if (!db) return db;
  if (auto format = check_format(**db); !format) return format.error().with_context(path);
  return db;
}

// One that has not the catalog's format could not be converted: it is damaged.
Result<ConnectionPtr> open_segment(const std::string& root, std::int64_t segment, bool write) {
  auto db = open_checked(segment_file(root, segment), segment_name(segment), write);
  if (db || db.error().kind() != ErrorKind::kInvalidConfig) return db;
  return Error{ErrorKind::kCorrupt, db.error().message()};
}

Result<void> convert_file(Connection& db) {
  const auto format = format_of(db);
  if (!format) return format.error();
  if (*format != kFormat) convert_tables(db, *format);
  if (auto error = db.take_error()) {
    db.rollback();
    return *std::move(error);
  }
  return {};
}

// Makes a database that appears whole or not at all: under another name first.
Result<void> make_database(const std::string& path,
                           const std::function<bool(Connection&)>& create_tables) {
  const std::string temporary = path + ".new";
  for (const char* ending : {"", "-wal", "-shm", "-journal"})
    ::unlink((temporary + ending).c_str());
  if (auto made = make_database_file(temporary); !made) return made;
  auto db = Connection::open(temporary, Connection::Mode::kReadWrite, "catalog");
  if (!db) return db.error();
  // Without a -wal of its own until it has its name.
  (*db)->execute("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL");
  create_tables(**db);
  if (auto error = (*db)->take_error()) return *std::move(error);
  db->reset();
  FAULT_POINT("catalog.new_database");
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return system_error("rename " + temporary, errno);
  return sync_parent(path);
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace

std::string segment_name(std::int64_t segment) { return segment_file("", segment).substr(1); }

Result<void> check_file_system(const std::string& root) {
  const std::string where = exists(root) ? root : parent_of(root);
  const auto shared = shared_file_system(where.empty() ? "/" : where);
  if (!shared || shared->locks_work) return {};
  return Error{ErrorKind::kInvalidConfig, "root " + root + ": found " + shared->name +
                                              ", needed a local file system; choose another root"};
}

Result<void> make_root(const std::string& root, const std::optional<std::string>& reader_group) {
  const auto group = find_reader_group(reader_group);
  if (!group) return group.error();
  if (auto local = check_file_system(root); !local) return local;
  if (auto made = make_directory(root, *group); !made) return made;
  if (auto made = make_directory(segments_directory(root), *group); !made) return made;
  if (*group) {
    for (const std::string& directory : {root, segments_directory(root)}) {
      if (auto shared = share_files(directory, **group); !shared) return shared;
    }
  }
  if (exists(catalog_file(root))) return {};
  return make_database(catalog_file(root),
                       [](Connection& db) { return create_catalog_tables(db); });
}

Result<void> check_root(const std::string& root, const std::optional<std::string>& reader_group) {
  const auto group = find_reader_group(reader_group);
  if (!group) return group.error();
  // start() makes the last part of the path.
  const std::string where = exists(root) ? root : parent_of(root);
  struct stat st{};
  if (::stat(where.empty() ? "/" : where.c_str(), &st) != 0)
    return root_problem("root " + root, errno);
  if (!S_ISDIR(st.st_mode)) return root_problem("root " + root, ENOTDIR);
  if (::faccessat(AT_FDCWD, where.empty() ? "/" : where.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    return root_problem("write in " + where, errno);
  if (auto local = check_file_system(root); !local) return local;
  if (!exists(catalog_file(root))) return {};
  const auto catalog = open_unchecked(catalog_file(root), "catalog.db", false);
  if (!catalog) return catalog.error();
  const auto format = format_of(**catalog);
  return format ? Result<void>() : format.error().with_context(catalog_file(root));
}

Result<std::int64_t> convert_catalog(const std::string& root) {
  auto catalog = open_unchecked(catalog_file(root), "catalog.db", true);
  if (!catalog) return catalog.error();
  const auto format = format_of(**catalog);
  if (!format) return format.error().with_context(catalog_file(root));
  if (*format == kFormat) return *format;
  for (const SegmentInfo& info : list_segments(**catalog)) {
    auto segment = open_unchecked(segment_file(root, info.id), segment_name(info.id), true);
    const auto done = segment ? convert_file(**segment) : segment.error();
    if (!done && !is_damage(done.error())) return done.error().with_context(segment_name(info.id));
  }
  if (auto done = convert_file(**catalog); !done) return done.error();
  return *format;
}

Result<void> add_segment(const std::string& root, Connection& catalog, std::int64_t segment,
                         Timestamp now) {
  // A file of this number without a row is what a crash left: nobody has read or written it.
  const std::string file = segment_file(root, segment);
  for (const char* ending : {"", "-wal", "-shm"}) ::unlink((file + ending).c_str());
  auto made =
      make_database(file, [&](Connection& db) { return create_segment_tables(db, segment); });
  if (!made) return made;
  FAULT_POINT("catalog.segment_made");
  catalog.execute("BEGIN IMMEDIATE");
  catalog.run("UPDATE segments SET state = ? WHERE state = ?", SegmentState::kSealed,
              SegmentState::kOpen);
  catalog.run("INSERT INTO segments VALUES(?, ?, ?)", segment, SegmentState::kOpen, now);
  catalog.execute("COMMIT");
  if (auto error = catalog.take_error()) {
    catalog.rollback();
    return *std::move(error);
  }
  return {};
}

Result<ConnectionPtr> open_catalog_writer(const std::string& root) {
  return open_checked(catalog_file(root), "catalog.db", true);
}
Result<ConnectionPtr> open_segment_writer(const std::string& root, std::int64_t segment) {
  return open_segment(root, segment, true);
}
Result<ConnectionPtr> open_catalog_reader(const std::string& root) {
  return open_checked(catalog_file(root), "catalog.db", false);
}
Result<ConnectionPtr> open_segment_reader(const std::string& root, std::int64_t segment) {
  return open_segment(root, segment, false);
}

Result<ConnectionPtr> open_damaged_segment(const std::string& root, std::int64_t segment) {
  auto db = Connection::open(segment_file(root, segment), Connection::Mode::kReadWrite,
                             segment_name(segment));
  if (!db) return db;
  keep_wal(**db);
  (*db)->execute("PRAGMA cache_size = -16384");
  if (const auto error = (*db)->take_error(); error && !is_damage(*error)) return *error;
  return db;
}

bool is_damage(const Error& error) {
  constexpr std::string_view kSigns[] = {": no such ", "string or blob too big", "disk I/O error",
                                         "Input/output error"};
  return error.kind() == ErrorKind::kCorrupt ||
         std::any_of(std::begin(kSigns), std::end(kSigns), [&](std::string_view sign) {
           return error.message().find(sign) != std::string::npos;
         });
}

std::vector<SegmentInfo> list_segments(Connection& catalog) {
  std::vector<SegmentInfo> segments;
  sqlite::Statement select(catalog, "SELECT id, state, created FROM segments ORDER BY id DESC");
  while (select.step()) {
    SegmentInfo& info = segments.emplace_back();
    select.read(info.id, info.state, info.created);
  }
  return segments;
}

FileId file_id(const std::string& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) return {};
  return {static_cast<std::uint64_t>(status.st_dev), static_cast<std::uint64_t>(status.st_ino)};
}

std::vector<std::int64_t> segment_files(const std::string& root) {
  std::vector<std::int64_t> numbers;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(segments_directory(root), error)) {
    const std::string name = entry.path().stem().string();
    const std::size_t digits = std::min(name.find_first_not_of('0'), name.size());
    const auto number = parse_number<std::int64_t>(name.substr(digits));
    if (number && entry.path() == segment_file(root, *number)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::int64_t next_segment(Connection& catalog) {
  return catalog.integer("SELECT max(id) FROM segments").value_or(0) + 1;
}

Result<void> replace_catalog(const std::string& root, Timestamp now) {
  const std::string file = catalog_file(root);
  // They belong to the damaged file, and would be taken for those of the new one.
  for (const char* ending : {"-wal", "-shm"}) ::unlink((file + ending).c_str());
  return make_database(file, [&](Connection& db) {
    create_catalog_tables(db);
    for (const std::int64_t segment : segment_files(root))
      db.run("INSERT INTO segments VALUES(?, ?, ?)", segment, SegmentState::kLeaving, now);
    return db.ok();
  });
}

}  // namespace scriptorium::catalog
