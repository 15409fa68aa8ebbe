#include "core/capture/capture_record.h"

#include <algorithm>

#include "core/base/sha256.h"
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

CaptureRecord record_of(const Event& event, const SpoolFile& identity) {
  CaptureRecord record;
  record.identity = identity_of(identity.name, identity.stat);
  const EventFile* script = event.file("script");
  record.script_size = script != nullptr ? script->size : identity.stat.size;
  if (const auto id = pack_event_id(event.id)) record.event_id = *id;
  record.kind = event.complete ? CaptureRecord::Kind::kWhole : CaptureRecord::Kind::kPartial;
  // An entry that is gone already cannot come again: only an existing one needs a mark.
  record.marked = identity.stat.links > 0;
  return record;
}

bool has_grown(const CaptureRecord& before, const Event& event) {
  const EventFile* script = event.file("script");
  if (script == nullptr || before.kind == CaptureRecord::Kind::kIgnored ||
      script->size < before.script_size)
    return false;
  const auto beginning = std::string_view(*script->bytes).substr(0, before.script_size);
  return event_id(event.cluster, event.scheduler, event.kind, event.job.id,
                  before.identity.mtime_ns,
                  sha256_hex(beginning)) == unpack_event_id(before.event_id);
}

CaptureMark mark_of(std::string_view key, const CaptureRecord& record) {
  return {.entry = std::string(key),
          .identity = record.identity,
          .size = record.script_size,
          .event_id = unpack_event_id(record.event_id)};
}

std::optional<CaptureRecord> record_of(const CaptureMark& mark) {
  const auto id = pack_event_id(mark.event_id);
  if (!id) return std::nullopt;
  CaptureRecord record;
  record.identity = mark.identity;
  record.script_size = mark.size;
  record.event_id = *id;
  record.marked = true;
  return record;
}

}  // namespace scriptorium
