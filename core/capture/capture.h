#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/api/spool_adapter.h"
#include "core/base/histogram.h"
#include "core/capture/assemble.h"
#include "core/capture/gap_tracker.h"
#include "core/capture/spool_access.h"
#include "core/config/config.h"
#include "core/journal/journal.h"

namespace scriptorium {

// What a spool source has seen, since the daemon started.
struct CaptureStatus {
  std::string way;                // "fanotify", "inotify", "scan"
  std::string why_not_better;     // "" = it is the best there is, or what was asked for
  std::uint64_t captured = 0;     // events that are durable in the journal
  std::uint64_t incomplete = 0;   // of them, taken half written at incomplete_after_seconds
  std::uint64_t malformed = 0;    // of them, with problems
  std::uint64_t superseding = 0;  // of them, longer than an earlier capture of the same file
  std::map<std::string, std::uint64_t> by_way;   // captured, by what noticed them
  std::map<std::string, std::uint64_t> missed;   // seen to appear, never read: reason
  std::map<std::string, std::uint64_t> ignored;  // not archived on purpose: reason
  std::uint64_t duplicates = 0;                  // seen again, known already
  std::uint64_t overflows = 0;  // notification queues that ran over; each was followed by a scan
  std::uint64_t scans = 0;
  std::uint64_t pending = 0;        // entries that are not whole yet
  std::uint64_t pending_bytes = 0;  // what has been read of them
  std::uint64_t waiting_for_room =
      0;  // of the pending ones, those that the journal refused for now
  std::optional<double>
      lag_seconds;  // file closed -> durable, of the newest event that a notification brought
  Histogram close_to_durable;  // of all of those
  std::optional<std::string> last_error;
  bool spool_there = true;
  std::optional<GapStatus> gaps;  // of a scheduler that counts its jobs
};

// Watches one spool and journals an event for each entry, the moment it is complete. Notifications
// are hints; the directory is the truth: a scan follows every start, overflow, vanished or new
// directory, and comes every rescan_seconds. With fanotify the content of a closed file is read
// from the event's own descriptor, so an entry that is gone by then is captured all the same;
// inotify beside it tells of new directories and of scripts that were hard-linked into place, which
// are never closed.
//
// Owns:    its thread, the access. Borrows adapter, journal, logger and clock for its life.
// Threads: start(), stop() from the main thread; status() and unchanged() from any.
// Waits:   while the journal's writer is behind. When the journal is full, notifications are read
// all the same; entries wait
//          in memory within bounds, and in the spool, until there is room.
class SpoolCapture {
 public:
  struct Options {
    std::string name;  // of the source instance
    SourceConfig common;
    EventOrigin origin;
    bool resolve_first = false;  // the events wait for an OwnerResolver
    bool skip_own_writes =
        true;  // what this process writes on the spool's file system (the archive, say) is no entry
    // Calls what parses the entry, or not: that one then counts as unparsable.
    std::function<void(const SpoolEntry& entry, const std::function<void()>& parse)> around_parse;
  };
  SpoolCapture(Options options, const SpoolAdapter& adapter, OpenedAccess access, Journal& journal,
               Logger& log, const Clock& clock);
  ~SpoolCapture();
  SpoolCapture(const SpoolCapture&) = delete;
  SpoolCapture& operator=(const SpoolCapture&) = delete;

  // Which notifications open_direct_access() should be asked for.
  static Notifications wanted(const SourceConfig& common);

  void start();
  // Stops after what is in hand; what was given to the journal may not be durable yet.
  void stop();
  // One scan in the calling thread, for --once: everything complete is given to the journal.
  // Entries that are being written are looked at again until they are whole or `patience` is over;
  // returns how many were left so.
  std::size_t run_once(std::chrono::milliseconds patience, const std::stop_token& stop);

  // A scan of everything, soon: after a reload, or because a person asks.
  void rescan();
  CaptureStatus status() const;
  // True if the entry that a mark tells of still is the one that was captured.
  bool unchanged(const CaptureMark& mark) const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace scriptorium
