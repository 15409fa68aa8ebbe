#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/api/spool_adapter.h"
#include "core/base/guarded.h"
#include "core/journal/journal.h"

namespace scriptorium {

// Between the journal and the sinks: asks the scheduler who owns the jobs that were captured, all new ones in one
// question, and lets the events go on with the answer. An event whose job the scheduler does not know, or that is older
// than resolve_timeout_seconds without an answer, goes on unverified: nothing waits for ever.
//
// Owns:    its thread, the resolver. Borrows journal, logger and clock for its life.
// Threads: start(), stop() from the main thread; status() from any.
class OwnerStage {
 public:
  struct Options {
    std::string source;
    std::chrono::seconds timeout{30};
    // True if the entry of this mark still is the one that was captured.
    std::function<bool(const CaptureMark&)> unchanged;
  };
  OwnerStage(Options options, std::unique_ptr<OwnerResolver> resolver, Journal& journal, Logger& log, const Clock& clock);
  ~OwnerStage();

  void start();
  void stop();

  struct Status {
    std::uint64_t verified = 0;
    std::map<std::string, std::uint64_t> unverified;  // by reason
    std::uint64_t queries = 0;
    std::uint64_t failed_queries = 0;
    std::optional<std::string> last_error;
  };
  Status status() const;

 private:
  void run(const std::stop_token& stop) noexcept;
  // Handles one batch; false if nothing was there to do.
  bool round(const std::stop_token& stop);
  Result<std::vector<OwnerAnswer>> ask(const std::vector<OwnerQuery>& queries, const std::stop_token& stop);
  bool expired(const Event& event) const;

  const Options options_;
  const std::unique_ptr<OwnerResolver> resolver_;
  Journal& journal_;
  Logger& log_;
  const Clock& clock_;
  Guarded<Status> status_;
  // Of the thread alone:
  bool last_failed_ = false;
  SteadyTime next_query_;
  std::jthread thread_;
};

// The event with what the scheduler said of it.
std::shared_ptr<const Event> with_owner(const Event& event, const OwnerAnswer& answer);

}  // namespace scriptorium
