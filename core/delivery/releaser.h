#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <stop_token>
#include <string>

#include "core/api/logger.h"
#include "core/base/worker_thread.h"
#include "core/delivery/archives.h"
#include "core/journal/journal.h"

namespace scriptorium {

// Keeps a slow sink from filling the journal, and a user's share of it. Above 80 % of the journal's
// limit, events that an archive holds are fetched from it, compared, and then released by the
// journal, oldest first, until 70 % are in use. Where entries of a user wait because of the share,
// the same is done with the events of that user until 70 % of the share are in use.
//
// Owns:    one thread. Borrows the rest for its life.
// Threads: start() and stop() from the main thread.
class Releaser {
 public:
  Releaser(Journal& journal, const Archives& archives, Logger& log, std::uint64_t limit_bytes)
      : journal_(journal), archives_(archives), log_(log), limit_bytes_(limit_bytes) {}

  void start() {
    thread_.start([this](const std::stop_token& stop) { run(stop); });
  }
  // False: an archive hangs in a call; the process must end with _exit().
  bool stop(SteadyTime deadline) { return thread_.stop(deadline); }

 private:
  using Positions = std::map<std::string, std::uint64_t>;
  struct Goal {
    std::function<bool()> is_reached;
    std::function<bool(const Event&)> concerns;  // whether to release this event
  };

  void run(const std::stop_token& stop) noexcept;
  std::uint64_t release_of_users(const std::stop_token& stop);
  std::uint64_t release(const Goal& goal, Positions& positions, const std::stop_token& stop);
  bool holds(const std::string& archive, const Journal::Releasable& candidate) const;

  Journal& journal_;
  const Archives& archives_;
  Logger& log_;
  const std::uint64_t limit_bytes_;
  // By archive: up to where Journal::releasable() was asked, for all events and for those of
  // share_users_.
  Positions positions_, share_positions_;
  std::set<std::string> share_users_;
  bool announced_ = false;
  WorkerThread thread_;
};

}  // namespace scriptorium
