#include "core/delivery/dispatcher.h"

#include <algorithm>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/fault_point.h"
#include "core/base/guarded.h"
#include "core/base/text.h"
#include "core/base/thread_name.h"
#include "core/delivery/plan.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {

using delivery::BackOff;
using delivery::BatchLimits;
using delivery::CursorTrack;
using delivery::Decision;
using delivery::ReasonCounts;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

namespace {

// Parked events that wait here for their next attempt. Beyond this they wait in the journal alone
// and are fetched when half of the room is free.
constexpr std::size_t kHeldEvents = 10'000;
constexpr std::uint64_t kHeldBytes = 4U << 20;
constexpr std::size_t kFetchedEvents = 512;  // in one step
// A full batch that was refused as a whole this often is parked: if it is refused for what is in
// it, those behind it go on.
constexpr std::uint32_t kRefusalsUntilParked = 10;
constexpr std::size_t kMostUnderWay = 16;  // batches, whatever a sink asks for
constexpr seconds kJournalPause{1};
constexpr seconds kRefillPause{30};
constexpr minutes kDownRepeat{10};
constexpr std::size_t kReasonLimit = 1000;  // of a dead letter's reason, bytes
constexpr const char* kCrashedReason =
    "plugin crashed: the daemon died again and again while the sink had this event alone in hand";

struct Pending {
  std::uint64_t sequence = 0;
  std::shared_ptr<const Event> event;  // null: damaged, the journal has made it a dead letter
  std::uint32_t attempts = 0;
  Timestamp first_attempt;   // zero: was not attempted by this process
  std::uint32_t throws = 0;  // of the plugin, with this event alone
  bool alone = false;
  bool suspect = false;  // of killing the process: never together with others
  bool parked = false;   // the cursor has passed it

  std::uint64_t bytes() const { return event ? event->bytes_size() : 0; }
};

struct Batch {
  std::vector<Pending> items;      // in the journal's order
  std::uint32_t refusals = 0;      // as a whole
  std::uint64_t accepts_seen = 0;  // State::accepts at the last refusal
  bool full = false;               // the event after it did not fit
  bool probe = false;              // went through the closed gate
  bool withheld = false;           // guilty of a crash: the destination never saw it
  // Its place among batches that are to be handed over in order; nothing if there is none to keep.
  std::optional<std::uint64_t> turn;

  bool empty() const { return items.empty(); }
  bool fresh() const { return !items.empty() && !items.front().parked && !items.front().alone; }
  bool suspect() const { return !items.empty() && items.front().suspect; }
};

// Collects the settlements of one batch. Shared with its deliveries, so that one that is settled
// after we gave up meets no dead object.
class BatchSettler : public Settler {
 public:
  explicit BatchSettler(std::size_t size) {
    inner_.with([&](Inner& inner) {
      inner.slots.resize(size);
      inner.left = size;
    });
  }

  void settled(Settlement settlement) noexcept override {
    const std::size_t left = inner_.with([&](Inner& inner) {
      auto& slot = inner.slots.at(settlement.token);
      if (!slot) {
        slot = std::move(settlement);
        --inner.left;
      }
      return inner.left;
    });
    if (left == 0) {
      inner_.with_notify([](Inner&) {});
    } else {
      FAULT_POINT("delivery.between_settles");
    }
  }

  // False: given up before all were settled.
  bool wait(const std::stop_token& give_up) {
    return inner_.wait(give_up, [](const Inner& inner) { return inner.left == 0; });
  }
  // Once wait() was true.
  std::vector<Settlement> take() {
    return inner_.with([](Inner& inner) {
      std::vector<Settlement> all;
      all.reserve(inner.slots.size());
      for (auto& slot : inner.slots) all.push_back(std::move(*slot));
      return all;
    });
  }

 private:
  struct Inner {
    std::vector<std::optional<Settlement>> slots;
    std::size_t left = 0;
  };
  Guarded<Inner> inner_;
};

// What is known of a parked event, so that fetching parked ones from the journal brings none of
// them twice.
struct Known {
  enum class Where { kHeld, kInHand, kSettled } where = Where::kHeld;
  std::uint64_t epoch = 0;  // kSettled: of the refill before which it was told to the journal
};

struct State {
  State(milliseconds retry_max, std::uint64_t seed) : back_off(retry_max, seed) {}

  // Reading. One worker at a time reads or waits at the journal.
  bool reading = false;
  std::uint64_t position = 0;  // everything up to here was read
  CursorTrack track{0};
  std::uint64_t cursor_told = 0;

  // Handing over in order, if that is asked for.
  std::set<std::uint64_t>
      turns;  // of batches that were read and are not handed over, or are to be once more
  bool handing_over = false;
  // Suspects go out with nothing else in hand.
  bool suspect_out = false;
  std::size_t suspects_waiting = 0;

  // Parked events.
  std::multimap<SteadyTime, Pending> held;  // by when they are due
  std::uint64_t held_bytes = 0;
  std::map<std::uint64_t, Known> known;
  std::uint64_t epoch = 1;
  std::uint64_t generation = 0;
  bool more_parked = true;  // the journal may have some that are not held
  std::uint64_t overflows = 0;
  SteadyTime refill_at;

  // The gate: while the destination is down, one batch at a time tries it.
  bool down = false;
  bool probing = false;
  std::uint32_t failures = 0;
  std::uint64_t accepts = 0;  // batches of which the destination took or rejected something
  SteadyTime retry_at;
  bool announced = false;
  SteadyTime announce_at;
  BackOff back_off;

  // What status() says.
  ReasonCounts retries;
  std::uint64_t acknowledged = 0;
  std::uint64_t rejected = 0;
  std::uint64_t attempts = 0;
  std::uint64_t in_flight = 0;
  Histogram latency;
  std::optional<std::string> last_error;
  std::optional<Timestamp> last_success;

  // Starting and stopping.
  std::stop_source interrupt;  // ends one wait at the journal; replaced each time
  std::uint64_t pokes = 0;
  bool stopping = false;
  std::size_t delivering = 0;  // workers inside Sink::deliver()
  bool sink_stopped = false;

  void hold(SteadyTime due, Pending item) {
    if (held.size() >= kHeldEvents || (!held.empty() && held_bytes + item.bytes() > kHeldBytes)) {
      known.erase(item.sequence);
      more_parked = true;
      ++overflows;
      return;
    }
    known[item.sequence] = {.where = Known::Where::kHeld};
    held_bytes += item.bytes();
    held.emplace(due, std::move(item));
  }
};

}  // namespace

// Locks: state_, and a BatchSettler's own; never both at once, and nothing is called or logged
// under either.
class Dispatcher::Impl {
 public:
  Impl(std::string name, const SinkConfig& config, Sink& sink, Journal& journal, Journal::SinkId id,
       Logger& log, const Clock& clock, std::uint64_t seed, CrashRecord* crashes)
      : name_(std::move(name)),
        config_(config),
        sink_(sink),
        journal_(journal),
        id_(id),
        log_(log),
        clock_(clock),
        crashes_(crashes),
        state_(State(milliseconds(config.retry_max_ms), seed)) {}

  ~Impl() {
    begin_stop();
    give_up_.request_stop();
  }

  void start() {
    const std::uint64_t cursor = journal_.cursor(id_);
    std::size_t count = static_cast<std::size_t>(std::max<std::int64_t>(config_.workers, 1));
    if (count == 1) {
      if (auto thrown = call_plugin([&] {
            count = std::clamp<std::size_t>(sink_.batches_under_way(), 1, kMostUnderWay);
          })) {
        log_.warning(
            "PLUGIN_THREW",
            "a sink threw an exception; nothing is lost, and its plugin should be repaired",
            {{"sink", name_}, {"call", "batches_under_way"}, {"what", *thrown}});
      }
      under_way_ = count;
    }
    state_.with([&](State& s) {
      s.position = cursor;
      s.track = CursorTrack(cursor);
      s.cursor_told = cursor;
    });
    workers_.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
      workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }

  bool stop(SteadyTime deadline) {
    begin_stop();
    const std::stop_token never;
    // Sink::stop() must come after the last deliver().
    if (!state_.wait_until(never, deadline, [](const State& s) { return s.delivering == 0; })) {
      log_.error("SINK_HANGS",
                 "a sink did not come back from a call in time; its events stay in the journal, "
                 "and the process must end",
                 {{"sink", name_}, {"call", "deliver"}});
      return false;
    }
    if (!stopper_.joinable()) {
      // A sink that takes all of the time that it was given must not look as if it hung.
      const auto left = std::max(deadline - clock_.steady(), SteadyTime::duration::zero());
      const SteadyTime sink_deadline =
          deadline - std::min<SteadyTime::duration>(left / 10, milliseconds(500));
      stopper_ = std::jthread([this, sink_deadline]() { stop_sink(sink_deadline); });
    }
    if (!state_.wait_until(never, deadline, [](const State& s) { return s.sink_stopped; })) {
      log_.error("SINK_HANGS",
                 "a sink did not come back from a call in time; its events stay in the journal, "
                 "and the process must end",
                 {{"sink", name_}, {"call", "stop"}});
      return false;
    }
    give_up_.request_stop();
    workers_.clear();  // joins; nothing but the journal's short calls holds them now
    return true;
  }

  Status status() const {
    const SteadyTime now = clock_.steady();
    return state_.with([&](const State& s) {
      Status status{.retries = s.retries.counts(),
                    .acknowledged = s.acknowledged,
                    .rejected = s.rejected,
                    .attempts = s.attempts,
                    .in_flight = s.in_flight,
                    .latency = s.latency,
                    .last_error = s.last_error,
                    .last_success = s.last_success,
                    .next_attempt_in_ms = std::nullopt};
      std::optional<SteadyTime> next;
      if (s.down && !s.probing) {
        next = s.retry_at;
      } else if (!s.held.empty() && s.in_flight == 0) {
        next = s.held.begin()->first;
      }
      if (next) {
        const auto left = std::chrono::ceil<milliseconds>(*next - now);
        status.next_attempt_in_ms = std::max<std::int64_t>(left.count(), 0);
      }
      return status;
    });
  }

  bool idle() const {
    // In this order: what leaves the hands of a worker is settled in the journal first.
    if (state_.with([](const State& s) { return s.in_flight; }) != 0) return false;
    return waiting() == 0;
  }

  void wake() {
    const SteadyTime now = clock_.steady();
    std::stop_source interrupt = state_.with_notify([&](State& s) {
      s.failures = 0;
      s.retry_at = now;
      s.refill_at = now;
      std::multimap<SteadyTime, Pending> held;
      for (auto& [due, item] : s.held) held.emplace(std::min(due, now), std::move(item));
      s.held = std::move(held);
      return take_interrupt(s);
    });
    interrupt.request_stop();
  }

 private:
  static std::stop_source take_interrupt(State& s) {
    ++s.pokes;
    return std::exchange(s.interrupt, std::stop_source{});
  }
  void interrupt() {
    std::stop_source source = state_.with_notify([](State& s) { return take_interrupt(s); });
    source.request_stop();
  }

  void begin_stop() {
    state_.with_notify([](State& s) { s.stopping = true; });
    for (std::jthread& worker : workers_) worker.request_stop();
    interrupt();
  }

  void stop_sink(SteadyTime deadline) noexcept {
    if (auto thrown = call_plugin([&] { sink_.stop(deadline); })) {
      log_.warning("PLUGIN_THREW",
                   "a sink threw an exception; nothing is lost, and its plugin should be repaired",
                   {{"sink", name_}, {"call", "stop"}, {"what", *thrown}});
    }
    state_.with_notify([](State& s) { s.sink_stopped = true; });
  }

  std::uint64_t waiting() const {
    for (const Journal::SinkState& sink : journal_.usage().sinks) {
      if (sink.name == name_) return sink.waiting;
    }
    return 0;
  }

  // ---- a worker
  // ----------------------------------------------------------------------------------------------

  void work(const std::stop_token& stop) noexcept {
    name_thread("sink", name_);
    const CrashRecord::SignalStack signal_stack;
    Batch batch;
    bool parked_last = false;
    while (!stop.stop_requested()) {
      if (batch.empty()) {
        batch = next_batch(stop, parked_last);
        if (batch.empty()) continue;
        parked_last = batch.items.front().parked;
      }
      if (!pass_gate(stop, batch)) break;
      if (batch.refusals > 0) top_up(batch);
      batch = attempt(std::move(batch), stop);
    }
  }

  // Until this batch may be handed over; false at a stop.
  bool pass_gate(const std::stop_token& stop, Batch& batch) {
    while (!stop.stop_requested()) {
      SteadyTime until;
      std::uint64_t pokes = 0;
      // The first in order tries it, once what is under way has come back: it may be an earlier one
      // that is to be tried again.
      const auto may_try = [&](const State& s) {
        return !s.probing && (!batch.turn || (s.in_flight == 0 && *s.turns.begin() == *batch.turn));
      };
      const bool open = state_.with([&](State& s) {
        if (!s.down) return true;
        const SteadyTime now = clock_.steady();
        if (may_try(s) && now >= s.retry_at) {
          s.probing = batch.probe = true;
          return true;
        }
        until = may_try(s) ? s.retry_at : now + hours(1);
        pokes = s.pokes;
        return false;
      });
      if (open) return true;
      state_.wait_until(stop, until, [&](const State& s) {
        return s.pokes != pokes || !s.down || (may_try(s) && s.retry_at < until);
      });
    }
    return false;
  }

  // The next events for this sink; waits for some. Empty at a stop, and sometimes without one.
  Batch next_batch(const std::stop_token& stop, bool parked_last) {
    while (!stop.stop_requested()) {
      const std::uint64_t generation = journal_.parked_generation(id_);
      Batch batch;
      bool read = false;
      bool refill = false;
      std::uint64_t pokes = 0;
      SteadyTime until;
      std::stop_token interrupted;
      state_.with([&](State& s) {
        const SteadyTime now = clock_.steady();
        if (generation != s.generation) {
          s.generation = generation;
          s.more_parked = true;
          s.refill_at = now;
        }
        interrupted = s.interrupt.get_token();
        pokes = s.pokes;
        const bool due = !s.held.empty() && s.held.begin()->first <= now;
        if (due && (!parked_last || s.reading)) {
          batch = take_due(s, now);
          return;
        }
        if (!s.reading) {
          s.reading = read = true;
          refill = wants_refill(s) && now >= s.refill_at;
        }
        until = next_due(s, now);
      });
      if (!batch.empty()) return batch;
      if (!read) {
        state_.wait_until(stop, until,
                          [&](const State& s) { return s.pokes != pokes || !s.reading; });
        continue;
      }
      if (refill) fetch_parked();
      batch = read_fresh(stop, interrupted, generation);
      if (batch.empty()) {
        const bool nothing_due = state_.with([&](State& s) {
          const SteadyTime now = clock_.steady();
          until = next_due(s, now);
          return until > now;
        });
        // begin_stop() asks the thread to stop before it interrupts, so a stop is either seen here
        // or interrupts.
        if (nothing_due && !stop.stop_requested()) {
          journal_.wait(id_, state_.with([](const State& s) { return s.position; }), generation,
                        interrupted, until);
        }
        parked_last = false;
      }
      state_.with_notify([](State& s) { s.reading = false; });
      if (!batch.empty()) return batch;
    }
    return {};
  }

  static bool wants_refill(const State& s) {
    return s.more_parked && s.held.size() <= kHeldEvents / 2 && s.held_bytes <= kHeldBytes / 2;
  }
  static SteadyTime next_due(const State& s, SteadyTime now) {
    SteadyTime until = now + hours(1);
    if (!s.held.empty()) until = std::min(until, s.held.begin()->first);
    if (wants_refill(s)) until = std::min(until, s.refill_at);
    return until;
  }

  Batch take_due(State& s, SteadyTime now) const {
    Batch batch;
    BatchLimits limits = make_limits();
    while (!s.held.empty() && s.held.begin()->first <= now) {
      auto first = s.held.begin();
      const bool single = first->second.alone || first->second.suspect;
      if (single && !batch.empty()) break;
      if (!limits.add(first->second.bytes())) break;
      s.held_bytes -= first->second.bytes();
      s.known[first->second.sequence].where = Known::Where::kInHand;
      batch.items.push_back(std::move(first->second));
      s.held.erase(first);
      if (single) break;
    }
    std::sort(batch.items.begin(), batch.items.end(),
              [](const Pending& a, const Pending& b) { return a.sequence < b.sequence; });
    return batch;
  }

  BatchLimits make_limits() const {
    const auto bytes =
        static_cast<std::uint64_t>(std::max<std::int64_t>(config_.batch_max_bytes, 1));
    return BatchLimits(
        static_cast<std::uint64_t>(std::max<std::int64_t>(config_.batch_max_events, 1)),
        std::max<std::uint64_t>(bytes / under_way_, 1));
  }
  bool in_order() const { return under_way_ > 1; }

  // By the worker that has `reading`. Gives a batch the time to fill.
  Batch read_fresh(const std::stop_token& stop, const std::stop_token& interrupted,
                   std::uint64_t generation) {
    Batch batch;
    BatchLimits limits = make_limits();
    std::uint64_t after = state_.with([](const State& s) { return s.position; });
    bool done = read_more(batch, limits, after);
    if (batch.empty()) return batch;
    const SteadyTime until =
        clock_.steady() + milliseconds(std::max<std::int64_t>(config_.batch_max_ms, 0));
    while (!done && !stop.stop_requested() && !interrupted.stop_requested() &&
           clock_.steady() < until) {
      if (!journal_.wait(id_, after, generation, interrupted, until)) break;
      const std::size_t before = batch.items.size();
      done = read_more(batch, limits, after);
      if (batch.items.size() == before) break;  // there was another reason to wake
    }
    give_out(batch, 0, after);
    return batch;
  }

  // By the time it is given out, the batches before it have their turns.
  void line_up(State& s, Batch& batch) const {
    if (!in_order()) return;
    batch.turn = batch.items.front().sequence;
    s.turns.insert(*batch.turn);
  }

  // A refused batch that has room takes new events along: if it is refused for what is in it, they
  // show it.
  void top_up(Batch& batch) {
    const bool may_read = state_.with([&](State& s) {
      // What it would take along comes after what waits behind it or is under way.
      if (in_order() && (s.turns.size() > 1 || s.in_flight > 0)) return false;
      return !std::exchange(s.reading, true);
    });
    if (!may_read) return;
    BatchLimits limits = make_limits();
    for (const Pending& item : batch.items) limits.add(item.bytes());
    const std::size_t before = batch.items.size();
    std::uint64_t after = state_.with([](const State& s) { return s.position; });
    if (!batch.full) read_more(batch, limits, after);
    give_out(batch, before, after);
    state_.with_notify([](State& s) { s.reading = false; });
  }

  // Appends what comes after `after` and fits; true if there is no use in reading on.
  bool read_more(Batch& batch, BatchLimits& limits, std::uint64_t& after) {
    auto items = journal_.read(id_, after, limits.events_left(),
                               std::max<std::uint64_t>(limits.bytes_left(), 1));
    if (!items) {
      journal_failed(items.error());
      return true;
    }
    for (Journal::Item& item : *items) {
      Pending pending{
          .sequence = item.sequence, .event = std::move(item.event), .attempts = item.attempts};
      pending.suspect = is_suspect(pending);
      if ((pending.suspect && !batch.empty()) || !limits.add(pending.bytes()))
        return batch.full = true;
      after = pending.sequence;
      batch.items.push_back(std::move(pending));
      if (batch.suspect()) return batch.full = true;
    }
    return batch.full = limits.full();
  }

  bool is_suspect(const Pending& item) const {
    return crashes_ != nullptr && item.event != nullptr &&
           crashes_->verdict(name_, item.event->id) != CrashRecord::Verdict::kInnocent;
  }

  void give_out(Batch& batch, std::size_t from, std::uint64_t position) {
    state_.with([&](State& s) {
      if (from == 0) line_up(s, batch);
      for (std::size_t i = from; i < batch.items.size(); ++i)
        s.track.give_out(batch.items[i].sequence);
      s.position = position;
    });
  }

  void journal_failed(const Error& error) {
    // Of damage the journal has told already, and the daemon ends.
    if (error.kind() != ErrorKind::kCorrupt) {
      log_.error(
          "JOURNAL_READ_FAILED",
          "events cannot be read from the journal; this sink tries again, and nothing is lost",
          {{"sink", name_}, {"error", error.message()}});
    }
    const SteadyTime until = clock_.steady() + kJournalPause;
    const std::uint64_t pokes = state_.with([](const State& s) { return s.pokes; });
    state_.wait_until(std::stop_token{}, until,
                      [&](const State& s) { return s.stopping || s.pokes != pokes; });
  }

  // By the worker that has `reading`: parked events from the journal, as many as may be held.
  void fetch_parked() {
    const auto [epoch, overflows] =
        state_.with([](State& s) { return std::pair(++s.epoch, s.overflows); });
    // Until what was settled is committed, the journal would give it once more.
    if (!journal_.flush(clock_.steady() + kJournalPause)) {
      state_.with([&](State& s) { s.refill_at = clock_.steady() + kJournalPause; });
      return;
    }
    state_.with([&](State& s) {
      std::erase_if(s.known, [&](const auto& entry) {
        return entry.second.where == Known::Where::kSettled && entry.second.epoch < epoch;
      });
    });
    std::uint64_t after = 0;
    bool in_hand = false;  // something was that the journal still has
    const auto is_known = [&](std::uint64_t sequence) {
      return state_.with([&](const State& s) {
        const auto found = s.known.find(sequence);
        if (found == s.known.end()) return false;
        in_hand = in_hand || found->second.where != Known::Where::kHeld;
        return true;
      });
    };
    while (true) {
      auto items = journal_.parked(id_, kFetchedEvents, after, kHeldBytes / 2, is_known);
      if (!items) {
        state_.with([&](State& s) { s.refill_at = clock_.steady() + kJournalPause; });
        journal_failed(items.error());
        return;
      }
      std::set<std::uint64_t> suspects;
      for (const Journal::Item& item : *items) {
        if (is_suspect({.sequence = item.sequence, .event = item.event}))
          suspects.insert(item.sequence);
      }
      const bool enough = state_.with([&](State& s) {
        const SteadyTime now = clock_.steady();
        for (Journal::Item& item : *items) {
          after = item.sequence;
          if (item.event == nullptr || s.known.contains(item.sequence)) continue;
          Pending pending{.sequence = item.sequence,
                          .event = std::move(item.event),
                          .attempts = item.attempts,
                          .parked = true};
          pending.suspect = suspects.contains(item.sequence);
          s.hold(now, std::move(pending));
        }
        if (!items->empty()) return s.held.size() >= kHeldEvents || s.held_bytes >= kHeldBytes / 2;
        // Something that a worker has just settled may already have been put back by hand.
        s.more_parked = in_hand || s.overflows != overflows;
        s.refill_at = s.more_parked ? now + kRefillPause : now;
        return true;
      });
      if (enough) return;
    }
  }

  // ---- one attempt
  // -------------------------------------------------------------------------------------------

  // Hands a batch over, waits until it is settled and tells the journal. Returns it if the
  // destination refused all of it and the same events are to be tried again.
  Batch attempt(Batch batch, const std::stop_token& stop) {
    const Timestamp started = clock_.now();
    pass_over_replaced(batch);
    std::vector<Delivery> deliveries;
    std::vector<std::size_t> handed;  // index in batch.items of each delivery
    auto settler = std::make_shared<BatchSettler>(static_cast<std::size_t>(
        std::count_if(batch.items.begin(), batch.items.end(),
                      [](const Pending& p) { return p.event != nullptr; })));
    for (std::size_t i = 0; i < batch.items.size(); ++i) {
      Pending& item = batch.items[i];
      if (item.event == nullptr) continue;
      ++item.attempts;
      if (item.first_attempt == Timestamp{}) item.first_attempt = started;
      deliveries.emplace_back(item.event, item.attempts, settler, handed.size());
      handed.push_back(i);
    }
    if (handed.empty()) {
      if (batch.turn) state_.with_notify([&](State& s) { s.turns.erase(*batch.turn); });
      if (batch.probe) pass_judgement(batch.fresh(), true, false, false, {}, {});
      tell({}, sequences_of(batch));
      return {};
    }

    if (!take_turn(batch, handed.size(), stop)) {
      // Not handed over, so not to be settled: take the deliveries' settler away from what follows.
      deliveries.clear();
      return {};
    }
    batch.withheld = batch.suspect() && crashes_->verdict(name_, deliveries.front().event().id) ==
                                            CrashRecord::Verdict::kGuilty;
    std::optional<std::string> thrown;
    CrashRecord::InHand in_hand;
    if (batch.withheld) {
      deliveries.front().reject(kCrashedReason);
    } else {
      if (crashes_ != nullptr) in_hand = note_hand_over(deliveries, batch.suspect(), stop);
      if (batch.suspect() && !in_hand) {  // a stop, while another sink's suspect was in hand
        state_.with_notify([&](State& s) {
          --s.delivering;
          --s.in_flight;
          --s.attempts;
          s.handing_over = s.suspect_out = false;
        });
        deliveries.clear();
        return {};
      }
      FAULT_POINT("delivery.before_deliver");
      const CrashRecord::Inside inside(in_hand);
      thrown = call_plugin([&] { sink_.deliver(std::move(deliveries)); });
    }
    deliveries.clear();  // a plugin that threw before it took the batch
    state_.with_notify([&](State& s) {
      --s.delivering;
      s.handing_over = false;
      if (batch.turn) s.turns.erase(*batch.turn);
    });
    if (!settler->wait(give_up_.get_token())) {
      state_.with([&](State& s) {
        s.in_flight -= handed.size();
        if (batch.suspect()) s.suspect_out = false;
      });
      log_.info("DELIVERIES_LEFT",
                "a sink stopped before it settled all it had; the events stay in the journal",
                {{"sink", name_}, {"count", handed.size()}});
      return {};
    }
    in_hand.release();
    FAULT_POINT("delivery.after_deliver");
    const std::vector<Settler::Settlement> settlements = settler->take();
    log_misbehaviour(batch, handed, settlements, thrown);
    if (batch.suspect()) absolve(batch, settlements.front());
    return conclude(std::move(batch), handed, settlements, thrown, started, stop);
  }

  // Takes out those whose owner became known meanwhile: what replaces them is still to come, and is
  // all that is needed.
  void pass_over_replaced(Batch& batch) {
    std::vector<Journal::Settle> settles;
    std::vector<std::uint64_t> told;
    std::erase_if(batch.items, [&](const Pending& item) {
      if (item.event == nullptr || !journal_.is_replaced(id_, *item.event)) return false;
      settles.push_back({.sequence = item.sequence,
                         .outcome = Outcome::kAcknowledged,
                         .attempts = item.attempts});
      told.push_back(item.sequence);
      return true;
    });
    if (told.empty()) return;
    tell(std::move(settles), told);
    state_.with([&](State& s) {
      for (const std::uint64_t sequence : told) {
        if (auto found = s.known.find(sequence); found != s.known.end())
          found->second = {Known::Where::kSettled, s.epoch};
      }
    });
  }

  CrashRecord::InHand note_hand_over(const std::vector<Delivery>& deliveries, bool suspect,
                                     const std::stop_token& stop) const {
    std::vector<std::string> ids;
    ids.reserve(deliveries.size());
    for (const Delivery& delivery : deliveries) ids.push_back(delivery.event().id);
    return crashes_->hand_over(name_, ids, suspect, stop);
  }

  // What came to an end without a crash is no suspect any more; what is to be tried again stays
  // one.
  void absolve(const Batch& batch, const Settler::Settlement& settlement) const {
    if (settlement.outcome != Outcome::kRetry)
      crashes_->settled(name_, batch.items.front().event->id);
  }

  // Until this batch may be handed over; false at a stop.
  bool take_turn(const Batch& batch, std::size_t events, const std::stop_token& stop) {
    bool taken = false;
    const bool suspect = batch.suspect();
    if (suspect) state_.with([](State& s) { ++s.suspects_waiting; });
    state_.wait(stop, [&](State& s) {
      if (taken || s.stopping) return true;
      if (in_order() && (s.handing_over || (batch.turn && *s.turns.begin() != *batch.turn)))
        return false;
      if (s.suspect_out || (suspect && s.in_flight > 0)) return false;
      // Else workers that take turns could keep it waiting; where there is an order, nothing goes
      // out before its time anyway.
      if (!suspect && !in_order() && s.suspects_waiting > 0) return false;
      s.suspect_out = suspect;
      s.handing_over = true;
      ++s.delivering;
      s.in_flight += events;
      s.attempts += events;
      return taken = true;
    });
    if (suspect) state_.with_notify([](State& s) { --s.suspects_waiting; });
    return taken;
  }

  void log_misbehaviour(const Batch& batch, const std::vector<std::size_t>& handed,
                        const std::vector<Settler::Settlement>& settlements,
                        const std::optional<std::string>& thrown) {
    if (thrown) {
      log_.warning(
          "PLUGIN_THREW",
          "a sink threw an exception; what it had not settled is tried again, one by one",
          {{"sink", name_}, {"call", "deliver"}, {"what", *thrown}, {"batch", handed.size()}});
      return;
    }
    const auto dropped = std::count_if(settlements.begin(), settlements.end(),
                                       [](const auto& s) { return s.by_destructor; });
    if (dropped == 0) return;
    const auto first = std::find_if(settlements.begin(), settlements.end(),
                                    [](const auto& s) { return s.by_destructor; });
    log_.warning("DELIVERY_UNSETTLED",
                 "a sink dropped deliveries without an answer; they are tried again, and its "
                 "plugin should be repaired",
                 {{"sink", name_},
                  {"count", dropped},
                  {"job_id", printable(batch.items[handed[first->token]].event->job.id, 64)}});
  }

  struct Parking {
    Pending item;
    std::optional<milliseconds> hint;
  };

  // What one batch's settlements lead to.
  Batch conclude(Batch batch, const std::vector<std::size_t>& handed,
                 const std::vector<Settler::Settlement>& settlements,
                 const std::optional<std::string>& thrown, Timestamp started,
                 const std::stop_token& stop) {
    const bool fresh = batch.fresh();
    const bool was_suspect = batch.suspect();
    const bool refused =
        std::all_of(settlements.begin(), settlements.end(), [&](const Settler::Settlement& s) {
          return s.outcome == Outcome::kRetry && !(thrown && s.by_destructor);
        });
    const bool useful = !batch.withheld && std::any_of(settlements.begin(), settlements.end(),
                                                       [](const Settler::Settlement& s) {
                                                         return s.outcome != Outcome::kRetry;
                                                       });
    if (refused && fresh) ++batch.refusals;
    const auto [accepts, others_wait] =
        state_.with([](const State& s) { return std::pair(s.accepts, !s.turns.empty()); });
    const bool worn_out = (batch.full || others_wait) && batch.refusals >= kRefusalsUntilParked;
    // The destination took something else since this batch was last refused: so it is not down, the
    // batch is the matter.
    const bool overtaken = batch.refusals > 1 && accepts != batch.accepts_seen;
    batch.accepts_seen = accepts;

    std::vector<std::uint32_t> throws;
    throws.reserve(handed.size());
    for (const std::size_t index : handed) throws.push_back(batch.items[index].throws);
    const std::vector<Decision> decisions = delivery::decide(
        settlements, throws,
        {.threw = thrown.has_value(), .may_keep = fresh && !worn_out && !overtaken});

    const Timestamp now = clock_.now();
    std::vector<Journal::Settle> settles;
    std::vector<std::uint64_t> told;
    std::vector<std::uint64_t> final_sequences;  // settled for good
    std::vector<Parking> parking;
    std::vector<Pending> suspects;
    std::vector<Journal::Settle> dead;
    std::vector<std::shared_ptr<const Event>> dead_events;
    std::vector<double> latencies;  // of what was acknowledged, in seconds
    Batch kept;
    kept.refusals = batch.refusals;
    kept.accepts_seen = batch.accepts_seen;
    kept.full = batch.full;
    kept.turn = batch.turn;

    for (const Pending& item : batch.items) {
      if (item.event == nullptr) told.push_back(item.sequence);
    }
    for (std::size_t i = 0; i < handed.size(); ++i) {
      Pending& item = batch.items[handed[i]];
      Journal::Settle settle{.sequence = item.sequence,
                             .attempts = item.attempts,
                             .first_attempt = item.first_attempt,
                             .last_attempt = started};
      switch (decisions[i]) {
        case Decision::kAcknowledged:
          settle.outcome = Outcome::kAcknowledged;
          latencies.push_back(
              static_cast<double>(now.nanoseconds - item.event->captured_at.nanoseconds) / 1e9);
          break;
        case Decision::kDeadLetter:
        case Decision::kThrewTooOften:
          settle.outcome = Outcome::kRejected;
          settle.reason = decisions[i] == Decision::kDeadLetter
                              ? printable(settlements[i].reason, kReasonLimit)
                              : "plugin threw: " + thrown.value_or("");
          if (settle.reason.empty()) settle.reason = "no reason given";
          dead.push_back(settle);
          dead_events.push_back(item.event);
          break;
        case Decision::kPark:
        case Decision::kParkAlone:
          settle.outcome = Outcome::kRetry;
          settle.reason = decisions[i] == Decision::kPark
                              ? printable(settlements[i].reason, kReasonLimit)
                              : "plugin threw: " + thrown.value_or("");
          item.parked = true;
          if (decisions[i] == Decision::kParkAlone) {
            ++item.throws;
            item.alone = true;
          }
          break;
        case Decision::kKeep: kept.items.push_back(std::move(item)); continue;
        case Decision::kTryAlone: suspects.push_back(std::move(item)); continue;
      }
      told.push_back(item.sequence);
      if (settle.outcome == Outcome::kRetry) {
        parking.push_back({.item = std::move(item), .hint = settlements[i].hint});
      } else {
        final_sequences.push_back(item.sequence);
      }
      settles.push_back(std::move(settle));
    }

    if (!dead.empty()) FAULT_POINT("delivery.before_dead");
    // Known before the journal can give them to a refill; held only after it was told, or another
    // worker might settle one before it is parked.
    state_.with([&](State& s) {
      for (const Parking& parked : parking)
        s.known[parked.item.sequence] = {.where = Known::Where::kInHand};
    });
    tell(std::move(settles), std::move(told));

    pass_judgement(fresh, batch.probe, refused, useful, settlements, kept);
    const bool poke = state_.with_notify([&](State& s) {
      const SteadyTime steady = clock_.steady();
      for (const std::uint64_t sequence : final_sequences) {
        if (auto found = s.known.find(sequence); found != s.known.end())
          found->second = {Known::Where::kSettled, s.epoch};
      }
      const bool was_empty = s.held.empty();
      const SteadyTime before = was_empty ? SteadyTime::max() : s.held.begin()->first;
      for (Parking& parked : parking) {
        const SteadyTime due = steady + s.back_off.next(parked.item.attempts, parked.hint);
        s.hold(due, std::move(parked.item));
      }
      count(s, settlements, thrown, now);
      for (const double seconds : latencies) s.latency.add(seconds);
      s.in_flight -= handed.size();
      if (was_suspect) s.suspect_out = false;
      return !s.held.empty() && s.held.begin()->first < before;
    });
    if (poke && config_.workers > 1)
      interrupt();  // one that waits at the journal has an older deadline

    for (std::size_t i = 0; i < dead.size(); ++i) {
      log_.error("DEAD_LETTER",
                 "an event was given up for a sink; it is kept with its reason: see `scriptorium "
                 "deadletters`",
                 {{"sink", name_},
                  {"event_id", dead_events[i]->id},
                  {"job_id", printable(dead_events[i]->job.id, 64)},
                  {"reason", dead[i].reason},
                  {"attempts", dead[i].attempts}});
    }
    for (Pending& suspect : suspects) {
      if (stop.stop_requested()) break;  // those left stay in the journal
      suspect.alone = true;
      Batch single;
      single.items.push_back(std::move(suspect));
      attempt(std::move(single), stop);
    }
    return kept;
  }

  void count(State& s, const std::vector<Settler::Settlement>& settlements,
             const std::optional<std::string>& thrown, Timestamp now) const {
    for (const Settler::Settlement& settlement : settlements) {
      switch (settlement.outcome) {
        case Outcome::kAcknowledged:
          ++s.acknowledged;
          s.last_success = now;
          break;
        case Outcome::kRejected:
          ++s.rejected;
          s.last_error = printable(settlement.reason, kReasonLimit);
          break;
        case Outcome::kRetry: {
          const bool was_thrown = thrown && settlement.by_destructor;
          const std::string reason = was_thrown ? "plugin threw: " + *thrown : settlement.reason;
          s.retries.add(reason);
          s.last_error = printable(reason, kReasonLimit);
          break;
        }
      }
    }
  }

  // Opens or closes the gate by what became of a batch, and says so. What was parked, or is tried
  // alone, may open it; its refusal closes nothing.
  void pass_judgement(bool fresh, bool probe, bool refused, bool useful,
                      const std::vector<Settler::Settlement>& settlements, const Batch& kept) {
    std::optional<milliseconds> hint;
    for (const Settler::Settlement& s : settlements) {
      if (s.hint) hint = std::max(hint.value_or(*s.hint), *s.hint);
    }
    enum class Say { kNothing, kDown, kBack } say = Say::kNothing;
    std::int64_t delay_ms = 0;
    state_.with_notify([&](State& s) {
      const SteadyTime now = clock_.steady();
      if (probe) s.probing = false;
      if (kept.turn && !kept.empty()) s.turns.insert(*kept.turn);
      if (useful) {
        ++s.accepts;
        if (!fresh && !probe) return;
        s.down = false;
        s.failures = 0;
        if (std::exchange(s.announced, false)) say = Say::kBack;
      } else if (refused && (fresh || probe)) {
        // Of several workers' batches that were under way together only the first counts as a
        // failure.
        if (!s.down || probe) {
          s.failures = std::min(s.failures + 1, 64U);
          s.retry_at = now + s.back_off.next(s.failures, hint);
        } else if (hint) {
          s.retry_at = std::max(s.retry_at, now + s.back_off.next(0, hint));
        }
        s.down = true;
        delay_ms = std::chrono::ceil<milliseconds>(s.retry_at - now).count();
        if (!s.announced || now >= s.announce_at) {
          s.announced = true;
          s.announce_at = now + kDownRepeat;
          say = Say::kDown;
        }
      } else if (probe) {
        s.retry_at = now;  // it threw on all of them: that tells nothing of the destination, so the
                           // next one tries
      }
    });
    if (say == Say::kDown) {
      log_.warning("SINK_DOWN",
                   "a destination takes nothing at present; its events wait in the journal and are "
                   "tried again",
                   {{"sink", name_},
                    {"reason", printable(settlements.front().reason, ReasonCounts::kReasonBytes)},
                    {"waiting", waiting()},
                    {"retry_in_ms", delay_ms}});
    } else if (say == Say::kBack) {
      log_.info("SINK_BACK", "a destination takes events again",
                {{"sink", name_}, {"waiting", waiting()}});
    }
  }

  static std::vector<std::uint64_t> sequences_of(const Batch& batch) {
    std::vector<std::uint64_t> sequences;
    sequences.reserve(batch.items.size());
    for (const Pending& item : batch.items) sequences.push_back(item.sequence);
    return sequences;
  }

  // Tells the journal. The cursor passes nothing whose settlement was not queued before, by
  // whichever worker.
  void tell(std::vector<Journal::Settle> settles, std::vector<std::uint64_t> sequences) {
    std::sort(sequences.begin(), sequences.end());
    const auto [cursor, news] = state_.with([&](State& s) {
      const std::uint64_t with = s.track.cursor_with(sequences);
      return std::pair(with, with > std::exchange(s.cursor_told, std::max(s.cursor_told, with)));
    });
    if (news || !settles.empty()) journal_.settle(id_, std::move(settles), cursor);
    // Two workers at once leave each other's out; who comes second says it for both.
    const auto [joint, more] = state_.with([&](State& s) {
      const std::uint64_t now = s.track.told(sequences);
      return std::pair(now, now > std::exchange(s.cursor_told, std::max(s.cursor_told, now)));
    });
    if (more) journal_.settle(id_, {}, joint);
  }

  const std::string name_;
  const SinkConfig config_;
  Sink& sink_;
  Journal& journal_;
  const Journal::SinkId id_;
  Logger& log_;
  const Clock& clock_;
  CrashRecord* const crashes_;  // null: none is kept
  Guarded<State> state_;
  std::size_t under_way_ =
      1;  // batches at once, handed over in order; 1 also with several workers, which keep none
  std::stop_source give_up_;  // on what is in flight
  std::jthread stopper_;      // in Sink::stop()
  std::vector<std::jthread> workers_;
};

Dispatcher::Dispatcher(std::string name, const SinkConfig& config, Sink& sink, Journal& journal,
                       Journal::SinkId id, Logger& log, const Clock& clock,
                       std::uint64_t jitter_seed, CrashRecord* crashes)
    : impl_(std::make_unique<Impl>(std::move(name), config, sink, journal, id, log, clock,
                                   jitter_seed, crashes)) {}
Dispatcher::~Dispatcher() = default;

void Dispatcher::start() { impl_->start(); }
bool Dispatcher::stop(SteadyTime deadline) { return impl_->stop(deadline); }
Dispatcher::Status Dispatcher::status() const { return impl_->status(); }
bool Dispatcher::idle() const { return impl_->idle(); }
void Dispatcher::wake() { impl_->wake(); }

}  // namespace scriptorium
