#include "backends/kafka/probe.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "backends/kafka/connection.h"
#include "backends/kafka/outcome.h"
#include "backends/kafka/producer.h"

namespace scriptorium::kafka {
namespace {

using std::chrono::milliseconds;

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
    if (!problem_ || (problem.needs_person && !problem_->needs_person))
      problem_ = std::move(problem);
  }

  bool all_down() const noexcept { return all_down_; }
  const std::optional<ConnectionProblem>& problem() const noexcept { return problem_; }

 private:
  const KafkaConfig& config_;
  bool all_down_ = false;
  std::optional<ConnectionProblem> problem_;
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

Result<void> ask(Producer& producer, const Listener& listener, const KafkaConfig& config,
                 const std::string& topic, const Clock& clock, SteadyTime deadline) {
  const Owned<rd_kafka_topic_t> handle(
      topic.empty() ? nullptr : rd_kafka_topic_new(producer.handle(), topic.c_str(), nullptr));
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
      return judge_topic(config, topic, metadata->topics[0].err);
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
      {"compression.type", "producer"}};
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
