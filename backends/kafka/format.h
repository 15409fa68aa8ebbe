#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/kafka/config.h"
#include "core/api/event.h"

// Events to messages. Pure: no clock, no socket; the same event gives the same bytes each time.
namespace scriptorium::kafka {

using Header = std::pair<std::string, std::string>;

struct Message {
  std::string topic;
  std::optional<std::string> key;
  std::string value;
  std::vector<Header> headers;
  std::int64_t timestamp_ms = 0;  // 0: the time of sending
  // What was cut, or is missing in it: "script", "environment", "script,environment", "record"; ""
  // = nothing.
  std::string truncated;

  // At least what librdkafka and the broker count: value, key, headers and their framing.
  std::size_t size() const noexcept;
};

class Formatter {
 public:
  // `config` must have passed parse_config() and outlive this.
  explicit Formatter(const KafkaConfig& config) : config_(config) {}

  // False for an event that SArchive's format can say nothing of: whose owner was found later,
  // which that format has no place for, and whose script is not at hand any more. Its consumers
  // would take it for a job with an empty script, and they have the job already.
  bool has_a_message(const Event& event) const;

  Message render(const Event& event) const;

  // The event with its texts cut so that the message's size() is at most `limit`; nothing if it is
  // too large without them. Cut is the script, at a character's end; before it, where the
  // environment alone leaves no room, the environment's largest variables.
  std::optional<Message> render_cut(const Event& event, std::size_t limit) const;

  // The topic of an event; of a kind and scheduler without an event.
  std::string topic(const Event& event) const {
    return topic(event.cluster, event.kind, event.scheduler);
  }
  std::string topic(const std::string& cluster, const std::string& kind,
                    const std::string& scheduler) const;

 private:
  struct Cut {
    bool script = false;
    bool environment = false;
  };
  Message render(const Event& event, Cut cut) const;
  std::string event_value(const Event& event, Cut cut) const;
  std::vector<Header> headers(const Event& event, const std::optional<std::string>& key) const;

  const KafkaConfig& config_;
};

}  // namespace scriptorium::kafka
