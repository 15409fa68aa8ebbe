#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/time.h"

// What the sink shows of itself in `scriptorium status --json`. Pure.
namespace scriptorium::kafka {

// What we keep of librdkafka's statistics (its STATISTICS.md); all counts are since the producer
// was made.
struct Statistics {
  struct Broker {
    std::string name;
    std::string state;  // "UP", "DOWN", "AUTH_REQ", ...
    std::int64_t waiting_requests = 0;
    std::int64_t errors = 0;
    std::int64_t retries = 0;
    std::int64_t timeouts = 0;
    std::int64_t connects = 0;
    std::int64_t disconnects = 0;
    double rtt_p99_ms = 0;
    double queue_p99_ms = 0;  // from hand-over to sending
  };
  std::int64_t messages = 0;
  std::int64_t message_bytes = 0;
  std::int64_t requests = 0;
  std::int64_t request_bytes = 0;
  std::int64_t queued_messages = 0;
  std::int64_t queued_bytes = 0;
  std::int64_t queue_limit_messages = 0;
  std::int64_t reply_queue = 0;
  std::string idempotence_state;
  std::int64_t idempotence_epochs = 0;
  std::vector<Broker> brokers;

  std::int64_t retries() const noexcept;
};
// Nothing if it is not librdkafka's JSON.
std::optional<Statistics> read_statistics(std::string_view json);

struct Status {
  enum class Connection { kNone, kUp, kIdle, kDown } connection = Connection::kNone;
  std::string last_error;  // in words; "" since the last good report
  Timestamp last_error_at;
  std::uint64_t acknowledged = 0;
  std::uint64_t truncated = 0;        // acknowledged, but cut
  std::uint64_t left_out = 0;         // Formatter::has_a_message() says no
  std::uint64_t resent = 0;           // handed over more than once
  std::uint64_t refused_batches = 0;  // as too large
  std::uint64_t producers_given_up = 0;
  std::uint64_t waiting = 0;    // in the sink, not handed over
  std::uint64_t in_flight = 0;  // handed over, without a report
  std::uint64_t batch_limit_bytes = 0;
  std::optional<SteadyTime> in_flight_since;  // the oldest of them
  bool stalled = false;
  std::optional<Statistics> statistics;
};
std::string status_json(const Status& status, SteadyTime now);

}  // namespace scriptorium::kafka
