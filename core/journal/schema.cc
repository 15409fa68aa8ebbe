#include "core/journal/schema.h"

#include <algorithm>
#include <iterator>
#include <map>

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

namespace {

// What a version added: columns at the end of a table, or a table or index of its own.
struct AddedColumn {
  std::int64_t version;
  std::string table, name, type, otherwise;
  std::string definition() const { return name + " " + type + " NOT NULL DEFAULT " + otherwise; }
};
const std::vector<AddedColumn>& added_columns() {
  static const std::vector<AddedColumn> columns{
      {2, "events", "pack", "INTEGER", "0"},       {2, "unresolved", "pack", "INTEGER", "0"},
      {3, "events", "target", "INTEGER", "0"},     {3, "sinks", "absences", "TEXT", "''"},
      {3, "marks", "file", "TEXT", "''"},          {3, "marks", "file_size", "INTEGER", "0"},
      {3, "events", "owner", "TEXT", "''"},        {3, "events", "stored", "INTEGER", "0"},
      {3, "unresolved", "stored", "INTEGER", "0"}, {4, "marks", "capture_key", "BLOB", "x''"}};
  return columns;
}
struct AddedTable {
  std::int64_t version;
  std::string_view name, begin;  // of its statement
};
constexpr AddedTable kAddedTables[] = {{2, "packs", "CREATE TABLE packs("},
                                       {3, "fills", "CREATE TABLE fills("},
                                       {3, "unverified", "CREATE TABLE unverified("},
                                       {3, "unverified_due", "CREATE INDEX unverified_due "},
                                       {3, "replaced", "CREATE TABLE replaced("}};

// Null: it is not an addition.
const AddedTable* addition(std::string_view statement) {
  const auto* const found = std::ranges::find_if(
      kAddedTables, [&](const AddedTable& t) { return statement.starts_with(t.begin); });
  return found == std::end(kAddedTables) ? nullptr : found;
}

std::vector<std::string> statements() {
  std::vector<std::string> list;
  std::string_view schema = kSchema;
  for (auto end = schema.find(';'); end != std::string_view::npos; end = schema.find(';')) {
    list.emplace_back(schema.substr(0, end)).erase(0, schema.find("CREATE"));
    schema.remove_prefix(end + 1);
  }
  return list;
}

}  // namespace

std::vector<std::string> definitions_in(std::int64_t version) {
  std::vector<std::string> list = statements();
  std::erase_if(list, [&](const std::string& statement) {
    const AddedTable* const added = addition(statement);
    return added != nullptr && version < added->version;
  });
  for (std::string& statement : list) {
    for (const AddedColumn& column : added_columns()) {
      if (version >= column.version || !statement.starts_with("CREATE TABLE " + column.table + "("))
        continue;
      const std::string text = ", " + column.definition();
      statement.erase(statement.find(text), text.size());
    }
    statement.resize(statement.rfind(')'));
  }
  return list;
}

std::string upgrade_sql(std::int64_t from, std::int64_t to) {
  const auto is_new = [&](std::int64_t version) { return from < version && version <= to; };
  std::string sql;
  for (const AddedColumn& column : added_columns()) {
    if (is_new(column.version))
      sql += "ALTER TABLE " + column.table + " ADD COLUMN " + column.definition() + ";\n";
  }
  for (const std::string& statement : statements()) {
    const AddedTable* const added = addition(statement);
    if (added != nullptr && is_new(added->version)) sql += statement + ";\n";
  }
  return sql + "PRAGMA user_version=" + std::to_string(to);
}

bool has_table(Connection& db, const std::string& name) {
  return db.integer("SELECT 1 FROM main.sqlite_schema WHERE name=?1", name).has_value();
}

bool has_column(Connection& db, const std::string& table, const std::string& column) {
  return db.integer("SELECT 1 FROM pragma_table_info(?1, 'main') WHERE name=?2", table, column)
      .has_value();
}

void show_as_newest(Connection& db) {
  std::map<std::string, std::string> missing;  // columns, by table
  for (const AddedColumn& column : added_columns()) {
    if (!has_column(db, column.table, column.name))
      missing[column.table] += ", " + column.otherwise + " AS " + column.name;
  }
  for (const auto& [table, columns] : missing)
    db.execute("CREATE TEMP VIEW " + table + " AS SELECT *" + columns + " FROM main." + table);
  for (const std::string& statement : statements()) {
    const AddedTable* const added = addition(statement);
    if (added == nullptr || has_table(db, std::string(added->name))) continue;
    if (statement.starts_with("CREATE TABLE")) db.execute("CREATE TEMP" + statement.substr(6));
  }
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
  if (!absences.empty()) sum.add(absences);  // so that the sums of version 2 remain valid
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
