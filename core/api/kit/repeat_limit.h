#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/base/guarded.h"
#include "core/base/time.h"

namespace scriptorium {

// Decides whether a message about something that lasts is logged: the first time, and again each
// `interval` while it lasts. The logger limits how often one id appears; this is for a message that
// must appear once for each of several causes.
//
//   if (repeats_.allows(topic, clock.steady())) log.error("KAFKA_TOPIC", "...", {{"topic",
//   topic}}); if (repeats_.forget(topic)) log.info("KAFKA_TOPIC_BACK", "...", {{"topic", topic}});
//
// Threads: any.
class RepeatLimit {
 public:
  static constexpr std::chrono::seconds kOnce = std::chrono::seconds::max();

  // Beyond `most_keys` the key that was logged longest ago is forgotten.
  explicit RepeatLimit(std::chrono::seconds interval = kOnce, std::size_t most_keys = 256)
      : interval_(interval), most_keys_(most_keys) {}

  // Whether the message about `key` is to be logged now, which then counts as done.
  bool allows(std::string_view key, SteadyTime now);

  // The causes whose keys begin with `prefix` have ended: the next message about them is news. True
  // if a message about one of them was logged.
  bool forget(std::string_view prefix);
  bool forget_all() { return forget({}); }
  bool empty() const {
    return logged_.with([](const Logged& logged) { return logged.empty(); });
  }

 private:
  using Logged = std::map<std::string, SteadyTime, std::less<>>;  // when, by key

  const std::chrono::seconds interval_;
  const std::size_t most_keys_;
  Guarded<Logged> logged_;
};

}  // namespace scriptorium
