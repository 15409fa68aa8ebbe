#include "backends/kafka/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include "tests/backends/kafka/config_builder.h"

namespace scriptorium::kafka {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class KafkaConfigTest : public ::testing::Test {
 protected:
  KafkaConfigTest() { options_.set("brokers", "b1:9092").set("topic", "jobs"); }  // lines 2 and 3

  test::ConfigBuilder options_;
};

TEST_F(KafkaConfigTest, BrokersAndTopicAloneAreEnough) {
  EXPECT_EQ(options_.problems(), "");
  const KafkaConfig config = options_.config();
  EXPECT_EQ(config.security_protocol, Security::kPlaintext);
  EXPECT_EQ(config.key, "{cluster}/{job_id}");
  EXPECT_TRUE(config.enable_idempotence);
  EXPECT_EQ(config.kinds, std::vector<std::string>{"job.script"});
}

TEST_F(KafkaConfigTest, BothAreRequired) {
  const std::string text = test::ConfigBuilder{}.problems();
  EXPECT_THAT(text, HasSubstr("sink.kafka.brokers: required key is missing"));
  EXPECT_THAT(text, HasSubstr("sink.kafka.topic: required key is missing"));
}

TEST_F(KafkaConfigTest, BrokersAreHostsWithPorts) {
  const auto problem = [](const char* brokers) {
    return test::ConfigBuilder{}.set("brokers", brokers).set("topic", "jobs").problems();
  };
  for (const char* good : {"b1", "b1:9092", "b1:9092,b2:9093", "b1:9092, b2:9092", "[::1]:9092",
                           "[::1]", "10.0.0.1:1"})
    EXPECT_EQ(problem(good), "") << good;
  EXPECT_THAT(problem(""),
              HasSubstr("kafka.toml:2: sink.kafka.brokers: an empty name between commas"));
  EXPECT_THAT(problem("b1:9092,,b2"), HasSubstr("an empty name"));
  EXPECT_THAT(problem("b1:0"), HasSubstr("'0' is not a port"));
  EXPECT_THAT(problem("b1:70000"), HasSubstr("'70000' is not a port"));
  EXPECT_THAT(problem("b1:kafka"), HasSubstr("'kafka' is not a port"));
  EXPECT_THAT(problem(":9092"), HasSubstr("no host"));
  EXPECT_THAT(problem("ssl://b1:9092"), HasSubstr("without a protocol"));
  EXPECT_THAT(problem("b 1:9092"), HasSubstr("a blank"));
}

TEST_F(KafkaConfigTest, ATopicThatNoBrokerTakesIsRefused) {
  const auto problem = [](const std::string& topic) {
    return test::ConfigBuilder{}.set("brokers", "b1").set("topic", topic.c_str()).problems();
  };
  EXPECT_EQ(problem("hpc.{cluster}.{kind}-{scheduler}_1"), "");
  for (const char* bad : {"a b", "jobs!", "a/b", "é", ".", ".."})
    EXPECT_THAT(problem(bad), HasSubstr("cannot be a topic's name")) << bad;
  EXPECT_THAT(problem(""), HasSubstr("kafka.toml:3: sink.kafka.topic: is empty"));
  EXPECT_THAT(problem(std::string(250, 'x')), HasSubstr("too long"));
  EXPECT_THAT(problem("{clustr}"), HasSubstr("unknown field {clustr}; did you mean {cluster}? "
                                             "the fields are {cluster} {kind} {scheduler}"));
  EXPECT_THAT(problem("{job_id}"), HasSubstr("unknown field {job_id}"));
  EXPECT_THAT(problem("jobs{"), HasSubstr("'{' without '}'"));
}

TEST_F(KafkaConfigTest, TemplatesOfKeyAndLocationAreChecked) {
  options_.set("key", "{user}").set("archive_location", "}x");
  const std::string text = options_.problems();
  EXPECT_THAT(text, HasSubstr("kafka.toml:4: sink.kafka.key: unknown field {user}"));
  EXPECT_THAT(text, HasSubstr("kafka.toml:5: sink.kafka.archive_location: '}' without '{'"));
}

TEST_F(KafkaConfigTest, UnknownWordsNameWhatIsAllowed) {
  options_.set("format", "json")
      .set("compression", "zst")
      .set("sasl_mechanism", "SCRAM")
      .set("oversize", "reject");
  const std::string text = options_.problems();
  EXPECT_THAT(text, HasSubstr("kafka.toml:4: sink.kafka.format: unknown value"));
  EXPECT_THAT(text, HasSubstr("did you mean \"zstd\""));
  EXPECT_THAT(text, HasSubstr("\"SCRAM-SHA-512\""));
  EXPECT_THAT(text, HasSubstr("allowed: \"truncate\", \"dead_letter\""));
}

TEST_F(KafkaConfigTest, OptionsWithoutUseAreProblems) {
  options_.set("cloudevents_mode", "structured")
      .set("oversize", "dead_letter")
      .set("archive_location", "/a/{job_id}");
  const std::string text = options_.problems();
  EXPECT_THAT(text, HasSubstr("kafka.toml:4: sink.kafka.cloudevents_mode: has no use without "
                              "format = \"cloudevents\""));
  EXPECT_THAT(text, HasSubstr("kafka.toml:6: sink.kafka.archive_location: has no use"));
}

// ---- security

TEST_F(KafkaConfigTest, TheProtocolFollowsFromWhatIsSet) {
  const auto with = [](auto set) {
    test::ConfigBuilder options;
    options.set("brokers", "b1").set("topic", "jobs");
    set(options);
    return options.config().security_protocol;
  };
  EXPECT_EQ(with([](auto& o) { o.set("tls_ca_file", "/ca.pem"); }), Security::kSsl);
  EXPECT_EQ(
      with([](auto& o) { o.set("tls_certificate_file", "/c.pem").set("tls_key_file", "/k.pem"); }),
      Security::kSsl);
  EXPECT_EQ(
      with([](auto& o) {
        o.set("sasl_mechanism", "PLAIN").set("sasl_username", "u").set("sasl_password_file", "/p");
      }),
      Security::kSaslSsl);
  EXPECT_EQ(with([](auto& o) { o.set("security_protocol", "ssl"); }), Security::kSsl);
}

TEST_F(KafkaConfigTest, ALoginNeedsAllItsParts) {
  const auto problem = [](auto set) {
    test::ConfigBuilder options;
    options.set("brokers", "b1").set("topic", "jobs");
    set(options);
    return options.problems();
  };
  EXPECT_THAT(problem([](auto& o) { o.set("sasl_mechanism", "SCRAM-SHA-512"); }),
              HasSubstr("needs sasl_username"));
  EXPECT_THAT(problem([](auto& o) { o.set("sasl_mechanism", "SCRAM-SHA-512"); }),
              HasSubstr("needs sasl_password_file"));
  EXPECT_THAT(problem([](auto& o) { o.set("sasl_mechanism", "OAUTHBEARER"); }),
              HasSubstr("needs sasl_token_file"));
  EXPECT_EQ(problem([](auto& o) { o.set("sasl_mechanism", "GSSAPI"); }), "");
  EXPECT_THAT(problem([](auto& o) { o.set("security_protocol", "sasl_ssl"); }),
              HasSubstr("needs sasl_mechanism"));
  EXPECT_THAT(problem([](auto& o) {
                o.set("security_protocol", "ssl")
                    .set("sasl_mechanism", "PLAIN")
                    .set("sasl_username", "u")
                    .set("sasl_password_file", "/p");
              }),
              HasSubstr("sasl_mechanism: has no use"));
  EXPECT_THAT(problem([](auto& o) { o.set("sasl_username", "u"); }),
              HasSubstr("sasl_username: has no use without"));
  EXPECT_THAT(problem([](auto& o) { o.set("kerberos_principal", "u"); }),
              HasSubstr("kerberos_principal: has no use without"));
  EXPECT_THAT(
      problem([](auto& o) { o.set("sasl_mechanism", "GSSAPI").set("sasl_password_file", "/p"); }),
      HasSubstr("sasl_password_file: has no use without"));
  EXPECT_THAT(problem([](auto& o) {
                o.set("security_protocol", "plaintext").set("tls_ca_file", "/ca.pem");
              }),
              HasSubstr("tls_ca_file: has no use"));
  EXPECT_THAT(problem([](auto& o) { o.set("tls_certificate_file", "/c.pem"); }),
              HasSubstr("tls_certificate_file: needs tls_key_file"));
  EXPECT_THAT(problem([](auto& o) { o.set("tls_key_file", "/k.pem"); }),
              HasSubstr("tls_key_file: needs tls_certificate_file"));
  EXPECT_THAT(problem([](auto& o) { o.set("tls_ca_file", "ca.pem"); }),
              HasSubstr("tls_ca_file: not an absolute path"));
}

TEST_F(KafkaConfigTest, APasswordWrittenIntoTheConfigIsNeverPrinted) {
  options_.property("sasl.password", "geheim")
      .property("ssl.keystore.password", "geheim")
      .property("ssl.key.pem", "geheim");
  const std::string text = options_.problems();
  EXPECT_THAT(text, HasSubstr("use sasl_password_file"));
  EXPECT_THAT(text, HasSubstr("librdkafka_secret_files"));
  EXPECT_THAT(text, Not(HasSubstr("geheim")));
}

// ---- librdkafka's own properties

TEST_F(KafkaConfigTest, PropertiesGoToLibrdkafkaWhateverTheirType) {
  options_.property("linger.ms", 5)
      .property("socket.keepalive.enable", test::ConfigBuilder::Data(false))
      .property("client.id", "x");
  EXPECT_EQ(options_.problems(), "");
  EXPECT_EQ(options_.config().properties,
            (std::vector<Property>{
                {"linger.ms", "5"}, {"socket.keepalive.enable", "false"}, {"client.id", "x"}}));
}

TEST_F(KafkaConfigTest, DottedKeysOfTomlAreTheSame) {
  Table max{.entries = {{"ms", Value{std::int64_t{700}, {"kafka.toml", 6}}}}};
  Table backoff{.entries = {{"max", Value{max, {"kafka.toml", 6}}}}};
  Table reconnect{.entries = {{"backoff", Value{backoff, {"kafka.toml", 6}}}}};
  options_.property("reconnect", reconnect);
  EXPECT_EQ(options_.problems(), "");
  EXPECT_EQ(options_.config().properties,
            (std::vector<Property>{{"reconnect.backoff.max.ms", "700"}}));
}

TEST_F(KafkaConfigTest, WhatLibrdkafkaDoesNotKnowIsAnErrorAtItsLineWithItsWords) {
  options_.property("linger.mss", 5)
      .property("linger.ms", -7)
      .property("compression.level", "much");
  const std::string text = options_.problems();
  EXPECT_THAT(
      text,
      HasSubstr(
          "kafka.toml:5: sink.kafka.librdkafka.linger.mss: librdkafka " +
          std::string(rd_kafka_version_str()) +
          " says: No such configuration property: \"linger.mss\"; did you mean \"linger.ms\"?"));
  EXPECT_THAT(text, HasSubstr("kafka.toml:6: sink.kafka.librdkafka.linger.ms: librdkafka"));
  EXPECT_THAT(text, HasSubstr("kafka.toml:7: sink.kafka.librdkafka.compression.level: librdkafka"));
}

TEST_F(KafkaConfigTest, WhatWouldBreakThePromiseIsRefusedByName) {
  const std::vector<std::pair<std::string, Value>> bad = {
      {"acks", {std::int64_t{1}, {}}},
      {"acks", {std::int64_t{0}, {}}},
      {"request.required.acks", {std::string("1"), {}}},
      {"message.timeout.ms", {std::int64_t{5000}, {}}},
      {"delivery.timeout.ms", {std::int64_t{5000}, {}}},
      {"retries", {std::int64_t{3}, {}}},
      {"message.send.max.retries", {std::int64_t{0}, {}}},
      {"delivery.report.only.error", {true, {}}},
      {"queuing.strategy", {std::string("lifo"), {}}},
      {"transactional.id", {std::string("x"), {}}},
      {"enabled_events", {std::int64_t{1}, {}}},
      {"plugin.library.paths", {std::string("x.so"), {}}},
  };
  for (const auto& [name, value] : bad) {
    test::ConfigBuilder options;
    options.set("brokers", "b1").set("topic", "jobs").property(name, value.data);
    EXPECT_THAT(options.problems(), StartsWith("kafka.toml:5: sink.kafka.librdkafka." + name +
                                               ": would break the promise: "))
        << name;
  }
}

TEST_F(KafkaConfigTest, TheirHarmlessValuesAreTaken) {
  options_.property("acks", "all")
      .property("message.timeout.ms", 0)
      .property("queuing.strategy", "fifo");
  EXPECT_EQ(options_.problems(), "");
  test::ConfigBuilder number;
  number.set("brokers", "b1").set("topic", "jobs").property("acks", -1);
  EXPECT_EQ(number.problems(), "");
}

TEST_F(KafkaConfigTest, WhatHasAnOptionOfItsOwnNamesIt) {
  options_.property("bootstrap.servers", "b2")
      .property("enable.idempotence", "false")
      .property("security.protocol", "ssl");
  const std::string text = options_.problems();
  EXPECT_THAT(text,
              HasSubstr("librdkafka.bootstrap.servers: has an option of its own: use brokers"));
  EXPECT_THAT(
      text,
      HasSubstr("librdkafka.enable.idempotence: has an option of its own: use enable_idempotence"));
  EXPECT_THAT(
      text,
      HasSubstr("librdkafka.security.protocol: has an option of its own: use security_protocol"));
}

TEST_F(KafkaConfigTest, APropertyIsNoListAndTheTableIsATable) {
  options_.property("linger.ms", std::vector<Value>{{std::int64_t{5}, {}}});
  EXPECT_THAT(options_.problems(),
              HasSubstr("kafka.toml:5: sink.kafka.librdkafka.linger.ms: wrong type"));
  test::ConfigBuilder text;
  text.set("brokers", "b1").set("topic", "jobs").set("librdkafka", "linger.ms=5");
  EXPECT_THAT(text.problems(),
              HasSubstr("kafka.toml:4: sink.kafka.librdkafka: wrong type; allowed: a table"));
}

TEST_F(KafkaConfigTest, SecretPropertiesNameFiles) {
  options_.property("ssl.keystore.password", std::string("/etc/p"), "librdkafka_secret_files");
  EXPECT_EQ(options_.problems(), "");
  EXPECT_EQ(options_.config().secret_properties,
            (std::vector<Property>{{"ssl.keystore.password", "/etc/p"}}));
  options_.property("ssl.keystore.pasword", std::string("/etc/p"), "librdkafka_secret_files");
  options_.property("sasl.password", std::string("/etc/p"), "librdkafka_secret_files");
  const std::string text = options_.problems();
  EXPECT_THAT(text, HasSubstr("No such configuration property"));
  EXPECT_THAT(text, HasSubstr("use sasl_password_file"));
}

TEST_F(KafkaConfigTest, EveryOptionHasHelpAndNoDefaultThatIsNothing) {
  for (const OptionInfo& info : options()) {
    EXPECT_FALSE(info.help.empty()) << info.name;
    EXPECT_NE(info.default_value, "\"\"") << info.name;
  }
}

}  // namespace
}  // namespace scriptorium::kafka
