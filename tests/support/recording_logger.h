#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/logger.h"

namespace scriptorium::test {

// Keeps every message, so that a test can ask what was said.
// Threads: any.
class RecordingLogger : public Logger {
 public:
  struct Message {
    LogLevel level = LogLevel::kDebug;
    std::string id;
    std::string sentence;
    Fields fields;

    // The value of a field; "" if there is none of that name.
    std::string field(std::string_view key) const {
      auto found = std::find_if(fields.begin(), fields.end(),
                                [&](const LogField& f) { return f.key == key; });
      return found == fields.end() ? std::string{} : found->value;
    }
    // "ID: sentence {key=value, key=value}"
    std::string text() const {
      std::string out = id + ": " + sentence + " {";
      for (std::size_t i = 0; i < fields.size(); ++i)
        out += (i == 0 ? "" : ", ") + fields[i].key + "=" + fields[i].value;
      return out + "}";
    }
  };

  void log(LogLevel level, std::string_view id, std::string_view sentence,
           const Fields& fields) noexcept override {
    std::lock_guard lock(mutex_);
    messages_.push_back({level, std::string(id), std::string(sentence), fields});
    changed_.notify_all();
  }

  std::vector<Message> messages() const {
    std::lock_guard lock(mutex_);
    return messages_;
  }
  std::size_t count(std::string_view id) const {
    std::lock_guard lock(mutex_);
    return count_locked(id);
  }
  bool has(std::string_view id) const { return count(id) > 0; }
  // The last message with this id.
  std::optional<Message> last(std::string_view id) const {
    std::lock_guard lock(mutex_);
    auto found = std::find_if(messages_.rbegin(), messages_.rend(),
                              [&](const Message& m) { return m.id == id; });
    if (found == messages_.rend()) return std::nullopt;
    return *found;
  }
  // Every message on its own line; for failure output and for "says nowhere X" checks.
  std::string text() const {
    std::lock_guard lock(mutex_);
    std::string out;
    for (const Message& message : messages_) out += message.text() + "\n";
    return out;
  }
  // Until `id` was logged `times` times; false after `limit`.
  bool wait_for(std::string_view id, std::size_t times = 1,
                std::chrono::milliseconds limit = std::chrono::seconds(20)) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return count_locked(id) >= times; });
  }
  void clear() {
    std::lock_guard lock(mutex_);
    messages_.clear();
  }

 private:
  std::size_t count_locked(std::string_view id) const {
    return static_cast<std::size_t>(std::count_if(messages_.begin(), messages_.end(),
                                                  [&](const Message& m) { return m.id == id; }));
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Message> messages_;
};

}  // namespace scriptorium::test
