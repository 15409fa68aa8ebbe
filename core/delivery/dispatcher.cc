#include "core/delivery/dispatcher.h"

#include <algorithm>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/api/kit/repeat_limit.h"
#include "core/base/thread_name.h"
#include "core/delivery/batch_reader.h"
#include "core/delivery/carrier.h"
#include "core/delivery/dispatch_state.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {

using delivery::Batch;
using delivery::DispatchState;
using std::chrono::milliseconds;

namespace {

constexpr std::size_t kMostBatchesAtOnce = 16;  // whatever a sink asks for
// Before the deadline of a stop, so that a sink which takes all of its time does not seem to hang.
constexpr milliseconds kStopMargin{500};
// For what is left of a stop after the sink has stopped.
constexpr milliseconds kLeastJoinTime{500};
constexpr std::chrono::minutes kAnnounceEvery{10};

}  // namespace

class Dispatcher::Impl {
 public:
  Impl(std::string name, const SinkConfig& config, Sink& sink, Journal& journal, Journal::SinkId id,
       Logger& log, const Clock& clock, std::uint64_t seed, CrashRecord* crashes,
       StartSink start_sink)
      : context_{std::move(name),
                 config,
                 sink,
                 journal,
                 id,
                 log,
                 clock,
                 crashes,
                 {},
                 Guarded<DispatchState>(DispatchState(milliseconds(config.retry_max_ms), seed))},
        start_sink_(std::move(start_sink)),
        start_back_off_(milliseconds(config.retry_max_ms), seed + 1) {}

  ~Impl() {
    begin_stop();
    carrier_.give_up();
  }

  void start() {
    context_.state.with([](DispatchState& s) { s.starting = true; });
    first_worker_ = make_thread([this] { bring_up(); });
  }

  Result<void> await_start(SteadyTime deadline) {
    if (!wait_until(deadline, [](const DispatchState& s) { return s.ready || s.not_ready; }))
      return Error{ErrorKind::kTransient, "the sink does not come back from its start"};
    return context_.state.with([](const DispatchState& s) {
      return s.ready ? Result<void>{} : Result<void>{*s.not_ready};
    });
  }

  bool stop(SteadyTime deadline) {
    begin_stop();
    // Sink::stop() must come after start() and the last deliver().
    if (!wait_until(deadline, [](const DispatchState& s) { return !s.starting; }))
      return hangs_in("start");
    if (!wait_until(deadline,
                    [](const DispatchState& s) { return s.order.calls_under_way() == 0; }))
      return hangs_in("deliver");
    if (!stopper_.joinable()) {
      const auto left = std::max(deadline - context_.clock.steady(), SteadyTime::duration::zero());
      const SteadyTime sink_deadline =
          deadline - std::min<SteadyTime::duration>(left / 10, kStopMargin);
      stopper_ = std::jthread([this, sink_deadline]() { stop_sink(sink_deadline); });
    }
    if (!wait_until(deadline, [](const DispatchState& s) { return s.sink_stopped; }))
      return hangs_in("stop");
    carrier_.give_up();
    // Short calls of the journal hold them now, or a read from an archive.
    const SteadyTime last = std::max(deadline, context_.clock.steady() + kLeastJoinTime);
    if (!wait_until(last, [](const DispatchState& s) { return s.threads == 0; }))
      return hangs_in("read from an archive");
    workers_.clear();
    return true;
  }

  Status status() const {
    const SteadyTime now = context_.clock.steady();
    const std::optional<CallWatch::Call> call = context_.calls.oldest();
    return context_.state.with([&](const DispatchState& s) {
      const delivery::DeliveryCounters& c = s.counters;
      Status status{.ready = s.ready,
                    .not_ready = std::nullopt,
                    .call = call,
                    .retries = c.retries.counts(),
                    .acknowledged = c.acknowledged,
                    .rejected = c.rejected,
                    .attempts = c.attempts,
                    .in_flight = s.order.events_in_hand(),
                    .latency = c.latency,
                    .last_error = c.last_error,
                    .last_success = c.last_success,
                    .next_attempt_in_ms = std::nullopt};
      std::optional<SteadyTime> next;
      if (s.not_ready) {
        status.last_error = status.not_ready = s.not_ready->message();
        next = s.start_again_at;
      } else if (s.gate.awaits_probe()) {
        next = s.gate.retry_at();
      } else if (status.in_flight == 0) {
        next = s.parked.next_attempt();
      }
      if (next) {
        const auto left = std::chrono::ceil<milliseconds>(*next - now);
        status.next_attempt_in_ms = std::max<std::int64_t>(left.count(), 0);
      }
      return status;
    });
  }

  bool idle() const {
    // In this order: the journal learns of a settlement before the event leaves the worker's hands.
    const bool any_in_hand =
        context_.state.with([](const DispatchState& s) { return s.order.events_in_hand() != 0; });
    return !any_in_hand && context_.waiting_events() == 0;
  }

  void wake() {
    const SteadyTime now = context_.clock.steady();
    std::stop_source interrupt = context_.state.with_notify([&](DispatchState& s) {
      s.gate.forget_back_off(now);
      s.parked.forget_back_off(now);
      return s.take_interrupt();
    });
    interrupt.request_stop();
  }

 private:
  template <typename Ready>
  bool wait_until(SteadyTime deadline, Ready ready) {
    return context_.state.wait_until(std::stop_token{}, deadline, ready);
  }

  // Counted in `threads` until `work` returns. Throws std::system_error if no thread can be had.
  template <typename Work>
  std::jthread make_thread(Work work) {
    const auto ended = [this] {
      context_.state.with_notify([](DispatchState& s) { --s.threads; });
    };
    context_.state.with([](DispatchState& s) { ++s.threads; });
    try {
      return std::jthread([this, work, ended]() noexcept {
        name_thread("sink", context_.name);
        work();
        ended();
      });
    } catch (const std::system_error&) {
      ended();
      throw;
    }
  }

  // The first worker: starts the sink, then the other workers. So a sink that is ready delivers,
  // even if no more threads can be had.
  void bring_up() {
    const bool started = start_until_ready();
    std::size_t count = 0;
    if (started) {
      count = static_cast<std::size_t>(std::max<std::int64_t>(context_.config.workers, 1));
      if (count == 1) count = context_.batches_at_once = ask_batches_at_once();
    }
    const std::uint64_t cursor = context_.journal.cursor(context_.id);
    context_.state.with_notify([&](DispatchState& s) {
      s.position = cursor;
      s.track = delivery::CursorTrack(cursor);
      s.reported_cursor = cursor;
      s.order = delivery::HandOverOrder(context_.batches_at_once > 1);
      s.starting = false;
      s.ready = started;
      if (started) s.not_ready.reset();
    });
    if (!started) return;
    add_workers(count);
    work(stop_.get_token());
  }

  // Up to `count` with this one.
  void add_workers(std::size_t count) {
    try {
      while (workers_.size() + 1 < count)
        workers_.push_back(make_thread([this] { work(stop_.get_token()); }));
    } catch (const std::system_error& e) {
      context_.log.warning("SINK_FEWER_WORKERS",
                           "no more threads can be had, so fewer batches of a destination are "
                           "delivered at once; raise TasksMax= or LimitNPROC= of the unit",
                           {{"sink", context_.name},
                            {"workers", workers_.size() + 1},
                            {"wanted", count},
                            {"reason", e.what()}});
    }
  }

  // False: a stop was requested.
  bool start_until_ready() {
    std::uint32_t failures = 0;
    RepeatLimit said(kAnnounceEvery);
    while (!stop_.stop_requested()) {
      const Result<void> started = start_sink();
      if (started) {
        if (said.forget_all())
          context_.log.info("SINK_READY", "a destination is ready now", {{"sink", context_.name}});
        return true;
      }
      const SteadyTime now = context_.clock.steady();
      const SteadyTime again_at = now + start_back_off_.next(++failures, std::nullopt);
      const std::uint64_t interrupts = context_.state.with_notify([&](DispatchState& s) {
        s.not_ready = started.error();
        s.start_again_at = again_at;
        return s.interrupts;
      });
      if (said.allows(started.error().message(), now)) {
        context_.log.error("SINK_NOT_READY",
                           "a destination is not ready; its events wait in the journal, and it is "
                           "tried again",
                           {{"sink", context_.name}, {"reason", started.error().message()}});
      }
      context_.state.wait_until(stop_.get_token(), again_at,
                                [&](const DispatchState& s) { return s.interrupts != interrupts; });
    }
    return false;
  }

  Result<void> start_sink() {
    if (!start_sink_) return {};
    return context_.calls.during("start", context_.clock.steady(), start_sink_);
  }

  std::size_t ask_batches_at_once() {
    std::size_t count = 1;
    if (auto thrown = call_plugin([&] { count = context_.sink.batches_under_way(); }))
      log_thrown("batches_under_way", *thrown);
    return std::clamp<std::size_t>(count, 1, kMostBatchesAtOnce);
  }

  void begin_stop() {
    context_.state.with_notify([](DispatchState& s) { s.stopping = true; });
    stop_.request_stop();
    context_.interrupt();
  }

  void stop_sink(SteadyTime deadline) noexcept {
    const auto thrown = context_.calls.during("stop", context_.clock.steady(), [&] {
      return call_plugin([&] { context_.sink.stop(deadline); });
    });
    if (thrown) log_thrown("stop", *thrown);
    context_.state.with_notify([](DispatchState& s) { s.sink_stopped = true; });
  }

  void log_thrown(const char* call, const std::string& what) {
    context_.log.warning(
        "PLUGIN_THREW",
        "a sink threw an exception; nothing is lost, and its plugin should be repaired",
        {{"sink", context_.name}, {"call", call}, {"what", what}});
  }

  bool hangs_in(const char* call) {
    context_.log.error("SINK_HANGS",
                       "a sink did not come back from a call in time; its events stay in the "
                       "journal, and the process must end",
                       {{"sink", context_.name}, {"call", call}});
    return false;
  }

  void work(const std::stop_token& stop) noexcept {
    const CrashRecord::SignalStack signal_stack;
    Batch batch;
    bool after_parked = false;
    while (!stop.stop_requested()) {
      if (batch.empty()) {
        batch = reader_.next(stop, after_parked);
        if (batch.empty()) continue;
        after_parked = batch.events.front().is_parked;
      }
      if (!pass_gate(batch, stop)) break;
      if (batch.refusals > 0) reader_.top_up(batch);
      batch = carrier_.attempt(std::move(batch), stop);
    }
  }

  // Waits until the gate lets this batch pass; false at a stop.
  bool pass_gate(Batch& batch, const std::stop_token& stop) {
    const auto may_probe = [&](const DispatchState& s) {
      return s.gate.awaits_probe() && s.order.may_probe(batch.place);
    };
    while (!stop.stop_requested()) {
      SteadyTime until;
      std::uint64_t interrupts = 0;
      const bool passes = context_.state.with([&](DispatchState& s) {
        if (!s.gate.is_closed()) return true;
        const SteadyTime now = context_.clock.steady();
        if (may_probe(s) && s.gate.begin_probe(now)) return batch.is_probe = true;
        until = may_probe(s) ? s.gate.retry_at() : now + std::chrono::hours(1);
        interrupts = s.interrupts;
        return false;
      });
      if (passes) return true;
      context_.state.wait_until(stop, until, [&](const DispatchState& s) {
        return s.interrupts != interrupts || !s.gate.is_closed() ||
               (may_probe(s) && s.gate.retry_at() < until);
      });
    }
    return false;
  }

  delivery::DispatchContext context_;
  delivery::BatchReader reader_{context_};
  delivery::Carrier carrier_{context_};
  const StartSink start_sink_;
  delivery::BackOff start_back_off_;
  std::stop_source stop_;
  std::jthread stopper_;               // in Sink::stop()
  std::vector<std::jthread> workers_;  // but for the first one, which makes them
  std::jthread first_worker_;          // joined before them
};

Dispatcher::Dispatcher(std::string name, const SinkConfig& config, Sink& sink, Journal& journal,
                       Journal::SinkId id, Logger& log, const Clock& clock,
                       std::uint64_t jitter_seed, CrashRecord* crashes, StartSink start_sink)
    : impl_(std::make_unique<Impl>(std::move(name), config, sink, journal, id, log, clock,
                                   jitter_seed, crashes, std::move(start_sink))) {}
Dispatcher::~Dispatcher() = default;

void Dispatcher::start() { impl_->start(); }
Result<void> Dispatcher::await_start(SteadyTime deadline) { return impl_->await_start(deadline); }
bool Dispatcher::stop(SteadyTime deadline) { return impl_->stop(deadline); }
Dispatcher::Status Dispatcher::status() const { return impl_->status(); }
bool Dispatcher::idle() const { return impl_->idle(); }
void Dispatcher::wake() { impl_->wake(); }

}  // namespace scriptorium
