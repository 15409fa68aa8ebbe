#include "backends/kafka/sink.h"

#include <algorithm>
#include <exception>
#include <iterator>

#include "backends/kafka/probe.h"
#include "backends/kafka/topic_setup.h"
#include "core/base/text.h"
#include "core/base/thread_name.h"

namespace scriptorium::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr milliseconds kTick{100};  // how soon a stop is seen
constexpr milliseconds kIdleTick{
    250};  // how late statistics and errors come while there is nothing to send
constexpr seconds kProbeLimit{10};       // of check()
constexpr seconds kSetupLimit{60};       // of setup(), for each topic
constexpr seconds kStopFlush{5};         // for what is under way when the end comes
constexpr seconds kLastFlush{1};         // for the reports of what was given up
constexpr minutes kRepeat{10};           // of a message whose cause lasts
constexpr seconds kCalm{60};             // without an error, until the next one is news
constexpr seconds kCredentialsLook{5};   // between two looks at the files
constexpr std::uint32_t kHandOvers = 4;  // of one delivery before core is asked to try again later
constexpr std::size_t kLeastBatch = 16 << 10;  // below this the broker's limit is not searched
constexpr std::size_t kDefaultBrokerLimit = 1'000'000;
constexpr std::size_t kLeastCut = 2048;
constexpr std::size_t kRequestFrame = 512;  // around the messages of a request

bool lacks_right(rd_kafka_resp_err_t error) {
  return judge(error, 1).alarm == Alarm::kNotAuthorized;
}

std::string size_words(std::size_t bytes) { return std::to_string(bytes) + " bytes"; }

}  // namespace

KafkaSink::KafkaSink(KafkaConfig config, const PluginContext& context)
    : config_(std::move(config)),
      name_(context.name),
      cluster_(context.cluster),
      log_(context.log),
      clock_(context.clock),
      formatter_(config_) {}

KafkaSink::~KafkaSink() { KafkaSink::stop(clock_.steady()); }

Result<std::unique_ptr<KafkaSink>> KafkaSink::create(KafkaConfig config,
                                                     const PluginContext& context) {
  if (auto readable = check_secrets(config); !readable) return readable.error();
  return std::unique_ptr<KafkaSink>(new KafkaSink(std::move(config), context));
}

// ---- core's side
// ---------------------------------------------------------------------------------------------------

Result<void> KafkaSink::check() {
  std::vector<std::string> topics;
  if (!config_.topic_template.uses("scheduler")) {
    for (const std::string& kind : config_.kinds) {
      std::string topic = formatter_.topic(cluster_, kind, "");
      if (std::ranges::find(topics, topic) == topics.end()) topics.push_back(std::move(topic));
      if (!config_.topic_template.uses("kind")) break;
    }
  }
  return probe(config_, clock_, topics, kProbeLimit);
}

Result<std::string> KafkaSink::setup(bool print) {
  std::string text;
  if (config_.topic_template.uses("scheduler") ||
      (config_.topic_template.uses("kind") && config_.kinds.empty())) {
    // Which these are is known only when events come.
    return "# one topic for each that \"" + config_.topic + "\" makes:\n" +
           create_command(config_, "TOPIC") + "\n";
  }
  std::vector<std::string> seen;
  for (const std::string& kind :
       config_.kinds.empty() ? std::vector<std::string>{"job.script"} : config_.kinds) {
    const std::string topic = formatter_.topic(cluster_, kind, "");
    if (std::ranges::find(seen, topic) != seen.end()) continue;
    seen.push_back(topic);
    if (print) {
      text += create_command(config_, topic) + "\n";
      continue;
    }
    auto done = set_up_topic(config_, clock_, topic, kSetupLimit);
    if (!done) return done.error();
    text += *done;
  }
  return text;
}

Result<void> KafkaSink::start() {
  if (thread_.joinable()) return {};
  // Makes no connection yet; what is wrong here is wrong with the configuration, and stays so.
  if (auto made = make_producer(); !made) return made.error();
  warn_of_settings();
  inbox_.with([](Inbox& inbox) {
    inbox.running = true;
    inbox.stopping = false;
  });
  stopping_ = false;
  thread_ = std::jthread([this] { run(); });
  return {};
}

void KafkaSink::deliver(std::vector<Delivery> batch) {
  constexpr std::size_t kPortion = 250'000;
  std::vector<Item> items;
  std::size_t bytes = 0;
  const auto pass_on = [&] {
    if (items.empty()) return;
    const bool running = inbox_.with_notify([&](Inbox& inbox) {
      if (!inbox.running) return false;
      std::move(items.begin(), items.end(), std::back_inserter(inbox.items));
      return true;
    });
    if (!running) {
      for (Item& item : items) item.delivery.retry("the sink is not running");
    }
    items.clear();
    bytes = 0;
  };
  for (Delivery& delivery : batch) {
    if (!formatter_.has_a_message(delivery.event())) {
      status_.with([](Status& s) { ++s.left_out; });
      delivery.acknowledge();
      continue;
    }
    Message message = formatter_.render(delivery.event());
    const std::size_t size = message.size();
    // The first of many are on their way while the others are made.
    if (bytes + size > kPortion) pass_on();
    bytes += size;
    items.push_back({.delivery = std::move(delivery), .message = std::move(message), .size = size});
  }
  pass_on();
}

void KafkaSink::stop(SteadyTime deadline) {
  if (!thread_.joinable()) {
    producer_.reset();
    return;
  }
  inbox_.with_notify([&](Inbox& inbox) {
    inbox.running = false;
    inbox.stopping = true;
    inbox.deadline = deadline;
  });
  thread_.join();
  // Of a deliver() that was still making messages.
  std::vector<Item> late = inbox_.with([](Inbox& inbox) { return std::exchange(inbox.items, {}); });
  for (Item& item : late) item.delivery.retry("stopped before the broker answered");
}

std::string KafkaSink::status_json() const {
  const std::size_t arrived = inbox_.with([](const Inbox& inbox) { return inbox.items.size(); });
  Status status = status_.with([](const Status& s) { return s; });
  status.waiting += arrived;
  return kafka::status_json(status, clock_.steady());
}

// ---- the sink's thread
// ---------------------------------------------------------------------------------------------

void KafkaSink::run() noexcept {
  name_thread("kafka", name_);
  while (wait_work()) {
    if (queue_.empty()) {
      if (producer_) producer_->poll(milliseconds(0));
      if (producer_) {
        if (const auto fatal = producer_->fatal()) give_up_producer(*fatal);
      }
      renew_if_credentials_changed();
      update_status();
      continue;
    }
    if (have_producer()) send_chunk();
    update_status();
  }
  finish();
}

bool KafkaSink::wait_work() {
  if (queue_.empty() && !stopping_) {
    inbox_.wait_until(std::stop_token{}, std::chrono::steady_clock::now() + kIdleTick,
                      [](const Inbox& inbox) { return !inbox.items.empty() || inbox.stopping; });
  }
  fetch();
  return !stopping_ || (!queue_.empty() && !time_is_up());
}

void KafkaSink::fetch() {
  std::vector<Item> items;
  const bool was_stopping = stopping_;
  inbox_.with([&](Inbox& inbox) {
    items = std::exchange(inbox.items, {});
    stopping_ = inbox.stopping;
    stop_deadline_ = inbox.deadline;
  });
  if (stopping_ && !was_stopping) stop_began_ = clock_.steady();
  std::move(items.begin(), items.end(), std::back_inserter(queue_));
}

// When sending ends, so that purging and the last reports have their time before stop()'s deadline.
SteadyTime KafkaSink::last_flush() const {
  return std::min<SteadyTime>(stop_began_ + kStopFlush,
                              stop_deadline_ - std::min<SteadyTime::duration>(
                                                   kLastFlush, (stop_deadline_ - stop_began_) / 2));
}
bool KafkaSink::time_is_up() const { return stopping_ && clock_.steady() >= last_flush(); }

bool KafkaSink::have_producer() {
  if (producer_) return true;
  const SteadyTime now = clock_.steady();
  if (now < next_producer_at_) {
    settle_all(no_producer_reason_, std::chrono::ceil<milliseconds>(next_producer_at_ - now));
    return false;
  }
  auto made = make_producer();
  if (made) return true;
  log_.error(
      "KAFKA_NO_PRODUCER",
      "no new producer can be made of this configuration; events wait, and it is tried again",
      {{"sink", name_}, {"reason", made.error().message()}});
  no_producer_reason_ = "no producer can be made; see KAFKA_NO_PRODUCER in the log";
  next_producer_at_ = now + kProducerPause;
  settle_all(no_producer_reason_, kProducerPause);
  return false;
}

Result<void> KafkaSink::make_producer() {
  credentials_ = credentials_state(config_);
  auto made = Producer::create(config_, clock_, *this, {});
  if (!made) return made.error();
  producer_ = *std::move(made);
  const auto batch =
      static_cast<std::size_t>(std::max<std::int64_t>(producer_->number("batch.size"), 1));
  chunk_bytes_ = batch > 2 * kRequestFrame ? batch - kRequestFrame : batch;
  chunk_messages_ = static_cast<std::size_t>(
      std::max<std::int64_t>(std::min(producer_->number("queue.buffering.max.messages"),
                                      producer_->number("batch.num.messages")),
                             1));
  if (producer_->number("queue.buffering.max.messages") == 0) {  // no limit
    chunk_messages_ = static_cast<std::size_t>(
        std::max<std::int64_t>(producer_->number("batch.num.messages"), 1));
  }
  trouble_ = false;
  handed_over_ = 0;
  status_.with([&](Status& s) {
    s.connection = Status::Connection::kNone;
    s.batch_limit_bytes = chunk_bytes_;
    s.statistics.reset();
  });
  return {};
}

void KafkaSink::send_chunk() {
  build_chunk();
  chunk_since_ = clock_.steady();
  hand_over();
  update_status();
  await_reports();
}

void KafkaSink::build_chunk() {
  chunk_.clear();
  ++chunk_number_;
  const std::size_t limit =
      learned_bytes_ > 0 ? std::min(learned_bytes_, chunk_bytes_) : chunk_bytes_;
  std::size_t bytes = 0;
  while (!queue_.empty() && chunk_.size() < chunk_messages_) {
    Item& next = queue_.front();
    if (!chunk_.empty() && (next.alone || bytes + next.size > limit)) break;
    bytes += next.size;
    chunk_.push_back(std::move(next));
    queue_.pop_front();
    if (chunk_.back().alone) break;
  }
}

void KafkaSink::hand_over() {
  outstanding_ = 0;
  const std::int64_t now_ms = clock_.now().nanoseconds / 1'000'000;
  for (std::size_t i = 0; i < chunk_.size(); ++i) {
    Item& item = chunk_[i];
    item.settled = item.reported = false;
    const std::uint64_t tag = (chunk_number_ << 24U) | i;
    item.error =
        producer_->send(item.message, item.time_refused ? now_ms : item.message.timestamp_ms, tag);
    if (item.error == RD_KAFKA_RESP_ERR_NO_ERROR) {
      ++item.handed_over;
      ++outstanding_;
      ++handed_over_;
      continue;
    }
    if (item.error == RD_KAFKA_RESP_ERR__QUEUE_FULL && i > 0) {
      // What is in goes first.
      std::vector<Item> rest(
          std::make_move_iterator(chunk_.begin() + static_cast<std::ptrdiff_t>(i)),
          std::make_move_iterator(chunk_.end()));
      chunk_.erase(chunk_.begin() + static_cast<std::ptrdiff_t>(i), chunk_.end());
      put_back(std::move(rest));
      return;
    }
    item.reported = true;
    if (item.error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) {
      // librdkafka's own limit: no other message had a part in it.
      std::vector<Item> again;
      too_large(item, true, again);
      item.settled = true;
      put_back(std::move(again));
    }
  }
}

void KafkaSink::await_reports() {
  while (outstanding_ > 0) {
    producer_->flush(kTick);
    if (const auto fatal = producer_->fatal()) {
      give_up_producer(*fatal);
      return;
    }
    if (outstanding_ > 0 && producer_->queued() == 0) {
      // Every message has its report in the end; this would be a bug of librdkafka, and must not
      // become a loop of ours.
      for (Item& item : chunk_) {
        if (!item.reported) item.error = RD_KAFKA_RESP_ERR__FAIL;
        item.reported = true;
      }
      outstanding_ = 0;
    }
    if (outstanding_ == 0) break;
    conclude();
    say_stalled();
    renew_if_credentials_changed();
    if (!producer_) return;
    fetch();
    update_status();
    if (time_is_up()) return;
  }
  if (const auto fatal = producer_->fatal()) {
    give_up_producer(*fatal);
    return;
  }
  conclude();
  chunk_.clear();
  if (said_stalled_) {
    log_.info("KAFKA_GOES_ON", "the brokers answer again", {{"sink", name_}});
    said_stalled_.reset();
  }
}

void KafkaSink::conclude() {
  std::vector<Item> again;
  std::size_t refused = 0;
  std::size_t refused_bytes = 0;
  if (chunk_.size() > 1) {
    for (const Item& item : chunk_) {
      if (item.settled || !item.reported || judge(item.error, 1).action != Action::kTooLarge)
        continue;
      ++refused;
      refused_bytes += item.size;
    }
  }
  if (refused > 0) {
    company_ = {.left = refused, .refused = 0, .bytes = refused_bytes};
    status_.with([](Status& s) { ++s.refused_batches; });
  }
  for (Item& item : chunk_) {
    if (!item.reported || item.settled) continue;
    if (refused > 0) item.refused_together = refused_bytes;
    conclude(item, again);
    item.settled = true;
  }
  put_back(std::move(again));
}

void KafkaSink::conclude(Item& item, std::vector<Item>& again) {
  Verdict verdict = judge(item.error, item.delivery.attempt());
  if (verdict.alarm != Alarm::kNone) sound(verdict.alarm, item.message.topic, verdict.reason);
  if (item.alone && verdict.action != Action::kTooLarge && verdict.action != Action::kResend)
    leave_company(item, false);
  switch (verdict.action) {
    case Action::kAcknowledge: acknowledge(item); break;
    case Action::kReject: item.delivery.reject(verdict.reason); break;
    case Action::kTooLarge: too_large(item, false, again); break;
    case Action::kSendNow:
      if (item.time_refused) {
        item.delivery.reject(verdict.reason + ", nor the time of sending");
      } else {
        item.time_refused = true;
        again.push_back(std::move(item));
      }
      break;
    case Action::kResend:
      if (item.handed_over < kHandOvers && !time_is_up()) {
        again.push_back(std::move(item));
        break;
      }
      [[fallthrough]];
    case Action::kQueueFull:
    case Action::kRetry: item.delivery.retry(verdict.reason, verdict.hint); break;
  }
}

void KafkaSink::acknowledge(Item& item) {
  trouble_ = false;
  // One of several brokers may be down all the while.
  if (!said_connections_.empty() && clock_.steady() - trouble_at_ > kCalm)
    said_connections_.clear();
  if (!said_alarms_.empty()) all_clear(item.message.topic);
  status_.with([&](Status& s) {
    ++s.acknowledged;
    if (!item.message.truncated.empty()) ++s.truncated;
    s.connection = Status::Connection::kUp;
    s.last_error.clear();
  });
  item.delivery.acknowledge();
}

// ---- too large
// -----------------------------------------------------------------------------------------------------

void KafkaSink::too_large(Item& item, bool by_client, std::vector<Item>& again) {
  if (!by_client && item.refused_together > 0 && !item.alone) {
    // The broker's answer is for the whole batch: which of them it means shows when each is sent
    // alone.
    item.alone = true;
    again.push_back(std::move(item));
    return;
  }
  if (item.alone) leave_company(item, true);
  cut_or_reject(item, by_client, again);
}

void KafkaSink::cut_or_reject(Item& item, bool by_client, std::vector<Item>& again) {
  const std::size_t whole = item.size;
  const std::string by = by_client
                             ? "message_max_bytes is " + std::to_string(config_.message_max_bytes)
                             : "refused by the broker";
  if (config_.oversize == Oversize::kDeadLetter) {
    item.delivery.reject("message too large: " + size_words(whole) + ", " + by);
    return;
  }
  std::size_t limit = whole > kDefaultBrokerLimit ? kDefaultBrokerLimit : whole / 2;
  if (by_client)
    limit = std::min<std::size_t>(whole - 1, static_cast<std::size_t>(config_.message_max_bytes));
  std::optional<Message> message;
  std::string problem;
  try {
    if (limit >= kLeastCut || by_client)
      message = formatter_.render_cut(item.delivery.event(), limit);
  } catch (const std::exception& e) {
    problem = printable(e.what());
  }
  if (!message) {
    item.delivery.reject("message too large: " + size_words(whole) + ", " + by +
                         ", and it cannot be cut to less" +
                         (problem.empty() ? "" : " (" + problem + ")"));
    return;
  }
  item.message = *std::move(message);
  item.size = item.message.size();
  item.alone = true;
  item.refused_together = 0;
  again.push_back(std::move(item));
}

// One of the messages that were refused together has its own answer now.
void KafkaSink::leave_company(Item& item, bool refused) {
  if (item.refused_together == 0 || company_.left == 0) return;
  item.refused_together = 0;
  --company_.left;
  if (refused) ++company_.refused;
  if (company_.left > 0 || company_.refused > 0) return;
  // None was too large: the batch was.
  const std::size_t before = company_.bytes;
  learned_bytes_ = std::max(before / 2, kLeastBatch);
  log_.warning("KAFKA_BATCH_REFUSED",
               "the broker refuses batches of this size, but none of their events; smaller ones "
               "are sent from now on: raise "
               "max.message.bytes of the topic",
               {{"sink", name_},
                {"topic", item.message.topic},
                {"refused_bytes", before},
                {"batch_bytes", learned_bytes_}});
  status_.with([&](Status& s) { s.batch_limit_bytes = std::min(learned_bytes_, chunk_bytes_); });
}

// ---- producers that are given up
// -----------------------------------------------------------------------------------

void KafkaSink::put_back(std::vector<Item> items) {
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    item->settled = item->reported = false;
    queue_.push_front(std::move(*item));
  }
}

// Ends this producer and puts back what has no final answer.
void KafkaSink::replace_producer(const std::string& reason) {
  producer_->purge();
  producer_->flush(kLastFlush);
  for (Item& item : chunk_) {
    if (!item.reported) item.error = RD_KAFKA_RESP_ERR__PURGE_INFLIGHT;
    item.reported = true;
  }
  outstanding_ = 0;
  const std::size_t before = queue_.size();
  conclude();
  producer_.reset();  // before the messages: librdkafka may still point into them
  chunk_.clear();
  const std::size_t resent = queue_.size() - before;
  status_.with([&](Status& s) {
    s.resent += resent;
    s.last_error = reason;
    s.last_error_at = clock_.now();
  });
}

void KafkaSink::give_up_producer(const Producer::Fatal& fatal) {
  const SteadyTime now = clock_.steady();
  const bool again_soon = given_up_at_ && now - *given_up_at_ < kProducerPause;
  const bool rights = lacks_right(fatal.error);
  given_up_at_ = now;
  status_.with([](Status& s) { ++s.producers_given_up; });
  const std::string reason =
      rights ? judge(fatal.error, 1).reason
             : "the producer was given up by librdkafka (" + name_of(fatal.error) + ")";
  // It may come before there is anything to send: librdkafka asks for a producer's number at once.
  if (rights) {
    const Item* waiting = !chunk_.empty()  ? &chunk_.front()
                          : queue_.empty() ? nullptr
                                           : &queue_.front();
    sound(Alarm::kNotAuthorized, waiting != nullptr ? waiting->message.topic : config_.topic,
          reason);
  }
  if (!rights) {
    log_.warning("KAFKA_FATAL",
                 "librdkafka gave its producer up; a new one is made, and what has no "
                 "acknowledgement is sent again",
                 {{"sink", name_}, {"error", name_of(fatal.error)}, {"text", fatal.text}});
  }
  replace_producer(reason);
  if (rights || again_soon) {
    no_producer_reason_ = reason;
    next_producer_at_ = now + kProducerPause;
    settle_all(reason, kProducerPause);
  }
}

void KafkaSink::renew_if_credentials_changed() {
  if (!trouble_ || !producer_) return;
  const SteadyTime now = clock_.steady();
  if (now - credentials_looked_at_ < kCredentialsLook) return;
  credentials_looked_at_ = now;
  if (credentials_state(config_) == credentials_) return;
  log_.info("KAFKA_CREDENTIALS", "a file with credentials has changed; connects anew",
            {{"sink", name_}});
  replace_producer("connects anew, as a file with credentials has changed");
}

void KafkaSink::settle_all(const std::string& reason, std::optional<milliseconds> hint) {
  for (Item& item : queue_) item.delivery.retry(reason, hint);
  queue_.clear();
}

void KafkaSink::finish() {
  if (producer_ && !chunk_.empty()) {
    producer_->purge();
    const auto left = std::chrono::floor<milliseconds>(stop_deadline_ - clock_.steady());
    producer_->flush(std::clamp<milliseconds>(left, milliseconds(50), kLastFlush));
  }
  for (Item& item : chunk_) {
    if (item.settled) continue;
    if (item.reported && item.error == RD_KAFKA_RESP_ERR_NO_ERROR) {
      acknowledge(item);
    } else {
      item.delivery.retry("stopped before the broker answered");
    }
  }
  producer_.reset();  // before the messages: librdkafka may still point into them
  chunk_.clear();
  settle_all("stopped before the broker answered", std::nullopt);
  update_status();
}

// ---- what librdkafka has to say
// --------------------------------------------------------------------------------------

void KafkaSink::on_report(std::uint64_t tag, rd_kafka_resp_err_t error) noexcept {
  const std::size_t index = tag & 0xFFFFFFU;
  if (tag >> 24U != chunk_number_ || index >= chunk_.size() || chunk_[index].reported) return;
  chunk_[index].reported = true;
  chunk_[index].error = error;
  --outstanding_;
}

void KafkaSink::on_error(rd_kafka_resp_err_t error, std::string_view text) noexcept {
  if (error == RD_KAFKA_RESP_ERR__FATAL) return;  // asked for where it can be dealt with
  const bool all = error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
  // It follows the errors of the brokers, and says no more than they did.
  const bool silent = all && !trouble_;
  ConnectionProblem problem =
      silent ? explain_silence(config_) : explain(error, text, config_, rd_kafka_version());
  status_.with([&](Status& s) {
    if (all || problem.needs_person) s.connection = Status::Connection::kDown;
    if (all && !silent) return;
    s.last_error = problem.words;
    s.last_error_at = clock_.now();
  });
  trouble_ = true;
  trouble_at_ = clock_.steady();
  if (all && !silent) return;
  if (said_connections_.size() > 100) said_connections_.clear();
  const auto [said, fresh] =
      said_connections_.try_emplace(problem.broker + " " + problem.words, trouble_at_);
  if (!fresh && trouble_at_ - said->second < kRepeat) return;
  said->second = trouble_at_;
  const Logger::Fields fields = {
      {"sink", name_},
      {"broker", problem.broker.empty() ? config_.brokers : problem.broker},
      {"reason", problem.words}};
  if (problem.needs_person) {
    log_.error("KAFKA_CONNECTION",
               "the brokers cannot be used like this; events wait until it is mended", fields);
  } else {
    log_.warning("KAFKA_BROKER_DOWN", "a broker cannot be reached; events wait until one is back",
                 fields);
  }
}

void KafkaSink::on_statistics(std::string_view json) noexcept {
  auto statistics = read_statistics(json);
  if (statistics) status_.with([&](Status& s) { s.statistics = std::move(statistics); });
}

void KafkaSink::on_log(int level, std::string_view facility, std::string_view text) noexcept {
  const Logger::Fields fields = {
      {"sink", name_}, {"facility", facility}, {"level", level}, {"text", printable(text, 600)}};
  if (facility == "CONFWARN") {
    log_.warning("KAFKA_CONFIG", "librdkafka has something to say of its configuration", fields);
  } else {
    log_.debug("KAFKA_LIBRARY", "librdkafka's log", fields);
  }
}

// ---- alarms
// --------------------------------------------------------------------------------------------------------

void KafkaSink::sound(Alarm alarm, const std::string& topic, const std::string& reason) {
  const SteadyTime now = clock_.steady();
  const auto [said, fresh] = said_alarms_.try_emplace({topic, alarm}, now);
  if (!fresh && now - said->second < kRepeat) return;
  said->second = now;
  status_.with([&](Status& s) {
    s.last_error = "topic " + topic + ": " + reason;
    s.last_error_at = clock_.now();
  });
  const Logger::Fields fields = {{"sink", name_}, {"topic", topic}, {"reason", reason}};
  switch (alarm) {
    case Alarm::kTopic:
      log_.error("KAFKA_TOPIC",
                 "the topic cannot be written to; its events wait until it is there: `scriptorium "
                 "setup kafka` prints how to make it",
                 fields);
      break;
    case Alarm::kNotAuthorized:
      log_.error(
          "KAFKA_NOT_AUTHORIZED",
          "the brokers do not let this user write; events wait until it has WRITE on the topic",
          fields);
      break;
    case Alarm::kRefused:
      log_.error("KAFKA_REFUSED",
                 "the broker's configuration does not take our messages; events wait until it "
                 "does, or ours is changed",
                 fields);
      break;
    case Alarm::kNone: break;
  }
}

void KafkaSink::all_clear(const std::string& topic) {
  const auto erased =
      std::erase_if(said_alarms_, [&](const auto& said) { return said.first.first == topic; });
  if (erased > 0)
    log_.info("KAFKA_TOPIC_BACK", "the topic takes events again",
              {{"sink", name_}, {"topic", topic}});
}

// librdkafka tries again inside, without a word, for as long as brokers answer with errors that may
// pass, or with nothing.
void KafkaSink::say_stalled() {
  const SteadyTime now = clock_.steady();
  if (now - chunk_since_ < seconds(config_.stalled_after_seconds)) return;
  if (said_stalled_ && now - *said_stalled_ < kRepeat) return;
  said_stalled_ = now;
  const Status status = status_.with([](const Status& s) { return s; });
  // What was transmitted counts each time.
  const bool retried = status.statistics && status.statistics->messages > handed_over_;
  std::string reason = status.last_error;
  if (reason.empty()) {
    reason = retried ? "the brokers answer with errors that may pass, such as too few replicas in "
                       "sync or no leader"
                     : "the broker has the messages and does not answer";
  }
  log_.warning("KAFKA_STALLED", "the brokers acknowledge nothing; events wait, and nothing is lost",
               {{"sink", name_},
                {"oldest_seconds", std::chrono::duration_cast<seconds>(now - chunk_since_).count()},
                {"in_flight", outstanding_},
                {"reason", reason}});
}

void KafkaSink::warn_of_settings() {
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

void KafkaSink::update_status() {
  const bool stalled = said_stalled_.has_value();
  status_.with([&](Status& s) {
    s.waiting = queue_.size();
    s.in_flight = outstanding_;
    s.in_flight_since = outstanding_ > 0 ? std::optional(chunk_since_) : std::nullopt;
    s.stalled = stalled;
  });
}

}  // namespace scriptorium::kafka
