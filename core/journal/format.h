#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"
#include "core/base/result.h"
#include "core/journal/capture_mark.h"
#include "core/journal/sqlite.h"

// The journal's file format, version 3 (docs/journal.md): tables, checksums, how an event becomes a
// row and blobs.
namespace scriptorium::journal {

constexpr std::int64_t kApplicationId = 0x53637270;  // "Scrp"
constexpr std::int64_t kFormatVersion =
    3;  // 1: every file is a blob; 2: marks do not name their file, no absences, no locators
constexpr std::int64_t kPageSize = 4096;
extern const char* const
    kSchema;  // creates all tables; always in the same order, so that their root pages are known
extern const char* const kFromVersion1;  // makes version 2 of a version 1
extern const char* const kFromVersion2;  // makes version 3 of a version 2
bool has_packs(Connection& db);          // false: it is of version 1, which may be read as it is
// The column, or `otherwise` in a journal of an older version that has no such column and is only
// read.
std::string column_or(Connection& db, const char* table, const char* column, const char* otherwise);
bool marks_name_files(Connection& db);  // false: it is older than version 3
// The columns of `marks` after source and entry, as mark_of_row() reads them; what the version
// lacks is filled in as not known.
const char* mark_columns(Connection& db);
// Of a row with `entry`, then mark_columns(), the entry being in column `first`.
CaptureMark mark_of_row(const Statement& row, int first = 0);
// The first columns of the rows that EventReader::load() reads, as the journal's version has them.
const char* content_columns(Connection& db);
// Of `events`: the same, then seq, kind, bytes, target, id, job_id, captured_at (columns 3 to 9).
std::string event_columns(Connection& db);

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
  static std::uint64_t content_size(
      std::string_view frame) noexcept;  // of its bytes; 0 if it is no frame

 private:
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
  std::string buffer_;
};

// What a question for an event's owner needs of it: who, when, which job, and the script itself if
// it is very short (the scheduler's own stubs are). Small, whatever its user wrote.
constexpr std::size_t kShortScript = 4U << 10;
Event for_owner(const Event& event);
// Whom the event's bytes are charged to: the user id if the scheduler told it, else "".
std::string owner_of(const Event& event);

// `original` with the job and user of `resolved`, as far as that knows them.
Event with_resolution(const Event& original, const Event& resolved);

// An event without its files' bytes, as it stands in `meta` before compression.
std::string encode_meta(const Event& event);

// The bytes that name a file's content: the 32 of its sha256. Hashes itself if the event tells
// none.
std::string content_key(const EventFile& file);

// The files of an event that are not larger lie in its pack, one frame that no other event shares:
// to find out whether another has the same content, and to keep count of who has it, would cost
// more than it saves. A larger one is a blob, stored once for all that have it.
constexpr std::size_t kLargestInPack = 16U << 10;
constexpr std::int64_t kInPack = 0;    // in place of a blob's number
constexpr std::int64_t kNoBytes = -1;  // the same: the event came without the bytes of this file
// In place of a pack's number: an archive holds the event's files and metadata, `meta` is its
// locator.
constexpr std::int64_t kInArchive = -1;
bool lies_in_pack(const EventFile& file);  // which has its bytes
// The bytes of all files that lie in its pack, one after the other: what the pack's frame holds.
std::string pack_bytes(const Event& event);

// What an event's archive needs to find it and its row does not have: about 60 bytes.
std::string encode_locator(const Event& event);
// Fills in what encode_locator() kept; false if it did not make this text.
bool decode_locator(std::string_view text, Event& event);

// "12,0" <-> {12, kInPack}: where the bytes of an event's files are, in their order.
std::string encode_blobs(const std::vector<std::int64_t>& blobs);
std::vector<std::int64_t> decode_blobs(std::string_view text);

// Checksums of the two small tables that say what a sink still has to get: a flipped bit there
// would be a silent loss.
std::int64_t sink_sum(std::string_view name, std::string_view kinds, std::int64_t cursor,
                      std::string_view absences);
std::int64_t exception_sum(std::int64_t sink, std::int64_t seq, State state);

// Reads whole events back. Every part is checked by zstd's checksum and its size; with
// Proof::kSha256 each file's bytes also by their sha256, which takes as long as all the rest.
enum class Proof { kChecksum, kSha256 };
class EventReader {
 public:
  EventReader(Connection& connection, Codec& codec, Proof proof = Proof::kChecksum);
  // Of a row of `events` or `unresolved` that begins with content_columns(). kCorrupt names what is
  // damaged. kVanished if an archive holds it: see is_in_archive() and locator().
  Result<std::shared_ptr<const Event>> load(const Statement& row);
  static bool is_in_archive(const Statement& row) { return row.integer(2) == kInArchive; }
  // What finds an event in its archive, of a row that begins with event_columns().
  Result<Event> locator(const Statement& row);
  // The event without its files' bytes, of any row.
  Result<Event> without_bytes(const Statement& row);
  // The same as for_owner() gives it.
  Result<std::shared_ptr<const Event>> load_for_owner(const Statement& row);

 private:
  Result<std::string> pack(std::int64_t id);
  Result<Bytes> blob(std::int64_t id, const EventFile& file);

  Connection& connection_;
  Codec& codec_;
  const Proof proof_;
  Statement pack_, blob_;
};

}  // namespace scriptorium::journal
