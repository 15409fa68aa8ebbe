#include "backends/kafka/outcome.h"

#include <algorithm>
#include <array>

namespace scriptorium::kafka {
namespace {

struct Row {
  rd_kafka_resp_err_t error;
  Action action;
  const char* reason;
  Alarm alarm = Alarm::kNone;
};

// librdkafka 2.0.2 has no name for it (KIP-516).
constexpr auto kUnknownTopicId = static_cast<rd_kafka_resp_err_t>(100);
// The reason is kGivenUp with the error's name.
constexpr const char* kGivenUp = nullptr;

constexpr std::array kRows = {
    Row{RD_KAFKA_RESP_ERR_NO_ERROR, Action::kAcknowledge, ""},

    Row{RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, Action::kTooLarge, "message too large"},
    Row{RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE, Action::kTooLarge, "message too large"},
    Row{RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, Action::kSendNow,
        "the topic does not take the event's time (INVALID_TIMESTAMP)"},
    Row{RD_KAFKA_RESP_ERR__QUEUE_FULL, Action::kQueueFull, "librdkafka's queue is full"},

    // About the message: it will never be taken.
    Row{RD_KAFKA_RESP_ERR_INVALID_RECORD, Action::kReject,
        "the broker refuses the record (INVALID_RECORD)"},
    Row{RD_KAFKA_RESP_ERR_INVALID_MSG, Action::kReject,
        "the broker finds the message corrupt (INVALID_MSG)"},
    Row{RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE, Action::kReject,
        "the broker refuses the message's size (INVALID_MSG_SIZE)"},
    Row{RD_KAFKA_RESP_ERR_POLICY_VIOLATION, Action::kReject,
        "against a policy of the broker (POLICY_VIOLATION)"},

    // About the topic or our rights: an administrator's matter, and no fault of the event.
    Row{kUnknownTopicId, Action::kRetry, "the topic does not exist", Alarm::kTopic},
    Row{RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, Action::kRetry, "the topic does not exist",
        Alarm::kTopic},
    Row{RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC, Action::kRetry, "the topic does not exist",
        Alarm::kTopic},
    Row{RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, Action::kRetry, "the topic does not exist",
        Alarm::kTopic},
    Row{RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, Action::kRetry,
        "the broker does not take the topic's name", Alarm::kTopic},
    Row{RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, Action::kRetry,
        "no right to write to the topic (TOPIC_AUTHORIZATION_FAILED)", Alarm::kNotAuthorized},
    Row{RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, Action::kRetry,
        "no right to write to the cluster (CLUSTER_AUTHORIZATION_FAILED)", Alarm::kNotAuthorized},
    Row{RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Action::kRetry,
        "no right to write (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)", Alarm::kNotAuthorized},

    // About the broker's configuration.
    Row{RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE, Action::kRetry,
        "the broker does not know the compression (UNSUPPORTED_COMPRESSION_TYPE)", Alarm::kRefused},
    Row{RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, Action::kRetry,
        "the topic's message format is too old (UNSUPPORTED_FOR_MESSAGE_FORMAT)", Alarm::kRefused},
    Row{RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION, Action::kRetry,
        "the broker is too old (UNSUPPORTED_VERSION)", Alarm::kRefused},
    Row{RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS, Action::kRetry,
        "the broker does not take acks=all (INVALID_REQUIRED_ACKS)", Alarm::kRefused},

    // About the connection or the cluster's state. librdkafka retries these itself, so they are
    // reported only where it gave up.
    Row{RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, Action::kRetry, "no answer from the broker in time"},
    Row{RD_KAFKA_RESP_ERR__TIMED_OUT, Action::kRetry, "no answer from the broker in time"},
    Row{RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE, Action::kRetry, "no answer from the broker in time"},
    Row{RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, Action::kRetry, "no answer from the broker in time"},
    Row{RD_KAFKA_RESP_ERR__TRANSPORT, Action::kRetry, "no connection to the broker"},
    Row{RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION, Action::kRetry, "no connection to the broker"},
    Row{RD_KAFKA_RESP_ERR__RESOLVE, Action::kRetry, "no connection to the broker"},
    Row{RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, Action::kRetry, "no connection to the broker"},
    Row{RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE, Action::kRetry, "no connection to the broker"},
    Row{RD_KAFKA_RESP_ERR__SSL, Action::kRetry, "no TLS connection to the broker"},
    Row{RD_KAFKA_RESP_ERR__AUTHENTICATION, Action::kRetry, "login refused by the broker"},
    Row{RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED, Action::kRetry,
        "login refused by the broker"},
    Row{RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, Action::kRetry, "not enough replicas in sync"},
    Row{RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, Action::kRetry,
        "not enough replicas in sync"},
    Row{RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE, Action::kRetry, "the partition has no leader"},
    Row{RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, Action::kRetry, "the partition has no leader"},
    Row{RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE, Action::kRetry, "the partition has no leader"},
    Row{RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH, Action::kRetry, "the partition has no leader"},
    Row{RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH, Action::kRetry, "the partition has no leader"},
    Row{RD_KAFKA_RESP_ERR_PREFERRED_LEADER_NOT_AVAILABLE, Action::kRetry,
        "the partition has no leader"},
    Row{RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR, Action::kRetry,
        "the broker's disk fails (KAFKA_STORAGE_ERROR)"},
    Row{RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED, Action::kRetry,
        "the broker's quota is used up"},

    // librdkafka gave the producer up: the next one sends them.
    Row{RD_KAFKA_RESP_ERR__FATAL, Action::kResend, kGivenUp},
    Row{RD_KAFKA_RESP_ERR__FENCED, Action::kResend, kGivenUp},
    Row{RD_KAFKA_RESP_ERR__STATE, Action::kResend, kGivenUp},
    Row{RD_KAFKA_RESP_ERR__INCONSISTENT, Action::kResend, kGivenUp},
    Row{RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE, Action::kResend, kGivenUp},
    Row{RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, Action::kResend, kGivenUp},
    Row{RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER, Action::kResend, kGivenUp},
    Row{RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, Action::kResend, kGivenUp},
    Row{RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, Action::kResend, kGivenUp},
    Row{RD_KAFKA_RESP_ERR_PRODUCER_FENCED, Action::kResend, kGivenUp},
    Row{RD_KAFKA_RESP_ERR__PURGE_QUEUE, Action::kResend, "stopped before the broker answered"},
    Row{RD_KAFKA_RESP_ERR__PURGE_INFLIGHT, Action::kResend, "stopped before the broker answered"},
    Row{RD_KAFKA_RESP_ERR__DESTROY, Action::kResend, "stopped before the broker answered"},
    Row{RD_KAFKA_RESP_ERR__INTR, Action::kResend, "stopped before the broker answered"},
};

Verdict judge_unknown(rd_kafka_resp_err_t error, std::uint32_t attempt) {
  return {.action = attempt < kUnknownAttempts ? Action::kRetry : Action::kReject,
          .reason = "unknown answer " + name_of(error) + " (" +
                    std::to_string(static_cast<int>(error)) + ")"};
}

}  // namespace

std::string name_of(rd_kafka_resp_err_t error) { return rd_kafka_err2name(error); }

Verdict judge(rd_kafka_resp_err_t error, std::uint32_t attempt, bool has_key) {
  if (error == RD_KAFKA_RESP_ERR_INVALID_RECORD && !has_key) {
    return {.action = Action::kRetry,
            .reason =
                "the broker refuses the record (INVALID_RECORD), which has no key: a "
                "compacted topic takes none like this; set cleanup.policy=delete on the "
                "topic, or key",
            .hint = kSlow,
            .alarm = Alarm::kRefused};
  }
  const auto row = std::ranges::find(kRows, error, &Row::error);
  if (row == kRows.end()) return judge_unknown(error, attempt);
  Verdict verdict{.action = row->action, .reason = {}, .hint = {}, .alarm = row->alarm};
  verdict.reason = row->reason != kGivenUp
                       ? row->reason
                       : "the producer was given up by librdkafka (" + name_of(error) + ")";
  if (row->alarm != Alarm::kNone) verdict.hint = kSlow;
  if (row->action == Action::kQueueFull) verdict.hint = std::chrono::seconds(1);
  return verdict;
}

}  // namespace scriptorium::kafka
