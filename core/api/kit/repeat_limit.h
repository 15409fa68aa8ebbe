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

// Decides whether a message about a lasting condition is logged: the first time, and again every
// `interval` while it lasts. The logger limits how often one id appears; use this class for a
// message that must appear once for each of several causes.
//
//   if (repeats_.allows(topic, clock.steady()))
//     log.error("KAFKA_TOPIC", "...", {{"topic", topic}});
//   if (repeats_.forget(topic)) log.info("KAFKA_TOPIC_BACK", "...", {{"topic", topic}});
//
// Threads: any.
class RepeatLimit {
 public:
  static constexpr std::chrono::seconds kOnce = std::chrono::seconds::max();

  // With more than `most_keys` keys, the one logged longest ago is forgotten.
  explicit RepeatLimit(std::chrono::seconds interval = kOnce, std::size_t most_keys = 256)
      : interval_(interval), most_keys_(most_keys) {}

  // Whether to log the message about `key` now. True counts as logged.
  bool allows(std::string_view key, SteadyTime now);

  // The causes whose keys begin with `prefix` have ended, so the next message about them will be
  // logged. True if a message about one of them was logged.
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
