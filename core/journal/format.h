#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"
#include "core/base/result.h"
#include "core/journal/sqlite.h"

// The journal's file format, version 2 (docs/journal.md): tables, checksums, how an event becomes a row and blobs.
namespace scriptorium::journal {

constexpr std::int64_t kApplicationId = 0x53637270;  // "Scrp"
constexpr std::int64_t kFormatVersion = 2;           // 1: every file is a blob
constexpr std::int64_t kPageSize = 4096;
extern const char* const kSchema;        // creates all tables; always in the same order, so that their root pages are known
extern const char* const kFromVersion1;  // makes version 2 of a version 1
bool has_packs(Connection& db);          // false: it is of version 1, which may be read as it is
// The first columns of the rows that EventReader::load() reads, as the journal's version has them.
const char* content_columns(Connection& db);

// exceptions.state
enum class State : std::int64_t {
  kParked = 1,   // to be tried again
  kDead = 2,     // dead letter
  kSettled = 3,  // acknowledged while something before it is still open
};

// zstd frames with a content checksum. Keeps its working memory; one thread at a time.
class Codec {
 public:
  Codec();
  ~Codec();
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  std::string_view compress(std::string_view bytes);  // good until the next call
  // kCorrupt if the frame is damaged, or holds another number of bytes than `size`.
  Result<std::string> decompress(std::string_view frame, std::uint64_t size);
  Result<std::string> decompress(std::string_view frame);

 private:
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
  std::string buffer_;
};

// An event without its files' bytes, as it stands in `meta` before compression.
std::string encode_meta(const Event& event);

// The bytes that name a file's content: the 32 of its sha256. Hashes itself if the event tells none.
std::string content_key(const EventFile& file);

// The files of an event that are not larger lie in its pack, one frame that no other event shares: to find out whether another
// has the same content, and to keep count of who has it, would cost more than it saves. A larger one is a blob, stored once for
// all that have it.
constexpr std::size_t kLargestInPack = 16U << 10;
constexpr std::int64_t kInPack = 0;  // in place of a blob's number
bool lies_in_pack(const EventFile& file);
// The bytes of all files that lie in its pack, one after the other: what the pack's frame holds.
std::string pack_bytes(const Event& event);

// "12,0" <-> {12, kInPack}: where the bytes of an event's files are, in their order.
std::string encode_blobs(const std::vector<std::int64_t>& blobs);
std::vector<std::int64_t> decode_blobs(std::string_view text);

// Checksums of the two small tables that say what a sink still has to get: a flipped bit there would be a silent loss.
std::int64_t sink_sum(std::string_view name, std::string_view kinds, std::int64_t cursor);
std::int64_t exception_sum(std::int64_t sink, std::int64_t seq, State state);

// Reads whole events back. Every part is checked by zstd's checksum and its size; with Proof::kSha256 each file's bytes also by
// their sha256, which takes as long as all the rest.
enum class Proof { kChecksum, kSha256 };
class EventReader {
 public:
  EventReader(Connection& connection, Codec& codec, Proof proof = Proof::kChecksum);
  // Of a row of `events` or `unresolved` that begins with content_columns(). kCorrupt names what is damaged.
  Result<std::shared_ptr<const Event>> load(const Statement& row);

 private:
  Result<std::string> pack(std::int64_t id);
  Result<Bytes> blob(std::int64_t id, const EventFile& file);

  Connection& connection_;
  Codec& codec_;
  const Proof proof_;
  Statement pack_, blob_;
};

}  // namespace scriptorium::journal
