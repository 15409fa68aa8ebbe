#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

// What an answer of librdkafka or of a broker means. Pure.
namespace scriptorium::kafka {

enum class Action {
  kAcknowledge,
  kRetry,
  kReject,
  kResend,     // the producer was given up, not the message: the next one sends it
  kTooLarge,   // alone again; refused alone, as `oversize` says
  kSendNow,    // the broker refuses the event's time: once more with the time of sending
  kQueueFull,  // of librdkafka: when it has room
};

enum class Alarm {
  kNone,
  kTopic,          // there is no such topic
  kNotAuthorized,  // we may not write there
  kRefused,        // the broker is configured so that it takes none of our messages
};

struct Verdict {
  Action action = Action::kRetry;
  std::string reason;  // short and the same each time: retries are counted by it
  std::optional<std::chrono::milliseconds> hint;
  Alarm alarm = Alarm::kNone;
};

// Between attempts that only a person can make succeed.
inline constexpr std::chrono::seconds kSlow{10};
inline constexpr std::chrono::seconds kProducerPause{30};  // between producers that were given up
inline constexpr std::uint32_t kUnknownAttempts = 10;      // of an answer that is not in the table

// A delivery report, or what produce() returned. `attempt` is the delivery's, from 1.
Verdict judge(rd_kafka_resp_err_t error, std::uint32_t attempt, bool has_key = true);

// The name of an error as Kafka's documents have it, such as "TOPIC_AUTHORIZATION_FAILED".
std::string name_of(rd_kafka_resp_err_t error);

}  // namespace scriptorium::kafka
