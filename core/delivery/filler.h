#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/api/event.h"
#include "core/api/logger.h"
#include "core/base/guarded.h"
#include "core/base/result.h"
#include "core/base/worker_thread.h"
#include "core/delivery/archives.h"
#include "core/journal/journal.h"

namespace scriptorium {

// Sends what an archive holds to a sink that was added later. The events go through the journal and
// wait there like any other, but as locators, so that a fill of any size takes little room. After a
// restart a fill continues where it was.
//
// Owns:    one thread, which sleeps while there is nothing to fill. Borrows the rest for its life.
// Threads: any; start_thread() and stop() from the main thread.
class Filler {
 public:
  // What today's rules make of an event that an archive holds; null: they change nothing.
  using Rules = std::function<Result<std::shared_ptr<const Event>>(const Event&)>;

  Filler(Journal& journal, const Archives& archives, Logger& log, std::uint64_t limit_bytes)
      : journal_(journal), archives_(archives), log_(log), limit_bytes_(limit_bytes) {}

  // From the next page on; none at first.
  void set_rules(Rules rules) {
    rules_.with([&](Rules& r) { r = std::move(rules); });
  }

  void start_thread() {
    thread_.start([this](const std::stop_token& stop) { run(stop); });
  }
  // False: an archive hangs in a call; the process must end with _exit().
  bool stop(SteadyTime deadline) { return thread_.stop(deadline); }

  // `archive` may be "" if there is only one beside the sink. kPermanent says what is wrong. If a
  // fill of the same sink is under way, it continues if it is the same, and starts over otherwise.
  Result<Journal::Fill> begin(const std::string& sink, const std::string& archive, Timestamp since);

 private:
  void run(const std::stop_token& stop) noexcept;
  Result<std::string> choose_archive(const std::string& sink, const std::string& archive) const;
  // One step of one fill. False: it cannot progress now.
  bool step(const Journal::Fill& fill, const std::stop_token& stop);
  bool count(const Journal::Fill& fill, const ReadableSink::Query& query);
  bool send(const Journal::Fill& fill, const ReadableSink::Query& query, std::size_t limit,
            const std::stop_token& stop);
  std::optional<ReadableSink::Page> list(const Journal::Fill& fill,
                                         const ReadableSink::Query& query, std::size_t limit) const;
  void report_unreadable(const Journal::Fill& fill, const Error& error) const;

  // What the rules make of a page.
  struct Redacted {
    std::size_t read = 0;  // events of the page, until those changed take too much memory
    std::vector<std::shared_ptr<const Event>> unchanged;  // locators
    std::vector<std::shared_ptr<const Event>> changed;    // whole
    std::uint64_t refused = 0;  // the rules cannot be applied to them: not to be sent
  };
  std::optional<Redacted> apply_rules(const Journal::Fill& fill, const ReadableSink::Page& page,
                                      const std::stop_token& stop) const;

  Journal& journal_;
  const Archives& archives_;
  Logger& log_;
  const std::uint64_t limit_bytes_;
  Guarded<Rules> rules_;
  Guarded<std::uint64_t> begun_;  // calls of begin() that started a fill
  WorkerThread thread_;
};

}  // namespace scriptorium
