#include "backends/kafka/connection.h"

#include <algorithm>

#include "core/base/ascii.h"
#include "core/base/text.h"

namespace scriptorium::kafka {
namespace {

// The release that no longer repeats the nonce of SCRAM's first message, for which Kafka 4 refuses
// a login.
constexpr int kScramRepaired = 0x02060100;

bool holds(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) { return to_lower(a) == to_lower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

// "sasl_ssl://kafka1:9093/bootstrap: SASL authentication error: ... (after 305ms in state AUTH_REQ,
// 2 identical error(s) suppressed)": the broker, and the words without what changes from time to
// time.
struct Parts {
  std::string broker;
  std::string words;
};
Parts take_apart(std::string_view text) {
  Parts parts;
  const std::size_t protocol = text.find("://");
  const std::size_t blank = text.find(' ');
  const std::size_t begin =
      protocol != std::string_view::npos && protocol < blank ? protocol + 3 : 0;
  const std::size_t end = std::min(text.find('/', begin), text.size());
  const std::size_t colon = std::min(text.find(": "), text.size());
  if (begin > 0 || (end < blank && colon < blank + 1)) {
    parts.broker = std::string(text.substr(begin, std::min(end, colon) - begin));
    text.remove_prefix(std::min(colon + 2, text.size()));
  }
  if (const std::size_t after = text.rfind(" (after "); after != std::string_view::npos)
    text = text.substr(0, after);
  parts.words = printable(text, 400);
  while (parts.words.ends_with(':') || parts.words.ends_with(' ')) parts.words.pop_back();
  return parts;
}

// Whether `broker` is one that the configuration names; the others are advertised by brokers.
bool is_configured(const std::string& broker, std::string_view brokers) {
  while (!brokers.empty()) {
    std::string one(trim(take_until(brokers, ',')));
    if (one.find(':') == std::string::npos) one += ":9092";
    if (to_lower(one) == to_lower(broker)) return true;
  }
  return false;
}

constexpr const char* kNoTls =
    "this listener does not speak TLS; set security_protocol to \"plaintext\" or "
    "\"sasl_plaintext\", or use the port of the "
    "listener with TLS";

std::string login_words(const Parts& parts, const KafkaConfig& config, int library_version) {
  if (holds(parts.words, "Failed to acquire SASL OAUTHBEARER token"))
    return "there is no token to log in with";
  if (holds(parts.words, "Unsupported SASL mechanism") || holds(parts.words, "not enabled")) {
    return "the broker does not offer sasl_mechanism " + config.sasl_mechanism +
           "; set one of those that it names";
  }
  if (holds(parts.words, "current SASL state") || holds(parts.words, "not valid in current")) {
    return "this listener asks for no login; set security_protocol to \"plaintext\" or \"ssl\" and "
           "take the sasl_ options out, "
           "or "
           "use the port of the listener with SASL";
  }
  if (config.uses_scram() && library_version < kScramRepaired) {
    return "login refused: sasl_username or the password is wrong, or the broker is a Kafka 4.x, "
           "on which SCRAM never works "
           "with librdkafka " +
           library_version_text(library_version) +
           " (older than 2.6.1: it repeats its nonce, and the broker calls that invalid "
           "credentials); with Kafka 4.x use PLAIN "
           "over TLS, a client certificate, or a newer librdkafka";
  }
  if (config.sasl_mechanism == "GSSAPI") {
    return "Kerberos login refused; try kinit with kerberos_principal and kerberos_keytab_file as "
           "the daemon's user, see that "
           "kerberos_service_name is the brokers', and that libsasl2-modules-gssapi-mit is "
           "installed (Kafka 4.0.0 takes no "
           "Kerberos login from this librdkafka)";
  }
  if (config.sasl_mechanism == "OAUTHBEARER")
    return "the broker refuses the token; see that sasl_token_file holds a valid one";
  return "login refused; see that sasl_username and the password in sasl_password_file are right";
}

std::string tls_words(const Parts& parts, const KafkaConfig& config) {
  if (holds(parts.words, "certificate verify failed") ||
      holds(parts.words, "could not be verified")) {
    return "the broker's certificate is not signed by an authority in " +
           (config.tls_ca_file.empty() ? std::string("the system's list (set tls_ca_file)")
                                       : config.tls_ca_file) +
           ", or is for another host name than the one in brokers";
  }
  if (holds(parts.words, "unexpected eof") || holds(parts.words, "wrong version number") ||
      holds(parts.words, "packet length too long")) {
    return kNoTls;
  }
  if (holds(parts.words, "alert"))
    return "the broker ends the TLS connection; it may want another client certificate";
  return "no TLS connection can be made";
}

bool is_certificate_alert(std::string_view words) {
  return holds(words, "alert bad certificate") || holds(words, "alert certificate") ||
         holds(words, "certificate required") || holds(words, "alert unknown ca") ||
         holds(words, "alert handshake failure");
}

std::string transport_words(const Parts& parts, const KafkaConfig& config, bool& needs_person) {
  needs_person = true;
  if (is_certificate_alert(parts.words)) {
    return config.tls_certificate_file.empty()
               ? "the broker wants a client certificate; set tls_certificate_file and tls_key_file"
               : "the broker does not take the client certificate in tls_certificate_file; is it "
                 "out of date, or signed by an "
                 "authority that the broker does not know?";
  }
  if (holds(parts.words, "SSL listener")) {
    return "this listener speaks TLS; set security_protocol to \"ssl\" or \"sasl_ssl\", or use the "
           "port of the listener without";
  }
  if (config.uses_tls() && holds(parts.words, "PLAINTEXT broker listener"))
    return kNoTls;  // librdkafka 2.8
  needs_person = false;
  if (holds(parts.words, "refused"))
    return "nothing listens there: the broker is down, or brokers names the wrong port";
  if (holds(parts.words, "timed out")) return "the broker does not answer";
  // A listener without TLS closes when it reads the greeting, and librdkafka may find that before
  // it calls it a failed handshake.
  if (config.uses_tls() && parts.words.starts_with("error:") &&
      holds(parts.words, "unexpected eof")) {
    return "the connection ended before TLS was agreed on: this listener does not speak TLS (then "
           "set security_protocol to "
           "\"plaintext\" or \"sasl_plaintext\", or use the port of the listener with TLS), or the "
           "broker went down just then";
  }
  return "the connection to the broker is broken; it is tried again";
}

}  // namespace

std::string library_version_text(int library_version) {
  const auto bits = static_cast<unsigned>(library_version);
  return std::to_string(bits >> 24U) + "." + std::to_string((bits >> 16U) & 0xFFU) + "." +
         std::to_string((bits >> 8U) & 0xFFU);
}

ConnectionProblem explain(rd_kafka_resp_err_t error, std::string_view text,
                          const KafkaConfig& config, int library_version) {
  const Parts parts = take_apart(text);
  ConnectionProblem problem{.words = {}, .broker = parts.broker};
  switch (error) {
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM:
    case RD_KAFKA_RESP_ERR_ILLEGAL_SASL_STATE:
      problem.needs_person = true;
      problem.words = login_words(parts, config, library_version);
      break;
    case RD_KAFKA_RESP_ERR__SSL:
      problem.needs_person = true;
      problem.words = tls_words(parts, config);
      break;
    case RD_KAFKA_RESP_ERR__TRANSPORT:
      problem.words = transport_words(parts, config, problem.needs_person);
      break;
    case RD_KAFKA_RESP_ERR__RESOLVE:
      problem.words =
          "the broker's host name is not known here; see brokers, and advertised.listeners of the "
          "broker";
      break;
    case RD_KAFKA_RESP_ERR__TIMED_OUT: problem.words = "the broker does not answer"; break;
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN: problem.words = "no broker can be reached"; break;
    default: problem.words = "librdkafka reports " + std::string(rd_kafka_err2name(error)); break;
  }
  const bool unreached = error == RD_KAFKA_RESP_ERR__RESOLVE ||
                         (error == RD_KAFKA_RESP_ERR__TRANSPORT &&
                          (holds(parts.words, "refused") || holds(parts.words, "timed out") ||
                           holds(parts.words, "unreachable")));
  if (unreached && !parts.broker.empty() && !is_configured(parts.broker, config.brokers)) {
    problem.words =
        "a broker advertises this address, and it cannot be reached from here; see "
        "its advertised.listeners";
  }
  if (!parts.words.empty() && error != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
    problem.words += " (" + parts.words + ")";
  return problem;
}

ConnectionProblem explain_silence(const KafkaConfig& config, bool answered) {
  if (answered) {
    return {.words =
                "the brokers have answered before, and now close the connection without a word: a "
                "request that is larger than their socket.request.max.bytes, or the end of a "
                "login's session (connections.max.reauth.ms); their log says which",
            .broker = {}};
  }
  ConnectionProblem problem{.words = "no broker can be reached, and none gave a reason",
                            .needs_person = !config.uses_tls()};
  if (!config.uses_tls()) {
    problem.words +=
        "; a listener that speaks TLS looks like this to a client that does not: set "
        "security_protocol to \"ssl\" or "
        "\"sasl_ssl\" if the port is one";
  }
  return problem;
}

}  // namespace scriptorium::kafka
