#include "backends/kafka/status.h"

#include <librdkafka/rdkafka.h>

#include <nlohmann/json.hpp>

namespace scriptorium::kafka {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t number(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<std::int64_t>() : 0;
}

std::string text(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

// librdkafka's windows are in microseconds.
double p99_ms(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_object()
             ? static_cast<double>(number(*found, "p99")) / 1000.0
             : 0;
}

const char* to_string(Status::Connection connection) {
  switch (connection) {
    case Status::Connection::kUp: return "up";
    case Status::Connection::kIdle: return "idle";
    case Status::Connection::kDown: return "down";
    default: return "none";
  }
}

Json to_json(const Statistics& statistics) {
  Json brokers = Json::array();
  for (const Statistics::Broker& b : statistics.brokers) {
    brokers.push_back({{"name", b.name},
                       {"state", b.state},
                       {"rtt_p99_ms", b.rtt_p99_ms},
                       {"queue_p99_ms", b.queue_p99_ms},
                       {"waiting_requests", b.waiting_requests},
                       {"errors", b.errors},
                       {"retries", b.retries},
                       {"timeouts", b.timeouts},
                       {"connects", b.connects},
                       {"disconnects", b.disconnects}});
  }
  return {{"messages", statistics.messages},
          {"message_bytes", statistics.message_bytes},
          {"requests", statistics.requests},
          {"request_bytes", statistics.request_bytes},
          {"retries", statistics.retries()},
          {"queued_messages", statistics.queued_messages},
          {"queued_bytes", statistics.queued_bytes},
          {"queue_limit_messages", statistics.queue_limit_messages},
          {"reply_queue", statistics.reply_queue},
          {"idempotence_state", statistics.idempotence_state},
          {"idempotence_epochs", statistics.idempotence_epochs},
          {"brokers", std::move(brokers)}};
}

}  // namespace

std::int64_t Statistics::retries() const noexcept {
  std::int64_t sum = 0;
  for (const Broker& broker : brokers) sum += broker.retries;
  return sum;
}

std::optional<Statistics> read_statistics(std::string_view json) {
  const Json root = Json::parse(json, nullptr, false);
  if (!root.is_object()) return std::nullopt;
  Statistics result{.messages = number(root, "txmsgs"),
                    .message_bytes = number(root, "txmsg_bytes"),
                    .requests = number(root, "tx"),
                    .request_bytes = number(root, "tx_bytes"),
                    .queued_messages = number(root, "msg_cnt"),
                    .queued_bytes = number(root, "msg_size"),
                    .queue_limit_messages = number(root, "msg_max"),
                    .reply_queue = number(root, "replyq")};
  if (const auto eos = root.find("eos"); eos != root.end() && eos->is_object()) {
    result.idempotence_state = text(*eos, "idemp_state");
    result.idempotence_epochs = number(*eos, "epoch_cnt");
  }
  const auto brokers = root.find("brokers");
  if (brokers == root.end() || !brokers->is_object()) return result;
  for (const auto& [name, broker] : brokers->items()) {
    if (!broker.is_object()) continue;
    // librdkafka's own helpers, such as the one for the coordinator, represent a broker that is
    // listed already.
    if (text(broker, "source") == "logical") continue;
    result.brokers.push_back({.name = name,
                              .state = text(broker, "state"),
                              .waiting_requests = number(broker, "outbuf_cnt"),
                              .errors = number(broker, "txerrs"),
                              .retries = number(broker, "txretries"),
                              .timeouts = number(broker, "req_timeouts"),
                              .connects = number(broker, "connects"),
                              .disconnects = number(broker, "disconnects"),
                              .rtt_p99_ms = p99_ms(broker, "rtt"),
                              .queue_p99_ms = p99_ms(broker, "int_latency")});
  }
  return result;
}

std::string status_json(const Status& status, SteadyTime now) {
  Json json = {{"librdkafka", rd_kafka_version_str()},
               {"connection", to_string(status.connection)},
               {"last_error", nullptr},
               {"last_error_at", nullptr},
               {"stalled", status.stalled},
               {"oldest_in_flight_seconds", 0.0},
               {"in_flight", status.in_flight},
               {"waiting", status.waiting},
               {"acknowledged", status.acknowledged},
               {"truncated", status.truncated},
               {"left_out", status.left_out},
               {"resent", status.resent},
               {"refused_batches", status.refused_batches},
               {"batch_limit_bytes", status.batch_limit_bytes},
               {"producers_given_up", status.producers_given_up},
               {"statistics", nullptr}};
  if (!status.last_error.empty()) {
    json["last_error"] = status.last_error;
    json["last_error_at"] = format_rfc3339(status.last_error_at, TimePrecision::kSeconds);
  }
  if (status.in_flight_since && now > *status.in_flight_since) {
    json["oldest_in_flight_seconds"] =
        std::chrono::duration<double>(now - *status.in_flight_since).count();
  }
  if (status.statistics) json["statistics"] = to_json(*status.statistics);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace scriptorium::kafka
