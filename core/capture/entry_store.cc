#include "core/capture/entry_store.h"

#include <algorithm>
#include <utility>

namespace scriptorium {

const Entry* EntryStore::find(std::string_view key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

EntryStore::Node* EntryStore::node(std::string_view key) {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &*found;
}

EntryStore::Node& EntryStore::make(std::string_view key) {
  if (Node* found = node(key)) return *found;
  return *entries_.try_emplace(std::string(key)).first;
}

void EntryStore::tidy(Node& node) {
  const Entry& entry = node.second;
  if (!entry.record && !entry.inspection && !entry.in_departures && !entry.in_retired)
    entries_.erase(entries_.find(node.first));
}

Inspection& EntryStore::open(Node& node, const char* method, SteadyTime now) {
  auto& inspection = node.second.inspection;
  if (inspection) return *inspection;
  inspection = std::make_unique<Inspection>();
  inspection->content.key = node.first;
  inspection->first_seen = now;
  inspection->method = method;
  ++inspections_;
  return *inspection;
}

void EntryStore::close(Node& node) {
  if (!node.second.inspection) return;
  let_go(*node.second.inspection);
  node.second.inspection.reset();
  --inspections_;
}

void EntryStore::add_file(Inspection& inspection, SpoolFile file, SteadyTime now) {
  inspection.bytes += file.bytes->size();
  held_bytes_ += file.bytes->size();
  inspection.changed = now;
  auto& files = inspection.content.files;
  const auto old = std::find_if(files.begin(), files.end(),
                                [&](const SpoolFile& f) { return f.name == file.name; });
  if (old == files.end()) {
    files.push_back(std::move(file));
    return;
  }
  inspection.bytes -= old->bytes->size();
  held_bytes_ -= old->bytes->size();
  *old = std::move(file);
}

void EntryStore::let_go(Inspection& inspection) {
  held_bytes_ -= inspection.bytes;
  inspection.bytes = 0;
  inspection.content.files.clear();
}

void EntryStore::remember(Node& node, CaptureRecord record) {
  Entry& entry = node.second;
  if (entry.has_record()) {
    forget_inode(*entry.record);
  } else {
    ++records_;
  }
  record.retired = false;
  if (record.kind != CaptureRecord::Kind::kIgnored)
    script_inodes_[record.identity.inode] = record.identity.mtime_ns;
  entry.record = std::make_unique<CaptureRecord>(std::move(record));
}

void EntryStore::forget(Node& node, bool keep) {
  Entry& entry = node.second;
  forget_inode(*entry.record);
  --records_;
  if (!keep) {
    entry.record.reset();
    return;
  }
  entry.record->retired = true;
  if (!std::exchange(entry.in_retired, true)) retired_.push_back(&node);
}

void EntryStore::forget_inode(const CaptureRecord& record) {
  const auto inode = script_inodes_.find(record.identity.inode);
  if (inode != script_inodes_.end() && inode->second == record.identity.mtime_ns)
    script_inodes_.erase(inode);
}

bool EntryStore::is_known_inode(const SpoolEntry& content) const {
  return std::any_of(content.files.begin(), content.files.end(), [&](const SpoolFile& file) {
    const auto script = script_inodes_.find(file.stat.inode);
    return script != script_inodes_.end() && script->second == file.stat.mtime_ns;
  });
}

void EntryStore::depart(Node& node, Entry::Departure departure) {
  node.second.departure = departure;
  if (!std::exchange(node.second.in_departures, true)) departures_.push_back(&node);
}

void EntryStore::clear_departures() {
  for (Node* node : std::exchange(departures_, {})) {
    node->second.departure = Entry::Departure::kNone;
    node->second.in_departures = false;
    tidy(*node);
  }
}

void EntryStore::clear_retired() {
  for (Node* node : std::exchange(retired_, {})) {
    Entry& entry = node->second;
    if (entry.inspection) {
      retired_.push_back(node);  // its files may be those of the entry that is gone
      continue;
    }
    entry.in_retired = false;
    if (entry.record && entry.record->retired) entry.record.reset();
    tidy(*node);
  }
}

}  // namespace scriptorium
