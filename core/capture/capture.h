#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <stop_token>
#include <thread>

#include "core/api/spool_adapter.h"
#include "core/capture/capture_options.h"
#include "core/capture/capture_status.h"
#include "core/capture/spool_access.h"
#include "core/journal/journal.h"

namespace scriptorium {

class CaptureEngine;

// Watches one spool and journals an event for each entry, the moment it is complete. Notifications
// are hints; the directory is the truth: a scan follows every start, overflow, vanished or new
// directory, and comes every rescan_seconds. With fanotify the content of a closed file is read
// from the event's own descriptor, so an entry that is gone by then is captured all the same;
// inotify beside it tells of new directories and of scripts that were hard-linked into place, which
// are never closed.
//
// After a start, an entry that the journal's mark proves unchanged is known without being opened.
//
// Owns:    its thread, the access. Borrows adapter, journal, logger and clock for its life.
// Threads: start(), stop() and run_once() from the main thread; status(), unchanged() and rescan()
//          from any.
// Waits:   while the journal's writer is behind. When the journal is full, notifications are read
//          all the same; entries wait in memory within bounds, and in the spool, until there is
//          room.
class SpoolCapture {
 public:
  using Options = CaptureOptions;
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
  // Entries that are being written are inspected again until they are whole or `patience` is over;
  // returns how many were left so.
  std::size_t run_once(std::chrono::milliseconds patience, const std::stop_token& stop);

  // A scan of everything, soon: after a reload, or because a person asks.
  void rescan();
  CaptureStatus status() const;
  // True if the entry of this mark still is the one that was captured.
  bool unchanged(const CaptureMark& mark) const;

 private:
  void run(const std::stop_token& stop) noexcept;

  const std::string name_;
  const std::unique_ptr<CaptureEngine> engine_;
  std::jthread thread_;
};

}  // namespace scriptorium
