#include "backends/kafka/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "backends/kafka/connection.h"
#include "backends/kafka/reporter.h"
#include "backends/kafka/status.h"
#include "backends/kafka/token.h"
#include "core/base/text.h"
#include "tests/backends/kafka/config_builder.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"

namespace scriptorium::kafka {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(KafkaOutcomeTest, OnlyNoErrorIsAnAcknowledgement) {
  std::size_t count = 0;
  const rd_kafka_err_desc* all = nullptr;
  rd_kafka_get_err_descs(&all, &count);
  for (std::size_t i = 0; i < count; ++i) {
    if (all[i].name == nullptr) continue;
    const Verdict verdict = judge(all[i].code, 1);
    EXPECT_EQ(verdict.action == Action::kAcknowledge, all[i].code == RD_KAFKA_RESP_ERR_NO_ERROR)
        << all[i].name;
    EXPECT_EQ(verdict.reason.empty(), verdict.action == Action::kAcknowledge) << all[i].name;
  }
}

TEST(KafkaOutcomeTest, NothingAboutTopicRightsOrConfigurationIsEverADeadLetter) {
  for (const auto error :
       {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
        RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION,
        RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
        RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE,
        RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS,
        static_cast<rd_kafka_resp_err_t>(100)}) {
    const Verdict verdict = judge(error, 1'000'000);
    EXPECT_EQ(verdict.action, Action::kRetry) << name_of(error);
    EXPECT_EQ(verdict.hint, kSlow) << name_of(error);
    EXPECT_NE(verdict.alarm, Alarm::kNone) << name_of(error);
  }
}

TEST(KafkaOutcomeTest, WhatPassesByItselfIsTriedForEver) {
  for (const auto error :
       {RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, RD_KAFKA_RESP_ERR__TRANSPORT,
        RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, RD_KAFKA_RESP_ERR__AUTHENTICATION,
        RD_KAFKA_RESP_ERR__SSL, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,
        RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT}) {
    const Verdict verdict = judge(error, 1'000'000);
    EXPECT_EQ(verdict.action, Action::kRetry) << name_of(error);
    EXPECT_EQ(verdict.alarm, Alarm::kNone) << name_of(error);
  }
}

TEST(KafkaOutcomeTest, AProducersEndIsNoFaultOfItsMessages) {
  for (const auto error :
       {RD_KAFKA_RESP_ERR__FATAL, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
        RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        RD_KAFKA_RESP_ERR__PURGE_QUEUE, RD_KAFKA_RESP_ERR__PURGE_INFLIGHT}) {
    EXPECT_EQ(judge(error, 1'000'000).action, Action::kResend) << name_of(error);
  }
}

TEST(KafkaOutcomeTest, ReasonsAreFewEnoughToCountBy) {
  std::set<std::string> reasons;
  for (int code = -200; code < 120; ++code) {
    const Verdict verdict = judge(static_cast<rd_kafka_resp_err_t>(code), 1);
    if (!verdict.reason.starts_with("unknown answer")) reasons.insert(verdict.reason);
    EXPECT_EQ(verdict.reason, judge(static_cast<rd_kafka_resp_err_t>(code), 2).reason);
  }
  EXPECT_LT(reasons.size(), 60U);
}

// ---- connections

TEST(KafkaOutcomeTest, WithoutAKeyARefusedRecordIsTheTopicsFault) {
  const Verdict verdict = judge(RD_KAFKA_RESP_ERR_INVALID_RECORD, 1, false);
  EXPECT_EQ(verdict.action, Action::kRetry);
  EXPECT_EQ(verdict.alarm, Alarm::kRefused);
  EXPECT_THAT(verdict.reason, HasSubstr("cleanup.policy=delete"));
  EXPECT_EQ(judge(RD_KAFKA_RESP_ERR_INVALID_RECORD, 1).action, Action::kReject);
}

// What librdkafka reports of a connection that was closed while nothing was under way.
TEST(KafkaReporterTest, AnIdleConnectionThatWasClosedIsNoError) {
  test::ConfigBuilder options;
  options.set("brokers", "b1:9092").set("topic", "jobs");
  const KafkaConfig config = options.config();
  test::RecordingLogger log;
  test::FakeClock clock;
  Reporter reporter(config, "kafka", log, clock);
  Statistics statistics;
  statistics.brokers = {{.name = "b1:9092/1", .state = "UP"}};
  reporter.statistics(statistics);
  reporter.connection_error(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, "1/1 brokers are down");
  EXPECT_EQ(reporter.status().connection, Status::Connection::kIdle);
  EXPECT_EQ(log.count("KAFKA_CONNECTION"), 0U);
  EXPECT_FALSE(reporter.all_down());
  reporter.connection_error(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, "1/1 brokers are down");
  EXPECT_EQ(log.count("KAFKA_CONNECTION"), 1U) << "nor was there another one";
  EXPECT_EQ(reporter.status().connection, Status::Connection::kDown);
  reporter.acknowledged({});
  reporter.update([](Status& s) { s.in_flight = 1; });
  reporter.connection_error(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, "1/1 brokers are down");
  EXPECT_EQ(reporter.status().connection, Status::Connection::kDown) << "it was not idle";
}

class KafkaConnectionTest : public ::testing::Test {
 protected:
  static constexpr int kDebian12 = 0x020002ff;

  KafkaConnectionTest() { options_.set("brokers", "b1:9092").set("topic", "jobs"); }
  void log_in(const char* mechanism, const char* protocol = "sasl_ssl") {
    options_.set("security_protocol", protocol)
        .set("sasl_mechanism", mechanism)
        .set("sasl_username", "u")
        .set("sasl_password_file", "/p");
  }
  ConnectionProblem problem(rd_kafka_resp_err_t error, const char* text, int version = kDebian12) {
    return explain(error, text, options_.config(), version);
  }

  test::ConfigBuilder options_;
};

TEST_F(KafkaConnectionTest, AWrongPasswordIsSaidAsThat) {
  log_in("PLAIN");
  const auto said =
      problem(RD_KAFKA_RESP_ERR__AUTHENTICATION,
              "sasl_ssl://b1:9093/bootstrap: SASL authentication error: Authentication failed: "
              "Invalid username or "
              "password (after 305ms in state AUTH_REQ, 2 identical error(s) suppressed)");
  EXPECT_TRUE(said.needs_person);
  EXPECT_EQ(said.broker, "b1:9093");
  EXPECT_EQ(said.words,
            "login refused; see that sasl_username and the password in sasl_password_file are "
            "right (SASL authentication "
            "error: Authentication failed: Invalid username or password)");
}

TEST_F(KafkaConnectionTest, ScramWithAnOldLibraryIsNotBlamedOnThePassword) {
  log_in("SCRAM-SHA-512");
  const char* text =
      "sasl_ssl://b1:9093/bootstrap: SASL authentication error: Authentication failed during "
      "authentication due to "
      "invalid credentials with SASL mechanism SCRAM-SHA-512 (after 3ms in state AUTH_REQ)";
  EXPECT_THAT(problem(RD_KAFKA_RESP_ERR__AUTHENTICATION, text).words,
              AllOf(HasSubstr("Kafka 4.x, on which SCRAM never works with librdkafka 2.0.2"),
                    HasSubstr("or the password is wrong")));
  EXPECT_THAT(problem(RD_KAFKA_RESP_ERR__AUTHENTICATION, text, 0x020600ff).words,
              HasSubstr("SCRAM never works with librdkafka 2.6.0"));
  EXPECT_THAT(problem(RD_KAFKA_RESP_ERR__AUTHENTICATION, text, 0x020601ff).words,
              Not(HasSubstr("4.x")));
}

TEST_F(KafkaConnectionTest, AMechanismThatIsNotOfferedAndAListenerWithoutLogin) {
  log_in("SCRAM-SHA-256");
  EXPECT_THAT(
      problem(RD_KAFKA_RESP_ERR__AUTHENTICATION,
              "sasl_ssl://b1:9093/bootstrap: SASL SCRAM-SHA-256 mechanism handshake failed: "
              "Broker: Unsupported SASL "
              "mechanism: broker's supported mechanisms: PLAIN (after 2ms in state AUTH_HANDSHAKE)")
          .words,
      AllOf(HasSubstr("does not offer sasl_mechanism SCRAM-SHA-256"),
            HasSubstr("supported mechanisms: PLAIN")));
  EXPECT_THAT(problem(RD_KAFKA_RESP_ERR__AUTHENTICATION,
                      "sasl_plaintext://b1:9092/bootstrap: SASL handshake failed: Broker: Request "
                      "not valid in current SASL state")
                  .words,
              HasSubstr("asks for no login"));
}

TEST_F(KafkaConnectionTest, CertificatesAreExplained) {
  options_.set("tls_ca_file", "/etc/ca.pem");
  EXPECT_THAT(problem(RD_KAFKA_RESP_ERR__SSL,
                      "ssl://b1:9093/bootstrap: SSL handshake failed: error:0A000086:SSL "
                      "routines::certificate verify failed: broker "
                      "certificate could not be verified, verify that ssl.ca.location is correctly "
                      "configured (after 5ms in state "
                      "SSL_HANDSHAKE)")
                  .words,
              AllOf(HasSubstr("not signed by an authority in /etc/ca.pem"),
                    HasSubstr("another host name")));
  EXPECT_THAT(problem(RD_KAFKA_RESP_ERR__TRANSPORT,
                      "ssl://b1:9093/1: Receive failed: error: sslv3 alert bad certificate")
                  .words,
              HasSubstr("set tls_certificate_file"));
  options_.set("tls_certificate_file", "/c.pem").set("tls_key_file", "/k.pem");
  EXPECT_THAT(problem(RD_KAFKA_RESP_ERR__TRANSPORT,
                      "ssl://b1:9093/1: Receive failed: error: sslv3 alert certificate unknown")
                  .words,
              HasSubstr("does not take the client certificate"));
}

TEST_F(KafkaConnectionTest, TlsToAPlaintextPortSaysSoInEachOfItsWays) {
  options_.set("security_protocol", "ssl");
  EXPECT_THAT(
      problem(RD_KAFKA_RESP_ERR__SSL,
              "ssl://b1:9092/bootstrap: SSL handshake failed: error: unexpected eof while reading")
          .words,
      HasSubstr("does not speak TLS"));
  EXPECT_THAT(
      problem(RD_KAFKA_RESP_ERR__TRANSPORT,
              "ssl://b1:9092/bootstrap: error:0A000126:SSL routines::unexpected eof while reading")
          .words,
      HasSubstr("does not speak TLS"));
  EXPECT_THAT(problem(RD_KAFKA_RESP_ERR__TRANSPORT,
                      "ssl://b1:9092/bootstrap: SSL handshake failed: Disconnected: connecting to "
                      "a PLAINTEXT broker listener?")
                  .words,
              HasSubstr("does not speak TLS"));
  // A connection that stood, and whose broker went away.
  EXPECT_THAT(problem(RD_KAFKA_RESP_ERR__TRANSPORT,
                      "ssl://b1:9092/1: Receive failed: error:0A000126:SSL routines::unexpected "
                      "eof while reading")
                  .words,
              HasSubstr("tried again"));
}

TEST_F(KafkaConnectionTest, PlaintextToATlsPortSaysSo) {
  const auto loud = problem(
      RD_KAFKA_RESP_ERR__TRANSPORT,
      "b1:9093/bootstrap: Disconnected while requesting ApiVersion: might be caused by incorrect "
      "security.protocol configuration (connecting to a SSL listener?)");
  EXPECT_THAT(loud.words, HasSubstr("this listener speaks TLS"));
  EXPECT_TRUE(loud.needs_person);
  const auto silent = explain_silence(options_.config());
  EXPECT_THAT(silent.words, HasSubstr("set security_protocol to \"ssl\""));
  EXPECT_TRUE(silent.needs_person);
  options_.set("security_protocol", "ssl");
  EXPECT_THAT(explain_silence(options_.config()).words, Not(HasSubstr("security_protocol")));
  const auto closed = explain_silence(options_.config(), true);
  EXPECT_FALSE(closed.needs_person);
  EXPECT_THAT(closed.words, HasSubstr("socket.request.max.bytes"));
}

TEST_F(KafkaConnectionTest, ABrokerThatIsDownIsNobodysFault) {
  const auto said = problem(RD_KAFKA_RESP_ERR__TRANSPORT,
                            "b1:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection "
                            "refused (after 0ms in state CONNECT)");
  EXPECT_FALSE(said.needs_person);
  EXPECT_THAT(said.words, HasSubstr("nothing listens there"));
  EXPECT_FALSE(problem(RD_KAFKA_RESP_ERR__RESOLVE, "b1:9092/bootstrap: Failed to resolve 'b1:9092'")
                   .needs_person);
  EXPECT_EQ(problem(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, "1/1 brokers are down").words,
            "no broker can be reached");
}

TEST_F(KafkaConnectionTest, AnAddressThatABrokerAdvertisesIsNotBlamedOnTheConfiguration) {
  for (const auto& [error, text] :
       {std::pair{RD_KAFKA_RESP_ERR__TRANSPORT,
                  "localhost:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused "
                  "(after 0ms in state CONNECT)"},
        std::pair{RD_KAFKA_RESP_ERR__TRANSPORT,
                  "sasl_ssl://localhost:9092/1: Connection setup timed out in state CONNECT"},
        std::pair{RD_KAFKA_RESP_ERR__RESOLVE, "localhost:9092/1: Failed to resolve 'localhost'"}}) {
    const auto said = problem(error, text);
    EXPECT_EQ(said.broker, "localhost:9092");
    EXPECT_THAT(said.words, HasSubstr("a broker advertises this address")) << text;
  }
  const auto ours = problem(RD_KAFKA_RESP_ERR__TRANSPORT,
                            "b1:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused");
  EXPECT_THAT(ours.words, HasSubstr("nothing listens there"));
}

TEST_F(KafkaConnectionTest, TheWordsAreTheSameEachTime) {
  const auto first =
      problem(RD_KAFKA_RESP_ERR__TRANSPORT,
              "b1:1/1: Connect failed: Connection refused (after 0ms in state CONNECT)");
  const auto later = problem(RD_KAFKA_RESP_ERR__TRANSPORT,
                             "b1:1/1: Connect failed: Connection refused (after 7ms in state "
                             "CONNECT, 4 identical error(s) suppressed)");
  EXPECT_EQ(first.words, later.words);
}

// ---- tokens

std::string jwt(const std::string& claims) {
  std::string text = base64_encode(claims);
  for (char& c : text) {
    if (c == '+') c = '-';
    if (c == '/') c = '_';
  }
  text.erase(text.find_last_not_of('=') + 1);
  return "eyJhbGciOiJSUzI1NiJ9." + text + ".c2lnbmF0dXJl";
}

TEST(KafkaTokenTest, AJsonWebTokenTellsItsEndAndItsOwner) {
  const Token token = read_token(jwt(R"({"sub":"scriptorium@lab","exp":1795224999})"), Timestamp{});
  EXPECT_EQ(token.expires_at_ms, 1795224999000);
  EXPECT_EQ(token.principal, "scriptorium@lab");
}

TEST(KafkaTokenTest, OfAnythingElseNothingIsKnownAndItIsReadAgainSoon) {
  for (const std::string& text :
       {std::string("opaque"), std::string("a.b.c"), std::string(".."), jwt("[]"),
        jwt(R"({"exp":"x","sub":7})"), jwt(R"({"exp":-1})"), jwt(R"({"exp":1e300,"sub":""})")}) {
    const Token token = read_token(text, Timestamp{1'000'000'000'000});
    EXPECT_EQ(token.expires_at_ms, 1'000'000 + 300'000) << text;
    EXPECT_EQ(token.principal, "scriptorium") << text;
  }
}

// ---- statistics

TEST(KafkaStatusTest, StatisticsAreReadAndOddOnesDoNoHarm) {
  const auto read = read_statistics(
      R"({"txmsgs":7,"tx":3,"msg_cnt":2,"eos":{"idemp_state":"Assigned","epoch_cnt":1},
          "brokers":{"b1:9092/1":{"state":"UP","txretries":4,"rtt":{"p99":1500},"int_latency":{"p99":250},"source":"configured"},
                     "GroupCoordinator":{"source":"logical","txretries":9}}})");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->messages, 7);
  EXPECT_EQ(read->retries(), 4);
  ASSERT_EQ(read->brokers.size(), 1U);
  EXPECT_EQ(read->brokers[0].rtt_p99_ms, 1.5);
  EXPECT_EQ(read->idempotence_state, "Assigned");
  EXPECT_FALSE(read_statistics("nonsense"));
  EXPECT_TRUE(read_statistics(R"({"brokers":[1],"eos":7,"txmsgs":"x"})"));
}

TEST(KafkaStatusTest, TheOldestMessagesAgeIsSaid) {
  Status status;
  status.in_flight = 3;
  status.in_flight_since = SteadyTime{} + std::chrono::seconds(100);
  EXPECT_THAT(status_json(status, SteadyTime{} + std::chrono::seconds(142)),
              HasSubstr("\"oldest_in_flight_seconds\":42.0"));
}

}  // namespace
}  // namespace scriptorium::kafka
