#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "core/capture/action_runner.h"
#include "core/capture/capture_context.h"
#include "core/capture/content_intake.h"
#include "core/capture/entry_table.h"
#include "core/capture/gap_watch.h"
#include "core/capture/notification_reader.h"
#include "core/capture/scanner.h"
#include "core/capture/spool_presence.h"
#include "core/capture/watch_list.h"

namespace scriptorium {

// Watches one spool and journals an event for each entry, the moment it is complete. Notifications
// are hints; the directory is the truth: a scan follows every start, overflow, vanished or new
// directory, and comes every rescan_seconds. With fanotify the content of a closed file is read
// from the notification's own descriptor, so an entry that is gone by then is still captured.
// inotify beside it reports new directories, and scripts that were hard-linked into place, which
// are never closed.
//
// After a start, an entry that the journal's mark proves unchanged is not opened.
//
// Owns:    its thread, which calls step() again and again; the access. Borrows adapter, journal,
//          logger and clock for its life.
// Threads: start(), pause(), change(), stop() and run_once() from the main thread; status(),
//          unchanged() and rescan() from any, unchanged() not during change(). begin(), step() and
//          wait() from the capture thread, or from a test that has not called start().
// Waits:   while the journal's writer is behind. When the journal is full, notifications are still
//          read; entries wait in memory within bounds, and in the spool, until there is room.
class SpoolCapture {
 public:
  using Options = CaptureOptions;
  SpoolCapture(Options options, const SpoolAdapter& adapter, OpenedAccess opened, Journal& journal,
               Logger& log, const Clock& clock);
  ~SpoolCapture();
  SpoolCapture(const SpoolCapture&) = delete;
  SpoolCapture& operator=(const SpoolCapture&) = delete;

  // Which notifications open_direct_access() should be asked for.
  static Notifications wanted(const SourceConfig& common);

  // May be called again after pause().
  void start();
  // Finishes what is in hand; the last events may not be durable yet.
  void stop();
  // Ends the thread, and keeps everything for another start(): what the kernel has queued, entries
  // that wait for room, the counters. With inotify alone an entry that is gone by then is missed.
  void pause();
  // After pause(): the same plugin, spool and way to notice entries, otherwise configured.
  // `numbers` is of this adapter, too.
  void change(Options options, const SpoolAdapter& adapter,
              std::unique_ptr<NumberResolver> numbers);
  // One scan in the calling thread, for --once: everything complete is given to the journal.
  // Entries that are being written are inspected again until they are whole or `patience` is over;
  // returns how many were still incomplete then.
  std::size_t run_once(std::chrono::milliseconds patience, const std::stop_token& stop);

  // Starts a scan of everything soon: after a reload, or because an administrator asks for it.
  void rescan();
  CaptureStatus status() const;
  // True if the entry of this mark is still the one that was captured.
  bool unchanged(const CaptureMark& mark) const;

  // ---- what the thread does

  // Before the first step: watches and scans the spool, or waits for its mount.
  void begin();
  struct Pause {
    std::chrono::milliseconds most{0};
    bool until_notification = true;  // else only stop() or rescan() ends it early
  };
  // Does everything that can be done now, and returns how long there is nothing to do. It waits for
  // nothing but the journal's writer.
  //
  // A step reads structure first and handles it last: what structure reports was written before, so
  // the content that is queued by then is taken before a missing entry may be called missing.
  Pause step(const std::stop_token& stop);
  void wait(Pause pause);
  const EntryTable& table() const { return table_; }

 private:
  // Records that a complete scan has not listed are gone from the spool. They are not forgotten
  // until every older notification of structure has been handled: if a captured entry were
  // forgotten earlier, a late notification of its appearance would make it look missed. Under load
  // the queue is never found empty, so a position in it is compared.
  struct Unlisted {
    std::uint32_t scan = 0;
    std::uint64_t after = 0;  // NotificationReader::structure_taken()
  };

  void note_method(const OpenedAccess& opened);
  void restore_marks();
  void run(const std::stop_token& stop) noexcept;
  void wake() const;

  bool is_interrupted() const { return runner_.is_stopping() || pausing_; }
  bool take_notifications();
  bool take_content();
  void read_early(const StructureEvent& event);
  void on_structure(const StructureEvent& event);
  void on_name(const StructureEvent& event, const WatchList::Watched& watched);
  void on_directory(const StructureEvent& event, const std::string& path);
  void on_entry(const StructureEvent& event, const std::string& key);
  void on_file(const StructureEvent& event, const SpoolPath& place, bool in_directory);
  void on_no_descriptors();
  void on_overflow(std::string_view id, std::string_view sentence);

  void begin_scan(bool thorough);
  void scan_some();
  void forget_unlisted();
  void inspect_due();
  void offer_waiting();

  void check_mounts();
  SpoolPresence::State check_root();
  void lose_spool(const std::string& reason);
  void search_spool();
  void adopt_root();

  Pause pause(bool drained);
  void publish();

  CaptureOptions options_;
  const std::unique_ptr<SpoolAccess> access_;
  GuardedAdapter adapter_;
  const CaptureContext context_;
  const UniqueFd wake_;
  GapWatch gaps_;
  std::atomic<bool> rescan_asked_ = false;
  std::atomic<bool> room_ = false;  // the journal may take what it refused
  std::atomic<bool> pausing_ = false;
  bool started_ = false;  // and not stopped

  // Of the capture thread alone:
  EntryTable table_;
  SpoolPresence presence_;
  WatchList watches_;
  Scanner scanner_;
  ActionRunner runner_;
  ContentIntake intake_;
  NotificationReader notifications_;
  std::optional<Unlisted> unlisted_;
  std::optional<SteadyTime> no_descriptors_at_;  // of the last scan for that reason
  bool begun_ = false;
  bool structure_drained_ = true;
  bool small_batch_ = false;  // fanotify's queue was short when it was last read

  std::jthread thread_;
};

}  // namespace scriptorium
