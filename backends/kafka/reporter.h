#pragma once

#include <librdkafka/rdkafka.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backends/kafka/config.h"
#include "backends/kafka/format.h"
#include "backends/kafka/outcome.h"
#include "backends/kafka/status.h"
#include "core/api/kit/repeat_limit.h"
#include "core/api/logger.h"
#include "core/base/guarded.h"
#include "core/base/time.h"

namespace scriptorium::kafka {

// What the sink tells the administrator: its log messages and its status.
// Threads: status() and update() from any; the rest from the thread that uses the producer.
class Reporter {
 public:
  Reporter(const KafkaConfig& config, std::string name, Logger& log, const Clock& clock)
      : config_(config), name_(std::move(name)), log_(log), clock_(clock) {}

  Status status() const {
    return status_.with([](const Status& s) { return s; });
  }
  template <typename Change>
  void update(Change change) {
    status_.with(change);
  }

  // Settings that are allowed and that an administrator may regret.
  void check_settings();

  void producer_made();
  void no_producer(const std::string& reason);
  void producer_given_up(rd_kafka_resp_err_t error, const std::string& text);
  void producer_replaced(std::size_t resent, const std::string& reason);
  void credentials_changed();

  void acknowledged(const Message& message);
  void alarm(Alarm alarm, const std::string& topic, const std::string& reason);
  // The broker refused `bytes` together, and took every message of them alone.
  void batch_refused(const std::string& topic, std::size_t bytes, std::size_t limit);
  // Nothing was acknowledged since `since`. `handed_over`: messages, to this producer.
  void unanswered(SteadyTime since, std::size_t in_flight, std::int64_t handed_over);
  void answered();

  void statistics(Statistics statistics);
  // `answered`: a broker has answered this producer before.
  void connection_error(rd_kafka_resp_err_t error, std::string_view text, bool answered = false);
  void library_line(int level, std::string_view facility, std::string_view text);
  // A connection failed since the last acknowledgement.
  bool connection_failed() const noexcept { return connection_failed_; }
  // No broker could be reached since then.
  bool all_down() const noexcept { return all_down_; }

 private:
  static constexpr std::chrono::minutes kRepeat{10};

  void log_alarm(Alarm alarm, const Logger::Fields& fields);
  void set_last_error(const std::string& words);
  bool note_idle();

  const KafkaConfig& config_;
  const std::string name_;
  Logger& log_;
  const Clock& clock_;

  Guarded<Status> status_;
  RepeatLimit alarms_{kRepeat};       // by topic, a blank, and the alarm
  RepeatLimit connections_{kRepeat};  // by broker and words
  RepeatLimit stalls_{kRepeat};
  bool connection_failed_ = false;
  bool all_down_ = false;
  std::optional<SteadyTime> failed_at_;  // the latest connection
};

}  // namespace scriptorium::kafka
