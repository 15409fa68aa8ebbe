#pragma once

#include <librdkafka/rdkafka.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/kafka/config.h"
#include "backends/kafka/format.h"
#include "backends/kafka/outcome.h"
#include "backends/kafka/producer.h"
#include "backends/kafka/reporter.h"
#include "core/api/delivery.h"
#include "core/api/kit/inbox.h"
#include "core/api/kit/learned_size.h"

namespace scriptorium::kafka {

// A delivery on its way to the broker.
struct Item {
  Delivery delivery;
  Message message;
  std::size_t size = 0;
  // Bytes of the batch that was refused with it as too large; 0 = it was not, or has its answer.
  std::size_t refused_together = 0;
  bool alone = false;         // must be a chunk of its own
  bool time_refused = false;  // goes with the time of sending
  std::uint32_t handed_over = 0;
  // In the chunk under way:
  bool settled = false;
  bool reported = false;
  rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
};

// Sends what is in the inbox, and settles it. It hands over one chunk of messages that fits into
// one request, waits until each has its report, and then the next. More at once would not be faster
// by much, and makes librdkafka burn a core for as long as a broker is slow: it compares its limit
// of five requests under way with the number of messages under way.
//
// Owns:    the producer, and the items from the inbox until they are settled. Borrows the rest for
//          its life.
// Threads: one at a time: the main thread before run() and after it, else the one that is in run().
class Sender final : private ProducerListener {
 public:
  Sender(const KafkaConfig& config, const Formatter& formatter, const Clock& clock,
         Reporter& reporter, Inbox<Item>& inbox);

  // Makes no connection. kInvalidConfig: the configuration is wrong, and stays so.
  Result<void> make_producer();
  void drop_producer() { producer_.reset(); }
  // Returns soon after the inbox was closed, and by its deadline.
  void run() noexcept;

 private:
  // The messages that were refused together and are being sent alone, to tell whether the batch or
  // one of them was too large.
  struct RefusedBatch {
    std::size_t unanswered = 0;
    std::size_t too_large = 0;
    std::size_t bytes = 0;
  };

  void fetch();
  bool wait_for_work();  // false: the end has come
  void idle();
  bool have_producer();
  bool time_is_up() const;
  SteadyTime last_flush() const;

  void send_chunk();
  void build_chunk();
  void hand_over();
  bool hand_over(std::size_t index, std::int64_t now_ms);
  void await_reports();
  void give_up_reports();
  // Settles what was reported, and queues again what is to be sent again.
  void conclude();
  void note_refused_batch();
  void conclude(Item& item, std::vector<Item>& again);
  void too_large(Item& item, bool by_client, std::vector<Item>& again);
  void cut_or_reject(Item& item, bool by_client, std::vector<Item>& again);
  void refused(Item& item, const std::string& reason, std::vector<Item>& again);
  void hold(Item& item, const std::string& reason);
  void answered_alone(Item& item, bool too_large);
  void requeue(std::vector<Item> items);

  void replace_producer(const std::string& reason);
  void producer_failed(const Producer::Fatal& fatal);
  void reconnect_if_credentials_changed();
  void settle_all(const std::string& reason, std::optional<std::chrono::milliseconds> hint);
  void finish();
  void update_status();

  void on_report(std::uint64_t tag, rd_kafka_resp_err_t error) noexcept override;
  void on_error(rd_kafka_resp_err_t error, std::string_view text) noexcept override;
  void on_statistics(std::string_view json) noexcept override;
  void on_log(int level, std::string_view facility, std::string_view text) noexcept override;

  const KafkaConfig& config_;
  const Formatter& formatter_;
  const Clock& clock_;
  Reporter& reporter_;
  Inbox<Item>& inbox_;

  std::unique_ptr<Producer> producer_;
  std::string credentials_;  // credentials_state() when it was made
  SteadyTime credentials_checked_at_;
  LearnedSize chunk_bytes_;
  std::size_t chunk_messages_ = 0;
  std::int64_t handed_over_ = 0;           // messages, to this producer
  std::optional<SteadyTime> given_up_at_;  // the latest producer
  SteadyTime next_producer_at_;
  std::string no_producer_reason_;

  std::deque<Item> queue_;
  std::vector<Item> chunk_;
  std::uint64_t chunk_number_ = 0;
  SteadyTime chunk_since_;
  std::size_t outstanding_ = 0;  // messages of the chunk without a report
  RefusedBatch refused_;
  // Events that were refused, and how many their topic had taken by then. It counts only while
  // there are such.
  std::unordered_map<std::string, std::uint64_t> suspects_;
  std::unordered_map<std::string, std::uint64_t> taken_;

  bool stopping_ = false;
  SteadyTime stop_began_;
  SteadyTime stop_deadline_;
};

}  // namespace scriptorium::kafka
