#include "core/daemon/once.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace scriptorium {
namespace {

constexpr std::chrono::milliseconds kPollEvery{20};
constexpr std::chrono::minutes kFlushPatience{5};

}  // namespace

Once::Result Once::run() {
  Result result;
  capture(result);
  runtime_.journal.flush(runtime_.clock.steady() + kFlushPatience);
  if (!result.interrupted) deliver(result);
  if (options_.show_progress) std::fprintf(stderr, "\n");
  log_what_is_left(result);
  return result;
}

void Once::capture(Result& result) const {
  std::atomic<std::size_t> half_written = 0;
  std::atomic<std::size_t> scanning = pipeline_.sources().size();
  {
    std::vector<std::jthread> scans;
    for (const auto& source : pipeline_.sources()) {
      scans.emplace_back([&, run = source.get()](const std::stop_token& stop) {
        half_written += run->run_once(stop);
        --scanning;
      });
    }
    while (scanning > 0) {
      show_progress();
      if (!options_.stop_signal(kPollEvery)) continue;
      result.interrupted = true;
      for (std::jthread& scan : scans) scan.request_stop();
    }
  }
  result.half_written = half_written;
}

void Once::deliver(Result& result) const {
  std::uint64_t before = 0;
  SteadyTime last_progress = runtime_.clock.steady();
  while (true) {
    const bool owners_pending = pipeline_.owners_pending();
    result.settled = !owners_pending && pipeline_.sinks_idle();
    if (result.settled) return;
    const std::uint64_t now = deliveries();
    if (now != before || owners_pending) {
      before = now;
      last_progress = runtime_.clock.steady();
    }
    show_progress();
    const bool stalled = runtime_.clock.steady() - last_progress >= options_.patience;
    if (stalled || runtime_.journal.damaged()) return;
    if (options_.stop_signal(kPollEvery)) {
      result.interrupted = true;
      return;
    }
  }
}

void Once::log_what_is_left(const Result& result) const {
  const auto& sinks = pipeline_.sinks();
  for (const Journal::SinkState& sink : runtime_.journal.usage().sinks) {
    if (!sink.registered) continue;
    if (sink.waiting > 0) {
      const auto run = std::find_if(sinks.begin(), sinks.end(),
                                    [&](const auto& s) { return s->name() == sink.name; });
      const auto reason =
          run != sinks.end() ? (*run)->dispatcher_status().last_error : std::nullopt;
      runtime_.log.error("NOT_SETTLED",
                         "events could not be delivered; they wait in the journal for the next run",
                         {{"sink", sink.name},
                          {"waiting", sink.waiting},
                          {"reason", reason.value_or("no time was left")}});
    }
    if (sink.dead > 0) {
      runtime_.log.warning("DEAD_LETTERS",
                           "some events are dead letters; `scriptorium deadletters list` shows why",
                           {{"sink", sink.name}, {"dead", sink.dead}});
    }
  }
  if (result.half_written > 0) {
    runtime_.log.warning("HALF_WRITTEN",
                         "some entries are still being written; run again to capture them",
                         {{"entries", result.half_written}});
  }
  runtime_.log.info(
      "ONCE_DONE", "captured all that the spools hold",
      {{"captured", pipeline_.captured()}, {"settled", result.settled ? "yes" : "no"}});
}

// Acknowledged or rejected, by all sinks.
std::uint64_t Once::deliveries() const {
  std::uint64_t count = 0;
  for (const auto& sink : pipeline_.sinks()) {
    const Dispatcher::Status status = sink->dispatcher_status();
    count += status.acknowledged + status.rejected;
  }
  return count;
}

void Once::show_progress() const {
  if (!options_.show_progress) return;
  std::uint64_t delivered = 0;
  for (const auto& sink : pipeline_.sinks()) delivered += sink->dispatcher_status().acknowledged;
  std::fprintf(stderr, "\rcaptured %llu, delivered %llu ",
               static_cast<unsigned long long>(pipeline_.captured()),
               static_cast<unsigned long long>(delivered));
}

}  // namespace scriptorium
