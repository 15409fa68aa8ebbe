#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "core/api/spool_adapter.h"
#include "core/capture/action_runner.h"
#include "core/capture/capture_options.h"
#include "core/capture/capture_status.h"
#include "core/capture/content_intake.h"
#include "core/capture/entry_check.h"
#include "core/capture/entry_table.h"
#include "core/capture/gap_watch.h"
#include "core/capture/guarded_adapter.h"
#include "core/capture/notification_reader.h"
#include "core/capture/scanner.h"
#include "core/capture/spool_access.h"
#include "core/capture/spool_presence.h"
#include "core/capture/watch_list.h"
#include "core/journal/journal.h"

namespace scriptorium {

// Capture without its thread: step() does everything that can be done now, and never waits for
// anything but the journal's writer.
//
// A step reads structure first and handles it last: what it tells of was written before, so the
// content that is queued by then is taken before a missing entry may be called missing.
//
// Owns:    access, table, gap watch. Borrows adapter, journal, logger and clock for its life.
// Threads: begin(), step(), wait(), end() and run_once() from one; wake(), rescan(), status() and
//          unchanged() from any.
class CaptureEngine {
 public:
  CaptureEngine(CaptureOptions options, const SpoolAdapter& adapter, OpenedAccess opened,
                Journal& journal, Logger& log, const Clock& clock);
  ~CaptureEngine();
  CaptureEngine(const CaptureEngine&) = delete;
  CaptureEngine& operator=(const CaptureEngine&) = delete;

  // Around all steps, from the main thread: the gap watch, and the journal's calls.
  void start();
  void stop();

  // Before the first step: watches and scans the spool, or waits for its mount.
  void begin();
  struct Pause {
    std::chrono::milliseconds most{0};
    bool until_notification = true;  // else only a wake() ends it early
  };
  // Returns how long there is nothing to do.
  Pause step(const std::stop_token& stop);
  void wait(Pause pause);
  // After the last step.
  void end();
  // As SpoolCapture::run_once().
  std::size_t run_once(std::chrono::milliseconds patience, const std::stop_token& stop);

  void wake() const;
  void rescan();
  CaptureStatus status() const;
  bool unchanged(const CaptureMark& mark) const;
  const EntryTable& table() const { return table_; }  // for tests, between steps

 private:
  // Records that a complete scan has not listed are gone from the spool. They are not forgotten
  // before every notification of structure has been handled that is older: an entry that was
  // captured and forgotten would look like a missed one when the notification of its appearance
  // comes late. In a storm the queue is never found empty, so its end is counted.
  struct Unlisted {
    std::uint32_t scan = 0;
    std::uint64_t after = 0;  // NotificationReader::structure_taken()
  };

  void note_method(const OpenedAccess& opened);
  void restore_marks();

  bool take_notifications(const std::stop_token& stop);
  bool take_content(const std::stop_token& stop);
  void read_early(const StructureEvent& event, const std::stop_token& stop);
  void on_structure(const StructureEvent& event, const std::stop_token& stop);
  void on_name(const StructureEvent& event, const WatchList::Watched& watched,
               const std::stop_token& stop);
  void on_directory(const StructureEvent& event, const std::string& path);
  void on_entry(const StructureEvent& event, const std::string& key, const std::stop_token& stop);
  void on_file(const StructureEvent& event, const SpoolPath& place, bool in_directory,
               const std::stop_token& stop);
  void on_no_descriptors();
  void on_overflow(std::string_view id, std::string_view sentence);

  void begin_scan(bool thorough);
  void scan_some(const std::stop_token& stop);
  void forget_unlisted(const std::stop_token& stop);
  void inspect_due(const std::stop_token& stop);
  void offer_waiting(const std::stop_token& stop);

  void look_at_mounts();
  SpoolPresence::State check_root();
  void lose_spool(const std::string& reason);
  void search_spool();
  void adopt_root();

  Pause pause(bool drained);
  void publish();

  const CaptureOptions options_;
  const std::unique_ptr<SpoolAccess> access_;
  Journal& journal_;
  Logger& log_;
  const Clock& clock_;
  const UniqueFd wake_;
  const std::shared_ptr<CaptureReport> report_;
  const GuardedAdapter adapter_;
  const EntryCheck check_;
  GapWatch gaps_;
  std::atomic<bool> rescan_asked_ = false;
  std::atomic<bool> room_ = false;  // the journal may take what it refused

  // Of the capture thread alone:
  EntryTable table_;
  SpoolPresence presence_;
  WatchList watches_;
  Scanner scanner_;
  const ActionRunner::Parts parts_;
  ActionRunner runner_;
  ContentIntake intake_;
  NotificationReader notifications_;
  std::optional<Unlisted> unlisted_;
  std::optional<SteadyTime> no_descriptors_at_;  // of the last scan for that reason
  bool structure_drained_ = true;
  bool small_batch_ = false;  // fanotify's queue was short when it was last read
};

}  // namespace scriptorium
