#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/api/sink.h"
#include "core/base/guarded.h"
#include "core/base/worker_thread.h"
#include "core/journal/journal.h"

namespace scriptorium {

// The configured sinks that can be read back (core/api/readable_sink.h).
//
// Owns:    a share of each sink, so that a reload does not take one away from a fetch that is under
// way. Threads: any.
class Archives {
 public:
  void put(const std::string& name, std::shared_ptr<Sink> sink);  // in place of one of that name
  void keep_only(const std::vector<std::string>& configured);
  std::vector<std::string> names() const;

  // From whichever has it. kVanished or kCorrupt only if every one of them answered, and there is
  // one.
  Result<std::shared_ptr<const Event>> fetch(const Event& locator) const;
  // kPermanent: there is no such archive (any more).
  Result<std::shared_ptr<const Event>> fetch_from(const std::string& name,
                                                  const Event& locator) const;
  Result<ReadableSink::Page> list(const std::string& name, const ReadableSink::Query& query,
                                  const std::string& after, std::size_t limit) const;

 private:
  std::shared_ptr<Sink> find(const std::string& name) const;

  Guarded<std::map<std::string, std::shared_ptr<Sink>>> sinks_;
};

// Keeps a sink that does not keep up from filling the journal: above 80 % of its limit, events that
// an archive holds are fetched from there, compared, and then released by the journal, oldest
// first, until 70 % are in use.
//
// Owns:    one thread. Borrows the rest for its life.
// Threads: start() and stop() from the main thread.
class Releaser {
 public:
  Releaser(Journal& journal, const Archives& archives, Logger& log, std::uint64_t limit_bytes);
  ~Releaser();
  Releaser(const Releaser&) = delete;
  Releaser& operator=(const Releaser&) = delete;

  void start();
  // False: an archive does not come back from a call; the process must end with _exit.
  bool stop(SteadyTime deadline) { return thread_.stop(deadline); }

 private:
  void run(const std::stop_token& stop) noexcept;
  std::uint64_t round(const std::stop_token& stop);
  bool holds(const std::string& archive, const Event& event) const;

  Journal& journal_;
  const Archives& archives_;
  Logger& log_;
  const std::uint64_t limit_bytes_;
  std::map<std::string, std::uint64_t>
      positions_;  // by archive: up to where releasable() was asked
  bool announced_ = false;
  WorkerThread thread_;
};

// Sends what an archive holds to a sink that was added later, through the journal, where it waits
// like any other event: as a locator, so that a fill of any size takes little room. After a restart
// it continues where it was.
//
// Owns:    one thread, which sleeps while there is nothing to fill. Borrows the rest for its life.
// Threads: any; start_thread() and stop() from the main thread.
class Filler {
 public:
  Filler(Journal& journal, const Archives& archives, Logger& log, std::uint64_t limit_bytes);
  ~Filler();
  Filler(const Filler&) = delete;
  Filler& operator=(const Filler&) = delete;

  void start_thread();
  bool stop(SteadyTime deadline) { return thread_.stop(deadline); }  // as Releaser::stop()

  // `archive` may be "" if there is only one beside the sink. kPermanent says what is wrong. A fill
  // of the same sink that is under way continues if it is the same, else it starts over.
  Result<Journal::Fill> begin(const std::string& sink, const std::string& archive, Timestamp since);

 private:
  void run(const std::stop_token& stop) noexcept;
  // One step of one fill. False: nothing can be done for it now.
  bool step(Journal::Fill fill);

  Journal& journal_;
  const Archives& archives_;
  Logger& log_;
  const std::uint64_t limit_bytes_;
  Guarded<std::uint64_t> begun_;  // counts begin()
  WorkerThread thread_;
};

}  // namespace scriptorium
