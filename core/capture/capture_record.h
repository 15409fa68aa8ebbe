#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/api/spool_adapter.h"
#include "core/journal/capture_mark.h"

namespace scriptorium {

// An event id, which is a sha256, in binary: half the size of its 64 hexadecimal digits, and
// nothing on the heap.
using PackedEventId = std::array<std::uint8_t, 32>;
// Nothing for any other text.
std::optional<PackedEventId> pack_event_id(std::string_view text);
std::string unpack_event_id(const PackedEventId& id);

// What was made of an entry of the spool, kept in memory for as long as the entry exists.
struct CaptureRecord {
  enum class Kind : std::uint8_t {
    kWhole,
    kPartial,  // taken half written: it may still grow
    kIgnored,  // not archived on purpose
  };
  FileIdentity identity;
  std::uint64_t script_size = 0;      // of the script as it was kept
  std::uint64_t directory_inode = 0;  // as readdir names the entry; 0 = not known yet
  PackedEventId event_id{};           // not of an ignored one
  std::uint32_t scan = 0;             // the last scan that saw it
  Kind kind = Kind::kWhole;
  bool marked = false;   // the journal has a mark of it
  bool retired = false;  // the entry is gone
};

// The record of an event that was made of an entry's files.
CaptureRecord record_of(const Event& event, const SpoolFile& identity);
// True if the event's script begins with what was captured before: the same file has grown, so the
// event is not another job's.
bool has_grown(const CaptureRecord& before, const Event& event);

// The journal's mark of a record, and the record that a mark of an earlier run describes. Nothing
// for a mark whose event id is damaged: its entry is read again, and the journal knows the event.
CaptureMark mark_of(std::string_view key, const CaptureRecord& record);
std::optional<CaptureRecord> record_of(const CaptureMark& mark);

}  // namespace scriptorium
