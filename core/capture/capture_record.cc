#include "core/capture/capture_record.h"

namespace scriptorium {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::optional<PackedEventId> pack_event_id(std::string_view text) {
  PackedEventId id{};
  if (text.size() != 2 * id.size()) return std::nullopt;
  for (std::size_t i = 0; i < id.size(); ++i) {
    const int high = digit_of(text[2 * i]);
    const int low = digit_of(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    id.at(i) = static_cast<std::uint8_t>(high * 16 + low);
  }
  return id;
}

std::string unpack_event_id(const PackedEventId& id) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * id.size());
  for (const std::uint8_t byte : id) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
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
