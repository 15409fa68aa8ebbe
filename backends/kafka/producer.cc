#include "backends/kafka/producer.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "backends/kafka/token.h"
#include "core/api/kit/secret_file.h"
#include "core/base/file.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::kafka {
namespace {

const char* protocol_name(Security security) {
  switch (security) {
    case Security::kSsl: return "ssl";
    case Security::kSaslPlaintext: return "sasl_plaintext";
    case Security::kSaslSsl: return "sasl_ssl";
    default: return "plaintext";
  }
}

// What makes an acknowledgement true, and a broker that is away harmless. The pass-through may
// change the rest.
const std::vector<Property>& own_properties() {
  static const std::vector<Property> kList = {
      {"message.timeout.ms", "0"},  // for ever: the journal is the timeout
      {"batch.size", "1000000"},
      {"linger.ms", "50"},  // while a batch is being handed over; flush() ends it
      {"queue.buffering.max.messages", "2000"},
      {"socket.keepalive.enable", "true"},
      {"socket.nagle.disable", "true"},
      {"reconnect.backoff.max.ms",
       "5000"},  // 10 s by default: a broker that is back would wait for us
      {"connections.max.idle.ms", "0"},
      {"log.connection.close", "false"},
      {"statistics.interval.ms", "15000"},
      {"partitioner",
       "murmur2_random"},  // as Java's: its programs find a job in the same partition
      {"client.id", "scriptorium"},
      {"allow.auto.create.topics", "false"},
      {"log.queue", "true"},  // no thread of librdkafka calls us
  };
  return kList;
}

class Settings {
 public:
  Settings() : conf_(rd_kafka_conf_new()) {}

  void set(const std::string& name, const std::string& value) {
    std::array<char, 512> words{};
    if (rd_kafka_conf_set(conf_.get(), name.c_str(), value.c_str(), words.data(), words.size()) !=
            RD_KAFKA_CONF_OK &&
        !problem_) {
      problem_ = "librdkafka does not take " + name + ": " + printable(words.data(), 400);
    }
  }
  void set_unless_empty(const std::string& name, const std::string& value) {
    if (!value.empty()) set(name, value);
  }
  // The words of librdkafka would quote the value.
  void set_secret(const std::string& name, const std::string& file) {
    if (file.empty()) return;
    const auto secret = read_secret(file);
    if (!secret) {
      if (!problem_) problem_ = secret.error().message();
      return;
    }
    if (rd_kafka_conf_set(conf_.get(), name.c_str(), secret->reveal().c_str(), nullptr, 0) !=
            RD_KAFKA_CONF_OK &&
        !problem_) {
      problem_ = "librdkafka does not take what stands in " + file + " for " + name;
    }
  }

  rd_kafka_conf_t* get() const { return conf_.get(); }
  rd_kafka_conf_t* release() { return conf_.release(); }
  const std::optional<std::string>& problem() const { return problem_; }

 private:
  Owned<rd_kafka_conf_t> conf_;
  std::optional<std::string> problem_;
};

void set_security(Settings& settings, const KafkaConfig& config) {
  settings.set("security.protocol", protocol_name(config.security_protocol));
  settings.set_unless_empty("ssl.ca.location", config.tls_ca_file);
  settings.set_unless_empty("ssl.certificate.location", config.tls_certificate_file);
  settings.set_unless_empty("ssl.key.location", config.tls_key_file);
  settings.set_secret("ssl.key.password", config.tls_key_password_file);
  if (config.uses_tls()) settings.set("ssl.endpoint.identification.algorithm", "https");
  settings.set_unless_empty("sasl.mechanisms", config.sasl_mechanism);
  settings.set_unless_empty("sasl.username", config.sasl_username);
  settings.set_secret("sasl.password", config.sasl_password_file);
  if (config.sasl_mechanism == "GSSAPI") {
    settings.set("sasl.kerberos.service.name", config.kerberos_service_name);
    settings.set_unless_empty("sasl.kerberos.principal", config.kerberos_principal);
    settings.set_unless_empty("sasl.kerberos.keytab", config.kerberos_keytab_file);
  }
}

void fill(Settings& settings, const KafkaConfig& config) {
  settings.set("bootstrap.servers", config.brokers);
  for (const auto& [name, value] : own_properties()) settings.set(name, value);
  settings.set("enable.idempotence", config.enable_idempotence ? "true" : "false");
  if (!config.enable_idempotence) {
    settings.set("acks", "all");
    settings.set("retries", "2147483647");
    // With more requests under way, one that is tried again comes behind its successors.
    settings.set("max.in.flight.requests.per.connection", "1");
  }
  settings.set("compression.codec", config.compression);
  settings.set("message.max.bytes", std::to_string(config.message_max_bytes));
  // A message that is larger than the queue would never get in.
  settings.set("queue.buffering.max.kbytes",
               std::to_string(std::max<std::int64_t>(65'536, config.message_max_bytes / 512)));
  set_security(settings, config);
  for (const auto& [name, value] : config.properties) settings.set(name, value);
  for (const auto& [name, file] : config.secret_properties) settings.set_secret(name, file);
}

std::vector<std::string> secret_files(const KafkaConfig& config) {
  std::vector<std::string> files;
  for (const std::string* file :
       {&config.tls_key_password_file, &config.sasl_password_file, &config.sasl_token_file}) {
    if (!file->empty()) files.push_back(*file);
  }
  for (const auto& [name, file] : config.secret_properties) files.push_back(file);
  return files;
}

}  // namespace

std::string credentials_state(const KafkaConfig& config) {
  std::vector<std::string> files = secret_files(config);
  files.insert(files.end(), {config.tls_ca_file, config.tls_certificate_file, config.tls_key_file,
                             config.kerberos_keytab_file});
  return version_of_files(files);
}

Result<void> check_secrets(const KafkaConfig& config) {
  for (const std::string& file : secret_files(config)) {
    if (const auto secret = read_secret(file); !secret) return secret.error();
  }
  return {};
}

Result<std::unique_ptr<Producer>> Producer::create(const KafkaConfig& config, const Clock& clock,
                                                   ProducerListener& listener, Extra extra) {
  Settings settings;
  fill(settings, config);
  if (extra.inquisitive) {
    settings.set("log.connection.close", "true");
    settings.set("statistics.interval.ms", "100");
  }
  if (settings.problem()) return Error{ErrorKind::kInvalidConfig, *settings.problem()};

  std::unique_ptr<Producer> producer(new Producer(listener, config, clock));
  rd_kafka_conf_set_opaque(settings.get(), producer.get());
  rd_kafka_conf_set_dr_msg_cb(settings.get(), &Producer::report);
  rd_kafka_conf_set_error_cb(settings.get(), &Producer::error);
  rd_kafka_conf_set_stats_cb(settings.get(), &Producer::statistics);
  rd_kafka_conf_set_log_cb(settings.get(), &Producer::log);
  if (!config.sasl_token_file.empty()) {
    rd_kafka_conf_set_oauthbearer_token_refresh_cb(settings.get(), &Producer::refresh_token);
  }
  std::array<char, 512> words{};
  producer->handle_.reset(
      rd_kafka_new(RD_KAFKA_PRODUCER, settings.get(), words.data(), words.size()));
  if (producer->handle_ == nullptr) {
    return Error{ErrorKind::kInvalidConfig, "librdkafka " + std::string(rd_kafka_version_str()) +
                                                " cannot make a producer of this configuration: " +
                                                printable(words.data(), 400)};
  }
  static_cast<void>(settings.release());  // the handle owns it now
  rd_kafka_set_log_queue(producer->handle(), nullptr);
  return producer;
}

rd_kafka_resp_err_t Producer::send(const Message& message, std::int64_t timestamp_ms,
                                   std::uint64_t tag) {
  rd_kafka_headers_t* headers = rd_kafka_headers_new(message.headers.size());
  for (const auto& [name, value] : message.headers) {
    rd_kafka_header_add(headers, name.data(), static_cast<ssize_t>(name.size()), value.data(),
                        static_cast<ssize_t>(value.size()));
  }
  // The partition stays open: librdkafka before 2.12.0 frees the headers twice when one that was
  // named is not there. librdkafka only reads them, whatever its types say.
  auto* const value = const_cast<char*>(message.value.data());
  auto* const key = message.key ? const_cast<char*>(message.key->data()) : nullptr;
  const std::size_t key_size = message.key ? message.key->size() : 0;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): never followed
  auto* const opaque = reinterpret_cast<void*>(static_cast<std::uintptr_t>(tag));
  const rd_kafka_resp_err_t error =
      rd_kafka_producev(handle(), RD_KAFKA_V_TOPIC(message.topic.c_str()), RD_KAFKA_V_MSGFLAGS(0),
                        RD_KAFKA_V_VALUE(value, message.value.size()),
                        RD_KAFKA_V_KEY(key, key_size), RD_KAFKA_V_TIMESTAMP(timestamp_ms),
                        RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(opaque), RD_KAFKA_V_END);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
    rd_kafka_headers_destroy(headers);  // else they are librdkafka's
  return error;
}

void Producer::poll(std::chrono::milliseconds limit) {
  rd_kafka_poll(handle(), static_cast<int>(limit.count()));
}
void Producer::flush(std::chrono::milliseconds limit) {
  static_cast<void>(
      rd_kafka_flush(handle(), static_cast<int>(std::max<std::int64_t>(limit.count(), 0))));
}
void Producer::purge() {
  static_cast<void>(rd_kafka_purge(handle(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT));
}
std::size_t Producer::queued() const {
  return static_cast<std::size_t>(std::max(rd_kafka_outq_len(handle()), 0));
}

std::optional<Producer::Fatal> Producer::fatal() const {
  std::array<char, 512> words{};
  const rd_kafka_resp_err_t error = rd_kafka_fatal_error(handle(), words.data(), words.size());
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return std::nullopt;
  return Fatal{error, printable(words.data(), 400)};
}

bool Producer::was_answered() const {
  char* cluster = rd_kafka_clusterid(handle(), 0);
  if (cluster != nullptr) rd_kafka_mem_free(handle(), cluster);
  return cluster != nullptr;
}

std::int64_t Producer::number(const char* property) const {
  std::array<char, 64> text{};
  std::size_t size = text.size();
  if (rd_kafka_conf_get(rd_kafka_conf(handle()), property, text.data(), &size) != RD_KAFKA_CONF_OK)
    return 0;
  return parse_number<std::int64_t>(text.data()).value_or(0);
}

void Producer::report(rd_kafka_t*, const rd_kafka_message_t* message, void* self) noexcept {
  const auto tag = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(message->_private));
  static_cast<Producer*>(self)->listener_.on_report(tag, message->err);
}

void Producer::error(rd_kafka_t*, int code, const char* text, void* self) noexcept {
  static_cast<Producer*>(self)->listener_.on_error(static_cast<rd_kafka_resp_err_t>(code),
                                                   text == nullptr ? "" : text);
}

int Producer::statistics(rd_kafka_t*, char* json, std::size_t size, void* self) noexcept {
  static_cast<Producer*>(self)->listener_.on_statistics({json, size});
  return 0;  // librdkafka frees it
}

void Producer::log(const rd_kafka_t* handle, int level, const char* facility,
                   const char* text) noexcept {
  auto* self = static_cast<Producer*>(rd_kafka_opaque(handle));
  if (self != nullptr)
    self->listener_.on_log(level, facility == nullptr ? "" : facility, text == nullptr ? "" : text);
}

void Producer::refresh_token(rd_kafka_t* handle, const char*, void* self) noexcept {
  auto& producer = *static_cast<Producer*>(self);
  std::array<char, 512> words{};
  const auto secret = read_secret(producer.config_.sasl_token_file);
  std::string problem;
  if (!secret) {
    problem = secret.error().message();
  } else {
    const Timestamp now = producer.clock_.now();
    const Token token = read_token(secret->reveal(), now);
    const rd_kafka_resp_err_t set = rd_kafka_oauthbearer_set_token(
        handle, secret->reveal().c_str(), token.expires_at_ms, token.principal.c_str(), nullptr, 0,
        words.data(), words.size());
    if (set == RD_KAFKA_RESP_ERR_NO_ERROR) return;
    const bool expired = token.expires_at_ms <= now.nanoseconds / 1'000'000;
    problem = "the token in " + producer.config_.sasl_token_file +
              (expired ? " has expired" : " is none that librdkafka takes");
  }
  // Reported by the error callback, and tried again in ten seconds.
  rd_kafka_oauthbearer_set_token_failure(handle, problem.c_str());
}

}  // namespace scriptorium::kafka
