#include "backends/kafka/sender.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "core/base/text.h"

namespace scriptorium::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTick{100};  // how soon a stop is seen
// How late statistics and errors come while there is nothing to send.
constexpr milliseconds kIdleTick{250};
constexpr seconds kStopFlush{5};  // for what is under way when the end comes
constexpr seconds kLastFlush{1};  // for the reports of what was given up
constexpr seconds kBetweenCredentialsChecks{5};
constexpr std::uint32_t kHandOvers = 4;  // of one delivery before core is asked to try again later
constexpr std::size_t kLeastBatch = 16 << 10;  // below this the broker's limit is not searched
constexpr std::size_t kDefaultBrokerLimit = 1'000'000;
constexpr std::size_t kLeastCut = 2048;
constexpr std::size_t kRequestFrame = 512;  // around the messages of a request
constexpr const char* kStopped = "stopped before the broker answered";

bool lacks_right(rd_kafka_resp_err_t error) {
  return judge(error, 1).alarm == Alarm::kNotAuthorized;
}

std::size_t at_least_one(std::int64_t number) {
  return static_cast<std::size_t>(std::max<std::int64_t>(number, 1));
}

}  // namespace

Sender::Sender(const KafkaConfig& config, const Formatter& formatter, const Clock& clock,
               Reporter& reporter, Inbox<Item>& inbox)
    : config_(config),
      formatter_(formatter),
      clock_(clock),
      reporter_(reporter),
      inbox_(inbox),
      chunk_bytes_({.least = kLeastBatch, .most = 0}) {}

void Sender::run() noexcept {
  stopping_ = false;
  while (wait_for_work()) {
    if (queue_.empty()) {
      idle();
    } else if (have_producer()) {
      send_chunk();
    }
    update_status();
  }
  finish();
}

bool Sender::wait_for_work() {
  if (queue_.empty() && !stopping_) inbox_.wait_until(std::chrono::steady_clock::now() + kIdleTick);
  fetch();
  return !stopping_ || (!queue_.empty() && !time_is_up());
}

void Sender::idle() {
  if (producer_) producer_->poll(milliseconds(0));
  if (const auto fatal = producer_ ? producer_->fatal() : std::nullopt) producer_failed(*fatal);
  reconnect_if_credentials_changed();
}

void Sender::fetch() {
  auto [items, stop_at] = inbox_.take();
  if (stop_at && !stopping_) stop_began_ = clock_.steady();
  stopping_ = stop_at.has_value();
  if (stop_at) stop_deadline_ = *stop_at;
  std::move(items.begin(), items.end(), std::back_inserter(queue_));
}

// When sending ends, so that purging and the last reports have their time before stop()'s deadline.
SteadyTime Sender::last_flush() const {
  if (reporter_.all_down()) return stop_began_;  // nothing is under way
  return std::min<SteadyTime>(stop_began_ + kStopFlush,
                              stop_deadline_ - std::min<SteadyTime::duration>(
                                                   kLastFlush, (stop_deadline_ - stop_began_) / 2));
}
bool Sender::time_is_up() const { return stopping_ && clock_.steady() >= last_flush(); }

void Sender::update_status() {
  reporter_.update([&](Status& s) {
    s.waiting = queue_.size();
    s.in_flight = outstanding_;
    s.in_flight_since = outstanding_ > 0 ? std::optional(chunk_since_) : std::nullopt;
  });
}

// ---- one chunk after another

void Sender::send_chunk() {
  build_chunk();
  chunk_since_ = clock_.steady();
  hand_over();
  update_status();
  await_reports();
}

void Sender::build_chunk() {
  chunk_.clear();
  ++chunk_number_;
  std::size_t bytes = 0;
  while (!queue_.empty() && chunk_.size() < chunk_messages_) {
    Item& next = queue_.front();
    if (!chunk_.empty() && (next.alone || bytes + next.size > chunk_bytes_.value())) break;
    bytes += next.size;
    chunk_.push_back(std::move(next));
    queue_.pop_front();
    if (chunk_.back().alone) break;
  }
}

void Sender::hand_over() {
  outstanding_ = 0;
  const std::int64_t now_ms = clock_.now().nanoseconds / 1'000'000;
  for (std::size_t i = 0; i < chunk_.size(); ++i) {
    if (hand_over(i, now_ms)) continue;
    // librdkafka's queue is full: what is in it goes first.
    const auto rest = chunk_.begin() + static_cast<std::ptrdiff_t>(i);
    std::vector<Item> later(std::make_move_iterator(rest), std::make_move_iterator(chunk_.end()));
    chunk_.erase(rest, chunk_.end());
    return requeue(std::move(later));
  }
}

// False: there is no room for it now, but there will be.
bool Sender::hand_over(std::size_t index, std::int64_t now_ms) {
  Item& item = chunk_[index];
  item.settled = item.reported = false;
  const std::uint64_t tag = (chunk_number_ << 24U) | index;
  item.error =
      producer_->send(item.message, item.time_refused ? now_ms : item.message.timestamp_ms, tag);
  if (item.error == RD_KAFKA_RESP_ERR_NO_ERROR) {
    ++item.handed_over;
    ++outstanding_;
    ++handed_over_;
    return true;
  }
  if (item.error == RD_KAFKA_RESP_ERR__QUEUE_FULL && index > 0) return false;
  item.reported = true;
  if (item.error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) {
    // librdkafka's own limit: no other message had a part in it.
    std::vector<Item> again;
    too_large(item, true, again);
    item.settled = true;
    requeue(std::move(again));
  }
  return true;
}

void Sender::await_reports() {
  while (outstanding_ > 0) {
    producer_->flush(kTick);
    if (const auto fatal = producer_->fatal()) return producer_failed(*fatal);
    if (outstanding_ > 0 && producer_->queued() == 0) give_up_reports();
    if (outstanding_ == 0) break;
    conclude();
    reporter_.unanswered(chunk_since_, outstanding_, handed_over_);
    reconnect_if_credentials_changed();
    if (!producer_) return;
    fetch();
    update_status();
    if (time_is_up()) return;
  }
  if (const auto fatal = producer_->fatal()) return producer_failed(*fatal);
  conclude();
  chunk_.clear();
  reporter_.answered();
}

// Every message has its report in the end, unless librdkafka has a bug, which must not become an
// endless loop here.
void Sender::give_up_reports() {
  for (Item& item : chunk_) {
    if (!item.reported) item.error = RD_KAFKA_RESP_ERR__FAIL;
    item.reported = true;
  }
  outstanding_ = 0;
}

void Sender::conclude() {
  if (chunk_.size() > 1) note_refused_batch();
  std::vector<Item> again;
  for (Item& item : chunk_) {
    if (!item.reported || item.settled) continue;
    conclude(item, again);
    item.settled = true;
  }
  requeue(std::move(again));
}

void Sender::note_refused_batch() {
  const auto refused = [](const Item& item) {
    return !item.settled && item.reported && judge(item.error, 1).action == Action::kTooLarge;
  };
  RefusedBatch batch;
  for (const Item& item : chunk_) {
    if (!refused(item)) continue;
    ++batch.unanswered;
    batch.bytes += item.size;
  }
  if (batch.unanswered == 0) return;
  for (Item& item : chunk_) {
    if (item.reported && !item.settled) item.refused_together = batch.bytes;
  }
  refused_ = batch;
  reporter_.update([](Status& s) { ++s.refused_batches; });
}

void Sender::conclude(Item& item, std::vector<Item>& again) {
  const Verdict verdict = judge(item.error, item.delivery.attempt(), item.message.key.has_value());
  if (verdict.alarm != Alarm::kNone)
    reporter_.alarm(verdict.alarm, item.message.topic, verdict.reason);
  if (item.alone && verdict.action != Action::kTooLarge && verdict.action != Action::kResend)
    answered_alone(item, false);
  switch (verdict.action) {
    case Action::kAcknowledge:
      reporter_.acknowledged(item.message);
      if (!suspects_.empty()) {
        ++taken_[item.message.topic];
        suspects_.erase(item.delivery.event().id);
      }
      return item.delivery.acknowledge();
    case Action::kReject: return refused(item, verdict.reason, again);
    case Action::kTooLarge: return too_large(item, false, again);
    case Action::kSendNow:
      if (item.time_refused)
        return item.delivery.reject(verdict.reason + ", nor the time of sending");
      item.time_refused = true;
      return again.push_back(std::move(item));
    case Action::kResend:
      if (item.handed_over < kHandOvers && !time_is_up()) return again.push_back(std::move(item));
      [[fallthrough]];
    case Action::kQueueFull:
    case Action::kRetry: return item.delivery.retry(verdict.reason, verdict.hint);
  }
}

void Sender::requeue(std::vector<Item> items) {
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    item->settled = item->reported = false;
    queue_.push_front(std::move(*item));
  }
}

// ---- refused

// The broker's answer is for a batch, and may be for all that comes to the topic, by a rule of its
// own: the event is at fault if it is refused alone and the topic takes others meanwhile.
void Sender::refused(Item& item, const std::string& reason, std::vector<Item>& again) {
  constexpr std::size_t kMostSuspects = 10'000;
  if (suspects_.size() >= kMostSuspects) suspects_.clear();
  const std::uint64_t taken = taken_[item.message.topic];
  const auto suspect = suspects_.try_emplace(item.delivery.event().id, taken).first;
  if (chunk_.size() > 1) {
    item.alone = true;
    return again.push_back(std::move(item));
  }
  if (suspect->second == taken) return hold(item, reason);
  suspects_.erase(suspect);
  item.delivery.reject(reason);
}

void Sender::hold(Item& item, const std::string& reason) {
  reporter_.alarm(Alarm::kRefused, item.message.topic, reason);
  item.delivery.retry(reason, kSlow);
}

// ---- too large

void Sender::too_large(Item& item, bool by_client, std::vector<Item>& again) {
  if (!by_client && item.refused_together > 0 && !item.alone) {
    // The broker's answer is for the whole batch: which message it means shows when each is sent
    // alone.
    item.alone = true;
    again.push_back(std::move(item));
    return;
  }
  if (item.alone) answered_alone(item, true);
  cut_or_reject(item, by_client, again);
}

void Sender::cut_or_reject(Item& item, bool by_client, std::vector<Item>& again) {
  const std::size_t whole = item.size;
  const std::string reason =
      "message too large: " + std::to_string(whole) + " bytes, " +
      (by_client ? "message_max_bytes is " + std::to_string(config_.message_max_bytes)
                 : "refused by the broker");
  if (config_.oversize == Oversize::kDeadLetter) return item.delivery.reject(reason);
  std::size_t limit = whole > kDefaultBrokerLimit ? kDefaultBrokerLimit : whole / 2;
  if (by_client)
    limit = std::min<std::size_t>(whole - 1, static_cast<std::size_t>(config_.message_max_bytes));
  std::optional<Message> message;
  std::string problem;
  try {
    if (limit >= kLeastCut || by_client)
      message = formatter_.render_cut(item.delivery.event(), limit);
  } catch (const std::exception& e) {
    problem = " (" + printable(e.what()) + ")";
  }
  if (!message && !by_client && whole <= kLeastMessageLimit)
    return hold(item, "the topic takes no message of " + std::to_string(whole / 1024 + 1) +
                          " KiB; raise its max.message.bytes");
  if (!message) return item.delivery.reject(reason + ", and it cannot be cut to less" + problem);
  item.message = *std::move(message);
  item.size = item.message.size();
  item.alone = true;
  item.refused_together = 0;
  again.push_back(std::move(item));
}

// One of the messages that were refused together has its own answer now.
void Sender::answered_alone(Item& item, bool too_large) {
  if (item.refused_together == 0 || refused_.unanswered == 0) return;
  item.refused_together = 0;
  --refused_.unanswered;
  if (too_large) ++refused_.too_large;
  if (refused_.unanswered > 0 || refused_.too_large > 0) return;
  // None was too large: the batch was.
  chunk_bytes_.refused(refused_.bytes);
  reporter_.batch_refused(item.message.topic, refused_.bytes, chunk_bytes_.value());
}

// ---- producers

bool Sender::have_producer() {
  if (producer_) return true;
  const SteadyTime now = clock_.steady();
  if (now < next_producer_at_) {
    settle_all(no_producer_reason_, std::chrono::ceil<milliseconds>(next_producer_at_ - now));
    return false;
  }
  const auto made = make_producer();
  if (made) return true;
  reporter_.no_producer(made.error().message());
  no_producer_reason_ = "no producer can be made; see KAFKA_NO_PRODUCER in the log";
  next_producer_at_ = now + kProducerPause;
  settle_all(no_producer_reason_, kProducerPause);
  return false;
}

Result<void> Sender::make_producer() {
  credentials_ = credentials_state(config_);
  auto made = Producer::create(config_, clock_, *this, {});
  if (!made) return made.error();
  producer_ = *std::move(made);
  const std::size_t batch = at_least_one(producer_->number("batch.size"));
  chunk_bytes_.set_most(batch > 2 * kRequestFrame ? batch - kRequestFrame : batch);
  chunk_messages_ = at_least_one(producer_->number("batch.num.messages"));
  // 0 = no limit.
  if (const auto limit = producer_->number("queue.buffering.max.messages"); limit != 0)
    chunk_messages_ = std::min(chunk_messages_, at_least_one(limit));
  handed_over_ = 0;
  reporter_.producer_made();
  reporter_.update([&](Status& s) { s.batch_limit_bytes = chunk_bytes_.value(); });
  return {};
}

// Ends this producer and queues again what has no final answer.
void Sender::replace_producer(const std::string& reason) {
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
  reporter_.producer_replaced(queue_.size() - before, reason);
}

void Sender::producer_failed(const Producer::Fatal& fatal) {
  const SteadyTime now = clock_.steady();
  const bool again_soon = given_up_at_ && now - *given_up_at_ < kProducerPause;
  const bool rights = lacks_right(fatal.error);
  given_up_at_ = now;
  reporter_.update([](Status& s) { ++s.producers_given_up; });
  const std::string reason =
      rights ? judge(fatal.error, 1).reason
             : "the producer was given up by librdkafka (" + name_of(fatal.error) + ")";
  if (rights) {
    // It may come before there is anything to send: librdkafka asks for a producer's number at
    // once.
    const Item* waiting = !chunk_.empty()  ? &chunk_.front()
                          : queue_.empty() ? nullptr
                                           : &queue_.front();
    reporter_.alarm(Alarm::kNotAuthorized,
                    waiting != nullptr ? waiting->message.topic : config_.topic, reason);
  } else {
    reporter_.producer_given_up(fatal.error, fatal.text);
  }
  replace_producer(reason);
  if (rights || again_soon) {
    no_producer_reason_ = reason;
    next_producer_at_ = now + kProducerPause;
    settle_all(reason, kProducerPause);
  }
}

void Sender::reconnect_if_credentials_changed() {
  if (!reporter_.connection_failed() || !producer_) return;
  const SteadyTime now = clock_.steady();
  if (now - credentials_checked_at_ < kBetweenCredentialsChecks) return;
  credentials_checked_at_ = now;
  if (credentials_state(config_) == credentials_) return;
  reporter_.credentials_changed();
  replace_producer("reconnecting, as a file with credentials has changed");
}

void Sender::settle_all(const std::string& reason, std::optional<milliseconds> hint) {
  for (Item& item : queue_) item.delivery.retry(reason, hint);
  queue_.clear();
}

void Sender::finish() {
  if (producer_ && !chunk_.empty()) {
    producer_->purge();
    const auto left = std::chrono::floor<milliseconds>(stop_deadline_ - clock_.steady());
    producer_->flush(std::clamp<milliseconds>(left, milliseconds(50), kLastFlush));
  }
  for (Item& item : chunk_) {
    if (item.settled) continue;
    if (item.reported && item.error == RD_KAFKA_RESP_ERR_NO_ERROR) {
      reporter_.acknowledged(item.message);
      item.delivery.acknowledge();
    } else {
      item.delivery.retry(kStopped);
    }
  }
  producer_.reset();  // before the messages: librdkafka may still point into them
  chunk_.clear();
  settle_all(kStopped, std::nullopt);
  update_status();
}

// ---- librdkafka's calls

void Sender::on_report(std::uint64_t tag, rd_kafka_resp_err_t error) noexcept {
  const std::size_t index = tag & 0xFFFFFFU;
  if (tag >> 24U != chunk_number_ || index >= chunk_.size() || chunk_[index].reported) return;
  chunk_[index].reported = true;
  chunk_[index].error = error;
  --outstanding_;
}

void Sender::on_error(rd_kafka_resp_err_t error, std::string_view text) noexcept {
  // producer_failed() handles a fatal error, where it can be handled.
  if (error != RD_KAFKA_RESP_ERR__FATAL)
    reporter_.connection_error(error, text, producer_ && producer_->was_answered());
}

void Sender::on_statistics(std::string_view json) noexcept {
  if (auto statistics = read_statistics(json)) reporter_.statistics(*std::move(statistics));
}

void Sender::on_log(int level, std::string_view facility, std::string_view text) noexcept {
  reporter_.library_line(level, facility, text);
}

}  // namespace scriptorium::kafka
