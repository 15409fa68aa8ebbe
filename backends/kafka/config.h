#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/api/kit/text_template.h"
#include "core/api/options.h"

namespace scriptorium::kafka {

enum class Format {
  kEvent,        // the event as JSON
  kSarchive,     // what SArchive's consumers read
  kCloudEvents,  // the event as a CloudEvent
};
enum class CloudEventsMode { kBinary, kStructured };
enum class Oversize {
  kTruncate,    // cut script and environment until it fits, and mark that
  kDeadLetter,  // give it up, with its size
};
enum class Security { kDeduced, kPlaintext, kSsl, kSaslPlaintext, kSaslSsl };

// A property of librdkafka and its value; in secret_properties the value is the name of a file.
using Property = std::pair<std::string, std::string>;

struct KafkaConfig {
  std::string brokers;
  std::string topic;
  std::string key = "{cluster}/{job_id}";
  Format format = Format::kEvent;
  CloudEventsMode cloudevents_mode = CloudEventsMode::kBinary;
  bool headers = true;
  std::string compression = "zstd";
  std::int64_t message_max_bytes = 8 << 20;
  Oversize oversize = Oversize::kTruncate;
  std::string archive_location;
  bool enable_idempotence = true;
  std::int64_t stalled_after_seconds = 30;
  std::int64_t topic_partitions = 3;                     // for `scriptorium setup`
  std::optional<std::int64_t> topic_replication_factor;  // absent: the brokers' default

  Security security_protocol = Security::kDeduced;  // never kDeduced after parse_config()
  std::string tls_ca_file;
  std::string tls_certificate_file;
  std::string tls_key_file;
  std::string tls_key_password_file;
  std::string sasl_mechanism;
  std::string sasl_username;
  std::string sasl_password_file;
  std::string sasl_token_file;
  std::string kerberos_service_name = "kafka";
  std::string kerberos_principal;
  std::string kerberos_keytab_file;

  std::vector<Property> properties;         // [sink.NAME.librdkafka], in the file's order
  std::vector<Property> secret_properties;  // [sink.NAME.librdkafka_secret_files]

  // Made of the above.
  TextTemplate topic_template;
  TextTemplate key_template;
  TextTemplate location_template;
  std::vector<std::string> kinds;  // of the option that every sink takes; patterns are left out

  bool uses_tls() const noexcept {
    return security_protocol == Security::kSsl || security_protocol == Security::kSaslSsl;
  }
  bool uses_sasl() const noexcept {
    return security_protocol == Security::kSaslPlaintext || security_protocol == Security::kSaslSsl;
  }
  bool uses_scram() const noexcept { return uses_sasl() && sasl_mechanism.starts_with("SCRAM"); }
  // The value that the pass-through gives to a property; "" if it gives none.
  std::string passed_through(std::string_view property) const;
};

// What a topic's name may be made of, and its length: the brokers' own rule.
bool is_topic_character(char c) noexcept;
inline constexpr std::size_t kTopicLimit = 249;
// A topic that takes no message of this many bytes is not made for job scripts.
inline constexpr std::size_t kLeastMessageLimit = 65'536;

std::vector<OptionInfo> options();

// Says every problem of the table; the result is to be used only if there was none. Reads no file.
KafkaConfig parse_config(const Table& table, Problems& problems);

}  // namespace scriptorium::kafka
