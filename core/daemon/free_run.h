#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/api/free_source.h"
#include "core/base/guarded.h"
#include "core/daemon/runtime.h"
#include "core/daemon/status_json.h"
#include "core/redact/redactor.h"
#include "core/redact/tally.h"

namespace scriptorium {

// A free source with its thread. Whenever the source returns, it is called again after a pause that
// doubles up to a minute.
// Owns:    the source and the thread; borrows the runtime for its life.
// Threads: start(), stop(), continue_from(), run_once() from the main thread; the rest from any.
class FreeRun final : public EventWriter {
 public:
  FreeRun(std::string name, std::unique_ptr<FreeSource> source,
          std::shared_ptr<const redact::Redactor> redactor, const Runtime& runtime);
  void start();
  void stop() { thread_ = {}; }
  // Before start(): the counters of the one that it replaces, which has stopped.
  void continue_from(const FreeRun& before);
  Result<void> run_once(const std::stop_token& stop) { return call(stop, true); }

  FreeSourceStatus status() const;
  std::uint64_t captured() const { return captured_; }

  // The source's journal, from within its call.
  Result<void> write(std::vector<Event> events, std::optional<std::string> position) override;
  std::optional<std::string> position() const override;

 private:
  void run(const std::stop_token& stop) noexcept;
  Result<void> call(const std::stop_token& stop, bool once);
  bool append_dead(Event event, const std::string& reason);

  const std::string name_;
  const std::unique_ptr<FreeSource> source_;
  const std::shared_ptr<const redact::Redactor> redactor_;
  const Runtime& runtime_;
  std::stop_token stop_;
  std::atomic<std::uint64_t> captured_ = 0;
  Guarded<redact::Tally> redactions_;  // of what was captured
  Guarded<std::optional<std::string>> error_;
  std::jthread thread_;
};

}  // namespace scriptorium
