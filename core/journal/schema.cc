#include "core/journal/schema.h"

namespace scriptorium::journal {
namespace {

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
  size INTEGER NOT NULL, event_id BLOB NOT NULL, file TEXT NOT NULL DEFAULT '', file_size INTEGER NOT NULL DEFAULT 0, capture_key BLOB NOT NULL DEFAULT x'', PRIMARY KEY(source, entry)) WITHOUT ROWID;
CREATE TABLE positions(source TEXT PRIMARY KEY NOT NULL, position BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE packs(id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE fills(sink TEXT PRIMARY KEY NOT NULL, archive TEXT NOT NULL, since INTEGER NOT NULL, position TEXT NOT NULL,
  sent INTEGER NOT NULL, present INTEGER NOT NULL, skipped INTEGER NOT NULL, total INTEGER NOT NULL, state INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE unverified(number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, source TEXT NOT NULL, noted_at INTEGER NOT NULL,
  due INTEGER NOT NULL, meta BLOB NOT NULL);
CREATE INDEX unverified_due ON unverified(source, due);
CREATE TABLE replaced(id BLOB PRIMARY KEY NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;
)sql";

std::vector<std::string> definitions() {
  std::vector<std::string> list;
  std::string_view schema = kSchema;
  for (auto end = schema.find(';'); end != std::string_view::npos; end = schema.find(';')) {
    std::string& statement = list.emplace_back(schema.substr(0, end));
    statement.erase(0, statement.find("CREATE"));
    statement.resize(statement.rfind(')'));
    schema.remove_prefix(end + 1);
  }
  return list;
}

bool has_table(Connection& db, const std::string& name) {
  return db.integer("SELECT 1 FROM main.sqlite_schema WHERE name=?1", name).has_value();
}

bool has_column(Connection& db, const std::string& table, const std::string& column) {
  return db.integer("SELECT 1 FROM pragma_table_info(?1, 'main') WHERE name=?2", table, column)
      .has_value();
}

CaptureMark mark_of_row(const Statement& row) {
  CaptureMark mark;
  FileIdentity& file = mark.identity;
  row.read(mark.entry, file.device, file.inode, file.mtime_ns, mark.size, IdInto{mark.event_id},
           file.file, file.size, IdInto{mark.capture_key});
  return mark;
}

std::int64_t sink_sum(std::string_view name, std::string_view kinds, std::int64_t cursor,
                      std::string_view absences) {
  Sum sum;
  sum.add(name);
  sum.add(kinds);
  sum.add(cursor);
  if (!absences.empty()) sum.add(absences);
  return sum.value();
}

std::int64_t exception_sum(std::int64_t sink, std::int64_t seq, State state) {
  Sum sum;
  sum.add(sink);
  sum.add(seq);
  sum.add(static_cast<std::int64_t>(state));
  return sum.value();
}

}  // namespace scriptorium::journal
