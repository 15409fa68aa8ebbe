#include "backends/kafka/config.h"

#include <algorithm>
#include <array>

#include "backends/kafka/properties.h"
#include "core/api/kit/path_option.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::kafka {
namespace {

constexpr std::array<std::string_view, 3> kTopicFields = {"cluster", "kind", "scheduler"};
constexpr std::array<std::string_view, 6> kKeyFields = {"cluster", "scheduler", "kind",
                                                        "job_id",  "event_id",  "host"};
constexpr std::array<std::string_view, 8> kLocationFields = {
    "cluster", "scheduler", "kind", "job_id", "event_id", "year", "month", "day"};

Option<KafkaConfig> properties_option(const char* name, std::vector<Property> KafkaConfig::* member,
                                      PropertyTable kind, const char* help) {
  OptionInfo info{.name = name, .type = "table", .help = help};
  return custom<KafkaConfig>(info, [name, member, kind](const Value& value, const Table& table,
                                                        KafkaConfig& into, Problems& problems) {
    into.*member = read_properties(value, table, name, kind, problems);
  });
}

const Schema<KafkaConfig>& schema() {
  static const Schema<KafkaConfig> kSchema{
      required("brokers", &KafkaConfig::brokers,
               "brokers that are asked for the others first, as \"host:port,host:port\""),
      required("topic", &KafkaConfig::topic,
               "topic, or a template for it with {cluster} {kind} {scheduler}; the sink never "
               "creates it"),
      option("key", &KafkaConfig::key,
             "template for the key of each message, with {cluster} {scheduler} {kind} {job_id} "
             "{event_id} {host}; messages with equal keys stay in order; empty: no key"),
      choice("format", &KafkaConfig::format,
             {{"event", Format::kEvent},
              {"sarchive", Format::kSarchive},
              {"cloudevents", Format::kCloudEvents}},
             "what a message contains: the event, what SArchive's consumers read, or the event as "
             "a CloudEvent"),
      choice("cloudevents_mode", &KafkaConfig::cloudevents_mode,
             {{"binary", CloudEventsMode::kBinary}, {"structured", CloudEventsMode::kStructured}},
             "where the CloudEvents attributes are: in headers, or together with the event in one "
             "JSON object"),
      option("headers", &KafkaConfig::headers,
             "add the headers content-type, schema and event-id to each message"),
      choice("compression", &KafkaConfig::compression,
             {{"zstd", "zstd"},
              {"lz4", "lz4"},
              {"snappy", "snappy"},
              {"gzip", "gzip"},
              {"none", "none"}},
             "codec for batches on the wire; zstd needs brokers of version 2.1 or newer"),
      integer("message_max_bytes", &KafkaConfig::message_max_bytes, 1000, 1'000'000'000,
              "largest message in bytes before compression; the topic's max.message.bytes limits "
              "the compressed batch"),
      choice("oversize", &KafkaConfig::oversize,
             {{"truncate", Oversize::kTruncate}, {"dead_letter", Oversize::kDeadLetter}},
             "what happens to an event that is too large: its texts are cut and it is marked, or "
             "it becomes a dead letter"),
      option(
          "archive_location", &KafkaConfig::archive_location,
          "where the whole script of a cut event is kept, as a template with {cluster} {scheduler} "
          "{kind} {job_id} {event_id} {year} {month} {day}; becomes script.location"),
      option("enable_idempotence", &KafkaConfig::enable_idempotence,
             "let the brokers drop messages that were sent twice because a connection broke; "
             "without it, consumers must drop duplicates by event-id"),
      integer(
          "stalled_after_seconds", &KafkaConfig::stalled_after_seconds, 1, 86'400,
          "seconds without an answer to a message after which the sink reports that it is stalled"),
      integer(
          "topic_partitions", &KafkaConfig::topic_partitions, 1, 10'000,
          "partitions of a topic that \"scriptorium setup\" creates; the sink itself creates none"),
      integer("topic_replication_factor", &KafkaConfig::topic_replication_factor, 1, 100,
              "copies of each partition of a topic that \"scriptorium setup\" creates; absent: the "
              "brokers' own default. With 3 or more, the topic gets min.insync.replicas=2"),
      choice("security_protocol", &KafkaConfig::security_protocol,
             {{"plaintext", Security::kPlaintext},
              {"ssl", Security::kSsl},
              {"sasl_plaintext", Security::kSaslPlaintext},
              {"sasl_ssl", Security::kSaslSsl}},
             "protocol of the brokers' listener; absent: sasl_ssl with sasl_mechanism, ssl with "
             "any tls_ option, otherwise plaintext"),
      option("tls_ca_file", &KafkaConfig::tls_ca_file,
             "certificates (PEM) of the authorities that may sign the brokers' certificates; "
             "empty: the system's"),
      option("tls_certificate_file", &KafkaConfig::tls_certificate_file,
             "our certificate and its chain (PEM)"),
      option("tls_key_file", &KafkaConfig::tls_key_file, "private key of our certificate (PEM)"),
      option("tls_key_password_file", &KafkaConfig::tls_key_password_file,
             "file or systemd credential that contains the key's password"),
      choice("sasl_mechanism", &KafkaConfig::sasl_mechanism,
             {{"PLAIN", "PLAIN"},
              {"SCRAM-SHA-256", "SCRAM-SHA-256"},
              {"SCRAM-SHA-512", "SCRAM-SHA-512"},
              {"OAUTHBEARER", "OAUTHBEARER"},
              {"GSSAPI", "GSSAPI"}},
             "how to log in; absent: no login"),
      option("sasl_username", &KafkaConfig::sasl_username, "user name for PLAIN and SCRAM"),
      option("sasl_password_file", &KafkaConfig::sasl_password_file,
             "file or systemd credential that contains the user's password"),
      option("sasl_token_file", &KafkaConfig::sasl_token_file,
             "file or systemd credential that contains the token for OAUTHBEARER; read again "
             "before the token expires"),
      option("kerberos_service_name", &KafkaConfig::kerberos_service_name,
             "Kerberos service name of the brokers, for GSSAPI"),
      option("kerberos_principal", &KafkaConfig::kerberos_principal,
             "our Kerberos principal, for GSSAPI"),
      option("kerberos_keytab_file", &KafkaConfig::kerberos_keytab_file,
             "keytab that contains the principal's key, for GSSAPI"),
      properties_option("librdkafka", &KafkaConfig::properties, PropertyTable::kValues,
                        "any property of librdkafka, as [sink.NAME.librdkafka]; properties that "
                        "would break the delivery guarantee are refused"),
      properties_option(
          "librdkafka_secret_files", &KafkaConfig::secret_properties, PropertyTable::kSecretFiles,
          "properties of librdkafka whose value is in a file, as property = \"file\""),
  };
  return kSchema;
}

bool given(const Table& table, std::string_view key) { return table.find(key) != nullptr; }

// host, host:port, [v6]:port
std::optional<std::string> broker_problem(std::string_view broker) {
  if (broker.empty()) return "an empty name between commas";
  if (broker.find("://") != std::string_view::npos)
    return "a broker is host:port, without a protocol in front";
  for (const char c : broker) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7F || c == '/')
      return "a broker's name holds a blank, a slash or a control character";
  }
  const std::size_t colon = broker.rfind(':');
  const std::size_t bracket = broker.rfind(']');
  if (colon == std::string_view::npos || (bracket != std::string_view::npos && colon < bracket))
    return std::nullopt;
  if (colon == 0) return "no host before ':'";
  const std::string_view port = broker.substr(colon + 1);
  if (parse_number<std::uint16_t>(port).value_or(0) > 0) return std::nullopt;
  return "'" + printable(port, 20) + "' is not a port";
}

void check_brokers(const KafkaConfig& config, const Table& table, Problems& problems) {
  if (!given(table, "brokers")) return;
  std::string_view rest = config.brokers;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view one = trim(rest.substr(0, comma));
    if (const auto wrong = broker_problem(one)) {
      problems.add(table, "brokers", *wrong, "\"host:port\", with commas between several");
      return;
    }
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
  }
}

TextTemplate read_template(const std::string& text, const char* key,
                           std::span<const std::string_view> fields, const Table& table,
                           Problems& problems) {
  if (text.find('\0') != std::string::npos) problems.add(table, key, "holds a NUL byte");
  auto made = TextTemplate::parse(text, fields);
  if (made) return *std::move(made);
  problems.add(table, key, made.error().message());
  return {};
}

void check_topic(const KafkaConfig& config, const Table& table, Problems& problems) {
  if (!given(table, "topic")) return;
  constexpr const char* kAllowed =
      "letters, digits, '.', '_' and '-', at most 249, and {cluster} {kind} {scheduler}";
  const std::string fixed = config.topic_template.fixed_text();
  if (config.topic.empty()) {
    problems.add(table, "topic", "is empty", kAllowed);
  } else if (!std::ranges::all_of(fixed, is_topic_character) || config.topic == "." ||
             config.topic == "..") {
    problems.add(table, "topic", "cannot be a topic's name", kAllowed);
  } else if (fixed.size() > kTopicLimit) {
    problems.add(table, "topic", "is too long", kAllowed);
  }
}

void check_tls(const KafkaConfig& config, const Table& table, Problems& problems) {
  constexpr std::array<std::pair<const char*, std::string KafkaConfig::*>, 5> kFiles = {{
      {"tls_ca_file", &KafkaConfig::tls_ca_file},
      {"tls_certificate_file", &KafkaConfig::tls_certificate_file},
      {"tls_key_file", &KafkaConfig::tls_key_file},
      {"kerberos_keytab_file", &KafkaConfig::kerberos_keytab_file},
      {"tls_key_password_file", &KafkaConfig::tls_key_password_file},
  }};
  for (const auto& [key, member] : kFiles) {
    // read_secret() has rules of its own.
    if (member != &KafkaConfig::tls_key_password_file)
      check_absolute_path(table, key, problems, EmptyPath::kAllowed);
    if (!(config.*member).empty() && member != &KafkaConfig::kerberos_keytab_file &&
        !config.uses_tls()) {
      problems.add(table, key,
                   "has no use: security_protocol says that the listener does not speak TLS",
                   R"(security_protocol "ssl" or "sasl_ssl")");
    }
  }
  if (config.tls_certificate_file.empty() != config.tls_key_file.empty()) {
    problems.add(table, config.tls_key_file.empty() ? "tls_certificate_file" : "tls_key_file",
                 std::string("needs ") +
                     (config.tls_key_file.empty() ? "tls_key_file" : "tls_certificate_file") +
                     " beside it");
  }
  if (!config.tls_key_password_file.empty() && config.tls_key_file.empty()) {
    problems.add(table, "tls_key_password_file", "needs tls_key_file beside it");
  }
}

void check_sasl(const KafkaConfig& config, const Table& table, Problems& problems) {
  const std::string& mechanism = config.sasl_mechanism;
  if (config.uses_sasl() && mechanism.empty()) {
    problems.add(table, "security_protocol", "needs sasl_mechanism beside it",
                 R"("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")");
    return;
  }
  if (!config.uses_sasl() && !mechanism.empty()) {
    problems.add(table, "sasl_mechanism",
                 "has no use: security_protocol says that the listener asks for no login",
                 R"(security_protocol "sasl_ssl" or "sasl_plaintext")");
    return;
  }
  const bool password = mechanism == "PLAIN" || config.uses_scram();
  const bool kerberos = mechanism == "GSSAPI";
  const bool token = mechanism == "OAUTHBEARER";
  const auto pair = [&](const char* key, const std::string& value, bool wanted,
                        const std::string& what) {
    if (wanted && value.empty())
      problems.add(table, "sasl_mechanism", mechanism + " needs " + key + " beside it");
    if (!wanted && !value.empty() && given(table, key))
      problems.add(table, key, "has no use without " + what);
  };
  pair("sasl_username", config.sasl_username, password, "sasl_mechanism PLAIN or SCRAM");
  pair("sasl_password_file", config.sasl_password_file, password, "sasl_mechanism PLAIN or SCRAM");
  // librdkafka has ways of its own to get a token.
  const bool own_way = !config.passed_through("sasl.oauthbearer.method").empty() ||
                       !config.passed_through("enable.sasl.oauthbearer.unsecure.jwt").empty();
  if (!(token && own_way))
    pair("sasl_token_file", config.sasl_token_file, token, "sasl_mechanism OAUTHBEARER");
  for (const char* key : {"kerberos_service_name", "kerberos_principal", "kerberos_keytab_file"}) {
    if (!kerberos && given(table, key))
      problems.add(table, key, "has no use without sasl_mechanism GSSAPI");
  }
}

Security deduced(const KafkaConfig& config) {
  if (config.security_protocol != Security::kDeduced) return config.security_protocol;
  if (!config.sasl_mechanism.empty()) return Security::kSaslSsl;
  const bool tls = !config.tls_ca_file.empty() || !config.tls_certificate_file.empty() ||
                   !config.tls_key_file.empty();
  return tls ? Security::kSsl : Security::kPlaintext;
}

// The kinds that this sink will get, as far as they are spelled out.
std::vector<std::string> kinds_of(const Table& table) {
  std::vector<std::string> kinds;
  const Value* value = table.find("kinds");
  if (value == nullptr) return {"job.script"};
  if (const auto* list = std::get_if<std::vector<Value>>(&value->data)) {
    for (const Value& item : *list) {
      const auto* kind = std::get_if<std::string>(&item.data);
      if (kind != nullptr && kind->find_first_of("*?[\\") == std::string::npos)
        kinds.push_back(*kind);
    }
  }
  return kinds;
}

}  // namespace

bool is_topic_character(char c) noexcept {
  return is_alphanumeric(c) || c == '.' || c == '_' || c == '-';
}

std::string KafkaConfig::passed_through(std::string_view property) const {
  std::string value;
  for (const auto& [name, text] : properties) {
    if (name == property) value = text;
  }
  return value;
}

std::vector<OptionInfo> options() {
  std::vector<OptionInfo> list = schema().options();
  for (OptionInfo& info : list) {
    // Said in words; "" would read as a value that works.
    if (info.default_value == "\"\"") info.default_value.clear();
  }
  return list;
}

KafkaConfig parse_config(const Table& table, Problems& problems) {
  KafkaConfig config = schema().parse(table, problems);
  config.security_protocol = deduced(config);
  config.kinds = kinds_of(table);
  check_brokers(config, table, problems);
  config.topic_template = read_template(config.topic, "topic", kTopicFields, table, problems);
  check_topic(config, table, problems);
  config.key_template = read_template(config.key, "key", kKeyFields, table, problems);
  config.location_template =
      read_template(config.archive_location, "archive_location", kLocationFields, table, problems);
  if (given(table, "cloudevents_mode") && config.format != Format::kCloudEvents) {
    problems.add(table, "cloudevents_mode", "has no use without format = \"cloudevents\"");
  }
  if (!config.archive_location.empty() && config.oversize != Oversize::kTruncate) {
    problems.add(table, "archive_location", "has no use without oversize = \"truncate\"");
  }
  check_tls(config, table, problems);
  check_sasl(config, table, problems);
  return config;
}

}  // namespace scriptorium::kafka
