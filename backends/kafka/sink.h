#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/kafka/config.h"
#include "backends/kafka/connection.h"
#include "backends/kafka/format.h"
#include "backends/kafka/outcome.h"
#include "backends/kafka/producer.h"
#include "backends/kafka/status.h"
#include "core/api/sink.h"
#include "core/base/guarded.h"

namespace scriptorium::kafka {

// One message an event. Acknowledged means: the delivery report of this very message came without
// an error, at acks=all.
//
// deliver() makes messages of the events, in its caller's thread, and leaves them to a thread of
// the sink. That thread owns the producer and does everything with it: it hands over one chunk of
// messages that fits into one request, waits until each has its report, and then the next. More at
// once would not be faster by much, and makes librdkafka burn a core for as long as a broker is
// slow: it compares its limit of five requests under way with the number of messages under way.
//
// Owns:    the producer; deliveries from deliver() until they are settled. Nothing but core's
// batches bounds them. Threads: as Sink says, with any number of workers.
class KafkaSink final : public Sink, private ProducerListener {
 public:
  // `config` must have passed parse_config(). kInvalidConfig if a secret cannot be read.
  static Result<std::unique_ptr<KafkaSink>> create(KafkaConfig config,
                                                   const PluginContext& context);
  ~KafkaSink() override;

  Result<void> check() override;
  Result<void> start() override;
  void deliver(std::vector<Delivery> batch) override;
  void stop(SteadyTime deadline) override;
  Result<std::string> setup(bool print) override;
  std::string status_json() const override;
  // One that is being sent, one that is being made into messages and one that is being read.
  std::size_t batches_under_way() const override { return 3; }

 private:
  // A delivery on its way.
  struct Item {
    Delivery delivery;
    Message message;
    std::size_t size = 0;
    std::size_t refused_together =
        0;               // bytes of the batch that was refused with it as too large; 0 = none
    bool alone = false;  // must be a chunk of its own
    bool time_refused = false;
    std::uint32_t handed_over = 0;
    // In the chunk under way:
    bool settled = false;
    bool reported = false;
    rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
  };

  struct Inbox {
    std::vector<Item> items;
    bool running = false;
    bool stopping = false;
    SteadyTime deadline;  // of stop()
  };

  // What became of the messages that were refused together, each sent alone.
  struct Company {
    std::size_t left = 0;
    std::size_t refused = 0;
    std::size_t bytes = 0;
  };

  KafkaSink(KafkaConfig config, const PluginContext& context);

  void run() noexcept;
  void fetch();      // what deliver() and stop() left
  bool wait_work();  // false: the end has come
  bool have_producer();
  Result<void> make_producer();
  void send_chunk();
  void build_chunk();
  void hand_over();
  void await_reports();
  // Settles what was reported, and puts back what is to be sent again.
  void conclude();
  void conclude(Item& item, std::vector<Item>& again);
  void acknowledge(Item& item);
  void too_large(Item& item, bool by_client, std::vector<Item>& again);
  void cut_or_reject(Item& item, bool by_client, std::vector<Item>& again);
  void leave_company(Item& item, bool refused);
  void put_back(std::vector<Item> items);
  void replace_producer(const std::string& reason);
  void give_up_producer(const Producer::Fatal& fatal);
  void renew_if_credentials_changed();
  void settle_all(const std::string& reason, std::optional<std::chrono::milliseconds> hint);
  void finish();
  bool time_is_up() const;
  SteadyTime last_flush() const;

  void sound(Alarm alarm, const std::string& topic, const std::string& reason);
  void all_clear(const std::string& topic);
  void say_stalled();
  void warn_of_settings();
  void update_status();

  void on_report(std::uint64_t tag, rd_kafka_resp_err_t error) noexcept override;
  void on_error(rd_kafka_resp_err_t error, std::string_view text) noexcept override;
  void on_statistics(std::string_view json) noexcept override;
  void on_log(int level, std::string_view facility, std::string_view text) noexcept override;

  const KafkaConfig config_;
  const std::string name_;
  const std::string cluster_;
  Logger& log_;
  const Clock& clock_;
  const Formatter formatter_;

  Guarded<Inbox> inbox_;
  Guarded<Status> status_;

  // Of the sink's thread; of start() before it runs.
  std::unique_ptr<Producer> producer_;
  std::string credentials_;  // credentials_state() when it was made
  std::size_t chunk_bytes_ = 0;
  std::size_t chunk_messages_ = 0;
  std::size_t learned_bytes_ = 0;  // what the broker takes of a batch; 0 = unknown
  std::deque<Item> queue_;
  std::vector<Item> chunk_;
  std::uint64_t chunk_number_ = 0;
  std::size_t outstanding_ = 0;
  Company company_;
  SteadyTime chunk_since_;
  bool stopping_ = false;
  SteadyTime stop_began_;
  SteadyTime stop_deadline_;
  std::optional<SteadyTime> given_up_at_;  // the latest producer
  SteadyTime next_producer_at_;
  std::string no_producer_reason_;
  bool trouble_ = false;  // a connection failed since the last good report
  SteadyTime credentials_looked_at_;
  SteadyTime trouble_at_;
  std::map<std::string, SteadyTime> said_connections_;  // by broker and words
  std::optional<SteadyTime> said_stalled_;
  std::int64_t handed_over_ = 0;  // messages, to this producer
  std::map<std::pair<std::string, Alarm>, SteadyTime> said_alarms_;

  std::jthread thread_;  // last: ends before what it uses
};

}  // namespace scriptorium::kafka
