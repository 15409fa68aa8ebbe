#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "backends/kafka/config.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::kafka {

// Can the brokers be reached with this configuration, and are the topics there? Asks for metadata
// and leaves nothing behind. Blocks for `limit` at most, and less where the answer is plain before.
// With no topics it asks for the brokers only.
Result<void> probe(const KafkaConfig& config, const Clock& clock,
                   const std::vector<std::string>& topics, std::chrono::milliseconds limit);

// The settings that a topic should have: room for our messages, and their compression left as it
// is.
std::vector<std::pair<std::string, std::string>> topic_settings(const KafkaConfig& config);

// The command that makes a topic as the sink wants it.
std::string create_command(const KafkaConfig& config, const std::string& topic);

}  // namespace scriptorium::kafka
