#pragma once

#include <optional>
#include <string>

#include "backends/file/job_files.h"
#include "core/api/event.h"
#include "core/base/result.h"

// Replaces the files of a stored event, so that a crash at any point leaves either the old event or
// one that the next pass brings to its end:
//
//   1. new contents as ".NAME.redacted", synced; the note of a new name, if it gets one
//   2. new metadata as ".NAME.redacted", synced, and their names: from here on the change is made
//   3. the contents are renamed over the old ones, and the names synced
//   4. the metadata are renamed over the old ones
//   5. the files get their new names, the metadata last, and the note is removed
//
// Owner, mode and access list are those of the file that is replaced; the time of modification is
// not, so that a backup which compares only size and time takes the new file. Errors are those of
// file_error().
namespace scriptorium::file {

// Why an event's files must not be replaced; nothing if they may. A constant text.
Result<std::optional<std::string>> obstacle(int directory, const StoredEvent& stored);

// Steps 1 and 2. `after` has the bytes of all contents that `stored` has bytes of and that it
// keeps.
Result<void> prepare_change(int directory, const StoredEvent& stored, const Event& after);

// The event of step 2, without bytes, if an interrupted change of these metadata got that far.
Result<std::optional<Event>> prepared_change(int directory, const std::string& metadata);

// Steps 3 and 4, as often as needed.
Result<void> finish_change(int directory, const std::string& metadata, const Event& before,
                           const Event& after);

// Step 5, for a note that lies beside these metadata; the name that they have then.
Result<std::string> finish_move(int directory, const std::string& metadata);

}  // namespace scriptorium::file
