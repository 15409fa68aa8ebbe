#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/journal/capture_mark.h"

namespace scriptorium {

// sha256 in binary: half the room of the text, and none of it on the heap. An event id is its 64
// hexadecimal digits.
using PackedEventId = std::array<std::uint8_t, 32>;
// Nothing for any other text.
std::optional<PackedEventId> pack_event_id(std::string_view text);
std::string unpack_event_id(const PackedEventId& id);

// What was made of an entry of the spool, kept in memory for as long as the entry stands.
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
  bool retired = false;  // it no longer stands
};

// The journal's mark of a record, and the record that a mark of an earlier run stands for. Nothing
// for a mark whose event id is damaged: its entry is read again, and the journal knows the event.
CaptureMark mark_of(std::string_view key, const CaptureRecord& record);
std::optional<CaptureRecord> record_of(const CaptureMark& mark);

}  // namespace scriptorium
