#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "core/base/time.h"
#include "core/capture/capture_options.h"
#include "core/capture/capture_status.h"
#include "core/capture/entry_check.h"
#include "core/capture/entry_reader.h"
#include "core/capture/entry_table.h"
#include "core/capture/guarded_adapter.h"
#include "core/journal/journal.h"

namespace scriptorium {

// Makes an event of an entry's content and gives it to the journal.
// Threads: the capture thread. Waits while the journal's writer is behind.
class EntryTaker {
 public:
  EntryTaker(const CaptureOptions& options, const GuardedAdapter& adapter, const EntryTable& table,
             EntryReader& reader, const EntryCheck& check, Journal& journal,
             std::shared_ptr<CaptureReport> report, const Clock& clock)
      : options_(options),
        adapter_(adapter),
        table_(table),
        reader_(reader),
        check_(check),
        journal_(journal),
        report_(std::move(report)),
        clock_(clock) {}

  // With --once there is nothing else to do while the journal is full.
  void wait_for_room() { waits_for_room_ = true; }

  // What the table is to be told. `key` has an open inspection with content, and must outlive the
  // answer. `whole`: as far as the adapter can tell.
  EntryTable::Input take(const std::string& key, bool whole, const std::stop_token& stop);

 private:
  EntryTable::Input unparsable(const std::string& key, const SpoolEntry& content,
                               const Error& error) const;
  EntryTable::Input offer(const std::string& key, std::shared_ptr<Event> event,
                          CaptureRecord record, const std::stop_token& stop);
  Journal::Append append_of(const std::string& key, std::shared_ptr<Event> event,
                            const CaptureRecord& record) const;

  const CaptureOptions& options_;
  const GuardedAdapter& adapter_;
  const EntryTable& table_;
  EntryReader& reader_;
  const EntryCheck& check_;
  Journal& journal_;
  const std::shared_ptr<CaptureReport> report_;
  const Clock& clock_;
  bool waits_for_room_ = false;
};

}  // namespace scriptorium
