#include "backends/kafka/probe.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "backends/kafka/connection.h"
#include "backends/kafka/outcome.h"
#include "backends/kafka/producer.h"
#include "backends/kafka/status.h"

namespace scriptorium::kafka {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kPatience{2};  // with what may pass: a leader is being elected

// Which error to show: the first one that a person must repair, or else the first.
class Listener : public ProducerListener {
 public:
  explicit Listener(const KafkaConfig& config) : config_(config) {}

  void on_error(rd_kafka_resp_err_t error, std::string_view text) noexcept override {
    if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
      all_down_ = true;
      if (!problem_) problem_ = explain_silence(config_);
      return;
    }
    ConnectionProblem problem = explain(error, text, config_, rd_kafka_version());
    if (!problem.broker.empty()) by_broker_[problem.broker] = problem;
    if (!problem_ || (problem.needs_person && !problem_->needs_person))
      problem_ = std::move(problem);
  }

  void on_statistics(std::string_view json) noexcept override {
    const auto statistics = read_statistics(json);
    has_number_ = has_number_ || (statistics && statistics->idempotence_state == "Assigned");
  }

  bool all_down() const noexcept { return all_down_; }
  // Of the producer, which brokers give only to one who may write somewhere.
  bool has_number() const noexcept { return has_number_; }
  const std::optional<ConnectionProblem>& problem() const noexcept { return problem_; }
  // Null: none with this address.
  const ConnectionProblem* problem_of(const std::string& broker) const {
    const auto found = by_broker_.find(broker);
    return found == by_broker_.end() ? nullptr : &found->second;
  }

 private:
  const KafkaConfig& config_;
  bool all_down_ = false;
  bool has_number_ = false;
  std::optional<ConnectionProblem> problem_;
  std::map<std::string, ConnectionProblem> by_broker_;
};

Error unreachable(const KafkaConfig& config, const std::optional<ConnectionProblem>& problem) {
  if (!problem) return Error{ErrorKind::kTransient, "no answer from " + config.brokers};
  const std::string where = problem->broker.empty() ? config.brokers : problem->broker;
  // Not kInvalidConfig: the daemon starts all the same, and its events wait until a person has
  // acted.
  return Error{problem->needs_person ? ErrorKind::kPermanent : ErrorKind::kTransient,
               where + ": " + problem->words};
}

Result<void> judge_topic(const KafkaConfig& config, const std::string& topic,
                         rd_kafka_resp_err_t error) {
  const Verdict verdict = judge(error, 1);
  if (verdict.action == Action::kAcknowledge) return {};
  std::string words = "topic " + topic + ": " + verdict.reason;
  if (verdict.alarm == Alarm::kTopic) words += "; make it with: " + create_command(config, topic);
  if (verdict.alarm == Alarm::kNotAuthorized) words += "; give the user WRITE and DESCRIBE on it";
  // With an alarm a person must act; anything else may pass, such as a topic without a leader.
  return Error{verdict.alarm == Alarm::kNone ? ErrorKind::kTransient : ErrorKind::kPermanent,
               words};
}

std::string address_of(const rd_kafka_metadata_t& metadata, std::int32_t broker) {
  for (int i = 0; i < metadata.broker_cnt; ++i) {
    if (metadata.brokers[i].id == broker)
      return std::string(metadata.brokers[i].host) + ":" + std::to_string(metadata.brokers[i].port);
  }
  return "an unknown address";
}

// The metadata comes from any broker. Events go to the leaders of the partitions, at the addresses
// that these advertise.
Result<void> reach_leaders(Producer& producer, const Listener& listener,
                           const rd_kafka_metadata_t& metadata, const Clock& clock,
                           SteadyTime deadline) {
  const rd_kafka_metadata_topic& topic = metadata.topics[0];
  std::set<std::int32_t> reached;
  for (int i = 0; i < topic.partition_cnt; ++i) {
    const rd_kafka_metadata_partition& partition = topic.partitions[i];
    if (partition.leader < 0 || !reached.insert(partition.leader).second) continue;
    const std::string address = address_of(metadata, partition.leader);
    const auto failed = [&] { return listener.problem_of(address) != nullptr; };
    while (true) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - clock.steady());
      // Not rd_kafka_query_watermark_offsets(), which does not keep to its time.
      const Owned<rd_kafka_topic_partition_list_t> end(rd_kafka_topic_partition_list_new(1));
      rd_kafka_topic_partition_list_add(end.get(), topic.topic, partition.id)->offset =
          RD_KAFKA_OFFSET_END;
      const rd_kafka_resp_err_t error = rd_kafka_offsets_for_times(
          producer.handle(), end.get(),
          static_cast<int>(std::clamp<std::int64_t>(left.count(), 1, 500)));
      producer.poll(milliseconds(0));
      const bool answered =
          error >= RD_KAFKA_RESP_ERR_NO_ERROR || error == RD_KAFKA_RESP_ERR_UNKNOWN;
      if (answered) break;
      if (!failed() && left > milliseconds(0)) continue;
      return Error{ErrorKind::kTransient,
                   "topic " + std::string(topic.topic) + ": the leader of partition " +
                       std::to_string(partition.id) + " advertises " + address + ": " +
                       (failed() ? listener.problem_of(address)->words
                                 : "no answer from there; see its advertised.listeners")};
    }
  }
  return {};
}

// -1: each has one.
std::int32_t partition_without_leader(const rd_kafka_metadata_topic& topic) {
  for (int i = 0; i < topic.partition_cnt; ++i) {
    if (topic.partitions[i].leader < 0) return topic.partitions[i].id;
  }
  return -1;
}

Result<void> may_write(Producer& producer, const Listener& listener, const KafkaConfig& config,
                       const std::string& topic, const Clock& clock, SteadyTime until) {
  while (config.enable_idempotence && !listener.has_number() && clock.steady() < until) {
    producer.poll(milliseconds(50));
    if (const auto fatal = producer.fatal()) return judge_topic(config, topic, fatal->error);
  }
  return {};
}

Result<void> ask(Producer& producer, const Listener& listener, const KafkaConfig& config,
                 const std::string& topic, const Clock& clock, SteadyTime deadline) {
  const Owned<rd_kafka_topic_t> handle(
      topic.empty() ? nullptr : rd_kafka_topic_new(producer.handle(), topic.c_str(), nullptr));
  const SteadyTime patience = std::min<SteadyTime>(deadline, clock.steady() + kPatience);
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - clock.steady());
    const rd_kafka_metadata_t* raw = nullptr;
    const rd_kafka_resp_err_t error =
        rd_kafka_metadata(producer.handle(), 0, handle.get(), &raw,
                          static_cast<int>(std::clamp<std::int64_t>(left.count(), 1, 500)));
    const Owned<const rd_kafka_metadata_t> metadata(raw);
    producer.poll(milliseconds(0));
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
      if (topic.empty() || metadata->topic_cnt == 0) return {};
      if (auto good = judge_topic(config, topic, metadata->topics[0].err); !good)
        return good.error();
      const std::int32_t orphan = partition_without_leader(metadata->topics[0]);
      if (orphan >= 0 && clock.steady() < patience) {
        producer.poll(milliseconds(100));
        continue;
      }
      if (orphan >= 0) {
        return Error{ErrorKind::kTransient,
                     "topic " + topic + ": partition " + std::to_string(orphan) +
                         " has no leader: the brokers that have it are down, or their disk failed"};
      }
      auto reached = reach_leaders(producer, listener, *metadata, clock, deadline);
      if (!reached) return reached.error();
      return may_write(producer, listener, config, topic, clock, patience);
    }
    const auto& problem = listener.problem();
    if ((problem && problem->needs_person) || listener.all_down() || left <= milliseconds(0))
      return unreachable(config, problem);
  }
}

}  // namespace

Result<void> probe(const KafkaConfig& config, const Clock& clock,
                   const std::vector<std::string>& topics, milliseconds limit) {
  Listener listener(config);
  auto producer = Producer::create(config, clock, listener, {.inquisitive = true});
  if (!producer) return producer.error();
  const SteadyTime deadline = clock.steady() + limit;
  const std::vector<std::string> brokers_only(1);
  for (const std::string& topic : topics.empty() ? brokers_only : topics) {
    if (auto answer = ask(**producer, listener, config, topic, clock, deadline); !answer)
      return answer.error();
  }
  return {};
}

std::vector<std::pair<std::string, std::string>> topic_settings(const KafkaConfig& config) {
  std::vector<std::pair<std::string, std::string>> settings{
      {"max.message.bytes", std::to_string(config.message_max_bytes)},
      {"compression.type", "producer"},
      // Compaction keeps the last event of a job alone: its use, or its owner, in place of its
      // script.
      {"cleanup.policy", "delete"}};
  // We wait for all replicas in sync; with one of them alone a message would still be on a single
  // disk.
  if (config.topic_replication_factor && *config.topic_replication_factor >= 3)
    settings.emplace_back("min.insync.replicas", "2");
  return settings;
}

std::string create_command(const KafkaConfig& config, const std::string& topic) {
  std::string command = "kafka-topics.sh --bootstrap-server " +
                        config.brokers.substr(0, config.brokers.find(',')) + " --create --topic " +
                        topic + " --partitions " + std::to_string(config.topic_partitions);
  if (config.topic_replication_factor)
    command += " --replication-factor " + std::to_string(*config.topic_replication_factor);
  for (const auto& [key, value] : topic_settings(config))
    command += " --config " + key + "=" + value;
  return command;
}

}  // namespace scriptorium::kafka
