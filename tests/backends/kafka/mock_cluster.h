#pragma once

#include <librdkafka/rdkafka.h>
// After rdkafka.h, which it needs.
#include <librdkafka/rdkafka_mock.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace scriptorium::test {

// A message as a consumer finds it.
struct Consumed {
  std::optional<std::string> key;
  std::string value;
  std::map<std::string, std::string> headers;
  std::int64_t timestamp_ms = 0;
  std::int32_t partition = 0;

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string{} : found->second;
  }
};

// librdkafka's own Kafka cluster of 1 to 3 brokers in this process, on loopback. It answers as it
// is told; it knows no login, no TLS and no limits of size. Threads: one thread uses an object.
class MockCluster {
 public:
  static constexpr std::int16_t kProduce = 0;
  static constexpr std::int16_t kMetadata = 3;
  static constexpr std::int16_t kInitProducerId = 22;

  explicit MockCluster(int brokers = 1) {
    std::array<char, 512> words{};
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "log_level", "0", nullptr,
                      0);  // it has no brokers to know of, and says so
    handle_.reset(rd_kafka_new(RD_KAFKA_PRODUCER, conf, words.data(), words.size()));
    if (!handle_) throw std::runtime_error(words.data());
    cluster_.reset(rd_kafka_mock_cluster_new(handle_.get(), brokers));
    if (!cluster_) throw std::runtime_error("no mock cluster");
  }

  std::string brokers() const { return rd_kafka_mock_cluster_bootstraps(cluster_.get()); }

  void make_topic(const std::string& topic, int partitions = 1, int replicas = 1) {
    check(rd_kafka_mock_topic_create(cluster_.get(), topic.c_str(), partitions, replicas));
  }
  // What every request about this topic is answered; NO_ERROR ends it.
  void answer_topic(const std::string& topic, rd_kafka_resp_err_t error) {
    rd_kafka_mock_topic_set_error(cluster_.get(), topic.c_str(), error);
  }
  // What the next requests of this kind are answered.
  void answer_next(std::int16_t api, const std::vector<rd_kafka_resp_err_t>& errors) {
    rd_kafka_mock_push_request_errors_array(cluster_.get(), api, errors.size(), errors.data());
  }
  void answer_next(const std::vector<rd_kafka_resp_err_t>& errors) {
    answer_next(kProduce, errors);
  }
  void forget_answers(std::int16_t api = kProduce) {
    rd_kafka_mock_clear_request_errors(cluster_.get(), api);
  }
  void down(int broker) { check(rd_kafka_mock_broker_set_down(cluster_.get(), broker)); }
  void up(int broker) { check(rd_kafka_mock_broker_set_up(cluster_.get(), broker)); }
  void slow(int broker, int rtt_ms) {
    check(rd_kafka_mock_broker_set_rtt(cluster_.get(), broker, rtt_ms));
  }
  void lead(const std::string& topic, std::int32_t partition, std::int32_t broker) {
    check(rd_kafka_mock_partition_set_leader(cluster_.get(), topic.c_str(), partition, broker));
  }

  // All that is in the topic, each partition in its order.
  std::vector<Consumed> consume(const std::string& topic, int partitions = 1) const {
    std::array<char, 512> words{};
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"bootstrap.servers", brokers()},
                                            {"group.id", "test"},
                                            {"enable.auto.commit", "false"},
                                            {"enable.partition.eof", "true"},
                                            {"fetch.wait.max.ms", "10"},
                                            {"auto.offset.reset", "earliest"}}) {
      if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), words.data(), words.size()) !=
          RD_KAFKA_CONF_OK) {
        throw std::runtime_error(words.data());
      }
    }
    const std::unique_ptr<rd_kafka_t, Destroy> consumer(
        rd_kafka_new(RD_KAFKA_CONSUMER, conf, words.data(), words.size()));
    if (!consumer) throw std::runtime_error(words.data());
    rd_kafka_poll_set_consumer(consumer.get());
    rd_kafka_topic_partition_list_t* list = rd_kafka_topic_partition_list_new(partitions);
    for (int p = 0; p < partitions; ++p)
      rd_kafka_topic_partition_list_add(list, topic.c_str(), p)->offset = RD_KAFKA_OFFSET_BEGINNING;
    rd_kafka_assign(consumer.get(), list);
    rd_kafka_topic_partition_list_destroy(list);
    std::vector<Consumed> result;
    int ends = 0;
    for (int silent = 0; ends < partitions;) {
      rd_kafka_message_t* message = rd_kafka_consumer_poll(consumer.get(), 1000);
      if (message == nullptr) {
        if (++silent > 20)
          throw std::runtime_error("the mock cluster does not answer its consumer");
        continue;
      }
      if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) ++ends;
      if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) result.push_back(read(*message));
      rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(consumer.get());
    return result;
  }

 private:
  struct Destroy {
    void operator()(rd_kafka_t* handle) const noexcept { rd_kafka_destroy(handle); }
  };
  struct DestroyCluster {
    void operator()(rd_kafka_mock_cluster_t* cluster) const noexcept {
      rd_kafka_mock_cluster_destroy(cluster);
    }
  };

  static void check(rd_kafka_resp_err_t error) {
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) throw std::runtime_error(rd_kafka_err2str(error));
  }
  static Consumed read(const rd_kafka_message_t& message) {
    Consumed consumed;
    if (message.key != nullptr)
      consumed.key = std::string(static_cast<const char*>(message.key), message.key_len);
    consumed.value.assign(static_cast<const char*>(message.payload), message.len);
    consumed.partition = message.partition;
    rd_kafka_timestamp_type_t type = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
    consumed.timestamp_ms = rd_kafka_message_timestamp(&message, &type);
    rd_kafka_headers_t* headers = nullptr;
    if (rd_kafka_message_headers(&message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
      const char* name = nullptr;
      const void* value = nullptr;
      std::size_t size = 0;
      for (std::size_t i = 0;
           rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
           ++i) {
        consumed.headers[name] = std::string(static_cast<const char*>(value), size);
      }
    }
    return consumed;
  }

  std::unique_ptr<rd_kafka_t, Destroy> handle_;
  std::unique_ptr<rd_kafka_mock_cluster_t, DestroyCluster> cluster_;
};

}  // namespace scriptorium::test
