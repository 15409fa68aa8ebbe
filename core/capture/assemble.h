#pragma once

#include <string>

#include "core/api/spool_adapter.h"
#include "core/config/config.h"

namespace scriptorium {

// What every event of one spool source has in common.
struct EventOrigin {
  std::string cluster;
  std::string scheduler;
  std::string host;
};

// An event from what an adapter made of an entry: id, hashes, times; then the environment rule, so
// that what a site does not keep never reaches the journal. Pure. `parsed.script_file` must be a
// file of the entry, or any file is taken.
Event assemble(const EventOrigin& origin, const SpoolEntry& entry, ParsedJob parsed,
               const EnvironmentRule& rule, bool complete, std::string_view capture, Timestamp now);

// The file of an entry that its identity and time come from.
const SpoolFile& identity_file(const SpoolEntry& entry, std::string_view script_file);

}  // namespace scriptorium
