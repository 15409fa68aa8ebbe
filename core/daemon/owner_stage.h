#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/base/guarded.h"
#include "core/journal/journal.h"

namespace scriptorium {

// How many events left this stage in the last hour, to the minute, and how many of them unverified.
class LastHour {
 public:
  struct Counts {
    std::uint64_t decided = 0;
    std::uint64_t unverified = 0;
  };
  void add(SteadyTime now, Counts counts);
  Counts counts(SteadyTime now) const;

 private:
  struct Minute {
    std::int64_t number = 0;
    Counts counts;
  };
  std::deque<Minute> minutes_;  // the oldest first; none without an event
};

// Between the journal and the sinks: asks the scheduler who owns the jobs that were captured, and
// lets the events go on with the answer. An event continues unverified if the scheduler does not
// know its job, if it has not named it resolve_timeout_seconds after the first answer that could
// have, or if it does not answer at all for as long.
//
// Such an event says why (User::unverified_reason); status() counts by these words.
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
    std::function<void()>
        answers_again;  // called when the scheduler does, after it did not; may be empty
  };
  OwnerStage(Options options, std::unique_ptr<OwnerResolver> resolver, Journal& journal,
             Logger& log, const Clock& clock);
  ~OwnerStage();

  void start();
  void stop();

  struct Status {
    std::uint64_t verified = 0;
    std::map<std::string, std::uint64_t> unverified;  // by reason
    LastHour::Counts last_hour;
    std::uint64_t queries = 0;
    std::uint64_t failed_queries = 0;
    std::optional<std::string> last_error;
    SchedulerLoad load;
  };
  Status status() const;

 private:
  void run(const std::stop_token& stop) noexcept;
  // Handles what waits; false if nothing could be decided.
  bool round(const std::stop_token& stop);
  void answer_questions(const std::stop_token& stop);
  Result<std::vector<OwnerAnswer>> ask(const std::vector<OwnerQuery>& queries,
                                       const std::stop_token& stop);
  struct PageResult {
    std::size_t answered = 0;  // the scheduler was asked about them
    std::size_t decided = 0;   // they continued to the sinks
  };
  PageResult handle(std::vector<Journal::Unresolved> waiting, const std::stop_token& stop);
  bool expired(SteadyTime since) const;

  const Options options_;
  const std::unique_ptr<OwnerResolver> resolver_;
  Journal& journal_;
  Logger& log_;
  const Clock& clock_;
  struct Counted {
    Status status;
    LastHour last_hour;
  };
  Guarded<Counted> counted_;
  // Of the thread alone:
  bool last_failed_ = false;
  SteadyTime next_query_;
  struct Wait {
    SteadyTime since;                   // first seen here
    std::optional<SteadyTime> covered;  // first answer that could have named it
  };
  std::unordered_map<std::uint64_t, Wait> waits_;  // by ticket
  std::jthread thread_;
};

// The event with what the scheduler said of it.
std::shared_ptr<const Event> with_owner(const Event& event, const OwnerAnswer& answer);

}  // namespace scriptorium
