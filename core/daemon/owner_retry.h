#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/base/guarded.h"
#include "core/base/worker_thread.h"
#include "core/delivery/archives.h"
#include "core/journal/journal.h"
#include "core/redact/redactor.h"

namespace scriptorium {

// Asks again for the owners of jobs whose events were delivered unverified: first after a minute,
// then at intervals that double up to six hours, for thirty days. Once an owner is known, a new
// event goes to all sinks; it names the first event in `replaces`. The files of the new event are
// read from the journal or an archive. If neither has them, the new event has no bytes of files,
// and a destination keeps those it has.
//
// Owns:    one thread and the resolver. Borrows the rest for its life.
// Threads: start(), stop() and continue_from() from the main thread; the rest from any.
class OwnerRetry {
 public:
  // `redactor`: for the texts that an answer brings.
  OwnerRetry(std::string source, std::unique_ptr<LateOwnerResolver> resolver,
             std::shared_ptr<const redact::Redactor> redactor, Journal& journal,
             const Archives& archives, Logger& log, const Clock& clock);
  void start();
  // False: an archive hangs in a call; the process must end with _exit().
  bool stop(SteadyTime deadline) { return thread_.stop(deadline); }

  // Before start(): the rounds and counters of the one that it replaces.
  void continue_from(const OwnerRetry& before);

  // Makes all of them due now. Returns the number of a round: once status().rounds_done has reached
  // it, the scheduler has answered about each, or `last_error` says why not.
  std::uint64_t ask_now();

  struct Status {
    std::uint64_t waiting = 0;   // events without a verified owner
    std::uint64_t asked = 0;     // since the start
    std::uint64_t verified = 0;  // owners found since the start
    std::uint64_t rounds_done = 0;
    std::string last_error;  // of the last round; "" = none
  };
  Status status() const;

 private:
  struct State {
    std::uint64_t wanted = 0;  // the round that ask_now() promised last
    Status status;
  };
  void run(const std::stop_token& stop) noexcept;
  // Adds those that were noted since the last call to since_.
  void note_new_numbers();
  // Asks about everything that is due. Returns how many must wait, to spare the scheduler; an error
  // says why the rest could not be asked about.
  Result<std::uint64_t> round(const std::stop_token& stop);
  Result<std::uint64_t> handle(const std::vector<Journal::Unverified>& due,
                               const std::stop_token& stop);
  Result<std::vector<OwnerAnswer>> ask(const std::vector<Journal::Unverified>& due,
                                       const std::stop_token& stop);
  Result<void> replace(const Journal::Unverified& item, const OwnerAnswer& answer);

  const std::string source_;
  const std::unique_ptr<LateOwnerResolver> resolver_;
  const std::shared_ptr<const redact::Redactor> redactor_;
  Journal& journal_;
  const Archives& archives_;
  Logger& log_;
  const Clock& clock_;
  Guarded<State> state_;
  // Used by the thread alone. By Unverified::number: the scheduler's answers since then are about
  // the job, and were not evaluated yet. On the steady clock, as the machine's time may be set.
  std::unordered_map<std::uint64_t, SteadyTime> since_;
  std::uint64_t newest_ = 0;  // the highest number that was seen
  WorkerThread thread_;
};

}  // namespace scriptorium
