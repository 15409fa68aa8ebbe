#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/api/kit/sqlite/connection.h"
#include "core/api/query.h"
#include "core/base/result.h"

// The catalog on disk, format 9:
//
//   ROOT/catalog.db             which segments exist, and the families
//   ROOT/segments/000001.db     the jobs that arrived in one period, with their contents and index
//   ROOT/writer.lock            flock()ed by a process that changes something, for one transaction
//   ROOT/maintenance.lock       likewise by one that checks or rewrites segments
//
// A segment is complete in itself. New jobs go to the newest one; a later event of a job changes
// its row in whichever segment has it. Every file is an SQLite database in WAL mode, mode 0640.
//
// Contents. A script, an environment or a record (the event as JSON without its files' bytes, of a
// submission or of a later event) is a row of `contents`. New ones lie in `pending`, each packed by
// itself or against its `base`, a pending content of the same owner and kind; when an owner's
// pending contents of one kind reach kBlockBytes, one transaction seals them as one row of `blocks`
// (block.h) and deletes the pending rows. What is sealed earlier, since too much waits, makes a
// young block, which later ones take along until it has kBlockBytes. A script occurs once for an
// owner.
//
// Finding. `words` has one row for each block of scripts, under the block's id: its distinct words
// (words.h), and with the prefix kInAll those that occur in each of its scripts. `script_blocks`
// has the block's owner, and the newest and oldest job that uses one of its scripts; `pairs` a
// filter of its word pairs, `places` which of its scripts have which words, and `frequent` of a
// finished segment says the same of its most frequent words at once. A young block of
// scripts has no words there, since each change of them is dear; its filter is one of its words
// instead. Pending scripts are not indexed: a search reads them. Jobs are grouped in chunks of
// kChunkJobs consecutive ids: `fields` has the values of each field in a chunk (field_lists.h),
// `chunks` the newest and oldest job of each. Both may name too much (a value that a later event
// changed), never too little.
namespace scriptorium::catalog {

inline constexpr std::int64_t kFormat = 9;
inline constexpr std::int64_t kOldestFormat = 2;
inline constexpr std::size_t kBlockBytes = 64
                                           << 10;  // raw contents of a block, before it is sealed
inline constexpr std::int64_t kChunkJobs = 256;    // jobs.id / kChunkJobs is the chunk
inline constexpr std::int64_t kSegmentJobs = 250'000;  // then the next segment begins
inline constexpr std::int64_t kDay = 86'400;           // seconds
// Which unit of time (a day, ...) this is in. Rounded down, also before 1970.
constexpr std::int64_t unit_of(std::int64_t time, std::int64_t unit) noexcept {
  return time / unit - (time % unit < 0 ? 1 : 0);
}

enum class ContentKind : std::uint8_t { kScript = 0, kEnvironment = 1, kRecord = 2 };

// `names.field`: a QueryField, or one of these.
inline constexpr std::int64_t kNameOfUid = 100;
inline constexpr std::int64_t kNameOfGroup = 101;
inline constexpr std::int64_t kNameOfDirectives = 102;  // all of a job: a list
inline constexpr std::int64_t kNameOfModules = 103;     // likewise
inline constexpr std::int64_t kNameOfArraySpec = 104;
inline constexpr std::int64_t kNameOfHet = 105;
inline constexpr std::int64_t kNameOfNodes = 106;     // a list
inline constexpr std::int64_t kNameOfFindings = 107;  // a list
inline constexpr std::int64_t kNameOfSoftware = 108;  // a list
inline constexpr std::int64_t kNameOfSums = 110;      // of a row of `sums`
inline constexpr std::int64_t kNameOfOwner = 111;     // owner_of_run()

// `fields` of this field is not of a chunk: owners.id takes its place, and the list has the
// accounts of the owner's jobs.
inline constexpr std::int64_t kAccountsOfOwner = 109;

// `jobs.flags`
inline constexpr std::int64_t kVerifiedFlag = 1;
inline constexpr std::int64_t kIncompleteFlag = 2;
inline constexpr std::int64_t kRedactedFlag = 4;

enum class SegmentState : std::uint8_t {
  kOpen = 0,    // takes new jobs; the newest
  kSealed = 1,  // takes changes of its jobs only
  // Its events are being moved to other segments, in which they are found from now on (move.h).
  kLeaving = 2,
  // Likewise, and changed on their way: only the same change may continue that.
  kRedacting = 3,
};
constexpr bool is_leaving(SegmentState state) noexcept {
  return state == SegmentState::kLeaving || state == SegmentState::kRedacting;
}

std::string catalog_file(const std::string& root);
std::string segment_file(const std::string& root, std::int64_t segment);
std::string lock_file(const std::string& root);

// Creates the tables in an empty database. The file exists with the right owner and mode.
bool create_catalog_tables(sqlite::Connection& db);
bool create_segment_tables(sqlite::Connection& db, std::int64_t segment);
// Those tables and indices of a segment that a file of this format lacks.
void add_newer_tables(sqlite::Connection& db, std::int64_t format);

// What every connection sets: cache, busy timeout, secure_delete and, for a writer, WAL and
// synchronous = FULL.
bool prepare_writer(sqlite::Connection& db);
bool prepare_reader(sqlite::Connection& db);

// kCorrupt if the file is not a catalog; kInvalidConfig if it is one that this version cannot use,
// with what it is. A catalog of kOldestFormat and later can be converted (segments.h).
Result<std::int64_t> format_of(sqlite::Connection& db);
Result<void> check_format(sqlite::Connection& db);

}  // namespace scriptorium::catalog
