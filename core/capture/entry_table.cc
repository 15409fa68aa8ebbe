#include "core/capture/entry_table.h"

#include <algorithm>
#include <utility>

namespace scriptorium {
namespace {

using Kind = EntryAction::Kind;
using std::chrono::milliseconds;

// How long after the content's queue was read a missing entry is inspected once more.
constexpr milliseconds kSecondLook{1};

// How long ago any of its files was written, as the files themselves tell.
std::chrono::nanoseconds youngest_age(const SpoolEntry& entry, Timestamp wall) {
  std::int64_t newest = 0;
  for (const SpoolFile& file : entry.files) newest = std::max(newest, file.stat.mtime_ns);
  return std::chrono::nanoseconds(wall.nanoseconds - newest);
}

}  // namespace

// ---- changes of one entry

Inspection& EntryTable::open(Node& node, const char* method, SteadyTime now,
                             EntryActions& actions) {
  if (!node.second.inspection && !node.second.stands())
    actions.push_back({Kind::kCountNumber, node.first});
  return store_.open(node, method, now);
}

void EntryTable::close(Node& node, EntryActions& actions, bool keep_watch) {
  if (!node.second.inspection) return;
  store_.close(node);
  actions.push_back({.kind = Kind::kRelease, .key = node.first, .keep_watch = keep_watch});
}

void EntryTable::remember(Node& node, CaptureRecord record) {
  record.scan = scan_;  // it may have come after the running scan's lists
  store_.remember(node, std::move(record));
}

void EntryTable::forget(Node& node, EntryActions& actions) {
  if (node.second.record->marked) actions.push_back({Kind::kForgetMark, node.first});
  // What the inspection holds, or a queued notification brings, may be what was captured.
  const bool keep = options_.content_notifications || node.second.inspection != nullptr;
  store_.forget(node, keep);
}

void EntryTable::miss(Node& node, std::string reason, Departure departure, EntryActions& actions) {
  actions.push_back({Kind::kCountMissed, node.first, std::move(reason)});
  store_.depart(node, departure);
}

// An entry that is not archived on purpose is remembered for as long as it stands, so that it is
// not read again.
void EntryTable::ignore(Node& node, FileIdentity identity, EntryActions& actions) {
  // The mark is of an earlier life of the name.
  if (node.second.stands() && node.second.record->marked)
    actions.push_back({Kind::kForgetMark, node.first});
  CaptureRecord record;
  record.identity = std::move(identity);
  record.kind = CaptureRecord::Kind::kIgnored;
  remember(node, std::move(record));
  close(node, actions);
}

void EntryTable::ignore_content(Node& node, EntryActions& actions) {
  const SpoolFile& file = node.second.inspection->content.files.front();
  ignore(node, identity_of(file.name, file.stat), actions);
}

// ---- time

bool EntryTable::is_current(const InspectionSchedule::Due& due) const {
  const Entry* entry = store_.find(due.key);
  if (entry == nullptr || !entry->inspection) return false;
  const auto* phase = std::get_if<Inspection::Due>(&entry->inspection->phase);
  return phase != nullptr && phase->at == due.at;
}

void EntryTable::schedule(Node& node, SteadyTime now, SteadyTime at) {
  Inspection& inspection = *node.second.inspection;
  if (inspection.waits()) return;  // until the journal has room
  const SteadyTime give_up = inspection.first_seen + options_.incomplete_after;
  if (now < give_up) at = std::min(at, give_up);
  const auto* due = std::get_if<Inspection::Due>(&inspection.phase);
  if (due != nullptr && due->at <= at) return;
  inspection.phase = Inspection::Due{at};
  schedule_.add(at, node.first);
  schedule_.trim(store_.inspections(), [this](const auto& d) { return is_current(d); });
}

void EntryTable::inspect_again(Node& node, SteadyTime now) {
  schedule(node, now, InspectionSchedule::retry_at(now, node.second.inspection->first_seen));
}

std::optional<SteadyTime> EntryTable::next_due() {
  const auto* due = schedule_.first([this](const auto& d) { return is_current(d); });
  return due == nullptr ? std::nullopt : std::optional(due->at);
}

EntryActions EntryTable::handle(const Timer& in) {
  const auto at = next_due();
  if (!at || *at > in.now) return {};
  const std::string key = schedule_.first([](const auto&) { return true; })->key;
  schedule_.pop();
  Entry& entry = store_.node(key)->second;
  entry.inspection->phase = Inspection::InHand{};
  // One that was taken in part may have got another file.
  const bool verify = entry.stands() && entry.inspection->content.files.empty() &&
                      entry.record->kind != CaptureRecord::Kind::kPartial;
  return {{verify ? Kind::kVerify : Kind::kInspect, key}};
}

// ---- notifications of structure

EntryActions EntryTable::handle(const DirectoryAppeared& in) {
  EntryActions actions;
  Node& node = store_.make(in.key);
  Entry& entry = node.second;
  if (entry.departure == Departure::kCounted) return actions;  // of what was counted already
  entry.departure = Departure::kNone;  // its end was read: this is another one of the same name
  if (options_.content_notifications) {
    if (entry.stands()) return actions;
    open(node, "scan", in.now, actions).counts = true;
    schedule(node, in.now, in.now + kStructureGrace);
    return actions;
  }
  open(node, "inotify", in.now, actions).counts = true;
  actions.push_back({Kind::kReadAtOnce, node.first});
  return actions;
}

EntryActions EntryTable::handle(const DirectoryRemoved& in) {
  EntryActions actions;
  Node* node = store_.node(in.key);
  if (node == nullptr) return actions;
  Entry& entry = node->second;
  if (entry.stands()) {
    // The same name may stand again already, captured, before its predecessor's removal is read.
    if (!in.is_gone) return actions;
    forget(*node, actions);
    store_.depart(*node, Departure::kEnded);
    return actions;
  }
  if (entry.inspection) {
    Inspection& inspection = *entry.inspection;
    inspection.removal_read = true;
    if (inspection.waits()) {
      // What waits without its bytes is lost now; what has them is delivered later.
      if (inspection.content.files.empty() && in.is_gone) {
        miss(*node, "journal full", Departure::kEnded, actions);
        close(*node, actions);
      }
    } else if (!options_.content_notifications) {
      actions.push_back({Kind::kInspect, node->first});
    }
  }
  if (entry.departure == Departure::kCounted) entry.departure = Departure::kEnded;
  return actions;
}

EntryActions EntryTable::handle(const FileChanged& in) {
  EntryActions actions;
  Node& node = store_.make(in.key);
  Entry& entry = node.second;
  if (options_.content_notifications) {
    // Content notifications tell of closed files: only links and renames need an inspection.
    if (in.appeared && !(entry.stands() && in.stands)) {
      open(node, "scan", in.now, actions);
      schedule(node, in.now, in.now + kStructureGrace);
    }
    store_.tidy(node);
    return actions;
  }
  if (entry.stands() && entry.record->identity.file == in.file && in.stands) return actions;
  if (!in.tells_only) {
    // It was left out because it had no script, and here is one.
    if (in.appeared && entry.stands() && entry.record->kind == CaptureRecord::Kind::kIgnored)
      forget(node, actions);
    if (!entry.stands()) {
      if (in.appeared && !in.in_directory) open(node, "inotify", in.now, actions);
      if (entry.inspection) entry.inspection->counts = true;
    }
  }
  open(node, "inotify", in.now, actions);
  actions.push_back({Kind::kInspect, node.first});
  return actions;
}

EntryActions EntryTable::handle(const FileRemoved& in) {
  EntryActions actions;
  Node* node = store_.node(in.key);
  // An entry without a directory of its own is gone with the file that it is known by.
  if (node == nullptr || in.in_directory || !node->second.stands() ||
      node->second.record->identity.file != in.file || in.stands)
    return actions;
  forget(*node, actions);
  store_.depart(*node, Departure::kEnded);
  // A record file may stand a moment longer than its script.
  if (node->second.inspection && node->second.inspection->content.file(in.file) == nullptr)
    close(*node, actions);
  return actions;
}

// ---- what was read

EntryActions EntryTable::handle(const ContentArrived& in) {
  EntryActions actions;
  Inspection& inspection = open(store_.make(in.key), "fanotify", in.now, actions);
  inspection.counts = inspection.counts || !in.tells_only;
  inspection.method = "fanotify";  // whatever noticed the entry's directory before
  return actions;
}

EntryActions EntryTable::handle(const CapturedBefore& in) {
  EntryActions actions;
  // What came of its other files meanwhile belongs to the same capture.
  if (Node* node = store_.node(in.key)) close(*node, actions);
  actions.push_back({Kind::kCountDuplicate, std::string(in.key)});
  return actions;
}

EntryActions EntryTable::handle(const ReadFailed& in) {
  EntryActions actions;
  Node& node = store_.make(in.key);
  open(node, in.method, in.now, actions);
  inspect_again(node, in.now);
  return actions;
}

EntryActions EntryTable::handle(const Inspecting& in) {
  EntryActions actions;
  Inspection& inspection = open(store_.make(in.key), in.method, in.now, actions);
  if (!inspection.waits()) inspection.phase = Inspection::InHand{};
  return actions;
}

EntryActions EntryTable::handle(const Inspected& in) {
  EntryActions actions;
  Node* node = store_.node(in.content.key);
  if (node == nullptr || !node->second.inspection) return actions;
  if (in.found) {
    node->second.inspection->unreadable = in.unreadable;
    judge(*node, in.content, actions);
  } else {
    vanished(*node, in, actions);
  }
  return actions;
}

EntryActions EntryTable::handle(const Content& in) {
  EntryActions actions;
  Node* node = store_.node(in.key);
  if (node != nullptr && node->second.inspection) judge(*node, in, actions);
  return actions;
}

// The entry is not there. Bytes that a notification brought are as good as ever; what is missing
// will not come any more.
void EntryTable::vanished(Node& node, const Inspected& in, EntryActions& actions) {
  Entry& entry = node.second;
  Inspection& inspection = *entry.inspection;
  const bool nothing = inspection.content.files.empty();
  const bool counts = inspection.counts && !entry.stands() && entry.departure == Departure::kNone;
  const Assessment::State state = in.content.assessment.state;
  const bool partial =
      state == Assessment::State::kIncomplete || state == Assessment::State::kDoubtful;
  // It may be gone with its spool, and then it comes back with it.
  if (counts && in.spool_uncertain) return inspect_again(node, in.content.now);
  // It may have been closed and removed since the queue of content was found empty: once more after
  // that queue has been read.
  if ((nothing ? counts : partial) && options_.content_notifications &&
      (inspection.missed_step == 0 || inspection.missed_step == in.step)) {
    inspection.missed_step = in.step;
    return schedule(node, in.content.now, in.content.now + kSecondLook);
  }
  if (!nothing && state != Assessment::State::kIgnore) {
    actions.push_back({.kind = Kind::kTake, .key = node.first, .whole = !partial});
    return;
  }
  if (nothing && counts) {
    const char* reason = inspection.unreadable ? "unreadable"
                         : inspection.refused  ? "journal full"
                                               : "vanished";
    miss(node, reason, inspection.removal_read ? Departure::kEnded : Departure::kCounted, actions);
  }
  if (!nothing && !entry.stands())
    actions.push_back({Kind::kCountIgnored, node.first, std::string(in.content.assessment.reason)});
  close(node, actions);
  store_.tidy(node);
}

// The entry is there, or content of it has come: is it whole?
void EntryTable::judge(Node& node, const Content& in, EntryActions& actions) {
  Inspection& inspection = *node.second.inspection;
  // It waits in the spool until somebody corrects the rights; if it goes before that, it was
  // missed.
  const bool is_whole = in.assessment.state == Assessment::State::kComplete;
  if (inspection.unreadable && !is_whole) return inspect_again(node, in.now);
  if (inspection.content.files.empty()) {
    if (in.now - inspection.first_seen < options_.incomplete_after)
      return inspect_again(node, in.now);
    actions.push_back({Kind::kCountIgnored, node.first, "empty entry"});
    actions.push_back({Kind::kIgnoreEmpty, node.first});
    return;
  }
  switch (in.assessment.state) {
    case Assessment::State::kComplete:
      actions.push_back({.kind = Kind::kTake, .key = node.first, .whole = true});
      return;
    case Assessment::State::kIgnore:
      // Its record file may be written again many times: it is one entry all the same.
      if (!node.second.stands())
        actions.push_back({Kind::kCountIgnored, node.first, std::string(in.assessment.reason)});
      return ignore_content(node, actions);
    case Assessment::State::kDuplicate:
      if (store_.is_known_inode(inspection.content)) {
        actions.push_back({Kind::kCountIgnored, node.first, "hard link to another entry's script"});
        return ignore_content(node, actions);
      }
      actions.push_back({.kind = Kind::kTake, .key = node.first, .whole = true});
      return;
    case Assessment::State::kSettling:
    case Assessment::State::kDoubtful: return judge_unsettled(node, in, actions);
    case Assessment::State::kIncomplete: return judge_incomplete(node, in, actions);
  }
}

// Taken if nothing changes for a while.
void EntryTable::judge_unsettled(Node& node, const Content& in, EntryActions& actions) {
  const Inspection& inspection = *node.second.inspection;
  const auto quiet = in.now - inspection.changed;
  if (quiet >= in.assessment.settle ||
      youngest_age(inspection.content, in.wall) >= in.assessment.settle) {
    const bool whole = in.assessment.state == Assessment::State::kSettling;
    actions.push_back({.kind = Kind::kTake, .key = node.first, .whole = whole});
    return;
  }
  schedule(node, in.now, in.now + std::chrono::ceil<milliseconds>(in.assessment.settle - quiet));
}

// Waited for until incomplete_after.
void EntryTable::judge_incomplete(Node& node, const Content& in, EntryActions& actions) {
  Inspection& inspection = *node.second.inspection;
  const bool is_old =
      expects_no_more_ && youngest_age(inspection.content, in.wall) >= options_.incomplete_after;
  if (in.now - inspection.first_seen >= options_.incomplete_after || is_old) {
    actions.push_back({.kind = Kind::kTake, .key = node.first, .whole = false});
    return;
  }
  if (options_.watches_entries) actions.push_back({Kind::kWatch, node.first});
  if (store_.held_bytes() > kHeldBytesLimit) store_.let_go(inspection);
  inspect_again(node, in.now);
}

// ---- what became of it

EntryActions EntryTable::handle(const Verified& in) {
  EntryActions actions;
  Node* node = store_.node(in.key);
  if (node == nullptr || !node->second.stands()) return actions;
  Entry& entry = node->second;
  if (entry.record->identity != in.identity) {
    entry.record->identity = in.identity;
    if (entry.record->marked) actions.push_back({Kind::kSetMark, node->first});
  }
  if (entry.inspection && entry.inspection->content.files.empty() && !entry.inspection->waits() &&
      entry.record->kind != CaptureRecord::Kind::kPartial)
    close(*node, actions);
  return actions;
}

EntryActions EntryTable::handle(const Ignored& in) {
  EntryActions actions;
  if (Node* node = store_.node(in.key)) ignore(*node, in.identity, actions);
  return actions;
}

EntryActions EntryTable::handle(const Captured& in) {
  EntryActions actions;
  Node& node = store_.make(in.key);
  Entry& entry = node.second;
  CaptureRecord record = in.record;
  bool changed = false;
  if (in.duplicate && !entry.stands()) {
    // Notifications that were queued before its removal have brought it once more.
    actions.push_back({Kind::kCountDuplicate, node.first});
    close(node, actions);
    return actions;
  }
  if (in.duplicate) {
    actions.push_back({Kind::kCountDuplicate, node.first});
    changed = entry.record->identity != record.identity;
    record.marked = entry.record->marked;
    record.directory_inode = entry.record->directory_inode;
  }
  const bool keep_watch = record.kind == CaptureRecord::Kind::kPartial;  // it may grow
  remember(node, std::move(record));
  if (changed && entry.record->marked) actions.push_back({Kind::kSetMark, node.first});
  close(node, actions, keep_watch);
  return actions;
}

EntryActions EntryTable::handle(const Unparsable& in) {
  EntryActions actions;
  Node* node = store_.node(in.key);
  if (node == nullptr || !node->second.inspection) return actions;
  const Entry& entry = node->second;
  const bool known = entry.stands() || entry.departure != Departure::kNone;
  const bool counts = entry.inspection->counts && !known;
  if (!in.vanished) {
    ignore_content(*node, actions);
    actions.push_back({Kind::kCountMissed, node->first, "unparsable"});
    return actions;
  }
  if (in.stands) {
    ignore_content(*node, actions);
  } else {
    close(*node, actions);
  }
  if (counts) {
    miss(*node, "vanished", Departure::kCounted, actions);
  } else if (!known && in.stands) {
    actions.push_back({Kind::kCountIgnored, node->first, in.message});
  }
  store_.tidy(*node);
  return actions;
}

EntryActions EntryTable::handle(const Refused& in) {
  EntryActions actions;
  Node* node = store_.node(in.key);
  if (node == nullptr || !node->second.inspection) return actions;
  Inspection& inspection = *node->second.inspection;
  if (in.asked && !in.over_share) waiting_.refused(inspection.bytes);
  inspection.refused = true;
  const bool waited = inspection.waits();
  inspection.phase = Inspection::Waiting{in.whole};
  if (!waited && !waiting_.add({node->first, inspection.bytes, in.mtime_ns}, in.now)) {
    actions.push_back(
        {.kind = Kind::kLeaveToScan, .key = node->first, .first = waiting_.leave_to_scan()});
    close(*node, actions);
    store_.tidy(*node);
    return actions;
  }
  // One user's entries must not use up what may be held of all.
  if (store_.held_bytes() > (in.over_share ? kHeldBytesLimit / 2 : kHeldBytesLimit))
    store_.let_go(inspection);
  return actions;
}

EntryActions EntryTable::handle(const Offered& in) {
  Node* node = store_.node(in.key);
  if (node == nullptr || !node->second.inspection) return {};
  Inspection& inspection = *node->second.inspection;
  const auto* waiting = std::get_if<Inspection::Waiting>(&inspection.phase);
  if (waiting == nullptr) return {};
  const bool whole = waiting->whole;
  inspection.phase = Inspection::InHand{};
  // The bytes were let go, or what was there when its time was up may be whole by now.
  if (inspection.content.files.empty() || !whole) return {{Kind::kInspect, node->first}};
  return {{.kind = Kind::kTake, .key = node->first, .whole = whole}};
}

EntryActions EntryTable::handle(const WaitedInVain& in) {
  EntryActions actions;
  Node* node = store_.node(in.key);
  if (node == nullptr || !node->second.inspection) return actions;
  miss(*node, "journal full", Departure::kEnded, actions);
  close(*node, actions);
  return actions;
}

// ---- scans

EntryActions EntryTable::handle(const Listed& in) {
  EntryActions actions;
  Node& node = store_.make(in.key);
  Entry& entry = node.second;
  if (entry.stands()) {
    CaptureRecord& record = *entry.record;
    record.scan = scan_;
    const bool same_directory =
        in.directory_inode != 0 && record.directory_inode == in.directory_inode;
    if (!thorough_ && record.kind != CaptureRecord::Kind::kPartial && same_directory)
      return actions;
    actions.push_back({Kind::kVerify, node.first});
    return actions;
  }
  // One in hand has an inspection of its own to come, unless it was only read in passing.
  if (entry.inspection && !std::holds_alternative<Inspection::InHand>(entry.inspection->phase))
    return actions;
  if (in.counts) open(node, "scan", in.now, actions).counts = true;
  actions.push_back({Kind::kInspect, node.first});
  return actions;
}

EntryActions EntryTable::handle(const Unlisted& in) {
  EntryActions actions;
  Node* node = store_.node(in.key);
  if (node == nullptr || !node->second.stands()) return actions;
  forget(*node, actions);
  store_.tidy(*node);
  return actions;
}

EntryActions EntryTable::handle(const Drained& in) {
  if (in.structure || store_.departures() > kDeparturesLimit) store_.clear_departures();
  if (in.all || store_.retired() > kRetiredLimit) store_.clear_retired();
  return {};
}

EntryActions EntryTable::on(const Input& input) {
  return std::visit([this](const auto& in) { return handle(in); }, input);
}

void EntryTable::restore(const CaptureMark& mark) {
  if (auto record = record_of(mark)) store_.remember(store_.make(mark.entry), *std::move(record));
}

void EntryTable::add_file(std::string_view key, SpoolFile file, SteadyTime now) {
  Node* node = store_.node(key);
  if (node != nullptr && node->second.inspection)
    store_.add_file(*node->second.inspection, std::move(file), now);
}

void EntryTable::begin_scan(std::uint32_t number, bool thorough) {
  scan_ = number;
  thorough_ = thorough;
}

void EntryTable::listed_with(std::string_view key, std::uint64_t directory_inode) {
  Node* node = store_.node(key);
  if (node == nullptr || !node->second.stands()) return;
  node->second.record->scan = scan_;
  node->second.record->directory_inode = directory_inode;
}

}  // namespace scriptorium
