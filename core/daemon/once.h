#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include "core/daemon/pipeline.h"

namespace scriptorium {

struct OnceOptions {
  std::chrono::seconds patience{30};  // sinks without progress for this long are given up
  bool show_progress = false;         // a line on stderr that counts
  // Waits at most this long for a signal; true: stop.
  std::function<bool(std::chrono::milliseconds)> stop_signal;
};

struct OnceResult {
  bool interrupted = false;
  bool settled = false;          // nothing waits any more
  std::size_t half_written = 0;  // entries that could not be captured yet
};

// `run --once`: captures everything that the spools hold, delivers it, and logs what is left.
// Threads: the main thread; starts one for each source and joins them.
OnceResult run_once(const OnceOptions& options, const Runtime& runtime, const Pipeline& pipeline);

}  // namespace scriptorium
