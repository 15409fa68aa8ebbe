#pragma once

#include <librdkafka/rdkafka.h>

#include <string>
#include <string_view>

#include "backends/kafka/config.h"

// What librdkafka says of connections, in words that an administrator can act on. Pure.
namespace scriptorium::kafka {

struct ConnectionProblem {
  std::string words;          // what is wrong, and the remedy
  std::string broker;         // "kafka1:9093"; "" if it is about all of them
  bool needs_person = false;  // false: a broker that is down comes back by itself
};

// `error` and `text` as the error callback gets them; `library_version` as rd_kafka_version() gives
// it. The words are the same each time for the same cause.
ConnectionProblem explain(rd_kafka_resp_err_t error, std::string_view text,
                          const KafkaConfig& config, int library_version);

// `_ALL_BROKERS_DOWN` that no other error came before: how a listener that wants TLS looks to a
// client without it.
// `answered`: a broker has answered this producer before.
ConnectionProblem explain_silence(const KafkaConfig& config, bool answered = false);

// "2.0.2"
std::string library_version_text(int library_version);

}  // namespace scriptorium::kafka
