#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/api/event.h"
#include "core/base/result.h"

namespace scriptorium {

// A sink whose destination can return what it stored. Core reads from it to fill a sink that was
// added later, to refill one that was down for longer than the journal could hold its events, and
// to correct an owner afterwards.
//
// A sink that implements this interface returns it from Sink::readable(). It lives as long as its
// sink.
//
// Threads: any, several at once, beside deliver() and before start() or after stop().
class ReadableSink {
 public:
  ReadableSink() = default;
  ReadableSink(const ReadableSink&) = delete;
  ReadableSink& operator=(const ReadableSink&) = delete;
  virtual ~ReadableSink() = default;

  // The event as it was delivered: the same id, every member (times as precise as event_json()
  // writes them) and the bytes of its script and environment, each checked against its size and
  // sha256. Any other file has null bytes if the destination does not keep it. `locator` is the
  // event without its files; it must have id, kind, time, cluster, scheduler, host, job.id,
  // job.name, job.account, job.array and user as they were when the event was delivered. Fails:
  // kVanished (no longer stored), kCorrupt (stored, but not what was delivered); any other kind
  // means "try again later".
  virtual Result<std::shared_ptr<const Event>> fetch(const Event& locator) = 0;

  struct Query {
    std::vector<std::string> kinds;  // a pattern per item, "job.*" allowed; empty: all
    Timestamp since;                 // earlier events are not listed
  };
  struct Page {
    std::vector<std::shared_ptr<const Event>> events;  // without bytes: each a locator for fetch()
    std::string position;                              // the `after` of the next call
    bool end = false;                                  // nothing comes after `position`
    std::uint64_t skipped = 0;  // records that could not be parsed, and unreadable directories that
                                // are not the sink's own
  };
  // The stored events, at most `limit` per call, in a fixed order; `after` "" is the beginning. A
  // call takes bounded time and memory, so a page may be short or empty without being the last.
  // Events stored during a listing may or may not be in it. Fails with an error that means "try
  // again later"; an unreadable directory of the sink's is an error and never silently skipped.
  virtual Result<Page> list(const Query& query, const std::string& after, std::size_t limit) = 0;
};

}  // namespace scriptorium
