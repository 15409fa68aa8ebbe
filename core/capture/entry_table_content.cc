#include <algorithm>
#include <utility>

#include "core/capture/entry_table.h"

// What was read of an entry, whether it is whole, and what became of it.
namespace scriptorium {
namespace {

using Kind = EntryAction::Kind;
using std::chrono::milliseconds;

// How long after the content's queue was read a missing entry is inspected once more.
constexpr milliseconds kSecondInspection{1};

// How long ago the youngest of its files was written, by the files' own times.
std::chrono::nanoseconds youngest_age(const SpoolEntry& entry, Timestamp wall) {
  std::int64_t newest = 0;
  for (const SpoolFile& file : entry.files) newest = std::max(newest, file.stat.mtime_ns);
  return std::chrono::nanoseconds(wall.nanoseconds - newest);
}

}  // namespace

void EntryTable::take(const Node& node, bool whole) {
  actions_.push_back({.kind = Kind::kTake, .key = node.first, .whole = whole});
}

// An entry that is not archived on purpose is remembered for as long as it exists, so that it is
// not read again.
void EntryTable::ignore(Node& node, FileIdentity identity) {
  // The mark belongs to an earlier entry of that name.
  if (node.second.has_record() && node.second.record->marked) act(Kind::kForgetMark, node);
  CaptureRecord record;
  record.identity = std::move(identity);
  record.kind = CaptureRecord::Kind::kIgnored;
  remember(node, std::move(record));
  close(node);
}

void EntryTable::ignore_content(Node& node) {
  const SpoolFile& file = node.second.inspection->content.files.front();
  ignore(node, identity_of(file.name, file.stat));
}

// ---- what was read

void EntryTable::handle(const ContentArrived& in) {
  Inspection& inspection = open(store_.make(in.key), "fanotify", in.now);
  inspection.counts = inspection.counts || !in.is_record;
  inspection.method = "fanotify";  // whatever noticed the entry's directory before
}

void EntryTable::handle(const CapturedBefore& in) {
  // What came of its other files meanwhile belongs to the same capture.
  if (Node* node = store_.node(in.key)) close(*node);
  actions_.push_back({Kind::kCountDuplicate, std::string(in.key)});
}

void EntryTable::handle(const ReadFailed& in) {
  Node& node = store_.make(in.key);
  open(node, "fanotify", in.now);
  inspect_again(node, in.now);
}

void EntryTable::handle(const Inspecting& in) {
  Node& node = store_.make(in.key);
  if (!open(node, in.method, in.now).waits()) move_to(node, Inspection::InHand{});
}

void EntryTable::handle(const Inspected& in) {
  Node* node = inspected(in.content.key);
  if (node == nullptr) return;
  if (!in.found) return vanished(*node, in);
  node->second.inspection->unreadable = in.unreadable;
  judge(*node, in.content);
}

void EntryTable::handle(const Content& in) {
  if (Node* node = inspected(in.key)) judge(*node, in);
}

// The entry is not there. Bytes that a notification brought are as good as ever; what is missing
// will not come any more.
void EntryTable::vanished(Node& node, const Inspected& in) {
  const Entry& entry = node.second;
  Inspection& inspection = *entry.inspection;
  const bool is_empty = inspection.content.files.empty();
  const bool counts =
      inspection.counts && !entry.has_record() && entry.departure == Departure::kNone;
  const Assessment::State state = in.content.assessment.state;
  const bool partial =
      state == Assessment::State::kIncomplete || state == Assessment::State::kDoubtful;
  // It may be gone with its spool, and then it comes back with it.
  if (counts && in.spool_uncertain) return inspect_again(node, in.content.now);
  // It may have been closed and removed since the queue of content was found empty, so it is
  // inspected once more after that queue has been read.
  if ((is_empty ? counts : partial) && options_.content_notifications &&
      (inspection.missed_step == 0 || inspection.missed_step == in.step)) {
    inspection.missed_step = in.step;
    return schedule(node, in.content.now, in.content.now + kSecondInspection);
  }
  if (!is_empty && state != Assessment::State::kIgnore) return take(node, !partial);
  if (is_empty && counts) {
    const char* reason = inspection.unreadable ? "unreadable"
                         : inspection.refused  ? "journal full"
                                               : "vanished";
    miss(node, reason, inspection.removal_read ? Departure::kEnded : Departure::kCounted);
  }
  if (!is_empty && !entry.has_record())
    act(Kind::kCountIgnored, node, std::string(in.content.assessment.reason));
  close(node);
  store_.tidy(node);
}

// The entry is there, or content of it has come: is it whole?
void EntryTable::judge(Node& node, const Content& in) {
  const Inspection& inspection = *node.second.inspection;
  // It waits in the spool until an administrator corrects the rights; if it is removed before that,
  // it was missed.
  const bool is_whole = in.assessment.state == Assessment::State::kComplete;
  if (inspection.unreadable && !is_whole) return inspect_again(node, in.now);
  if (inspection.content.files.empty()) {
    if (in.now - inspection.first_seen < options_.incomplete_after)
      return inspect_again(node, in.now);
    act(Kind::kCountIgnored, node, "empty entry");
    return act(Kind::kIgnoreEmpty, node);
  }
  switch (in.assessment.state) {
    case Assessment::State::kComplete: return take(node, true);
    case Assessment::State::kIgnore:
      // Its record file may be written again many times, but it is one entry.
      if (!node.second.has_record())
        act(Kind::kCountIgnored, node, std::string(in.assessment.reason));
      return ignore_content(node);
    case Assessment::State::kDuplicate:
      if (!store_.is_known_inode(inspection.content)) return take(node, true);
      act(Kind::kCountIgnored, node, "hard link to another entry's script");
      return ignore_content(node);
    case Assessment::State::kSettling:
    case Assessment::State::kDoubtful: return judge_unsettled(node, in);
    case Assessment::State::kIncomplete: return judge_incomplete(node, in);
  }
}

// Taken if nothing changes for a while.
void EntryTable::judge_unsettled(Node& node, const Content& in) {
  const Inspection& inspection = *node.second.inspection;
  const auto quiet = in.now - inspection.changed;
  const auto settle = in.assessment.settle;
  if (quiet >= settle || youngest_age(inspection.content, in.wall) >= settle)
    return take(node, in.assessment.state == Assessment::State::kSettling);
  schedule(node, in.now, in.now + std::chrono::ceil<milliseconds>(settle - quiet));
}

// Waited for until incomplete_after.
void EntryTable::judge_incomplete(Node& node, const Content& in) {
  Inspection& inspection = *node.second.inspection;
  const bool is_old =
      expects_no_more_ && youngest_age(inspection.content, in.wall) >= options_.incomplete_after;
  if (in.now - inspection.first_seen >= options_.incomplete_after || is_old)
    return take(node, false);
  if (options_.watches_entries) act(Kind::kWatch, node);
  if (!may_hold_more()) store_.let_go(inspection);
  inspect_again(node, in.now);
}

// ---- what became of it

void EntryTable::handle(const Verified& in) {
  Node* node = recorded(in.key);
  if (node == nullptr) return;
  const Entry& entry = node->second;
  if (entry.record->identity != in.identity) {
    entry.record->identity = in.identity;
    if (entry.record->marked) act(Kind::kSetMark, *node);
  }
  if (entry.inspection && entry.inspection->content.files.empty() && !entry.inspection->waits() &&
      entry.record->kind != CaptureRecord::Kind::kPartial)
    close(*node);
}

void EntryTable::handle(const Ignored& in) {
  if (Node* node = store_.node(in.key)) ignore(*node, in.identity);
}

void EntryTable::handle(const Captured& in) {
  Node& node = store_.make(in.key);
  const Entry& entry = node.second;
  if (in.duplicate) act(Kind::kCountDuplicate, node);
  // Notifications that were queued before its removal may bring a duplicate of what is gone.
  if (in.duplicate && !entry.has_record()) return close(node);
  CaptureRecord record = in.record;
  bool changed = false;
  if (in.duplicate) {
    changed = entry.record->identity != record.identity;
    record.marked = entry.record->marked;
    record.directory_inode = entry.record->directory_inode;
  }
  const bool may_grow = record.kind == CaptureRecord::Kind::kPartial;
  remember(node, std::move(record));
  if (changed && entry.record->marked) act(Kind::kSetMark, node);
  close(node, may_grow);
}

void EntryTable::handle(const Unparsable& in) {
  Node* node = inspected(in.key);
  if (node == nullptr) return;
  const Entry& entry = node->second;
  const bool is_accounted_for = entry.has_record() || entry.departure != Departure::kNone;
  const bool counts = entry.inspection->counts && !is_accounted_for;
  if (in.exists) {
    ignore_content(*node);
  } else {
    close(*node);
  }
  if (!in.vanished) {
    act(Kind::kCountMissed, *node, "unparsable");
  } else if (counts) {
    miss(*node, "vanished", Departure::kCounted);
  } else if (!is_accounted_for && in.exists) {
    act(Kind::kCountIgnored, *node, in.message);
  }
  store_.tidy(*node);
}

void EntryTable::handle(const Refused& in) {
  Node* node = inspected(in.key);
  if (node == nullptr) return;
  Inspection& inspection = *node->second.inspection;
  if (in.asked && !in.over_share) waiting_.refused(inspection.bytes);
  inspection.refused = true;
  const bool waited = inspection.waits();
  move_to(*node, Inspection::Waiting{in.whole});
  if (!waited && !waiting_.add({node->first, inspection.bytes, in.mtime_ns}, in.over_share, in.now))
    return leave_to_scan(*node);
  // One user's entries must not use up the memory that all entries share.
  if (store_.held_bytes() > (in.over_share ? kHeldBytesLimit / 2 : kHeldBytesLimit))
    store_.let_go(inspection);
}

void EntryTable::handle(const NotKept& in) {
  Node* node = inspected(in.key);
  if (node != nullptr && node->second.inspection->waits()) leave_to_scan(*node);
}

void EntryTable::leave_to_scan(Node& node) {
  actions_.push_back(
      {.kind = Kind::kLeaveToScan, .key = node.first, .first = waiting_.leave_to_scan()});
  close(node);
  store_.tidy(node);
}

void EntryTable::handle(const Offered& in) {
  Node* node = inspected(in.key);
  if (node == nullptr) return;
  const Inspection& inspection = *node->second.inspection;
  if (!inspection.waits()) return;
  // The bytes were let go, or an entry that was not whole when its time was up may be whole by now.
  const bool is_takable = inspection.is_takable();
  move_to(*node, Inspection::InHand{});
  if (!is_takable) return act(Kind::kInspect, *node);
  take(*node, true);
}

void EntryTable::handle(const WaitedInVain& in) {
  Node* node = inspected(in.key);
  if (node == nullptr) return;
  miss(*node, "journal full", Departure::kEnded);
  close(*node);
}

}  // namespace scriptorium
