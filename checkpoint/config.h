#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/api/options.h"

namespace scriptorium::checkpoint {

// /etc/scriptorium/checkpoint.toml. Every key may be missing, and so may the file.
struct Config {
  std::string spool = "/var/lib/checkpoints";
  std::string criu;  // "" = looked for in the system's folders
  std::int64_t max_image_bytes = std::int64_t{64} << 30;
  std::int64_t time_limit_seconds = 600;
  std::int64_t dumps_at_a_time = 2;
  std::int64_t generations = 2;
  std::int64_t requests_per_minute = 30;
  std::string records = "/var/lib/scriptorium-checkpointd";  // "" = none are written
  std::string records_group = "scriptorium";
};

inline constexpr const char* kConfigFile = "/etc/scriptorium/checkpoint.toml";

Config parse_config(std::string_view text, const std::string& file, Problems& problems);

}  // namespace scriptorium::checkpoint
