#pragma once

#include <cstdint>
#include <string>

#include "core/api/executables.h"
#include "core/api/logger.h"
#include "core/base/time.h"

namespace scriptorium {

// What core passes to a source or sink. References and pointers outlive the plugin's object.
struct PluginContext {
  std::string name;  // of the instance: "archive" for [sink.archive]
  std::string cluster;
  Logger& log;
  const Clock& clock;
  // Events that a sink of this name has acknowledged so far, as the journal knows; 0 in a command
  // that opens no journal.
  std::uint64_t acknowledged = 0;
  // Null unless a source said `executables = true` when the daemon started, and the daemon had the
  // right for it then.
  Executables* executables = nullptr;
};

}  // namespace scriptorium
