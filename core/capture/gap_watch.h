#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "core/api/logger.h"
#include "core/api/spool_adapter.h"
#include "core/base/guarded.h"
#include "core/capture/gap_tracker.h"
#include "core/journal/journal.h"

namespace scriptorium {

// Reports job numbers that the scheduler has assigned but that never appeared in the spool. It asks
// the scheduler about them, saves its state in the journal, and logs the numbers that remain
// unexplained, once for each batch.
//
// Owns:    its thread, the resolver (null: the scheduler cannot be asked). Borrows journal, logger
//          and clock for its life.
// Threads: start(), stop(), change() from the main thread; the rest from any.
class GapWatch {
 public:
  GapWatch(std::string source, std::chrono::seconds patience,
           std::unique_ptr<NumberResolver> resolver, Journal& journal, Logger& log,
           const Clock& clock);
  ~GapWatch();
  GapWatch(const GapWatch&) = delete;
  GapWatch& operator=(const GapWatch&) = delete;

  // May be called again after stop(); the state is kept.
  void start();
  // Saves the present state, if the journal accepts it within a short time.
  void stop();
  // Between stop() and start(): what the constructor got.
  void change(std::chrono::seconds patience, std::unique_ptr<NumberResolver> resolver);

  // As GapTracker's.
  void seen(std::span<const std::uint64_t> numbers);
  void scanned();
  void expect_listing();
  GapStatus status() const;

 private:
  struct State {
    GapTracker tracker{std::chrono::seconds{10}};
    bool counts = false;  // an entry with a number was seen: the scheduler counts
    bool ended = false;   // stop() was called
    bool closed = false;  // and the thread has saved its state
    std::uint64_t queries = 0;
    std::optional<std::string> last_error;
  };

  void run(const std::stop_token& stop) noexcept;
  void check(const std::stop_token& stop);
  void save(const std::stop_token& stop);
  std::string place() const { return source_ + "#numbers"; }

  const std::string source_;
  std::unique_ptr<NumberResolver> resolver_;
  Journal& journal_;
  Logger& log_;
  const Clock& clock_;
  Guarded<State> state_;
  bool loaded_ = false;  // the journal's state; only the first start() reads it
  // Of the thread alone:
  SteadyTime next_question_;  // the earliest time
  SteadyTime next_round_;     // when to ask even if no number waits
  std::jthread thread_;
};

}  // namespace scriptorium
