#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/api/sink.h"
#include "core/api/spool_adapter.h"
#include "core/base/guarded.h"
#include "core/base/time.h"
#include "core/base/worker_thread.h"

namespace scriptorium {

// Brings a scheduler's list of who coordinates which accounts to the sinks that keep it (see
// Searchable::keep_coordinators()): at the start and then each hour, after a failure sooner. Where
// no sink keeps it, the scheduler is not asked.
//
// Owns:    one thread. Borrows adapter, logger and clock for its life.
// Threads: start() and stop() from the main thread, ask_now() from any.
class CoordinatorWatch {
 public:
  using Sinks = std::function<std::vector<std::shared_ptr<Sink>>()>;

  CoordinatorWatch(std::string source, std::string cluster, const SpoolAdapter& adapter,
                   Sinks sinks, Logger& log, const Clock& clock);
  void start();
  // False: a sink hangs in a call; the process must end with _exit().
  bool stop(SteadyTime deadline) { return thread_.stop(deadline); }
  // A sink may be new.
  void ask_now();

 private:
  void run(const std::stop_token& stop) noexcept;
  Result<void> round(const std::stop_token& stop) const;

  const std::string source_;
  const std::string cluster_;
  const SpoolAdapter& adapter_;
  const Sinks sinks_;
  Logger& log_;
  const Clock& clock_;
  Guarded<std::uint64_t> wanted_;  // counts ask_now()
  WorkerThread thread_;
};

}  // namespace scriptorium
