#pragma once

#include <string>

#include "core/capture/assemble.h"
#include "core/capture/guarded_adapter.h"
#include "core/config/config.h"

namespace scriptorium {

struct CaptureOptions {
  std::string name;  // of the source instance
  SourceConfig common;
  EventOrigin origin;
  bool resolve_first = false;  // the events wait for an OwnerResolver
  // What this process writes on the spool's file system (its archive, say) is not an entry.
  bool skip_own_writes = true;
  GuardedAdapter::AroundParse around_parse;  // may be empty
};

}  // namespace scriptorium
