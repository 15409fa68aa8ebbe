#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/capture/capture_context.h"
#include "core/capture/entry_reader.h"
#include "core/capture/entry_table.h"
#include "core/capture/scanner.h"
#include "core/capture/spool_presence.h"
#include "core/capture/watch_list.h"

namespace scriptorium {

// Reports observations to the table and performs the actions that it returns, of which each may be
// another observation: reads entries, makes events of them and gives these to the journal, counts.
//
// Owns:    the entry reader. Borrows everything else for its life.
// Threads: the capture thread. Waits while the journal's writer is behind.
class ActionRunner {
 public:
  ActionRunner(const CaptureContext& context, EntryTable& table, SpoolPresence& presence,
               WatchList& watches, Scanner& scanner)
      : context_(context),
        table_(table),
        presence_(presence),
        watches_(watches),
        scanner_(scanner),
        reader_(context, table, presence) {}

  EntryReader& reader() { return reader_; }
  // With --once there is nothing else to do while the journal is full.
  void wait_for_room() { waits_for_room_ = true; }
  // Each step reads what is queued, and the table counts an entry as missed only in a later one.
  // `stop` ends what takes long.
  void begin_step(const std::stop_token& stop) {
    ++step_;
    stop_ = stop;
  }
  std::uint64_t step() const { return step_; }
  bool is_stopping() const { return stop_.stop_requested(); }

  // Returns when all that follows is done. Not to be called by an action.
  void report(const EntryTable::Input& input);
  // Reads the entry and reports what was found. `method`: what noticed the entry, if it is new.
  void inspect(const std::string& key, const char* method) { report(read(key, method)); }
  // All files of the entry that were read so far have been added to the table.
  void assess(const std::string& key) { report(content_of(key)); }
  // With inotify only: an entry that has just appeared is read before anything else is done. Its
  // notification, which is handled later, completes what this leaves open.
  void read_early(const std::string& key);
  // Offers the waiting entries to the journal again, if it is time. `room`: the journal has called.
  void offer_again(bool room);
  // At the end. What is held of waiting entries is journaled beyond the limit, as far as
  // Journal::append_beyond_limit() goes. Of the rest, entries that still exist are found at the
  // next start; the others were missed.
  void end_waiting();
  void send_forgotten_marks();

 private:
  using Input = EntryTable::Input;  // its key is borrowed from the caller's
  void push(EntryActions actions);
  void perform_all();
  // What was observed.
  std::optional<Input> perform(const EntryAction& action);
  Input read(const std::string& key, const char* method);
  Input verify(const std::string& key);
  void leave_to_scan(const EntryAction& action);
  bool read_at_once(const std::string& key);
  bool is_whole(const std::string& key) const;
  EntryTable::Content content_of(const std::string& key) const;

  // The entry has an open inspection with content. `whole`: as far as the adapter can tell.
  Input take(const std::string& key, bool whole);
  // The event of the same entry, captured half written, that one of `parsed` replaces.
  std::optional<std::string> superseded_by(const std::string& key, const ParsedJob& parsed) const;
  Input unparsable(const std::string& key, const std::string& file, const Error& error);

  struct MadeEvent {
    std::shared_ptr<Event> event;
    std::optional<std::string> dead;  // why nobody gets it; nothing: it is delivered
  };
  // Without what the site does not keep.
  MadeEvent make_event(const SpoolEntry& entry, ParsedJob parsed, bool whole,
                       const char* method) const;
  Input offer(const std::string& key, MadeEvent made, CaptureRecord record);
  std::function<void(bool fresh)> count_captured(const Event& event, const char* method) const;

  const CaptureContext& context_;
  EntryTable& table_;
  SpoolPresence& presence_;
  WatchList& watches_;
  Scanner& scanner_;
  EntryReader reader_;
  std::deque<EntryAction> actions_;  // to be performed, the next one first
  std::vector<std::string> forgotten_marks_;
  std::stop_token stop_;
  std::uint64_t step_ = 0;
  bool waits_for_room_ = false;
  bool is_ending_ = false;
};

}  // namespace scriptorium
