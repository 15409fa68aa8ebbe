#include <algorithm>

#include "core/capture/entry_table.h"

// What the engine asks of the table; nothing here changes it.
namespace scriptorium {

const Inspection* EntryTable::inspection(std::string_view key) const {
  const Entry* entry = store_.find(key);
  return entry != nullptr ? entry->inspection.get() : nullptr;
}

const CaptureRecord* EntryTable::record(std::string_view key) const {
  const Entry* entry = store_.find(key);
  return entry != nullptr && entry->stands() ? entry->record.get() : nullptr;
}

bool EntryTable::made_event(std::string_view key, const PackedEventId& id) const {
  const Entry* entry = store_.find(key);
  return entry != nullptr && entry->record && entry->record->event_id == id &&
         entry->record->kind != CaptureRecord::Kind::kIgnored;
}

bool EntryTable::is_known(std::string_view key) const {
  return record(key) != nullptr || inspection(key) != nullptr;
}

bool EntryTable::is_empty(std::string_view key) const {
  const Entry* entry = store_.find(key);
  return entry == nullptr ||
         (!entry->stands() && !entry->inspection && entry->departure == Departure::kNone);
}

bool EntryTable::needs_proof(std::string_view key) const {
  if (record(key) != nullptr) return true;
  const Inspection* open = inspection(key);
  return open != nullptr && open->waits() && open->content.files.empty();
}

bool EntryTable::is_settled(std::string_view key) const {
  const CaptureRecord* known = record(key);
  if (known == nullptr || known->kind != CaptureRecord::Kind::kWhole) return false;
  const Inspection* open = inspection(key);
  return open == nullptr || open->content.files.empty();
}

bool EntryTable::was_captured(std::string_view key, const FileIdentity& identity) const {
  const Entry* entry = store_.find(key);  // one that is retired counts as well
  return entry != nullptr && entry->record && entry->record->kind == CaptureRecord::Kind::kWhole &&
         entry->record->identity == identity;
}

bool EntryTable::any_on_other_device(std::uint64_t device) const {
  const auto& all = store_.all();
  return std::any_of(all.begin(), all.end(), [&](const Node& node) {
    return node.second.stands() && node.second.record->identity.device != 0 &&
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
    if (entry.stands() && entry.record->scan < scan) keys.push_back(key);
  }
  return keys;
}

}  // namespace scriptorium
