#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/catalog/schema.h"
#include "core/api/kit/sqlite/connection.h"
#include "core/base/result.h"
#include "core/base/time.h"

// The catalog's files: making, listing and opening them. Who changes anything holds a WriterLock
// (lock.h) meanwhile, except for making the root.
//
// Readers need the files "-wal" and "-shm" beside each database, and cannot make them with the
// right to read alone. So every writer connection keeps them when it closes
// (SQLITE_FCNTL_PERSIST_WAL), and the directories have the set-group-ID bit, so that all files get
// the readers' group.
namespace scriptorium::catalog {

using Connection = sqlite::Connection;
using ConnectionPtr = std::unique_ptr<Connection>;

// kInvalidConfig for NFS, SMB and AFS, on which SQLite's locks are not reliable.
Result<void> check_file_system(const std::string& root);

// Makes the root (mode 2750, 0750 without a group), its folder of segments and catalog.db if they
// are missing, and gives an existing root and its files to the group. Only the last part of `root`
// is created. kInvalidConfig if a person must act.
Result<void> make_root(const std::string& root, const std::optional<std::string>& reader_group);

// For `scriptorium check`: whether make_root() would work. Changes nothing.
Result<void> check_root(const std::string& root, const std::optional<std::string>& reader_group);

// A new segment with its tables, durable in the file system, and known to `catalog` as open.
// The segment that was open before is sealed by the same transaction.
Result<void> add_segment(const std::string& root, Connection& catalog, std::int64_t segment,
                         Timestamp now);

// Makes each file of an older format one of kFormat: the segments first, then catalog.db, so that
// after an interruption the next call continues. A segment that is damaged or gone stays as it is.
// The caller holds WriterLock. Returns the format that the catalog had.
Result<std::int64_t> convert_catalog(const std::string& root);

// Checked for their format.
Result<ConnectionPtr> open_catalog_writer(const std::string& root);
Result<ConnectionPtr> open_segment_writer(const std::string& root, std::int64_t segment);
Result<ConnectionPtr> open_catalog_reader(const std::string& root);
Result<ConnectionPtr> open_segment_reader(const std::string& root, std::int64_t segment);
// A segment that may be damaged anywhere, to read what can be read. Not checked for its format.
Result<ConnectionPtr> open_damaged_segment(const std::string& root, std::int64_t segment);

struct SegmentInfo {
  std::int64_t id = 0;
  SegmentState state = SegmentState::kOpen;
  Timestamp created;
};
// Newest first. An error sticks to the connection.
std::vector<SegmentInfo> list_segments(Connection& catalog);
// The numbers of all segments' files, ascending. One above all that `catalog` names is what a crash
// left: nobody has read or written it.
std::vector<std::int64_t> segment_files(const std::string& root);
// The number of the next one.
std::int64_t next_segment(Connection& catalog);

// A new catalog.db in the place of a damaged one, for the segments whose files there are, all of
// them kLeaving: their events name families that nobody knows any more.
Result<void> replace_catalog(const std::string& root, Timestamp now);

// Which file a path names now: its place may have been taken by another one.
struct FileId {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  auto operator<=>(const FileId&) const = default;
};
FileId file_id(const std::string& file);

// Whether what a database answers means that its file cannot be read as it was written: also a
// schema that lacks what this code asks for, a length beyond all limits, and a bad sector, which
// SQLite and strerror(EIO) name.
bool is_damage(const Error& error);

// "segments/000003.db", for messages.
std::string segment_name(std::int64_t segment);

}  // namespace scriptorium::catalog
