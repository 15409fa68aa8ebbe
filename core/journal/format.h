#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"
#include "core/base/result.h"
#include "core/journal/sqlite.h"

// The journal's file format, version 1 (docs/journal.md): tables, checksums, how an event becomes a row and blobs.
namespace scriptorium::journal {

constexpr std::int64_t kApplicationId = 0x53637270;  // "Scrp"
constexpr std::int64_t kFormatVersion = 1;
constexpr std::int64_t kPageSize = 4096;
extern const char* const kSchema;  // creates all tables; always in the same order, so that their root pages are known

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

// "12,13" <-> {12, 13}: the blobs of an event's files, in their order.
std::string encode_blobs(const std::vector<std::int64_t>& blobs);
std::vector<std::int64_t> decode_blobs(std::string_view text);

// Checksums of the two small tables that say what a sink still has to get: a flipped bit there would be a silent loss.
std::int64_t sink_sum(std::string_view name, std::string_view kinds, std::int64_t cursor);
std::int64_t exception_sum(std::int64_t sink, std::int64_t seq, State state);

// Reads whole events back, each part checked: zstd's checksum, the size and the sha256 of every file.
class EventReader {
 public:
  EventReader(Connection& connection, Codec& codec);
  // `meta` and `blobs` as they stand in the row. kCorrupt names what is damaged.
  Result<std::shared_ptr<const Event>> load(std::string_view meta, std::string_view blobs);

 private:
  Connection& connection_;
  Codec& codec_;
  Statement blob_;
};

}  // namespace scriptorium::journal
