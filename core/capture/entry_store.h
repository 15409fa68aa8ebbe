#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/base/time.h"
#include "core/capture/capture_record.h"

namespace scriptorium {

// The work on an entry whose present state has not been taken.
struct Inspection {
  struct InHand {};  // being read, or about to be
  struct Due {
    SteadyTime at;
  };
  struct Waiting {
    bool whole = false;  // as it was when the journal had no room for it
  };
  using Phase = std::variant<InHand, Due, Waiting>;
  Phase phase;
  SpoolEntry content;  // the files that were read so far
  SteadyTime first_seen;
  SteadyTime changed;             // when a file was last added or replaced
  std::uint64_t bytes = 0;        // of `content`
  std::uint64_t missed_step = 0;  // the step in which it was first not there; 0 = it was there
  const char* method = "scan";    // what noticed it
  bool counts = false;        // it was seen to be there, so if it vanishes unread, it was missed
  bool unreadable = false;    // when it was last there, something of it could not be opened
  bool refused = false;       // it has waited for room
  bool removal_read = false;  // the notification of its removal has been read

  bool waits() const { return std::holds_alternative<Waiting>(phase); }
  // It waits, and all of it is held.
  bool is_takable() const {
    const auto* waiting = std::get_if<Waiting>(&phase);
    return waiting != nullptr && waiting->whole && !content.files.empty();
  }
};

// The whole state of one key; see entry_table.h.
struct Entry {
  // Counted: gone and counted, its removal has not been read. Ended: its removal has been read.
  enum class Departure : std::uint8_t { kNone, kCounted, kEnded };
  std::unique_ptr<CaptureRecord> record;
  std::unique_ptr<Inspection> inspection;
  Departure departure = Departure::kNone;
  bool in_departures = false;  // EntryStore lists it there, so its node is kept
  bool in_retired = false;

  bool has_record() const { return record != nullptr && !record->retired; }
};

// The container of all entries of one spool, with the counts and lists that go with them. All
// decisions are EntryTable's.
//
// Pure. Threads: one at a time. Memory: one node an entry; a node is kept while anything is known
// about the entry or one of the lists holds it.
class EntryStore {
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  using Map = std::unordered_map<std::string, Entry, Hash, std::equal_to<>>;

 public:
  using Node = Map::value_type;

  const Entry* find(std::string_view key) const;
  Node* node(std::string_view key);
  Node& make(std::string_view key);
  // Erases the node if nothing is known about the entry any more.
  void tidy(Node& node);

  Inspection& open(Node& node, const char* method, SteadyTime now);
  void close(Node& node);
  void add_file(Inspection& inspection, SpoolFile file, SteadyTime now);
  // Drops the bytes, to be read again from the spool.
  void let_go(Inspection& inspection);

  void remember(Node& node, CaptureRecord record);
  // The entry of the record is gone. `keep`: retire the record, so that what was queued before the
  // removal is recognised.
  void forget(Node& node, bool keep);
  // A file of this entry is the script of an entry with a record.
  bool is_known_inode(const SpoolEntry& content) const;

  void depart(Node& node, Entry::Departure departure);
  std::size_t departures() const { return departures_.size(); }
  void clear_departures();
  std::size_t retired() const { return retired_.size(); }
  void clear_retired();  // except those whose inspection is open

  const Map& all() const { return entries_; }
  std::size_t records() const { return records_; }  // without retired ones
  std::size_t inspections() const { return inspections_; }
  std::uint64_t held_bytes() const { return held_bytes_; }  // of all inspections

 private:
  void forget_inode(const CaptureRecord& record);

  Map entries_;
  std::vector<Node*> departures_;  // nodes that have, or had, a departure
  std::vector<Node*> retired_;     // nodes whose record is, or was, retired
  std::unordered_map<std::uint64_t, std::int64_t> script_inodes_;  // of records: inode -> mtime
  std::size_t records_ = 0;
  std::size_t inspections_ = 0;
  std::uint64_t held_bytes_ = 0;
};

}  // namespace scriptorium
