#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"
#include "core/journal/journal_types.h"

// How an event becomes the values of a row of `events` or `unresolved` (docs/journal.md, "Format").
// Pure.
namespace scriptorium::journal {

// An event without its files' bytes, as it is stored in `meta` before compression.
std::string encode_meta(const Event& event);

// The key of a file's content: the 32 bytes of its sha256, computed here if the event lacks it.
std::string content_key(const EventFile& file);

// Files of at most this size are stored in the event's pack, a frame that no other event shares: to
// find equal contents and to count their users would cost more than it saves. A larger file is a
// blob, stored once for all events that have it.
constexpr std::size_t kLargestInPack = 16U << 10;
constexpr std::int64_t kInPack = 0;    // in place of a blob's number
constexpr std::int64_t kNoBytes = -1;  // the same: the event came without the bytes of this file
// In place of a pack's number: an archive holds the event's files and metadata, `meta` is its
// locator.
constexpr std::int64_t kInArchive = -1;
bool belongs_in_pack(const EventFile& file);  // false if the file came without its bytes
// The bytes of all files in the event's pack, concatenated: the content of the pack's frame.
std::string pack_bytes(const Event& event);

// "12,0" <-> {12, kInPack}: where the bytes of an event's files are, in the files' order.
std::string encode_blobs(const std::vector<std::int64_t>& blobs);
std::vector<std::int64_t> decode_blobs(std::string_view text);

// What an archive needs to find the event and the event's row does not have: about 60 bytes.
std::string encode_locator(const Event& event);
// Fills in what encode_locator() kept; false if the text does not come from there.
bool decode_locator(std::string_view text, Event& event);

// The part of an event from which a scheduler can name its owner: who, when, which job, and the
// script itself if it is very short (the scheduler's own stubs are). Small, whatever users submit.
constexpr std::size_t kShortScript = 4U << 10;
Event for_owner(const Event& event);
// The user id that the event's bytes are charged to: the verified one, else "". A fill, whose
// events are for one sink, takes nothing of a user's share.
std::string charged_to(const Event& event, SinkId target);
// `original` with the job and user of `resolved`, as far as that names them.
Event with_resolution(const Event& original, const Event& resolved);

}  // namespace scriptorium::journal
