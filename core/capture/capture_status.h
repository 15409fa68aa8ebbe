#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/api/logger.h"
#include "core/base/guarded.h"
#include "core/base/histogram.h"
#include "core/base/text.h"
#include "core/capture/gap_tracker.h"
#include "core/redact/tally.h"

namespace scriptorium {

// What a spool source has seen since the daemon started.
struct CaptureStatus {
  std::string capture_method;     // "fanotify", "inotify", "scan"
  std::string why_not_better;     // "" = it is the best there is, or what was asked for
  std::uint64_t captured = 0;     // events that are durable in the journal
  std::uint64_t incomplete = 0;   // of them, taken half written at incomplete_after_seconds
  std::uint64_t malformed = 0;    // of them, with problems
  std::uint64_t superseding = 0;  // of them, longer than an earlier capture of the same file
  std::map<std::string, std::uint64_t> by_method;  // captured, by what noticed them
  redact::Tally redactions;                        // in them, by rule
  std::map<std::string, std::uint64_t> missed;     // seen to appear, never read: reason
  std::map<std::string, std::uint64_t> ignored;    // not archived on purpose: reason
  std::uint64_t duplicates = 0;                    // seen again, captured before
  std::uint64_t overflows = 0;         // queues that ran over; each was followed by a scan
  std::uint64_t scans = 0;             // that have begun
  std::uint64_t pending = 0;           // entries that are not taken yet
  std::uint64_t pending_bytes = 0;     // what has been read of them
  std::uint64_t waiting_for_room = 0;  // of the pending ones: the journal has no room for them
  // From the close of the file until it is durable, of events that a notification brought: the
  // newest, and all.
  std::optional<double> lag_seconds;
  Histogram close_to_durable;
  std::optional<std::string> last_error;
  bool spool_there = true;
  std::optional<GapStatus> gaps;  // of a scheduler that counts its jobs
};

// The status while it changes, and the one place in which capture reports.
// Threads: any. Shared with callbacks that the journal may still hold when capture has ended.
class CaptureReport {
 public:
  CaptureReport(std::string source, Logger& log) : source_(std::move(source)), log_(log) {}

  template <typename F>
  void change(F&& f) {
    status_.with(std::forward<F>(f));
  }
  CaptureStatus status() const {
    return status_.with([](const CaptureStatus& s) { return s; });
  }
  void missed(const std::string& reason) {
    change([&](CaptureStatus& s) { ++s.missed[reason]; });
    log_.warning("ENTRY_MISSED", "a spool entry was seen to appear and could not be read",
                 {{"source", source_}, {"reason", reason}});
  }
  void ignored(const std::string& reason) {
    change([&](CaptureStatus& s) { ++s.ignored[reason]; });
  }
  void duplicate() {
    change([](CaptureStatus& s) { ++s.duplicates; });
  }
  void note_error(const std::string& text) {
    change([&](CaptureStatus& s) { s.last_error = printable(text); });
  }
  Logger& log() { return log_; }
  const std::string& source() const { return source_; }

 private:
  const std::string source_;
  Logger& log_;
  Guarded<CaptureStatus> status_;
};

}  // namespace scriptorium
