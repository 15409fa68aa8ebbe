#pragma once

#include <chrono>
#include <string>

#include "backends/kafka/config.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::kafka {

// For `scriptorium setup`: makes a topic as the sink wants it, or says in what one that is there
// already differs, with the command that changes it; nothing of an existing topic is changed.
// Returns what a person reads, in whole lines. Blocks for `limit` at most. Fails: kInvalidConfig
// with the broker's words if it refuses, kTransient if it cannot be asked now.
Result<std::string> set_up_topic(const KafkaConfig& config, const Clock& clock,
                                 const std::string& topic, std::chrono::milliseconds limit);

// For `scriptorium check`: kPermanent if the topic is compacted, which would lose events; good if
// it is not, or does not say. Blocks for `limit` at most.
Result<void> check_policy(const KafkaConfig& config, const Clock& clock, const std::string& topic,
                          std::chrono::milliseconds limit);

}  // namespace scriptorium::kafka
