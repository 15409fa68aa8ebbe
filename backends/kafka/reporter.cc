#include "backends/kafka/reporter.h"

#include <algorithm>

#include "backends/kafka/connection.h"
#include "core/base/text.h"

namespace scriptorium::kafka {
namespace {

using std::chrono::seconds;

constexpr seconds kCalm{60};  // without an error, until the next one is news

}  // namespace

void Reporter::set_last_error(const std::string& words) {
  status_.with([&](Status& s) {
    s.last_error = words;
    s.last_error_at = clock_.now();
  });
}

void Reporter::check_settings() {
  const auto is = [&](const char* property, const char* value) {
    return config_.passed_through(property) == value;
  };
  if (config_.security_protocol == Security::kSaslPlaintext && config_.sasl_mechanism == "PLAIN") {
    log_.warning(
        "KAFKA_CLEAR_PASSWORD",
        "the password crosses the network readable for all; use security_protocol = \"sasl_ssl\"",
        {{"sink", name_}});
  }
  if (config_.uses_tls() && (is("enable.ssl.certificate.verification", "false") ||
                             is("ssl.endpoint.identification.algorithm", "none"))) {
    log_.warning("KAFKA_TLS_UNVERIFIED",
                 "the brokers' certificates are not fully verified, so anybody may pose as one",
                 {{"sink", name_}});
  }
  if (const std::string brokers = config_.passed_through("test.mock.num.brokers");
      !brokers.empty() && brokers != "0") {
    log_.warning("KAFKA_MOCK",
                 "test.mock.num.brokers is set: events go to a cluster in this process's memory, "
                 "and end with it",
                 {{"sink", name_}});
  }
}

void Reporter::producer_made() {
  connection_failed_ = all_down_ = false;
  status_.with([](Status& s) {
    s.connection = Status::Connection::kNone;
    s.statistics.reset();
  });
}

void Reporter::no_producer(const std::string& reason) {
  log_.error("KAFKA_NO_PRODUCER",
             "no new producer can be made of this configuration; events wait, and it is tried "
             "again",
             {{"sink", name_}, {"reason", reason}});
}

void Reporter::producer_given_up(rd_kafka_resp_err_t error, const std::string& text) {
  log_.warning("KAFKA_FATAL",
               "librdkafka gave its producer up; a new one is made, and what has no "
               "acknowledgement is sent again",
               {{"sink", name_}, {"error", name_of(error)}, {"text", text}});
}

void Reporter::producer_replaced(std::size_t resent, const std::string& reason) {
  status_.with([&](Status& s) { s.resent += resent; });
  set_last_error(reason);
}

void Reporter::credentials_changed() {
  log_.info("KAFKA_CREDENTIALS", "a file with credentials has changed; reconnecting",
            {{"sink", name_}});
}

void Reporter::acknowledged(const Message& message) {
  connection_failed_ = all_down_ = false;
  // One of several brokers may be down all the while.
  if (failed_at_ && clock_.steady() - *failed_at_ > kCalm) {
    connections_.forget_all();
    failed_at_.reset();
  }
  if (!alarms_.empty() && alarms_.forget(message.topic + " ")) {
    log_.info("KAFKA_TOPIC_BACK", "the topic takes events again",
              {{"sink", name_}, {"topic", message.topic}});
  }
  status_.with([&](Status& s) {
    ++s.acknowledged;
    if (!message.truncated.empty()) ++s.truncated;
    s.connection = Status::Connection::kUp;
    s.last_error.clear();
  });
}

void Reporter::alarm(Alarm alarm, const std::string& topic, const std::string& reason) {
  if (!alarms_.allows(topic + " " + std::to_string(static_cast<int>(alarm)), clock_.steady()))
    return;
  set_last_error("topic " + topic + ": " + reason);
  log_alarm(alarm, {{"sink", name_}, {"topic", topic}, {"reason", reason}});
}

void Reporter::log_alarm(Alarm alarm, const Logger::Fields& fields) {
  switch (alarm) {
    case Alarm::kTopic:
      return log_.error("KAFKA_TOPIC",
                        "the topic cannot be written to; its events wait until it is there: "
                        "`scriptorium setup kafka` prints how to make it",
                        fields);
    case Alarm::kNotAuthorized:
      return log_.error(
          "KAFKA_NOT_AUTHORIZED",
          "the brokers do not let this user write; events wait until it has WRITE on the topic",
          fields);
    case Alarm::kRefused:
      return log_.error("KAFKA_REFUSED",
                        "the broker's configuration does not take our messages; events wait until "
                        "it does, or ours is changed",
                        fields);
    case Alarm::kNone: return;
  }
}

void Reporter::batch_refused(const std::string& topic, std::size_t bytes, std::size_t limit) {
  log_.warning(
      "KAFKA_BATCH_REFUSED",
      "the broker refuses batches of this size, but none of their events; smaller ones "
      "are sent from now on: raise max.message.bytes of the topic",
      {{"sink", name_}, {"topic", topic}, {"refused_bytes", bytes}, {"batch_bytes", limit}});
  status_.with([&](Status& s) { s.batch_limit_bytes = limit; });
}

// librdkafka retries by itself, without a message, for as long as brokers answer with errors that
// may pass, or not at all.
void Reporter::unanswered(SteadyTime since, std::size_t in_flight, std::int64_t handed_over) {
  const SteadyTime now = clock_.steady();
  if (now - since < seconds(config_.stalled_after_seconds) || !stalls_.allows("", now)) return;
  const Status status = status_.with([](Status& s) {
    s.stalled = true;
    return s;
  });
  // A message that is transmitted again counts again.
  const bool retried = status.statistics && status.statistics->messages > handed_over;
  std::string reason = status.last_error;
  if (reason.empty()) {
    reason = retried ? "the brokers answer with errors that may pass, such as too few replicas in "
                       "sync or no leader"
                     : "the broker has the messages and does not answer";
  }
  log_.warning("KAFKA_STALLED", "the brokers acknowledge nothing; events wait, and nothing is lost",
               {{"sink", name_},
                {"oldest_seconds", std::chrono::duration_cast<seconds>(now - since).count()},
                {"in_flight", in_flight},
                {"reason", reason}});
}

void Reporter::answered() {
  if (!stalls_.forget_all()) return;
  status_.with([](Status& s) { s.stalled = false; });
  log_.info("KAFKA_GOES_ON", "the brokers answer again", {{"sink", name_}});
}

// A broker that is UP has answered the first request, which a listener with TLS or a login does
// not.
void Reporter::statistics(Statistics statistics) {
  const bool up = std::ranges::any_of(statistics.brokers,
                                      [](const auto& broker) { return broker.state == "UP"; });
  if (up) all_down_ = false;
  status_.with([&](Status& s) {
    s.statistics = std::move(statistics);
    if (up) s.connection = Status::Connection::kUp;
  });
}

// Brokers and load balancers close a connection that is idle for some minutes. librdkafka says no
// more of it than that no broker is left.
bool Reporter::note_idle() {
  const bool idle = status_.with([](Status& s) {
    if (s.connection != Status::Connection::kUp || s.in_flight > 0) return false;
    s.connection = Status::Connection::kIdle;
    return true;
  });
  if (idle) {
    log_.debug("KAFKA_IDLE", "an idle connection was closed; the next event opens one",
               {{"sink", name_}});
  }
  return idle;
}

void Reporter::connection_error(rd_kafka_resp_err_t error, std::string_view text, bool answered) {
  const bool all = error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
  // It follows the errors of the brokers, and says no more than they did.
  const bool silent = all && !connection_failed_;
  if (silent && note_idle()) return;
  const ConnectionProblem problem = silent ? explain_silence(config_, answered)
                                           : explain(error, text, config_, rd_kafka_version());
  if (all) all_down_ = true;
  if (all || problem.needs_person)
    status_.with([](Status& s) { s.connection = Status::Connection::kDown; });
  if (!all || silent) set_last_error(problem.words);
  connection_failed_ = true;
  failed_at_ = clock_.steady();
  if (all && !silent) return;
  if (!connections_.allows(problem.broker + " " + problem.words, *failed_at_)) return;
  const Logger::Fields fields = {
      {"sink", name_},
      {"broker", problem.broker.empty() ? config_.brokers : problem.broker},
      {"reason", problem.words}};
  if (problem.needs_person) {
    log_.error("KAFKA_CONNECTION",
               "the brokers cannot be used like this; events wait until it is repaired", fields);
  } else {
    log_.warning("KAFKA_BROKER_DOWN", "a broker cannot be reached; events wait until one is back",
                 fields);
  }
}

void Reporter::library_line(int level, std::string_view facility, std::string_view text) {
  const Logger::Fields fields = {
      {"sink", name_}, {"facility", facility}, {"level", level}, {"text", printable(text, 600)}};
  if (facility == "CONFWARN") {
    log_.warning("KAFKA_CONFIG", "librdkafka has something to say of its configuration", fields);
  } else {
    log_.debug("KAFKA_LIBRARY", "librdkafka's log", fields);
  }
}

}  // namespace scriptorium::kafka
