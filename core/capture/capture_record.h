#pragma once

#include <array>
#include <cstdint>
#include <functional>
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

using PackedCaptureKey = PackedEventId;  // the same of a capture key (core/journal/capture_key.h)

// What was made of an entry of the spool, kept in memory for as long as the entry exists.
struct CaptureRecord {
  enum class Kind : std::uint8_t {
    kWhole,
    kPartial,  // taken half written: it may still grow
    kIgnored,  // not archived on purpose
  };
  FileIdentity identity;
  std::uint64_t script_size = 0;      // of the script as submitted, as far as it was read
  std::uint64_t directory_inode = 0;  // as readdir names the entry; 0 = not known yet
  PackedEventId event_id{};           // of the event that was made of it; not of an ignored one
  PackedCaptureKey capture_key{};     // by which it is recognised
  std::uint32_t scan = 0;             // the last scan that saw it
  Kind kind = Kind::kWhole;
  bool marked = false;   // the journal has a mark of it
  bool retired = false;  // the entry is gone
};

// The record of an entry as it is before redaction, which changes neither `capture_key` nor
// `script` (null: it has none). Its event has no id yet.
CaptureRecord record_of(const SpoolFile& identity, const Bytes& script, bool whole,
                        std::string_view capture_key);
// True if the script, as submitted, begins with what was captured before: the same file has grown,
// so it is not another job's. `key_of` returns the capture key of an entry whose script was
// `beginning` when its file was last modified at `mtime_ns`.
bool has_grown(
    const CaptureRecord& before, const Bytes& script,
    const std::function<std::string(std::string_view beginning, std::int64_t mtime_ns)>& key_of);

// The journal's mark of a record, and the record that a mark of an earlier run describes. Nothing
// for a mark whose event id is damaged: its entry is read again, and the journal knows the event.
CaptureMark mark_of(std::string_view key, const CaptureRecord& record);
std::optional<CaptureRecord> record_of(const CaptureMark& mark);

}  // namespace scriptorium
