#include "core/journal/reader_pool.h"

#include "core/journal/schema.h"

namespace scriptorium::journal {

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

Result<std::unique_ptr<ReaderPool::Reader>> ReaderPool::open() const {
  auto connection = Connection::open(file_, mode_);
  if (!connection) return connection.error();
  auto reader = std::make_unique<Reader>();
  reader->connection = *std::move(connection);
  Connection& db = *reader->connection;
  db.execute("PRAGMA cache_size=-2048");
  reader->events = std::make_unique<EventReader>(db, reader->codec);
  reader->content = content_columns(db);
  reader->columns = event_columns(db);
  const std::string select = "SELECT " + reader->columns + " FROM events WHERE ";
  reader->scan = Statement(db, (select + "seq>?1 ORDER BY seq LIMIT ?2").c_str());
  reader->row = Statement(db, (select + "seq=?1").c_str());
  reader->parked = Statement(
      db, "SELECT seq, attempts FROM exceptions WHERE sink=?1 AND state=1 AND seq>?2 ORDER BY seq");
  reader->size = Statement(db, "SELECT bytes, meta FROM events WHERE seq=?1");
  if (auto error = db.take_error()) return *std::move(error);
  return reader;
}

}  // namespace scriptorium::journal
