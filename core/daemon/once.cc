#include "core/daemon/once.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <thread>
#include <vector>

namespace scriptorium {
namespace {

constexpr std::chrono::milliseconds kPollEvery{20};
constexpr std::chrono::minutes kFlushPatience{5};

class Once {
 public:
  Once(const OnceOptions& options, const Runtime& runtime, const Pipeline& pipeline)
      : options_(options), runtime_(runtime), pipeline_(pipeline) {}

  OnceResult run() {
    capture();
    runtime_.journal.flush(runtime_.clock.steady() + kFlushPatience);
    if (!result_.interrupted) deliver();
    if (options_.show_progress) std::fprintf(stderr, "\n");
    log_what_is_left();
    return result_;
  }

 private:
  void capture() {
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
        result_.interrupted = true;
        for (std::jthread& scan : scans) scan.request_stop();
      }
    }
    result_.half_written = half_written;
  }

  void deliver() {
    std::uint64_t before = 0;
    SteadyTime last_progress = runtime_.clock.steady();
    while (true) {
      const bool owners_pending =
          any(pipeline_.sources(), [](const auto& s) { return s->owners_pending(); });
      result_.settled = !owners_pending && !any(pipeline_.sinks(), [](const auto& s) {
        return !s->dispatcher().idle();
      });
      if (result_.settled) return;
      const std::uint64_t now = deliveries();
      if (now != before || owners_pending) {
        before = now;
        last_progress = runtime_.clock.steady();
      }
      show_progress();
      const bool stalled = runtime_.clock.steady() - last_progress >= options_.patience;
      if (stalled || runtime_.journal.damaged()) return;
      if (options_.stop_signal(kPollEvery)) {
        result_.interrupted = true;
        return;
      }
    }
  }

  void log_what_is_left() const {
    const auto& sinks = pipeline_.sinks();
    for (const Journal::SinkState& sink : runtime_.journal.usage().sinks) {
      if (!sink.registered) continue;
      if (sink.waiting > 0) {
        const auto found = std::find_if(sinks.begin(), sinks.end(),
                                        [&](const auto& s) { return s->name() == sink.name; });
        const auto reason =
            found != sinks.end() ? (*found)->dispatcher().status().last_error : std::nullopt;
        runtime_.log.error(
            "NOT_SETTLED",
            "events could not be delivered; they wait in the journal for the next run",
            {{"sink", sink.name},
             {"waiting", sink.waiting},
             {"reason", reason.value_or("no time was left")}});
      }
      if (sink.dead > 0) {
        runtime_.log.warning(
            "DEAD_LETTERS",
            "some events are dead letters; `scriptorium deadletters list` shows why",
            {{"sink", sink.name}, {"dead", sink.dead}});
      }
    }
    if (result_.half_written > 0) {
      runtime_.log.warning("HALF_WRITTEN",
                           "some entries are still being written; run again to capture them",
                           {{"entries", result_.half_written}});
    }
    runtime_.log.info("ONCE_DONE", "captured all that the spools hold",
                      {{"captured", captured()}, {"settled", result_.settled ? "yes" : "no"}});
  }

  // Acknowledged or rejected by any sink.
  std::uint64_t deliveries() const {
    std::uint64_t count = 0;
    for (const auto& sink : pipeline_.sinks()) {
      const Dispatcher::Status status = sink->dispatcher().status();
      count += status.acknowledged + status.rejected;
    }
    return count;
  }

  std::uint64_t captured() const {
    std::uint64_t captured = 0;
    for (const auto& source : pipeline_.sources()) captured += source->captured();
    return captured;
  }

  void show_progress() const {
    if (!options_.show_progress) return;
    std::uint64_t delivered = 0;
    for (const auto& sink : pipeline_.sinks())
      delivered += sink->dispatcher().status().acknowledged;
    std::fprintf(stderr, "\rcaptured %llu, delivered %llu ",
                 static_cast<unsigned long long>(captured()),
                 static_cast<unsigned long long>(delivered));
  }

  template <typename Range, typename Is>
  static bool any(const Range& range, Is is) {
    return std::any_of(range.begin(), range.end(), is);
  }

  const OnceOptions& options_;
  const Runtime& runtime_;
  const Pipeline& pipeline_;
  OnceResult result_;
};

}  // namespace

OnceResult run_once(const OnceOptions& options, const Runtime& runtime, const Pipeline& pipeline) {
  return Once(options, runtime, pipeline).run();
}

}  // namespace scriptorium
