#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include "core/daemon/pipeline.h"

namespace scriptorium {

// `run --once`: captures everything that the spools hold, then delivers it.
// Owns:    nothing; borrows everything for its life.
// Threads: the main thread; it starts one for each source and joins them.
class Once {
 public:
  struct Options {
    std::chrono::seconds patience{30};  // sinks without progress for this long are given up
    bool show_progress = false;         // a line on stderr that counts
    // Waits at most this long for a signal; true: stop.
    std::function<bool(std::chrono::milliseconds)> stop_signal;
  };
  Once(Options options, const Runtime& runtime, const Pipeline& pipeline)
      : options_(std::move(options)), runtime_(runtime), pipeline_(pipeline) {}

  struct Result {
    bool interrupted = false;
    bool settled = false;          // nothing waits any more
    std::size_t half_written = 0;  // entries that could not be captured yet
  };
  // Captures, delivers and logs what is left.
  Result run();

 private:
  void capture(Result& result) const;
  void deliver(Result& result) const;
  void log_what_is_left(const Result& result) const;
  std::uint64_t deliveries() const;
  void show_progress() const;

  const Options options_;
  const Runtime& runtime_;
  const Pipeline& pipeline_;
};

}  // namespace scriptorium
