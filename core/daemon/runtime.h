#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/api/executables.h"
#include "core/api/logger.h"
#include "core/api/sink.h"
#include "core/base/time.h"
#include "core/capture/spool_opener.h"
#include "core/delivery/archives.h"
#include "core/delivery/crash_record.h"
#include "core/journal/journal.h"

namespace scriptorium {

class DirectoryClaims;

// What the parts of a running daemon share. It outlives all of them.
struct Runtime {
  Journal& journal;
  Logger& log;
  const Clock& clock;
  std::string cluster;
  std::string host;
  bool once = false;
  SpoolOpener* opener = nullptr;  // opens the spools; null: this process does, with its own rights
  Executables* executables = nullptr;  // null: not wanted, or not allowed
  CrashRecord* crashes = nullptr;      // null: none can be kept
  const Archives* archives = nullptr;
  DirectoryClaims* claims = nullptr;  // null: only one sink runs at a time
  // Those that run. From any thread.
  std::function<std::vector<std::shared_ptr<Sink>>()> sinks;
};

}  // namespace scriptorium
