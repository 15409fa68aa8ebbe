#pragma once

#include <cstdint>
#include <string>

#include "core/journal/capture_mark.h"
#include "core/journal/sqlite.h"

// Tables and columns of the journal's file, format version 3 (docs/journal.md), and which of them
// an older version lacks.
namespace scriptorium::journal {

constexpr const char* kFileName = "journal.db";
constexpr std::int64_t kApplicationId = 0x53637270;  // "Scrp"
// Version 1 stored every file as a blob; version 2 had no absences, no locators, and marks that did
// not name their file.
constexpr std::int64_t kFormatVersion = 3;
constexpr std::int64_t kPageSize = 4096;
// Creates all tables, always in the same order, so that their root pages are known.
extern const char* const kSchema;
extern const char* const kFromVersion1;  // upgrades a version 1 to version 2
extern const char* const kFromVersion2;  // upgrades a version 2 to version 3

// exceptions.state
enum class State : std::int64_t {
  kParked = 1,   // to be tried again
  kDead = 2,     // dead letter
  kSettled = 3,  // acknowledged while an earlier event is still open
};

bool has_table(Connection& db, const char* name);
bool has_packs(Connection& db);         // false: version 1, which may be read as it is
bool marks_name_files(Connection& db);  // false: older than version 3
// The column, or `otherwise` if an older version, opened only for reading, lacks it.
std::string column_or(Connection& db, const char* table, const char* column, const char* otherwise);
// The columns of `marks` after source and entry, as mark_of_row() reads them; columns that the
// version lacks are filled in as unknown.
const char* mark_columns(Connection& db);
// Reads a row with `entry` in column `first`, then mark_columns().
CaptureMark mark_of_row(const Statement& row, int first = 0);
// The first columns of the rows that EventReader::load() reads, as the journal's version has them.
const char* content_columns(Connection& db);
// Of `events`: the same, then seq, kind, bytes, target, id, job_id, captured_at (columns 3 to 9).
std::string event_columns(Connection& db);

// Checksums of the two small tables that record what a sink is still to get: a flipped bit there
// would be a silent loss.
std::int64_t sink_sum(std::string_view name, std::string_view kinds, std::int64_t cursor,
                      std::string_view absences);
std::int64_t exception_sum(std::int64_t sink, std::int64_t seq, State state);

}  // namespace scriptorium::journal
