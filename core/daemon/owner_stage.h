#pragma once

#include <array>
#include <cstdint>
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
#include "core/redact/redactor.h"

namespace scriptorium {

// Counts the events that left this stage in the last hour, and those of them that were unverified.
// Exact to the minute.
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
  std::array<Minute, 60> minutes_;  // each at its number modulo 60
};

// Works between the journal and the sinks: asks the scheduler who owns the captured jobs, and
// passes the events on with the answer. An event continues unverified if the scheduler does not
// know its job, if no answer names the job within resolve_timeout_seconds of the first answer that
// could have, or if the scheduler does not answer at all for that long. Such an event carries the
// reason (User::unverified_reason), and status() counts the reasons.
//
// Owns:    its thread, the resolver. Borrows journal, logger and clock for its life.
// Threads: start(), stop(), continue_from() from the main thread; status() from any.
class OwnerStage {
 public:
  struct Options {
    std::string source;
    std::chrono::seconds timeout{30};
    // Whether this mark's entry in the spool is still the one that was captured.
    std::function<bool(const CaptureMark&)> unchanged;
    // Called when the scheduler answers again after a failure; may be empty.
    std::function<void()> answers_again;
    // For the texts of the scheduler's answers.
    std::shared_ptr<const redact::Redactor> redactor = redact::Redactor::none();
  };
  OwnerStage(Options options, std::unique_ptr<OwnerResolver> resolver, Journal& journal,
             Logger& log, const Clock& clock);

  void start();
  void stop() { thread_ = {}; }
  // Before start(): the counters of the stage that it replaces, which has stopped, and since when
  // each event waits.
  void continue_from(const OwnerStage& before);

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
  // Handles the events that wait; false if nothing could be decided.
  bool round(const std::stop_token& stop);
  void answer_questions(const std::stop_token& stop);
  std::vector<OwnerQuery> queries_about(const std::vector<Journal::Unresolved>& events) const;
  Result<std::vector<OwnerAnswer>> ask(const std::vector<OwnerQuery>& queries,
                                       const std::stop_token& stop);
  struct PageResult {
    std::size_t answered = 0;  // events that the scheduler was asked about
    std::size_t decided = 0;   // events that continued to the sinks
  };
  struct Decisions;
  PageResult handle(std::vector<Journal::Unresolved> waiting, const std::stop_token& stop);
  void give_up_expired(std::vector<Journal::Unresolved>& waiting, Decisions& decisions) const;
  // Returns how many the scheduler was asked about.
  std::size_t decide(const std::vector<Journal::Unresolved>& waiting,
                     const Result<std::vector<OwnerAnswer>>& answers, Decisions& decisions);
  void count(const Decisions& decisions);
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
  // Used by the thread alone:
  bool last_failed_ = false;
  SteadyTime next_query_;
  struct Wait {
    SteadyTime since;                   // first seen here
    std::optional<SteadyTime> covered;  // first answer that could have named it
  };
  std::unordered_map<std::uint64_t, Wait> waits_;  // by ticket
  std::jthread thread_;
};

// The event with the scheduler's answer about it, whose texts are redacted; those that cannot be
// are left out.
std::shared_ptr<Event> with_owner(const Event& event, const OwnerAnswer& answer,
                                  const redact::Redactor& redactor);

}  // namespace scriptorium
