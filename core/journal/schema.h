#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/journal/capture_mark.h"
#include "core/journal/sqlite.h"

// Tables and columns of the journal's file, format version 4 (docs/journal.md).
namespace scriptorium::journal {

constexpr const char* kFileName = "journal.db";
constexpr std::int64_t kApplicationId = 0x53637270;  // "Scrp"
constexpr std::int64_t kFormatVersion = 4;
constexpr std::int64_t kPageSize = 4096;
// Creates all tables, always in the same order, so that their root pages are known.
extern const char* const kSchema;
// The statements of kSchema without their closing parenthesis, before which a newer program may
// have added columns.
std::vector<std::string> definitions();

// exceptions.state
enum class State : std::int64_t {
  kParked = 1,   // to be tried again
  kDead = 2,     // dead letter
  kSettled = 3,  // acknowledged while an earlier event is still open
};

bool has_table(Connection& db, const std::string& name);
bool has_column(Connection& db, const std::string& table, const std::string& column);

// The rows that mark_of_row() reads; a condition follows.
constexpr const char* kSelectMarks =
    "SELECT entry, device, inode, mtime_ns, size, event_id, file, file_size, capture_key, "
    "source FROM marks WHERE ";
CaptureMark mark_of_row(const Statement& row);
// The rows that EventReader reads, of either table with the same columns; a condition follows.
constexpr const char* kSelectEvents =
    "SELECT meta, blobs, pack, seq, kind, bytes, target, id, job_id, captured_at, source, NULL "
    "FROM events WHERE ";
constexpr const char* kSelectUnresolved =
    "SELECT meta, blobs, pack, ticket, kind, bytes, 0, id, job_id, captured_at, source, entry "
    "FROM unresolved WHERE ";

// Checksums of the two small tables that record what a sink is still to get: a flipped bit there
// would be a silent loss.
std::int64_t sink_sum(std::string_view name, std::string_view kinds, std::int64_t cursor,
                      std::string_view absences);
std::int64_t exception_sum(std::int64_t sink, std::int64_t seq, State state);

}  // namespace scriptorium::journal
