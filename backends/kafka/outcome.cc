#include "backends/kafka/outcome.h"

namespace scriptorium::kafka {
namespace {

Verdict retry(std::string reason) {
  return {.action = Action::kRetry, .reason = std::move(reason)};
}
Verdict hold(std::string reason, Alarm alarm) {
  return {.action = Action::kRetry, .reason = std::move(reason), .hint = kSlow, .alarm = alarm};
}
Verdict resend(std::string reason) {
  return {.action = Action::kResend, .reason = std::move(reason)};
}
Verdict reject(std::string reason) {
  return {.action = Action::kReject, .reason = std::move(reason)};
}

}  // namespace

std::string name_of(rd_kafka_resp_err_t error) { return rd_kafka_err2name(error); }

Verdict judge(rd_kafka_resp_err_t error, std::uint32_t attempt) {
  // UNKNOWN_TOPIC_ID, which librdkafka 2.0.2 has no name for.
  if (static_cast<int>(error) == 100) return hold("the topic does not exist", Alarm::kTopic);
  switch (error) {
    case RD_KAFKA_RESP_ERR_NO_ERROR: return {.action = Action::kAcknowledge, .reason = {}};

    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
      return {.action = Action::kTooLarge, .reason = "message too large"};
    case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
      return {.action = Action::kSendNow,
              .reason = "the topic does not take the event's time (INVALID_TIMESTAMP)"};
    case RD_KAFKA_RESP_ERR__QUEUE_FULL:
      return {.action = Action::kQueueFull,
              .reason = "librdkafka's queue is full",
              .hint = std::chrono::seconds(1)};

    // About the message: it will never be taken.
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
      return reject("the broker refuses the record (INVALID_RECORD)");
    case RD_KAFKA_RESP_ERR_INVALID_MSG:
      return reject("the broker finds the message corrupt (INVALID_MSG)");
    case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
      return reject("the broker refuses the message's size (INVALID_MSG_SIZE)");
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
      return reject("against a policy of the broker (POLICY_VIOLATION)");

    // About the topic or our rights: an administrator's matter, and no fault of the event.
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
      return hold("the topic does not exist", Alarm::kTopic);
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
      return hold("the broker does not take the topic's name", Alarm::kTopic);
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
      return hold("no right to write to the topic (TOPIC_AUTHORIZATION_FAILED)",
                  Alarm::kNotAuthorized);
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
      return hold("no right to write to the cluster (CLUSTER_AUTHORIZATION_FAILED)",
                  Alarm::kNotAuthorized);
    case RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
      return hold("no right to write (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)",
                  Alarm::kNotAuthorized);

    // About the broker's configuration.
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE:
      return hold("the broker does not know the compression (UNSUPPORTED_COMPRESSION_TYPE)",
                  Alarm::kRefused);
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT:
      return hold("the topic's message format is too old (UNSUPPORTED_FOR_MESSAGE_FORMAT)",
                  Alarm::kRefused);
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION:
      return hold("the broker is too old (UNSUPPORTED_VERSION)", Alarm::kRefused);
    case RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS:
      return hold("the broker does not take acks=all (INVALID_REQUIRED_ACKS)", Alarm::kRefused);

    // About the connection or the cluster's state: librdkafka tries these itself, so they come only
    // where it could not go on.
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT: return retry("no answer from the broker in time");
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION:
    case RD_KAFKA_RESP_ERR__RESOLVE:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE: return retry("no connection to the broker");
    case RD_KAFKA_RESP_ERR__SSL: return retry("no TLS connection to the broker");
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED: return retry("login refused by the broker");
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
      return retry("not enough replicas in sync");
    case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
    case RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH:
    case RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH:
    case RD_KAFKA_RESP_ERR_PREFERRED_LEADER_NOT_AVAILABLE:
      return retry("the partition has no leader");
    case RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR:
      return retry("the broker's disk fails (KAFKA_STORAGE_ERROR)");
    case RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED: return retry("the broker's quota is used up");

    // The producer was given up: the next one sends them.
    case RD_KAFKA_RESP_ERR__FATAL:
    case RD_KAFKA_RESP_ERR__FENCED:
    case RD_KAFKA_RESP_ERR__STATE:
    case RD_KAFKA_RESP_ERR__INCONSISTENT:
    case RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE:
    case RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER:
    case RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER:
    case RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID:
    case RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH:
    case RD_KAFKA_RESP_ERR_PRODUCER_FENCED:
      return resend("the producer was given up by librdkafka (" + name_of(error) + ")");
    case RD_KAFKA_RESP_ERR__PURGE_QUEUE:
    case RD_KAFKA_RESP_ERR__PURGE_INFLIGHT:
    case RD_KAFKA_RESP_ERR__DESTROY:
    case RD_KAFKA_RESP_ERR__INTR: return resend("stopped before the broker answered");

    default: {
      Verdict verdict = attempt < kUnknownAttempts ? retry("") : reject("");
      verdict.reason =
          "unknown answer " + name_of(error) + " (" + std::to_string(static_cast<int>(error)) + ")";
      return verdict;
    }
  }
}

}  // namespace scriptorium::kafka
