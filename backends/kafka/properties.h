#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/kafka/config.h"

// The tables whose keys are librdkafka's own properties.
namespace scriptorium::kafka {

enum class PropertyTable {
  kValues,       // name = value
  kSecretFiles,  // name = "file that holds the value"
};

// Reads such a table. TOML's dotted keys (`socket.timeout.ms = 1`) and quoted ones are the same
// here. What librdkafka does not know or take, what has an option of ours, and what would break the
// promise of delivery is a problem at its line.
std::vector<Property> read_properties(const Value& value, const Table& parent, std::string_view key,
                                      PropertyTable kind, Problems& problems);

}  // namespace scriptorium::kafka
