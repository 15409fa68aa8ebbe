#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backends/kafka/config.h"
#include "backends/kafka/format.h"
#include "backends/kafka/handles.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::kafka {

// Receives what a producer reports, and ignores it unless a subclass does not. Called only from
// within poll(), flush() and similar calls, so in the caller's thread.
class ProducerListener {
 public:
  virtual ~ProducerListener() = default;
  // The delivery report of the message with this tag.
  virtual void on_report(std::uint64_t /*tag*/, rd_kafka_resp_err_t /*error*/) noexcept {}
  virtual void on_error(rd_kafka_resp_err_t /*error*/, std::string_view /*text*/) noexcept {}
  virtual void on_statistics(std::string_view /*json*/) noexcept {}
  // A line of librdkafka's log; `level` as syslog's.
  virtual void on_log(int /*level*/, std::string_view /*facility*/,
                      std::string_view /*text*/) noexcept {}
};

// One producer handle of librdkafka.
//
// Owns:    the handle and librdkafka's threads. These call nothing of ours: reports, errors,
//          statistics and log lines wait until poll() or flush().
// Threads: one thread uses an object.
// Fails:   create(): kInvalidConfig with librdkafka's words, or a secret's file that cannot be
//          read.
class Producer {
 public:
  struct Extra {
    // Say why connections end, and end them sooner: for `scriptorium check`.
    bool inquisitive = false;
  };
  static Result<std::unique_ptr<Producer>> create(const KafkaConfig& config, const Clock& clock,
                                                  ProducerListener& listener, Extra extra);
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;

  // Hands a message over; it is not copied, so it must stay until its report came, or the producer
  // is gone. An error means that no report will come.
  rd_kafka_resp_err_t send(const Message& message, std::int64_t timestamp_ms, std::uint64_t tag);

  void poll(std::chrono::milliseconds limit);
  // Sends what was handed over without waiting for more; returns when all reports came, or at the
  // limit.
  void flush(std::chrono::milliseconds limit);
  // Gives up what was handed over; the reports come with the next flush().
  void purge();

  std::size_t queued() const;
  // Why librdkafka gave this producer up; nothing if it did not.
  struct Fatal {
    rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
    std::string text;
  };
  std::optional<Fatal> fatal() const;
  // Whether a broker has named its cluster to it.
  bool was_answered() const;

  // The effective value of a property.
  std::int64_t number(const char* property) const;
  rd_kafka_t* handle() const noexcept { return handle_.get(); }

 private:
  Producer(ProducerListener& listener, const KafkaConfig& config, const Clock& clock)
      : listener_(listener), config_(config), clock_(clock) {}

  static void report(rd_kafka_t* handle, const rd_kafka_message_t* message, void* self) noexcept;
  static void error(rd_kafka_t* handle, int code, const char* text, void* self) noexcept;
  static int statistics(rd_kafka_t* handle, char* json, std::size_t size, void* self) noexcept;
  static void log(const rd_kafka_t* handle, int level, const char* facility,
                  const char* text) noexcept;
  static void refresh_token(rd_kafka_t* handle, const char* settings, void* self) noexcept;

  ProducerListener& listener_;
  const KafkaConfig& config_;
  const Clock& clock_;
  Owned<rd_kafka_t> handle_;
};

// What the files with certificates, keys, passwords and tokens are now: differs when one of them
// was changed.
std::string credentials_state(const KafkaConfig& config);

// Reads every secret that the configuration names, so that a missing one refuses the start.
Result<void> check_secrets(const KafkaConfig& config);

}  // namespace scriptorium::kafka
