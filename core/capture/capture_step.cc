#include <algorithm>
#include <utility>

#include "core/base/fault_point.h"
#include "core/base/path.h"
#include "core/capture/capture.h"
#include "core/capture/entry_check.h"

// The parts of SpoolCapture::step(): notifications, scans, entries that are due or wait for room.
namespace scriptorium {
namespace {

using std::chrono::milliseconds;

// At least this long between two scans because descriptors had run out.
constexpr milliseconds kDescriptorScans{60'000};
// Entries of a scan, and notifications of structure, that one step handles before it reads
// notifications again.
constexpr int kScanSlice = 32;
constexpr std::size_t kStructureSlice = 16;

}  // namespace

// ---- notifications

// True if nothing was left to read.
bool SpoolCapture::take_notifications() {
  const bool content = context_.has_content_notifications();
  if (content) {
    notifications_.read_structure({});
  } else {
    notifications_.read_structure([&](const StructureEvent& event) { read_early(event); });
  }
  structure_drained_ = !notifications_.has_structure();
  const bool content_drained = !content || take_content();
  // Without fanotify only some are handled: entries that appear meanwhile must be read before they
  // are removed.
  std::size_t most = notifications_.structure_count();
  if (!content) most = std::min(most, kStructureSlice);
  for (; most > 0 && !is_interrupted(); --most) on_structure(notifications_.take_structure());
  return structure_drained_ && content_drained;
}

// All that is queued now; true if nothing was.
bool SpoolCapture::take_content() {
  using Trouble = NotificationReader::ContentBatch::Trouble;
  const std::size_t queued = notifications_.queued_content();
  small_batch_ = notifications_.is_small(queued);
  for (std::size_t left = queued; left > 0 && !is_interrupted();) {
    const auto batch = notifications_.read_content(left);
    if (batch.trouble == Trouble::kNoDescriptors) on_no_descriptors();
    if (batch.trouble == Trouble::kFailed)
      on_overflow("CAPTURE_READ_FAILED",
                  "reading notifications failed; the spool is scanned again");
    if (batch.bytes == 0) break;
    for (const ContentEvent& event : batch.events) {
      FAULT_POINT("capture.event_read");
      if (event.overflow) {
        on_overflow("CAPTURE_OVERFLOW",
                    "the kernel's queue of notifications ran over; the spool is scanned again");
      } else if (!runner_.is_stopping()) {
        intake_.take(event);
      }
    }
    left -= std::min(left, batch.bytes);
  }
  return queued == 0;
}

// One scan a minute finds what was dropped. A scan each time could leave no time for anything else.
void SpoolCapture::on_no_descriptors() {
  const SteadyTime now = context_.clock.steady();
  if (no_descriptors_at_ && now < *no_descriptors_at_ + kDescriptorScans) {
    scanner_.no_later_than(*no_descriptors_at_ + kDescriptorScans);
    scanner_.make_next_thorough();
    return;
  }
  no_descriptors_at_ = now;
  on_overflow("CAPTURE_DESCRIPTORS_USED_UP",
              "no descriptor was left for an event; the spool is scanned again, once a minute at "
              "most; raise LimitNOFILE of the unit, or fs.file-max");
}

void SpoolCapture::on_overflow(std::string_view id, std::string_view sentence) {
  context_.report->change([](CaptureStatus& s) { ++s.overflows; });
  context_.report->log().warning(id, sentence, {{"source", options_.name}});
  begin_scan(true);
}

// Without fanotify an entry can only be read while it exists, so its bytes are read before any
// other entry is parsed or given to the journal.
void SpoolCapture::read_early(const StructureEvent& event) {
  using Kind = StructureEvent::Kind;
  if ((event.kind != Kind::kAppeared && event.kind != Kind::kWritten) || !table_.may_hold_more())
    return;
  const WatchList::Watched* watched = watches_.find(event.watch);
  if (watched == nullptr) return;
  const std::string path = join_path(watched->path, event.name);
  const SpoolPath place = adapter_.classify(path);
  const std::string key(place.entry);
  if (place.role == SpoolPath::Role::kEntryFile && watched->of_entry) {
    if (table_.inspection(key) != nullptr) runner_.reader().read_file(key, path);
  } else if (place.role == SpoolPath::Role::kEntryDirectory && event.is_directory) {
    runner_.read_early(key);
  }
}

void SpoolCapture::on_structure(const StructureEvent& event) {
  using Kind = StructureEvent::Kind;
  if (event.kind == Kind::kOverflow) {
    return on_overflow("CAPTURE_OVERFLOW",
                       "the kernel's queue of notifications ran over; the spool is scanned again; "
                       "raise fs.inotify.max_queued_events");
  }
  const WatchList::Watched* found = watches_.find(event.watch);
  if (found == nullptr) return;
  const WatchList::Watched watched = *found;  // the calls below may change the list
  if (event.kind == Kind::kWatchEnded) return watches_.forget(event.watch);
  if (event.kind == Kind::kUnmounted) return lose_spool("it was unmounted");
  // Something has happened where the spool should be.
  if (!presence_.is_there()) return presence_.search_soon(context_.clock.steady());
  if (event.kind != Kind::kSelfGone) return on_name(event, watched);
  watches_.drop(event.watch);
  if (watched.path.empty()) return lose_spool("it was removed or renamed");
  if (watched.of_entry) runner_.inspect(watched.path, "inotify");
}

void SpoolCapture::on_name(const StructureEvent& event, const WatchList::Watched& watched) {
  const std::string path = join_path(watched.path, event.name);
  const SpoolPath place = adapter_.classify(path);
  if (event.kind == StructureEvent::Kind::kAppeared && event.moved && event.is_directory)
    intake_.forget_foreign();
  switch (place.role) {
    case SpoolPath::Role::kForeign: return;
    case SpoolPath::Role::kDirectory: return on_directory(event, path);
    case SpoolPath::Role::kEntryDirectory:
      if (event.is_directory) on_entry(event, std::string(place.entry));
      return;
    case SpoolPath::Role::kEntryRecord:
      if (event.kind == StructureEvent::Kind::kGone || table_.is_settled(place.entry)) return;
      [[fallthrough]];
    case SpoolPath::Role::kEntryFile: return on_file(event, place, watched.of_entry);
  }
}

void SpoolCapture::on_directory(const StructureEvent& event, const std::string& path) {
  if (event.kind == StructureEvent::Kind::kGone) {
    watches_.drop_directory(path);
    scanner_.no_later_than(context_.clock.steady() + EntryTable::kStructureGrace);
  } else if (event.kind == StructureEvent::Kind::kAppeared && event.is_directory) {
    watches_.add_directory(path);
    scanner_.add_directory(path);
  }
}

void SpoolCapture::on_entry(const StructureEvent& event, const std::string& key) {
  if (event.kind == StructureEvent::Kind::kGone) {
    const bool proven = table_.needs_proof(key) && is_gone(context_, key);
    runner_.report(EntryTable::DirectoryRemoved{key, proven});
  } else if (event.kind == StructureEvent::Kind::kAppeared) {
    runner_.report(EntryTable::DirectoryAppeared{key, context_.clock.steady()});
  }
}

void SpoolCapture::on_file(const StructureEvent& event, const SpoolPath& place, bool in_directory) {
  const bool removed = event.kind == StructureEvent::Kind::kGone;
  const bool appeared = event.kind == StructureEvent::Kind::kAppeared;
  // The record's file is compared only where that makes a difference.
  const CaptureRecord* record = table_.record(place.entry);
  const bool is_of_record = record != nullptr && record->identity.file == place.file;
  const bool content = context_.has_content_notifications();
  const bool matters = removed   ? is_of_record && !in_directory
                       : content ? record != nullptr && appeared
                                 : is_of_record;
  const bool unchanged = matters && as_recorded(context_, place.entry, *record).has_value();
  if (removed) {
    runner_.report(EntryTable::FileRemoved{place.entry, place.file, in_directory, unchanged});
    return;
  }
  runner_.report(EntryTable::FileChanged{.key = place.entry,
                                         .file = place.file,
                                         .in_directory = in_directory,
                                         .appeared = appeared,
                                         .is_record = place.role == SpoolPath::Role::kEntryRecord,
                                         .unchanged = unchanged,
                                         .now = context_.clock.steady()});
}

// ---- scans

void SpoolCapture::begin_scan(bool thorough) {
  scanner_.plan(context_.clock.steady());
  if (!presence_.is_there()) return;  // it is scanned when it is there again
  const std::uint32_t before = scanner_.number();
  // A spool that was lost and found again by this is scanned already.
  if (check_root() == SpoolPresence::State::kLost || scanner_.number() != before) return;
  if (!scanner_.is_running()) {
    intake_.forget_mounts();
    intake_.forget_foreign();
  }
  scanner_.begin(thorough);
}

void SpoolCapture::scan_some() {
  for (int i = 0; i < kScanSlice && !is_interrupted(); ++i) {
    const auto item = scanner_.take();
    if (!item) break;
    FAULT_POINT("capture.scan_entry");
    runner_.report(EntryTable::Listed{item->key, item->directory_inode, item->counts,
                                      context_.clock.steady()});
    table_.listed_with(item->key, item->directory_inode);
  }
  if (runner_.is_stopping()) return;
  const auto finished = scanner_.finish();
  if (!finished) return;
  if (finished->complete) unlisted_ = {scanner_.number(), notifications_.structure_end()};
  if (finished->again) begin_scan(true);
}

void SpoolCapture::forget_unlisted() {
  if (!unlisted_) return;
  if (!structure_drained_ && notifications_.structure_taken() < unlisted_->after) return;
  const std::uint32_t scan = std::exchange(unlisted_, std::nullopt)->scan;
  for (const std::string& key : table_.unlisted(scan)) {
    if (is_gone(context_, key, *table_.record(key))) runner_.report(EntryTable::Unlisted{key});
  }
}

// ---- due and waiting entries

void SpoolCapture::inspect_due() {
  // An inspection that is put off by a moment is left to the next step, which reads notifications
  // before it.
  const SteadyTime now = context_.clock.steady();
  while (presence_.is_there() && !is_interrupted()) {
    const auto due = table_.next_due();
    if (!due || *due > now) return;
    runner_.report(EntryTable::Timer{now});
  }
}

void SpoolCapture::offer_waiting() {
  if (table_.waiting().is_empty()) return;
  runner_.offer_again(room_.exchange(false));
  if (!table_.waiting().scan_is_due()) return;
  begin_scan(true);
  scanner_.forget_left();
}

}  // namespace scriptorium
