#include "core/journal/verify.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/journal/codec.h"
#include "core/journal/event_reader.h"
#include "core/journal/schema.h"

namespace scriptorium::journal {
namespace {

// Each blob has as many users as it counts, and no event names a blob that is not there.
constexpr const char* kWrongBlobs =
    "WITH used(id, n) AS (SELECT value, count(*) FROM (SELECT blobs FROM events UNION ALL "
    "SELECT blobs FROM unresolved) t, json_each('['||t.blobs||']') WHERE value>0 GROUP BY value) "
    "SELECT (SELECT count(*) FROM blobs b LEFT JOIN used u ON u.id=b.id WHERE "
    "b.refs<>coalesce(u.n,0)) + "
    "(SELECT count(*) FROM used u WHERE NOT EXISTS(SELECT 1 FROM blobs b WHERE b.id=u.id))";
// Each pack belongs to exactly one event.
constexpr const char* kWrongPacks =
    "WITH used(id) AS (SELECT pack FROM events WHERE pack>0 UNION ALL SELECT pack FROM unresolved "
    "WHERE pack<>0) "
    "SELECT (SELECT count(*) FROM packs p WHERE NOT EXISTS(SELECT 1 FROM used u WHERE u.id=p.id)) "
    "+ (SELECT count(*) FROM used u WHERE NOT EXISTS(SELECT 1 FROM packs p WHERE p.id=u.id)) + "
    "(SELECT count(*)-count(DISTINCT id) FROM used)";
constexpr const char* kOrphans =
    "SELECT count(*) FROM exceptions x WHERE NOT EXISTS(SELECT 1 FROM events e WHERE e.seq=x.seq)";

// What a version added: a column at the end of a table, or a whole table or index.
struct Addition {
  std::int64_t version;
  std::string_view text;
};
constexpr Addition kAddedColumns[] = {
    {2, ", pack INTEGER NOT NULL DEFAULT 0"},
    {3, ", target INTEGER NOT NULL DEFAULT 0"},
    {3, ", absences TEXT NOT NULL DEFAULT ''"},
    {3, ", owner TEXT NOT NULL DEFAULT ''"},
    {3, ", stored INTEGER NOT NULL DEFAULT 0"},
    {3, ", file TEXT NOT NULL DEFAULT '', file_size INTEGER NOT NULL DEFAULT 0"}};
constexpr Addition kAddedTables[] = {{2, "CREATE TABLE packs"},
                                     {3, "CREATE TABLE fills"},
                                     {3, "CREATE TABLE unverified"},
                                     {3, "CREATE INDEX unverified_due"},
                                     {3, "CREATE TABLE replaced"}};

// One statement of kSchema as `version` had it, without its end, where a later release of this
// version may add columns; "" if that version had no such table.
std::string definition_in(std::int64_t version, std::string_view statement) {
  std::string text(statement.substr(statement.find("CREATE")));
  if (std::ranges::any_of(kAddedTables, [&](const Addition& table) {
        return version < table.version && text.starts_with(table.text);
      }))
    return "";
  for (const Addition& column : kAddedColumns) {
    const auto at = version < column.version ? text.find(column.text) : std::string::npos;
    if (at != std::string::npos) text.erase(at, column.text.size());
  }
  text.resize(text.rfind(')'));
  return text;
}

// The name of a table or index that is not defined as we create it. A flipped bit in a column's
// name leaves a table that SQLite finds intact and our statements do not find. "" = all are.
std::string altered_definition(Connection& db) {
  std::string stored;
  Statement statement(db, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL");
  while (statement.step()) stored.append("\n").append(statement.text(0));
  const std::int64_t version = db.integer("PRAGMA user_version").value_or(0);
  std::string_view schema = kSchema;
  for (auto end = schema.find(';'); end != std::string_view::npos; end = schema.find(';')) {
    const std::string text = definition_in(version, schema.substr(0, end));
    schema.remove_prefix(end + 1);
    if (stored.find(text) == std::string::npos) return text.substr(0, text.find('('));
  }
  return "";
}

class Verification {
 public:
  explicit Verification(Connection& db) : db_(db) {}

  std::string run(Extent extent) {
    check_structure(extent);
    if (is_clean()) {
      if (const std::string name = altered_definition(db_); !name.empty())
        note("not as it was made: " + name);
    }
    if (damage_.empty()) check_sums();
    if (extent == Extent::kWhole && is_clean()) {
      check_references();
      check_events();
    }
    if (auto error = db_.take_error()) note(error->message());
    return damage_;
  }

 private:
  bool is_clean() const { return damage_.empty() && db_.ok(); }
  void note(const std::string& text) {
    if (!damage_.empty()) damage_ += "; ";
    damage_ += text;
  }
  // How many a query counts, noted before `text` if there are any.
  void note_count(const char* query, const std::string& text) {
    if (const auto count = db_.number(query); count > 0) note(std::to_string(count) + text);
  }

  void check_structure(Extent extent) {
    Statement check(
        db_, extent == Extent::kWhole ? "PRAGMA integrity_check(10)" : "PRAGMA quick_check(1)");
    while (check.step()) {
      if (check.text(0) != "ok") note(std::string(check.text(0)));
    }
  }

  void check_sums() {
    Statement sinks(db_, ("SELECT name, kinds, cursor, sum, " +
                          column_or(db_, "sinks", "absences", "''") + " FROM sinks")
                             .c_str());
    while (sinks.step()) {
      if (sinks.integer(3) !=
          sink_sum(sinks.text(0), sinks.text(1), sinks.integer(2), sinks.text(4)))
        note("sink " + std::string(sinks.text(0)) + ": checksum differs");
    }
    Statement exceptions(db_, "SELECT sink, seq, state, sum FROM exceptions");
    std::uint64_t wrong = 0;
    while (exceptions.step()) {
      if (exceptions.integer(3) != exception_sum(exceptions.integer(0), exceptions.integer(1),
                                                 static_cast<State>(exceptions.integer(2))))
        ++wrong;
    }
    if (wrong > 0) note("checksum of " + std::to_string(wrong) + " exceptions differs");
  }

  void check_references() {
    note_count(kWrongBlobs, " file contents are missing or counted wrongly");
    if (has_packs(db_)) note_count(kWrongPacks, " packs are missing, of no event or of two");
    note_count(kOrphans, " exceptions without event");
  }

  void check_events() {
    Codec codec;
    EventReader reader(db_, codec, Proof::kSha256);
    std::uint64_t wrong = 0;
    std::string first;
    for (const std::string table : {"events", "unresolved"}) {
      const std::string columns = table == "events" ? event_columns(db_) : content_columns(db_);
      Statement rows(db_, ("SELECT " + columns + " FROM " + table).c_str());
      while (rows.step()) {
        std::optional<Error> error;
        if (EventReader::is_in_archive(rows)) {
          if (auto locator = reader.locator(rows); !locator) error = locator.error();
        } else if (auto event = reader.load(rows); !event) {
          error = event.error();
        }
        if (error && wrong++ == 0) first = error->message();
      }
    }
    if (wrong > 0) note(std::to_string(wrong) + " events damaged, the first: " + first);
  }

  Connection& db_;
  std::string damage_;
};

}  // namespace

std::string verify(Connection& connection, Extent extent) {
  return Verification(connection).run(extent);
}

}  // namespace scriptorium::journal
