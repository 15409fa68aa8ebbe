#include "core/journal/format.h"

#include <zstd.h>

#include <algorithm>
#include <charconv>
#include <new>
#include <utility>

#include "core/base/sha256.h"
#include "core/base/text.h"

namespace scriptorium::journal {
namespace {

// Level 1 takes a fifth less room, and three times the time to write and five times the time to
// read back an event of 2 KB: most of that goes into Huffman tables for texts that are too short
// for them.
constexpr int kCompressionLevel = -1;
constexpr std::uint64_t kLargestFrame =
    std::uint64_t{1} << 31;  // more than SQLite can store; a frame that claims it is damaged

class Sum {
 public:
  void add(std::string_view bytes) {
    add(static_cast<std::int64_t>(bytes.size()));
    for (const char c : bytes) step(static_cast<unsigned char>(c));
  }
  void add(std::int64_t value) {
    for (int shift = 0; shift < 64; shift += 8)
      step(static_cast<unsigned char>(static_cast<std::uint64_t>(value) >> shift));
  }
  std::int64_t value() const { return static_cast<std::int64_t>(hash_); }

 private:
  void step(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;  // FNV-1a
};

}  // namespace

const char* const kSchema = R"sql(
CREATE TABLE events(seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, source TEXT NOT NULL, kind TEXT NOT NULL, job_id TEXT NOT NULL,
  captured_at INTEGER NOT NULL, bytes INTEGER NOT NULL, blobs TEXT NOT NULL, meta BLOB NOT NULL, pack INTEGER NOT NULL DEFAULT 0, target INTEGER NOT NULL DEFAULT 0, owner TEXT NOT NULL DEFAULT '', stored INTEGER NOT NULL DEFAULT 0);
CREATE INDEX events_job ON events(job_id);
CREATE TABLE unresolved(ticket INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, source TEXT NOT NULL, kind TEXT NOT NULL, job_id TEXT NOT NULL,
  captured_at INTEGER NOT NULL, bytes INTEGER NOT NULL, blobs TEXT NOT NULL, meta BLOB NOT NULL, entry TEXT, pack INTEGER NOT NULL DEFAULT 0, stored INTEGER NOT NULL DEFAULT 0);
CREATE TABLE blobs(id INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, refs INTEGER NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE sinks(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kinds TEXT NOT NULL, cursor INTEGER NOT NULL,
  acknowledged INTEGER NOT NULL, last_success INTEGER, sum INTEGER NOT NULL, absences TEXT NOT NULL DEFAULT '');
CREATE TABLE exceptions(sink INTEGER NOT NULL, seq INTEGER NOT NULL, state INTEGER NOT NULL, reason TEXT NOT NULL,
  attempts INTEGER NOT NULL, first_attempt INTEGER NOT NULL, last_attempt INTEGER NOT NULL, sum INTEGER NOT NULL,
  PRIMARY KEY(sink, seq)) WITHOUT ROWID;
CREATE INDEX exceptions_seq ON exceptions(seq);
CREATE TABLE marks(source TEXT NOT NULL, entry TEXT NOT NULL, device INTEGER NOT NULL, inode INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  size INTEGER NOT NULL, event_id BLOB NOT NULL, file TEXT NOT NULL DEFAULT '', file_size INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(source, entry)) WITHOUT ROWID;
CREATE TABLE positions(source TEXT PRIMARY KEY NOT NULL, position BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE packs(id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE fills(sink TEXT PRIMARY KEY NOT NULL, archive TEXT NOT NULL, since INTEGER NOT NULL, position TEXT NOT NULL,
  sent INTEGER NOT NULL, present INTEGER NOT NULL, skipped INTEGER NOT NULL, total INTEGER NOT NULL, state INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE unverified(number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, source TEXT NOT NULL, noted_at INTEGER NOT NULL,
  due INTEGER NOT NULL, meta BLOB NOT NULL);
CREATE INDEX unverified_due ON unverified(source, due);
CREATE TABLE replaced(id BLOB PRIMARY KEY NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;
)sql";
const char* const kFromVersion2 = R"sql(
ALTER TABLE events ADD COLUMN target INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sinks ADD COLUMN absences TEXT NOT NULL DEFAULT '';
ALTER TABLE marks ADD COLUMN file TEXT NOT NULL DEFAULT '';
ALTER TABLE marks ADD COLUMN file_size INTEGER NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN stored INTEGER NOT NULL DEFAULT 0;
ALTER TABLE unresolved ADD COLUMN stored INTEGER NOT NULL DEFAULT 0;
CREATE TABLE fills(sink TEXT PRIMARY KEY NOT NULL, archive TEXT NOT NULL, since INTEGER NOT NULL, position TEXT NOT NULL,
  sent INTEGER NOT NULL, present INTEGER NOT NULL, skipped INTEGER NOT NULL, total INTEGER NOT NULL, state INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE unverified(number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, source TEXT NOT NULL, noted_at INTEGER NOT NULL,
  due INTEGER NOT NULL, meta BLOB NOT NULL);
CREATE INDEX unverified_due ON unverified(source, due);
CREATE TABLE replaced(id BLOB PRIMARY KEY NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA user_version=3;
)sql";
const char* const kFromVersion1 = R"sql(
ALTER TABLE events ADD COLUMN pack INTEGER NOT NULL DEFAULT 0;
ALTER TABLE unresolved ADD COLUMN pack INTEGER NOT NULL DEFAULT 0;
CREATE TABLE packs(id INTEGER PRIMARY KEY, data BLOB NOT NULL);
PRAGMA user_version=2;
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
  if (buffer_.size() < bound || buffer_.size() > (bound + (1U << 20)) * 2)
    buffer_ = std::string(bound, '\0');
  const std::size_t size = ZSTD_compress2(contexts_->compressor, buffer_.data(), buffer_.size(),
                                          bytes.data(), bytes.size());
  if (ZSTD_isError(size) != 0)
    throw std::bad_alloc();  // the destination is large enough, so only memory was missing
  return {buffer_.data(), size};
}

std::uint64_t Codec::content_size(std::string_view frame) noexcept {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  return size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR ? 0 : size;
}

Result<std::string> Codec::decompress(std::string_view frame) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR)
    return Error{ErrorKind::kCorrupt, "no zstd frame"};
  return decompress(frame, size);
}

Result<std::string> Codec::decompress(std::string_view frame, std::uint64_t size) {
  if (size > kLargestFrame || ZSTD_getFrameContentSize(frame.data(), frame.size()) != size) {
    return Error{ErrorKind::kCorrupt,
                 "the zstd frame does not hold " + std::to_string(size) + " bytes"};
  }
  std::string bytes(size, '\0');
  const std::size_t got = ZSTD_decompressDCtx(contexts_->decompressor, bytes.data(), bytes.size(),
                                              frame.data(), frame.size());
  if (ZSTD_isError(got) != 0)
    return Error{ErrorKind::kCorrupt, std::string("zstd: ") + ZSTD_getErrorName(got)};
  if (got != size) return Error{ErrorKind::kCorrupt, "zstd: short frame"};
  return bytes;
}

Event for_owner(const Event& event) {
  Event result;
  result.id = event.id;
  result.kind = event.kind;
  result.time = event.time;
  result.captured_at = event.captured_at;
  result.complete = event.complete;
  result.cluster = event.cluster;
  result.scheduler = event.scheduler;
  result.host = event.host;
  result.job.id = event.job.id;
  result.user = event.user;
  if (const EventFile* script = event.file("script")) {
    result.files.push_back(*script);
    if (script->size > kShortScript) result.files.back().bytes.reset();
  }
  return result;
}

std::string owner_of(const Event& event) {
  return event.user.verified ? event.user.id.value_or("") : "";
}

Event with_resolution(const Event& original, const Event& resolved) {
  Event event = original;
  event.user = resolved.user;
  const auto take = [](auto& into, const auto& from) {
    if (from) into = from;
  };
  take(event.job.name, resolved.job.name);
  take(event.job.account, resolved.job.account);
  take(event.job.partition, resolved.job.partition);
  take(event.job.qos, resolved.job.qos);
  take(event.job.work_dir, resolved.job.work_dir);
  take(event.job.array, resolved.job.array);
  take(event.job.het, resolved.job.het);
  take(event.job.submitted_at, resolved.job.submitted_at);
  for (const std::string& member : resolved.lossy) {
    if (std::find(event.lossy.begin(), event.lossy.end(), member) == event.lossy.end())
      event.lossy.push_back(member);
  }
  return event;
}

std::string encode_meta(const Event& event) {
  return event_json(
      event, {.script_text = false, .environment = false, .exact_times = true, .indent = -1});
}

std::string content_key(const EventFile& file) {
  if (file.sha256.size() == 64) {
    if (auto key = hex_decode(file.sha256)) return *std::move(key);
  }
  return hex_decode(sha256_hex(file.bytes ? std::string_view(*file.bytes) : std::string_view{}))
      .value_or(std::string{});
}

bool lies_in_pack(const EventFile& file) {
  return file.bytes && file.bytes->size() <= kLargestInPack;
}

std::string pack_bytes(const Event& event) {
  std::string bytes;
  for (const EventFile& file : event.files) {
    if (lies_in_pack(file)) bytes += *file.bytes;
  }
  return bytes;
}

namespace {

// Members end with NUL, which no text of an event holds; an absent one is empty, any other begins
// with '='.
void put(std::string& text, std::string_view member) { (text += member) += '\0'; }
void put_optional(std::string& text, const std::optional<std::string>& member) {
  if (member) text += '=';
  put(text, member ? std::string_view(*member) : std::string_view{});
}
bool take(std::string_view& text, std::string& member) {
  const auto end = text.find('\0');
  if (end == std::string_view::npos) return false;
  member = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}
bool take(std::string_view& text, std::optional<std::string>& member) {
  std::string value;
  if (!take(text, value)) return false;
  member.reset();
  if (value.empty()) return true;
  if (value.front() != '=') return false;
  member = value.substr(1);
  return true;
}

std::optional<std::string> without_nul(std::optional<std::string> text) {
  if (text) std::erase(*text, '\0');
  return text;
}

}  // namespace

std::string encode_locator(const Event& event) {
  std::string text;
  put(text, std::to_string(event.time.nanoseconds));
  put(text, event.cluster);
  put(text, event.scheduler);
  put(text, event.host);
  put_optional(text, without_nul(event.job.name));
  put_optional(text, without_nul(event.job.account));
  put_optional(
      text, without_nul(event.job.array ? std::optional(event.job.array->job_id) : std::nullopt));
  put_optional(text, without_nul(event.user.name));
  put_optional(text, without_nul(event.user.id));
  put(text, std::string_view(event.user.verified ? "1" : "0"));
  return text;
}

bool decode_locator(std::string_view text, Event& event) {
  std::string time, verified;
  std::optional<std::string> array;
  if (!take(text, time) || !take(text, event.cluster) || !take(text, event.scheduler) ||
      !take(text, event.host) || !take(text, event.job.name) || !take(text, event.job.account) ||
      !take(text, array) || !take(text, event.user.name) || !take(text, event.user.id) ||
      !take(text, verified)) {
    return false;
  }
  const auto [end, error] =
      std::from_chars(time.data(), time.data() + time.size(), event.time.nanoseconds);
  if (error != std::errc{} || end != time.data() + time.size()) return false;
  if (array)
    event.job.array = JobArray{.job_id = *std::move(array), .task_id = {}, .task_spec = {}};
  event.user.verified = verified == "1";
  return true;
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

std::int64_t sink_sum(std::string_view name, std::string_view kinds, std::int64_t cursor,
                      std::string_view absences) {
  Sum sum;
  sum.add(name);
  sum.add(kinds);
  sum.add(cursor);
  if (!absences.empty()) sum.add(absences);  // so that the sums of version 2 stay right
  return sum.value();
}

std::int64_t exception_sum(std::int64_t sink, std::int64_t seq, State state) {
  Sum sum;
  sum.add(sink);
  sum.add(seq);
  sum.add(static_cast<std::int64_t>(state));
  return sum.value();
}

namespace {

Error damaged(std::string_view what, std::string_view why) {
  return {ErrorKind::kCorrupt, std::string(what) + " damaged: " + std::string(why)};
}

}  // namespace

bool has_packs(Connection& db) {
  return db.integer("SELECT count(*) FROM sqlite_schema WHERE name='packs'").value_or(0) > 0;
}

bool marks_name_files(Connection& db) {
  return db.integer("SELECT count(*) FROM pragma_table_info('marks') WHERE name='file_size'")
             .value_or(0) > 0;
}

const char* mark_columns(Connection& db) {
  return marks_name_files(db) ? "device, inode, mtime_ns, size, event_id, file, file_size"
                              : "device, inode, mtime_ns, size, event_id, '', 0";
}

CaptureMark mark_of_row(const Statement& row, int first) {
  const auto number = [&](int column) {
    return static_cast<std::uint64_t>(row.integer(first + column));
  };
  return {.entry = std::string(row.text(first)),
          .identity = {.file = std::string(row.text(first + 6)),
                       .device = number(1),
                       .inode = number(2),
                       .mtime_ns = row.integer(first + 3),
                       .size = number(7)},
          .size = number(4),
          .event_id = row.id(first + 5)};
}

const char* content_columns(Connection& db) {
  return has_packs(db) ? "meta, blobs, pack" : "meta, blobs, 0";
}

std::string column_or(Connection& db, const char* table, const char* column,
                      const char* otherwise) {
  Statement statement(db, "SELECT 1 FROM pragma_table_info(?1) WHERE name=?2");
  return statement.bind_text(table).bind_text(column).step() ? column : otherwise;
}

std::string event_columns(Connection& db) {
  return content_columns(db) + (", seq, kind, bytes, " + column_or(db, "events", "target", "0") +
                                ", id, job_id, captured_at");
}

EventReader::EventReader(Connection& connection, Codec& codec, Proof proof)
    : connection_(connection),
      codec_(codec),
      proof_(proof),
      blob_(connection, "SELECT sha256, size, data FROM blobs WHERE id=?1") {
  // A journal of format 1 has none, and its events name none.
  if (has_packs(connection)) pack_ = Statement(connection, "SELECT data FROM packs WHERE id=?1");
}

Result<Event> EventReader::locator(const Statement& row) {
  auto text = codec_.decompress(row.text(0));
  if (!text) return damaged("locator", text.error().message());
  Event event;
  event.kind = row.text(4);
  event.id = row.id(7);
  event.job.id = row.text(8);
  event.captured_at = Timestamp{row.integer(9)};
  if (!decode_locator(*text, event)) return damaged("locator", "a member is missing");
  return event;
}

Result<Event> EventReader::without_bytes(const Statement& row) {
  auto json = codec_.decompress(row.text(0));
  if (!json) return damaged("metadata", json.error().message());
  auto event = event_from_json(*json);
  if (!event) return damaged("metadata", event.error().message());
  return event;
}

Result<std::shared_ptr<const Event>> EventReader::load_for_owner(const Statement& row) {
  auto stored = without_bytes(row);
  if (!stored) return stored.error();
  auto event = std::make_shared<Event>(for_owner(*stored));
  const EventFile* const script = stored->file("script");
  const std::vector<std::int64_t> ids = decode_blobs(row.text(1));
  if (script == nullptr || script->size > kShortScript || ids.size() != stored->files.size())
    return event;
  std::uint64_t begin = 0;
  for (std::size_t i = 0; &stored->files[i] != script; ++i)
    begin += ids[i] == kInPack ? stored->files[i].size : 0;
  const auto bytes = pack(row.integer(2));
  // What is damaged shows when a sink reads it.
  if (bytes && begin + script->size <= bytes->size()) {
    event->files.back().bytes = make_bytes(bytes->substr(begin, script->size));
  }
  return event;
}

Result<std::shared_ptr<const Event>> EventReader::load(const Statement& row) {
  if (is_in_archive(row)) return Error{ErrorKind::kVanished, "an archive holds it"};
  auto event = without_bytes(row);
  if (!event) return event.error();
  const std::vector<std::int64_t> ids = decode_blobs(row.text(1));
  if (ids.size() != event->files.size()) return Error{ErrorKind::kCorrupt, "list of files damaged"};
  std::string packed;
  if (const auto first = std::find(ids.begin(), ids.end(), kInPack); first != ids.end()) {
    auto bytes = pack(row.integer(2));
    if (!bytes)
      return bytes.error().with_context(
          event->files[static_cast<std::size_t>(first - ids.begin())].name);
    packed = *std::move(bytes);
  }
  std::size_t taken = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EventFile& file = event->files[i];
    if (ids[i] == kNoBytes) continue;
    if (ids[i] == kInPack) {
      if (file.size > packed.size() - taken) return damaged(file.name, "size differs");
      file.bytes = make_bytes(packed.substr(taken, file.size));
      taken += file.size;
    } else {
      auto bytes = blob(ids[i], file);
      if (!bytes) return bytes.error();
      file.bytes = *std::move(bytes);
    }
    if (proof_ == Proof::kSha256 && file.sha256.size() == 64 &&
        file.sha256 != sha256_hex(*file.bytes)) {
      return damaged(file.name, "sha256 differs");
    }
  }
  if (taken != packed.size()) return Error{ErrorKind::kCorrupt, "list of files damaged"};
  return std::make_shared<const Event>(*std::move(event));
}

Result<std::string> EventReader::pack(std::int64_t id) {
  if (!pack_.bind(id).step()) {
    if (auto error = connection_.take_error()) {
      if (error->kind() != ErrorKind::kCorrupt) return *std::move(error);
      return damaged("pack", error->message());
    }
    return Error{ErrorKind::kCorrupt, "pack is missing"};
  }
  auto bytes = codec_.decompress(pack_.text(0));
  pack_.reset();
  if (!bytes) return damaged("pack", bytes.error().message());
  return bytes;
}

Result<Bytes> EventReader::blob(std::int64_t id, const EventFile& file) {
  if (!blob_.bind(id).step()) {
    if (auto error = connection_.take_error()) {
      if (error->kind() != ErrorKind::kCorrupt) return *std::move(error);
      return damaged(file.name, error->message());
    }
    return Error{ErrorKind::kCorrupt, file.name + " is missing"};
  }
  auto bytes = codec_.decompress(blob_.text(2), static_cast<std::uint64_t>(blob_.integer(1)));
  const std::string key = hex_encode(blob_.text(0));
  blob_.reset();
  if (!bytes) return damaged(file.name, bytes.error().message());
  if ((file.sha256.size() == 64 && file.sha256 != key) || file.size != bytes->size()) {
    return damaged(file.name, "sha256 or size differs");
  }
  if (proof_ == Proof::kSha256 && sha256_hex(*bytes) != key)
    return damaged(file.name, "sha256 differs");
  return make_bytes(*std::move(bytes));
}

}  // namespace scriptorium::journal
