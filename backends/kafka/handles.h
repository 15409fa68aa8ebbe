#pragma once

#include <librdkafka/rdkafka.h>

#include <memory>

// Owners of librdkafka's C objects.
namespace scriptorium::kafka {

struct DeleteHandle {
  void operator()(rd_kafka_t* handle) const noexcept { rd_kafka_destroy(handle); }
  void operator()(rd_kafka_conf_t* conf) const noexcept { rd_kafka_conf_destroy(conf); }
  void operator()(rd_kafka_topic_t* topic) const noexcept { rd_kafka_topic_destroy(topic); }
  void operator()(const rd_kafka_metadata_t* metadata) const noexcept {
    rd_kafka_metadata_destroy(metadata);
  }
  void operator()(rd_kafka_topic_partition_list_t* list) const noexcept {
    rd_kafka_topic_partition_list_destroy(list);
  }
};
template <typename T>
using Owned = std::unique_ptr<T, DeleteHandle>;

}  // namespace scriptorium::kafka
