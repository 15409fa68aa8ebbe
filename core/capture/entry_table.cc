#include "core/capture/entry_table.h"

#include <algorithm>
#include <utility>

// Notifications of structure, time and scans; what was read of an entry, and what became of it, is
// in entry_table_content.cc.
namespace scriptorium {
namespace {

using Kind = EntryAction::Kind;

}  // namespace

EntryActions EntryTable::on(const Input& input) {
  std::visit([this](const auto& in) { handle(in); }, input);
  return std::exchange(actions_, {});
}

void EntryTable::restore(const CaptureMark& mark) {
  if (auto record = record_of(mark)) store_.remember(store_.make(mark.entry), *std::move(record));
}

void EntryTable::add_file(std::string_view key, SpoolFile file, SteadyTime now) {
  if (Node* node = inspected(key)) store_.add_file(*node->second.inspection, std::move(file), now);
}

// ---- changes of one entry

EntryTable::Node* EntryTable::inspected(std::string_view key) {
  Node* node = store_.node(key);
  return node != nullptr && node->second.inspection ? node : nullptr;
}

EntryTable::Node* EntryTable::recorded(std::string_view key) {
  Node* node = store_.node(key);
  return node != nullptr && node->second.has_record() ? node : nullptr;
}

Inspection& EntryTable::open(Node& node, const char* method, SteadyTime now) {
  if (!node.second.inspection && !node.second.has_record()) act(Kind::kCountNumber, node);
  return store_.open(node, method, now);
}

void EntryTable::close(Node& node, bool keep_watch) {
  if (!node.second.inspection) return;
  move_to(node, Inspection::InHand{});
  store_.close(node);
  actions_.push_back({.kind = Kind::kRelease, .key = node.first, .keep_watch = keep_watch});
}

void EntryTable::remember(Node& node, CaptureRecord record) {
  record.scan = scan_;  // the entry may have come after the running scan's lists
  store_.remember(node, std::move(record));
}

void EntryTable::forget(Node& node) {
  if (node.second.record->marked) act(Kind::kForgetMark, node);
  // The inspection may hold, or a queued notification may bring, what was captured.
  const bool keep = options_.content_notifications || node.second.inspection != nullptr;
  store_.forget(node, keep);
}

void EntryTable::miss(Node& node, std::string reason, Departure departure) {
  act(Kind::kCountMissed, node, std::move(reason));
  store_.depart(node, departure);
}

// ---- time

void EntryTable::move_to(Node& node, Inspection::Phase phase) {
  Inspection::Phase& now = node.second.inspection->phase;
  if (const auto* due = std::get_if<Inspection::Due>(&now)) schedule_.remove(due->at, node.first);
  now = phase;
  if (const auto* due = std::get_if<Inspection::Due>(&now)) schedule_.add(due->at, node.first);
}

void EntryTable::schedule(Node& node, SteadyTime now, SteadyTime at) {
  const Inspection& inspection = *node.second.inspection;
  if (inspection.waits()) return;  // until the journal has room
  const SteadyTime give_up = inspection.first_seen + options_.incomplete_after;
  if (now < give_up) at = std::min(at, give_up);
  const auto* due = std::get_if<Inspection::Due>(&inspection.phase);
  if (due == nullptr || due->at > at) move_to(node, Inspection::Due{at});
}

void EntryTable::inspect_again(Node& node, SteadyTime now) {
  schedule(node, now, InspectionSchedule::retry_at(now, node.second.inspection->first_seen));
}

std::optional<SteadyTime> EntryTable::next_due() const {
  const auto* due = schedule_.first();
  return due == nullptr ? std::nullopt : std::optional(due->first);
}

void EntryTable::handle(const Timer& in) {
  const auto* due = schedule_.first();
  if (due == nullptr || due->first > in.now) return;
  Node& node = *store_.node(due->second);
  const Entry& entry = node.second;
  move_to(node, Inspection::InHand{});
  // An entry that was taken in part may have got another file, so comparing the one that was taken
  // is not enough.
  const bool verify = entry.has_record() && entry.inspection->content.files.empty() &&
                      entry.record->kind != CaptureRecord::Kind::kPartial;
  act(verify ? Kind::kVerify : Kind::kInspect, node);
}

// ---- notifications of structure

void EntryTable::handle(const DirectoryAppeared& in) {
  Node& node = store_.make(in.key);
  Entry& entry = node.second;
  if (entry.departure == Departure::kCounted) return;  // a notification of the counted entry
  entry.departure = Departure::kNone;  // its removal was read: this is another entry of that name
  if (!options_.content_notifications) {
    open(node, "inotify", in.now).counts = true;
    act(Kind::kReadAtOnce, node);
  } else if (!entry.has_record()) {
    open(node, "scan", in.now).counts = true;
    schedule(node, in.now, in.now + kStructureGrace);
  }
}

void EntryTable::handle(const DirectoryRemoved& in) {
  Node* node = store_.node(in.key);
  if (node == nullptr) return;
  Entry& entry = node->second;
  if (entry.has_record()) {
    // A new entry of that name may have been captured before the removal of the old one is read.
    if (!in.is_gone) return;
    forget(*node);
    store_.depart(*node, Departure::kEnded);
    return;
  }
  if (Inspection* inspection = entry.inspection.get()) {
    inspection->removal_read = true;
    // An entry that waits without its bytes is lost now; one that has them is delivered later.
    if (inspection->waits() && inspection->content.files.empty() && in.is_gone) {
      miss(*node, "journal full", Departure::kEnded);
      close(*node);
    } else if (!inspection->waits() && !options_.content_notifications) {
      act(Kind::kInspect, *node);
    }
  }
  if (entry.departure == Departure::kCounted) entry.departure = Departure::kEnded;
}

void EntryTable::handle(const FileChanged& in) {
  Node& node = store_.make(in.key);
  Entry& entry = node.second;
  if (options_.content_notifications) {
    // fanotify reports closed files: only links and renames need an inspection.
    if (in.appeared && !(entry.has_record() && in.unchanged)) {
      open(node, "scan", in.now);
      schedule(node, in.now, in.now + kStructureGrace);
    }
    store_.tidy(node);
    return;
  }
  if (entry.has_record() && entry.record->identity.file == in.file && in.unchanged) return;
  if (!in.is_record) {
    // The entry was left out because it had no script, and here is one.
    if (in.appeared && entry.has_record() && entry.record->kind == CaptureRecord::Kind::kIgnored)
      forget(node);
    if (!entry.has_record()) {
      if (in.appeared && !in.in_directory) open(node, "inotify", in.now);
      if (entry.inspection) entry.inspection->counts = true;
    }
  }
  open(node, "inotify", in.now);
  act(Kind::kInspect, node);
}

void EntryTable::handle(const FileRemoved& in) {
  Node* node = recorded(in.key);
  // An entry without a directory of its own is gone with the file that identifies it.
  if (node == nullptr || in.in_directory || node->second.record->identity.file != in.file ||
      in.unchanged)
    return;
  forget(*node);
  store_.depart(*node, Departure::kEnded);
  // The record file may exist for a moment longer than its script.
  if (node->second.inspection && node->second.inspection->content.file(in.file) == nullptr)
    close(*node);
}

// ---- scans

void EntryTable::begin_scan(std::uint32_t number, bool thorough) {
  scan_ = number;
  thorough_ = thorough;
}

void EntryTable::handle(const Listed& in) {
  Node& node = store_.make(in.key);
  const Entry& entry = node.second;
  if (entry.has_record()) {
    CaptureRecord& record = *entry.record;
    record.scan = scan_;
    const bool same_directory =
        in.directory_inode != 0 && record.directory_inode == in.directory_inode;
    if (thorough_ || record.kind == CaptureRecord::Kind::kPartial || !same_directory)
      act(Kind::kVerify, node);
    return;
  }
  // An inspection in hand was opened by reading in passing; any other has its own time.
  if (entry.inspection && !std::holds_alternative<Inspection::InHand>(entry.inspection->phase))
    return;
  if (in.counts) open(node, "scan", in.now).counts = true;
  act(Kind::kInspect, node);
}

void EntryTable::listed_with(std::string_view key, std::uint64_t directory_inode) {
  Node* node = recorded(key);
  if (node == nullptr) return;
  node->second.record->scan = scan_;
  node->second.record->directory_inode = directory_inode;
}

void EntryTable::handle(const Unlisted& in) {
  Node* node = recorded(in.key);
  if (node == nullptr) return;
  forget(*node);
  store_.tidy(*node);
}

void EntryTable::handle(const Drained& in) {
  if (in.structure || store_.departures() > kDeparturesLimit) store_.clear_departures();
  if (in.all || store_.retired() > kRetiredLimit) store_.clear_retired();
}

// ---- questions

const Inspection* EntryTable::inspection(std::string_view key) const {
  const Entry* entry = store_.find(key);
  return entry != nullptr ? entry->inspection.get() : nullptr;
}

const CaptureRecord* EntryTable::record(std::string_view key) const {
  const Entry* entry = store_.find(key);
  return entry != nullptr && entry->has_record() ? entry->record.get() : nullptr;
}

const CaptureRecord* EntryTable::made_event(std::string_view key,
                                            const PackedCaptureKey& capture_key) const {
  const Entry* entry = store_.find(key);  // a retired record counts as well
  const bool made = entry != nullptr && entry->record &&
                    entry->record->capture_key == capture_key &&
                    entry->record->kind != CaptureRecord::Kind::kIgnored;
  return made ? &*entry->record : nullptr;
}

bool EntryTable::was_captured(std::string_view key, const FileIdentity& identity) const {
  const Entry* entry = store_.find(key);  // a retired record counts as well
  return entry != nullptr && entry->record && entry->record->kind == CaptureRecord::Kind::kWhole &&
         entry->record->identity == identity;
}

bool EntryTable::is_empty(std::string_view key) const {
  const Entry* entry = store_.find(key);
  return entry == nullptr || (!is_known(key) && entry->departure == Departure::kNone);
}

bool EntryTable::needs_proof(std::string_view key) const {
  if (record(key) != nullptr) return true;
  const Inspection* open = inspection(key);
  return open != nullptr && open->waits() && open->content.files.empty();
}

bool EntryTable::is_settled(std::string_view key) const {
  const CaptureRecord* taken = record(key);
  const Inspection* open = inspection(key);
  return taken != nullptr && taken->kind == CaptureRecord::Kind::kWhole &&
         (open == nullptr || open->content.files.empty());
}

bool EntryTable::any_on_other_device(std::uint64_t device) const {
  const auto& all = store_.all();
  return std::any_of(all.begin(), all.end(), [&](const Node& node) {
    return node.second.has_record() && node.second.record->identity.device != 0 &&
           node.second.record->identity.device != device;
  });
}

std::vector<std::string> EntryTable::open_keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, entry] : store_.all()) {
    if (entry.inspection) keys.push_back(key);
  }
  return keys;
}

std::vector<std::string> EntryTable::unlisted(std::uint32_t scan) const {
  std::vector<std::string> keys;
  for (const auto& [key, entry] : store_.all()) {
    if (entry.has_record() && entry.record->scan < scan) keys.push_back(key);
  }
  return keys;
}

}  // namespace scriptorium
