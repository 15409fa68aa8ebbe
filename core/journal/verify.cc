#include "core/journal/open_database.h"

#include <cstdint>

#include "core/journal/codec.h"
#include "core/journal/event_reader.h"
#include "core/journal/schema.h"
#include "core/journal/sink_tables.h"

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

// The name of a table or index that is not defined as we create it. A flipped bit in a column's
// name leaves a table that SQLite finds intact and our statements do not find. "" = all are.
std::string altered_definition(Connection& db) {
  std::string stored;
  Statement statement(db, "SELECT sql FROM main.sqlite_schema WHERE sql IS NOT NULL");
  while (statement.step()) stored.append("\n").append(statement.text(0));
  for (const std::string& definition : definitions()) {
    if (stored.find(definition) == std::string::npos)
      return definition.substr(0, definition.find('('));
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
    Statement sinks(db_, std::string("SELECT ") + kSinkColumns + " FROM sinks");
    while (sinks.step()) {
      const StoredSink sink = sink_of_row(sinks);
      if (!sink.sum_matches) note("sink " + sink.row.name + ": checksum differs");
    }
    Statement exceptions(db_, std::string("SELECT ") + kExceptionColumns + " FROM exceptions");
    std::uint64_t wrong = 0;
    while (exceptions.step()) wrong += exception_of_row(exceptions).sum_matches ? 0 : 1;
    if (wrong > 0) note("checksum of " + std::to_string(wrong) + " exceptions differs");
  }

  void check_references() {
    note_count(kWrongBlobs, " file contents are missing or counted wrongly");
    note_count(kWrongPacks, " packs are missing, of no event or of two");
    note_count(kOrphans, " exceptions without event");
  }

  void check_events() {
    Codec codec;
    EventReader reader(db_, codec, Proof::kSha256);
    std::uint64_t wrong = 0;
    std::string first;
    for (const char* select : {kSelectEvents, kSelectUnresolved}) {
      Statement rows(db_, select + std::string("true"));
      while (rows.step()) {
        const auto event = reader.load(rows);
        if (!event && wrong++ == 0) first = event.error().message();
      }
    }
    if (wrong > 0) note(std::to_string(wrong) + " events damaged, the first: " + first);
  }

  Connection& db_;
  std::string damage_;
};

}  // namespace

std::string verify(Connection& connection, Extent extent) {
  connection.execute("BEGIN");  // all of it sees one state
  std::string damage = Verification(connection).run(extent);
  connection.rollback();
  return damage;
}

}  // namespace scriptorium::journal
