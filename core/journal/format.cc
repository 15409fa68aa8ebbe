#include "core/journal/format.h"

#include <zstd.h>

#include <charconv>
#include <new>
#include <utility>

#include "core/base/sha256.h"
#include "core/base/text.h"

namespace scriptorium::journal {
namespace {

// Level 1 takes a fifth less room, and three times the time to write and five times the time to read back an event of 2 KB:
// most of that goes into Huffman tables for texts that are too short for them.
constexpr int kCompressionLevel = -1;
constexpr std::uint64_t kLargestFrame = std::uint64_t{1} << 31;  // more than SQLite can store; a frame that claims it is damaged

class Sum {
 public:
  void add(std::string_view bytes) {
    add(static_cast<std::int64_t>(bytes.size()));
    for (const char c : bytes) step(static_cast<unsigned char>(c));
  }
  void add(std::int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) step(static_cast<unsigned char>(static_cast<std::uint64_t>(value) >> shift));
  }
  std::int64_t value() const { return static_cast<std::int64_t>(hash_); }

 private:
  void step(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;  // FNV-1a
};

}  // namespace

const char* const kSchema = R"sql(
CREATE TABLE events(seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, source TEXT NOT NULL, kind TEXT NOT NULL, job_id TEXT NOT NULL,
  captured_at INTEGER NOT NULL, bytes INTEGER NOT NULL, blobs TEXT NOT NULL, meta BLOB NOT NULL);
CREATE INDEX events_job ON events(job_id);
CREATE TABLE unresolved(ticket INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, source TEXT NOT NULL, kind TEXT NOT NULL, job_id TEXT NOT NULL,
  captured_at INTEGER NOT NULL, bytes INTEGER NOT NULL, blobs TEXT NOT NULL, meta BLOB NOT NULL, entry TEXT);
CREATE TABLE blobs(id INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, refs INTEGER NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE sinks(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kinds TEXT NOT NULL, cursor INTEGER NOT NULL,
  acknowledged INTEGER NOT NULL, last_success INTEGER, sum INTEGER NOT NULL);
CREATE TABLE exceptions(sink INTEGER NOT NULL, seq INTEGER NOT NULL, state INTEGER NOT NULL, reason TEXT NOT NULL,
  attempts INTEGER NOT NULL, first_attempt INTEGER NOT NULL, last_attempt INTEGER NOT NULL, sum INTEGER NOT NULL,
  PRIMARY KEY(sink, seq)) WITHOUT ROWID;
CREATE INDEX exceptions_seq ON exceptions(seq);
CREATE TABLE marks(source TEXT NOT NULL, entry TEXT NOT NULL, device INTEGER NOT NULL, inode INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  size INTEGER NOT NULL, event_id BLOB NOT NULL, PRIMARY KEY(source, entry)) WITHOUT ROWID;
CREATE TABLE positions(source TEXT PRIMARY KEY NOT NULL, position BLOB NOT NULL) WITHOUT ROWID;
)sql";

struct Codec::Contexts {
  ZSTD_CCtx* compressor = ZSTD_createCCtx();
  ZSTD_DCtx* decompressor = ZSTD_createDCtx();
  Contexts() {
    // Only memory can be missing here, and without it nothing goes on.
    if (compressor == nullptr || decompressor == nullptr) throw std::bad_alloc();
    ZSTD_CCtx_setParameter(compressor, ZSTD_c_compressionLevel, kCompressionLevel);
    ZSTD_CCtx_setParameter(compressor, ZSTD_c_checksumFlag, 1);
  }
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;
  ~Contexts() {
    ZSTD_freeCCtx(compressor);
    ZSTD_freeDCtx(decompressor);
  }
};

Codec::Codec() : contexts_(std::make_unique<Contexts>()) {}
Codec::~Codec() = default;

std::string_view Codec::compress(std::string_view bytes) {
  const std::size_t bound = ZSTD_compressBound(bytes.size());
  if (buffer_.size() < bound || buffer_.size() > (bound + (1U << 20)) * 2) buffer_ = std::string(bound, '\0');
  const std::size_t size = ZSTD_compress2(contexts_->compressor, buffer_.data(), buffer_.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(size) != 0) throw std::bad_alloc();  // the destination is large enough, so only memory was missing
  return {buffer_.data(), size};
}

Result<std::string> Codec::decompress(std::string_view frame) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR) return Error{ErrorKind::kCorrupt, "no zstd frame"};
  return decompress(frame, size);
}

Result<std::string> Codec::decompress(std::string_view frame, std::uint64_t size) {
  if (size > kLargestFrame || ZSTD_getFrameContentSize(frame.data(), frame.size()) != size) {
    return Error{ErrorKind::kCorrupt, "the zstd frame does not hold " + std::to_string(size) + " bytes"};
  }
  std::string bytes(size, '\0');
  const std::size_t got = ZSTD_decompressDCtx(contexts_->decompressor, bytes.data(), bytes.size(), frame.data(), frame.size());
  if (ZSTD_isError(got) != 0) return Error{ErrorKind::kCorrupt, std::string("zstd: ") + ZSTD_getErrorName(got)};
  if (got != size) return Error{ErrorKind::kCorrupt, "zstd: short frame"};
  return bytes;
}

std::string encode_meta(const Event& event) {
  return event_json(event, {.script_text = false, .environment = false, .exact_times = true, .indent = -1});
}

std::string content_key(const EventFile& file) {
  if (file.sha256.size() == 64) {
    if (auto key = hex_decode(file.sha256)) return *std::move(key);
  }
  return hex_decode(sha256_hex(file.bytes ? std::string_view(*file.bytes) : std::string_view{})).value_or(std::string{});
}

std::string encode_blobs(const std::vector<std::int64_t>& blobs) {
  std::string text;
  for (const std::int64_t blob : blobs) {
    if (!text.empty()) text += ',';
    text += std::to_string(blob);
  }
  return text;
}

std::vector<std::int64_t> decode_blobs(std::string_view text) {
  std::vector<std::int64_t> blobs;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    std::int64_t blob = 0;
    const auto result = std::from_chars(at, end, blob);
    if (result.ec != std::errc{}) break;
    blobs.push_back(blob);
    at = result.ptr + 1;
  }
  return blobs;
}

std::int64_t sink_sum(std::string_view name, std::string_view kinds, std::int64_t cursor) {
  Sum sum;
  sum.add(name);
  sum.add(kinds);
  sum.add(cursor);
  return sum.value();
}

std::int64_t exception_sum(std::int64_t sink, std::int64_t seq, State state) {
  Sum sum;
  sum.add(sink);
  sum.add(seq);
  sum.add(static_cast<std::int64_t>(state));
  return sum.value();
}

EventReader::EventReader(Connection& connection, Codec& codec)
    : connection_(connection), codec_(codec), blob_(connection, "SELECT sha256, size, data FROM blobs WHERE id=?1") {}

Result<std::shared_ptr<const Event>> EventReader::load(std::string_view meta, std::string_view blobs) {
  const auto damaged = [](std::string what) { return Error{ErrorKind::kCorrupt, std::move(what) + " damaged"}; };
  auto json = codec_.decompress(meta);
  if (!json) return damaged("metadata").with_context(json.error().message());
  auto event = event_from_json(*json);
  if (!event) return damaged("metadata").with_context(event.error().message());
  const std::vector<std::int64_t> ids = decode_blobs(blobs);
  if (ids.size() != event->files.size()) return damaged("list of files");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EventFile& file = event->files[i];
    if (!blob_.bind(ids[i]).step()) {
      if (auto error = connection_.take_error()) {
        if (error->kind() != ErrorKind::kCorrupt) return *std::move(error);
        return damaged(file.name).with_context(error->message());
      }
      return Error{ErrorKind::kCorrupt, file.name + " is missing"};
    }
    auto bytes = codec_.decompress(blob_.text(2), static_cast<std::uint64_t>(blob_.integer(1)));
    const std::string key(blob_.text(0));
    blob_.reset();
    if (!bytes) return damaged(file.name).with_context(bytes.error().message());
    const std::string sha256 = sha256_hex(*bytes);
    if (sha256 != hex_encode(key) || (file.sha256.size() == 64 && file.sha256 != sha256) || file.size != bytes->size()) {
      return damaged(file.name).with_context("sha256 or size differs");
    }
    file.bytes = make_bytes(*std::move(bytes));
  }
  return std::make_shared<const Event>(*std::move(event));
}

}  // namespace scriptorium::journal
