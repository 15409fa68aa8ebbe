#include "core/capture/capture_record.h"

#include <algorithm>

#include "core/base/text.h"

namespace scriptorium {

std::optional<PackedEventId> pack_event_id(std::string_view text) {
  const auto bytes = hex_decode(text);
  PackedEventId id{};
  if (!bytes || bytes->size() != id.size()) return std::nullopt;
  std::copy(bytes->begin(), bytes->end(), id.begin());
  return id;
}

std::string unpack_event_id(const PackedEventId& id) {
  return hex_encode({reinterpret_cast<const char*>(id.data()), id.size()});
}

CaptureRecord record_of(const SpoolFile& identity, const Bytes& script, bool whole,
                        std::string_view capture_key) {
  CaptureRecord record;
  record.identity = identity_of(identity.name, identity.stat);
  record.script_size = script != nullptr ? script->size() : identity.stat.size;
  if (const auto key = pack_event_id(capture_key)) record.capture_key = *key;
  record.kind = whole ? CaptureRecord::Kind::kWhole : CaptureRecord::Kind::kPartial;
  // An entry that is gone already cannot come again: only an existing one needs a mark.
  record.marked = identity.stat.links > 0;
  return record;
}

bool has_grown(
    const CaptureRecord& before, const Bytes& script,
    const std::function<std::string(std::string_view beginning, std::int64_t mtime_ns)>& key_of) {
  if (script == nullptr || before.kind == CaptureRecord::Kind::kIgnored ||
      script->size() < before.script_size)
    return false;
  const auto beginning = std::string_view(*script).substr(0, before.script_size);
  return pack_event_id(key_of(beginning, before.identity.mtime_ns)) == before.capture_key;
}

CaptureMark mark_of(std::string_view key, const CaptureRecord& record) {
  return {.entry = std::string(key),
          .identity = record.identity,
          .size = record.script_size,
          .event_id = unpack_event_id(record.event_id),
          .capture_key = unpack_event_id(record.capture_key)};
}

std::optional<CaptureRecord> record_of(const CaptureMark& mark) {
  const auto id = pack_event_id(mark.event_id);
  if (!id) return std::nullopt;
  CaptureRecord record;
  record.identity = mark.identity;
  record.script_size = mark.size;
  record.event_id = *id;
  if (const auto key = pack_event_id(mark.capture_key)) record.capture_key = *key;
  record.marked = true;
  return record;
}

}  // namespace scriptorium
