#pragma once

#include <string>

#include "core/api/logger.h"
#include "core/base/time.h"

namespace scriptorium {

// What core passes to a source or sink. The references outlive the plugin's object.
struct PluginContext {
  std::string name;  // of the instance: "archive" for [sink.archive]
  std::string cluster;
  Logger& log;
  const Clock& clock;
};

}  // namespace scriptorium
