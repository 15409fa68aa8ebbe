#include "core/journal/event_reader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/journal/schema.h"

namespace scriptorium::journal {
namespace {

Error damaged(std::string_view what, std::string_view why) {
  return {ErrorKind::kCorrupt, std::string(what) + " damaged: " + std::string(why)};
}

}  // namespace

EventReader::EventReader(Connection& connection, Codec& codec, Proof proof)
    : connection_(connection),
      codec_(codec),
      proof_(proof),
      pack_(connection, "SELECT data FROM packs WHERE id=?1"),
      blob_(connection, "SELECT sha256, size, data FROM blobs WHERE id=?1") {}

Result<Event> EventReader::locator(const Statement& row) {
  auto text = codec_.decompress(row.text(0));
  if (!text) return damaged("locator", text.error().message());
  Event event;
  event.kind = row.text(4);
  event.id = row.id(7);
  event.job.id = row.text(8);
  event.captured_at = {row.integer(9)};
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
  // Damage is reported when a sink reads the event.
  if (bytes && begin + script->size <= bytes->size())
    event->files.back().bytes = make_bytes(bytes->substr(begin, script->size));
  return event;
}

Result<EventReader::Loaded> EventReader::load(const Statement& row) {
  const bool in_archive = is_in_archive(row);
  auto event = in_archive ? locator(row) : without_bytes(row);
  if (!event) return event.error();
  if (!in_archive) {
    if (auto result = load_files(row, *event); !result) return result.error();
  }
  return Loaded{std::make_shared<const Event>(*std::move(event)), in_archive};
}

Result<void> EventReader::load_files(const Statement& row, Event& event) {
  const std::vector<std::int64_t> ids = decode_blobs(row.text(1));
  if (ids.size() != event.files.size()) return Error{ErrorKind::kCorrupt, "list of files damaged"};
  std::string packed;
  if (const auto first = std::find(ids.begin(), ids.end(), kInPack); first != ids.end()) {
    auto bytes = pack(row.integer(2));
    if (!bytes)
      return bytes.error().with_context(
          event.files[static_cast<std::size_t>(first - ids.begin())].name);
    packed = *std::move(bytes);
  }
  std::size_t taken = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EventFile& file = event.files[i];
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
  return {};
}

Error EventReader::not_found(const std::string& what) {
  auto error = connection_.take_error();
  if (!error) return {ErrorKind::kCorrupt, what + " is missing"};
  if (error->kind() != ErrorKind::kCorrupt) return *std::move(error);
  return damaged(what, error->message());
}

Result<std::string> EventReader::pack(std::int64_t id) {
  if (!pack_.bind(id).step()) return not_found("pack");
  auto bytes = codec_.decompress(pack_.text(0));
  pack_.reset();
  if (!bytes) return damaged("pack", bytes.error().message());
  return bytes;
}

Result<Bytes> EventReader::blob(std::int64_t id, const EventFile& file) {
  if (!blob_.bind(id).step()) return not_found(file.name);
  auto bytes = codec_.decompress(blob_.text(2), blob_.number(1));
  const std::string key = hex_encode(blob_.text(0));
  blob_.reset();
  if (!bytes) return damaged(file.name, bytes.error().message());
  if ((file.sha256.size() == 64 && file.sha256 != key) || file.size != bytes->size())
    return damaged(file.name, "sha256 or size differs");
  if (proof_ == Proof::kSha256 && sha256_hex(*bytes) != key)
    return damaged(file.name, "sha256 differs");
  return make_bytes(*std::move(bytes));
}

ReaderPool::Lease::~Lease() {
  if (!reader_) return;
  reader_->connection->reset_statements();
  reader_->connection->take_error();
  pool_->idle_.with([&](auto& idle) {
    if (idle.size() < kKept) idle.push_back(std::move(reader_));
  });
}

Result<ReaderPool::Lease> ReaderPool::lease() {
  auto reader = idle_.with([](auto& idle) {
    std::unique_ptr<Reader> taken;
    if (!idle.empty()) {
      taken = std::move(idle.back());
      idle.pop_back();
    }
    return taken;
  });
  if (reader) return Lease(*this, std::move(reader));
  auto opened = open();
  if (!opened) return opened.error();
  return Lease(*this, *std::move(opened));
}

ReaderPool::Reader::Reader(std::unique_ptr<Connection> opened)
    : connection(std::move(opened)),
      events(*connection, codec),
      scan(*connection, kSelectEvents + std::string("seq>?1 ORDER BY seq LIMIT ?2")),
      row(*connection, kSelectEvents + std::string("seq=?1")),
      parked(*connection,
             "SELECT seq, attempts FROM exceptions WHERE sink=?1 AND state=1 AND seq>?2 "
             "ORDER BY seq"),
      size(*connection, "SELECT bytes, meta FROM events WHERE seq=?1") {}

Result<std::unique_ptr<ReaderPool::Reader>> ReaderPool::open() const {
  auto connection = Connection::open(file_, mode_);
  if (!connection) return connection.error();
  (*connection)->execute("PRAGMA cache_size=-2048");
  if (auto error = (*connection)->take_error()) return *std::move(error);
  return std::make_unique<Reader>(*std::move(connection));
}

}  // namespace scriptorium::journal
