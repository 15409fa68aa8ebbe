#pragma once

#include <vector>

#include "core/api/options.h"

namespace scriptorium::stdout_sink {

struct StdoutConfig {
  bool script_text = true;
  bool environment = true;
};

std::vector<OptionInfo> options();
StdoutConfig parse_config(const Table& table, Problems& problems);

}  // namespace scriptorium::stdout_sink
