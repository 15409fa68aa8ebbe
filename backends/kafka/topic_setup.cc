#include "backends/kafka/topic_setup.h"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/kafka/handles.h"
#include "backends/kafka/probe.h"
#include "backends/kafka/producer.h"
#include "core/base/number.h"

namespace scriptorium::kafka {
namespace {

using std::chrono::milliseconds;

struct Release {
  void operator()(rd_kafka_queue_t* p) const noexcept { rd_kafka_queue_destroy(p); }
  void operator()(rd_kafka_event_t* p) const noexcept { rd_kafka_event_destroy(p); }
  void operator()(rd_kafka_AdminOptions_t* p) const noexcept { rd_kafka_AdminOptions_destroy(p); }
  void operator()(rd_kafka_NewTopic_t* p) const noexcept { rd_kafka_NewTopic_destroy(p); }
  void operator()(rd_kafka_ConfigResource_t* p) const noexcept {
    rd_kafka_ConfigResource_destroy(p);
  }
};
template <typename T>
using Kept = std::unique_ptr<T, Release>;

std::string in_words(rd_kafka_resp_err_t error, const char* text) {
  return text != nullptr ? text : rd_kafka_err2str(error);
}

class TopicSetup {
 public:
  TopicSetup(Producer& producer, const KafkaConfig& config, const Clock& clock, SteadyTime deadline)
      : producer_(producer),
        config_(config),
        clock_(clock),
        deadline_(deadline),
        queue_(rd_kafka_queue_new(producer.handle())) {}

  // True: it was made; false: it was there.
  Result<bool> create(const std::string& name) {
    std::array<char, 512> words{};
    const int replicas =
        config_.topic_replication_factor ? static_cast<int>(*config_.topic_replication_factor) : -1;
    const Kept<rd_kafka_NewTopic_t> topic(
        rd_kafka_NewTopic_new(name.c_str(), static_cast<int>(config_.topic_partitions), replicas,
                              words.data(), words.size()));
    if (!topic) return Error{ErrorKind::kInvalidConfig, "topic " + name + ": " + words.data()};
    for (const auto& [key, value] : wanted())
      rd_kafka_NewTopic_set_config(topic.get(), key.c_str(), value.c_str());
    std::array<rd_kafka_NewTopic_t*, 1> topics{topic.get()};
    rd_kafka_CreateTopics(producer_.handle(), topics.data(), topics.size(),
                          options(RD_KAFKA_ADMIN_OP_CREATETOPICS).get(), queue_.get());
    const auto event = answer();
    if (!event) return event.error();
    std::size_t count = 0;
    const auto** results = rd_kafka_CreateTopics_result_topics(
        rd_kafka_event_CreateTopics_result(event->get()), &count);
    if (count == 0)
      return Error{ErrorKind::kTransient, "topic " + name + ": an answer without a result"};
    const rd_kafka_resp_err_t error = rd_kafka_topic_result_error(results[0]);
    if (error == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) return false;
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
      return Error{ErrorKind::kInvalidConfig,
                   "topic " + name + ": " +
                       in_words(error, rd_kafka_topic_result_error_string(results[0])) +
                       (error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
                                error == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED
                            ? "; give the user CREATE on it, or have an administrator run: " +
                                  create_command(config_, name)
                            : std::string{})};
    }
    return true;
  }

  Result<std::map<std::string, std::string>> settings(const std::string& name) {
    const Kept<rd_kafka_ConfigResource_t> resource(
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, name.c_str()));
    std::array<rd_kafka_ConfigResource_t*, 1> resources{resource.get()};
    rd_kafka_DescribeConfigs(producer_.handle(), resources.data(), resources.size(),
                             options(RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS).get(), queue_.get());
    const auto event = answer();
    if (!event) return event.error();
    std::size_t count = 0;
    const auto** results = rd_kafka_DescribeConfigs_result_resources(
        rd_kafka_event_DescribeConfigs_result(event->get()), &count);
    if (count == 0)
      return Error{ErrorKind::kTransient, "topic " + name + ": an answer without a result"};
    if (const auto error = rd_kafka_ConfigResource_error(results[0]);
        error != RD_KAFKA_RESP_ERR_NO_ERROR) {
      return Error{ErrorKind::kInvalidConfig,
                   "topic " + name + " is there, but its settings cannot be read: " +
                       in_words(error, rd_kafka_ConfigResource_error_string(results[0]))};
    }
    const auto** entries = rd_kafka_ConfigResource_configs(results[0], &count);
    std::map<std::string, std::string> settings;
    for (std::size_t i = 0; i < count; ++i) {
      const char* value = rd_kafka_ConfigEntry_value(entries[i]);
      settings[rd_kafka_ConfigEntry_name(entries[i])] = value == nullptr ? "" : value;
    }
    return settings;
  }

  // In what an existing topic differs; "" in nothing.
  Result<std::string> differences(const std::string& name) {
    auto is_set = settings(name);
    if (!is_set) return is_set.error();
    std::string text;
    std::string change;
    for (const auto& [key, value] : wanted()) {
      const std::string& is = (*is_set)[key];
      const bool is_number = setting(value) >= 0;
      if (is == value || (is_number && setting(is) >= setting(value))) continue;
      text += "  " + key + " is " + (is.empty() ? "unknown" : is) + ", wanted " + value + "\n";
      change += (change.empty() ? "" : ",") + key + "=" + value;
    }
    if (change.empty()) return text;
    return text + "  change it with: kafka-configs.sh --bootstrap-server " +
           config_.brokers.substr(0, config_.brokers.find(',')) +
           " --alter --entity-type topics --entity-name " + name + " --add-config " + change + "\n";
  }

  // "4 partitions, 1 replica", or "" if nobody says so before the deadline. The broker that is
  // asked may hear of a new topic later than the one that has made it, so it is asked again.
  std::string shape(const std::string& name) {
    const Owned<rd_kafka_topic_t> handle(
        rd_kafka_topic_new(producer_.handle(), name.c_str(), nullptr));
    while (true) {
      const rd_kafka_metadata_t* raw = nullptr;
      const auto error =
          rd_kafka_metadata(producer_.handle(), 0, handle.get(), &raw, milliseconds_left());
      const Owned<const rd_kafka_metadata_t> metadata(raw);
      if (error != RD_KAFKA_RESP_ERR_NO_ERROR || metadata->topic_cnt == 0) return {};
      const auto& topic = metadata->topics[0];
      if (topic.partition_cnt > 0) return in_numbers(topic);
      if (!is_not_known_yet(topic.err) || clock_.steady() >= deadline_) return {};
      std::ignore = next_answer();  // nothing is asked, so this is a pause
    }
  }

 private:
  std::vector<std::pair<std::string, std::string>> wanted() const {
    return topic_settings(config_);
  }

  static std::string in_numbers(const rd_kafka_metadata_topic& topic) {
    const int replicas = topic.partitions[0].replica_cnt;
    return std::to_string(topic.partition_cnt) +
           (topic.partition_cnt == 1 ? " partition" : " partitions") + ", " +
           std::to_string(replicas) + (replicas == 1 ? " replica" : " replicas");
  }

  static bool is_not_known_yet(rd_kafka_resp_err_t error) {
    return error == RD_KAFKA_RESP_ERR_NO_ERROR ||
           error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
           error == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE;
  }

  static std::int64_t setting(const std::string& text) {
    return parse_number<std::int64_t>(text).value_or(-1);
  }

  int milliseconds_left() const {
    const auto left = std::chrono::ceil<milliseconds>(deadline_ - clock_.steady()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 1, 60'000));
  }

  Kept<rd_kafka_AdminOptions_t> options(rd_kafka_admin_op_t operation) const {
    Kept<rd_kafka_AdminOptions_t> made(rd_kafka_AdminOptions_new(producer_.handle(), operation));
    std::array<char, 512> words{};
    rd_kafka_AdminOptions_set_request_timeout(made.get(), milliseconds_left(), words.data(),
                                              words.size());
    // The answer comes once every broker knows the topic.
    if (operation == RD_KAFKA_ADMIN_OP_CREATETOPICS)
      rd_kafka_AdminOptions_set_operation_timeout(made.get(), milliseconds_left(), words.data(),
                                                  words.size());
    return made;
  }

  // Null if none came in a tenth of a second.
  Kept<rd_kafka_event_t> next_answer() {
    Kept<rd_kafka_event_t> event(rd_kafka_queue_poll(queue_.get(), 100));
    producer_.poll(milliseconds(0));  // a token may have to be made meanwhile
    return event;
  }

  Result<Kept<rd_kafka_event_t>> answer() {
    while (true) {
      Kept<rd_kafka_event_t> event = next_answer();
      if (event) {
        const auto error = rd_kafka_event_error(event.get());
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return event;
        return Error{
            ErrorKind::kTransient,
            config_.brokers + ": " + in_words(error, rd_kafka_event_error_string(event.get()))};
      }
      if (clock_.steady() >= deadline_)
        return Error{ErrorKind::kTransient, "no answer from " + config_.brokers};
    }
  }

  Producer& producer_;
  const KafkaConfig& config_;
  const Clock& clock_;
  const SteadyTime deadline_;
  const Kept<rd_kafka_queue_t> queue_;
};

}  // namespace

// Twice as long as a broker waits between two looks at what it may delete.
constexpr std::int64_t kLeastRetentionMs = 600'000;

Result<void> check_policy(const KafkaConfig& config, const Clock& clock, const std::string& topic,
                          milliseconds limit) {
  ProducerListener nobody;
  auto producer = Producer::create(config, clock, nobody, {.inquisitive = true});
  if (!producer) return producer.error();
  TopicSetup setup(**producer, config, clock, clock.steady() + limit);
  auto settings = setup.settings(topic);
  // Who may write need not have the right to read settings.
  if (!settings) return {};
  const auto number = [&](const char* name) {
    return parse_number<std::int64_t>((*settings)[name]).value_or(-1);
  };
  const auto refuse = [&](const std::string& name, const char* words) {
    return Error{ErrorKind::kPermanent,
                 "topic " + topic + ": " + name + " is " + (*settings)[name] + ", " + words};
  };
  if (const auto limit = number("max.message.bytes");
      limit >= 0 && std::cmp_less(limit, kLeastMessageLimit))
    return refuse("max.message.bytes", "which may be too little for an event without its script");
  if (const auto time = number("retention.ms"); time >= 0 && time < kLeastRetentionMs)
    return refuse("retention.ms", "so the topic deletes events before a consumer may have them");
  if ((*settings)["cleanup.policy"].find("compact") == std::string::npos) return {};
  return Error{ErrorKind::kPermanent,
               "topic " + topic + ": cleanup.policy is " + (*settings)["cleanup.policy"] +
                   (config.key.empty() ? ", so it takes no message without a key"
                                       : ", so a later event of a job would delete its script") +
                   "; set it to delete (scriptorium setup shows the command)"};
}

Result<std::string> set_up_topic(const KafkaConfig& config, const Clock& clock,
                                 const std::string& topic, milliseconds limit) {
  const SteadyTime deadline = clock.steady() + limit;
  // Of the brokers only: to ask for a topic may make it, where they make topics by themselves.
  if (auto reached = probe(config, clock, {}, limit); !reached) return reached.error();
  ProducerListener nobody;  // probe() has explained errors of connections
  auto producer = Producer::create(config, clock, nobody, {.inquisitive = true});
  if (!producer) return producer.error();
  TopicSetup setup(**producer, config, clock, deadline);
  auto made = setup.create(topic);
  if (!made) return made.error();
  if (*made) {
    const std::string shape = setup.shape(topic);
    return "topic " + topic + ": made" + (shape.empty() ? "" : " with " + shape) + "\n";
  }
  auto differs = setup.differences(topic);
  if (!differs) return differs.error();
  const std::string shape = setup.shape(topic);
  return "topic " + topic + ": is there already" + (shape.empty() ? "" : " with " + shape) +
         (differs->empty() ? ", and set as wanted\n" : "; nothing was changed\n" + *differs);
}

}  // namespace scriptorium::kafka
