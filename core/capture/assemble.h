#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/spool_adapter.h"

namespace scriptorium {

// What every event of one spool source has in common.
struct EventOrigin {
  std::string cluster;
  std::string scheduler;
  std::string host;
};

// The id that the event of an entry would have if nothing were removed from it: over the bytes as
// they are in the spool. Call it before redaction changes `parsed`. An id over a short secret would
// let anybody try guesses at it, so nothing but its capture key leaves the process. Pure.
std::string original_id(const EventOrigin& origin, const SpoolEntry& entry,
                        const ParsedJob& parsed);
// The same of an entry whose identifying file was last modified at `mtime_ns`, and whose script was
// `script`.
std::string original_id(const EventOrigin& origin, std::string_view job_id, std::int64_t mtime_ns,
                        std::string_view script);

// An event from what an adapter made of an entry, after redact::Redactor: id, hashes and sizes are
// of what is kept. Pure. `parsed.script_file` must be a file of the entry, or any file is taken.
Event assemble(const EventOrigin& origin, const SpoolEntry& entry, ParsedJob parsed,
               std::vector<Redaction> redactions, bool complete, std::string_view capture,
               Timestamp now);

// The file of an entry that its identity and time come from.
const SpoolFile& identity_file(const SpoolEntry& entry, std::string_view script_file);

}  // namespace scriptorium
