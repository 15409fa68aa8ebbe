#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "core/capture/capture_options.h"
#include "core/capture/capture_status.h"
#include "core/capture/entry_check.h"
#include "core/capture/entry_reader.h"
#include "core/capture/entry_table.h"
#include "core/capture/entry_taker.h"
#include "core/capture/guarded_adapter.h"
#include "core/capture/scanner.h"
#include "core/capture/spool_access.h"
#include "core/capture/spool_presence.h"
#include "core/capture/watch_list.h"
#include "core/journal/journal.h"

namespace scriptorium {

// Tells the table what was observed, and carries out what it answers: reads entries, gives events
// to the journal, counts.
//
// Threads: the capture thread. Borrows everything for its life.
class ActionRunner {
 public:
  struct Parts {
    const CaptureOptions& options;
    SpoolAccess& access;
    const GuardedAdapter& adapter;
    EntryTable& table;
    SpoolPresence& presence;
    WatchList& watches;
    Scanner& scanner;
    const EntryCheck& check;
    Journal& journal;
    std::shared_ptr<CaptureReport> report;
    const Clock& clock;
  };
  explicit ActionRunner(const Parts& parts);

  EntryReader& reader() { return reader_; }
  EntryTaker& taker() { return taker_; }
  // Each one reads what is queued; the table counts an entry as missed in a later one only.
  void begin_step() { ++step_; }
  std::uint64_t step() const { return step_; }

  void tell(const EntryTable::Input& input, const std::stop_token& stop);
  // Reads the entry and tells the table. `method`: what noticed it, if nothing did before.
  void inspect(const std::string& key, const char* method, const std::stop_token& stop);
  // All that was read of the entry so far is in the table.
  void judge(const std::string& key, const std::stop_token& stop);
  // Without fanotify: an entry that has just appeared is read before anything else is done, and
  // what this leaves open follows when its notification is handled.
  void read_early(const std::string& key, const std::stop_token& stop);
  // What waits for room is offered again, if it is time. `room`: the journal has called.
  void offer_again(bool room, const std::stop_token& stop);
  // At the end. Entries that still stand are found at the next start; the others were missed.
  void give_up_waiting(const std::stop_token& stop);
  void send_forgotten_marks();

 private:
  void carry_out(const EntryAction& action, const std::stop_token& stop);
  void take(const EntryAction& action, const std::stop_token& stop);
  void verify(const std::string& key, const std::stop_token& stop);
  void leave_to_scan(const EntryAction& action);
  bool read_at_once(const std::string& key);
  bool is_whole(const std::string& key) const;
  EntryTable::Content content_of(const std::string& key) const;

  const Parts parts_;
  EntryTable& table_;
  EntryReader reader_;
  EntryTaker taker_;
  std::vector<std::string> forgotten_marks_;
  std::uint64_t step_ = 0;
};

}  // namespace scriptorium
