#include "backends/catalog/convert.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/catalog/field_lists.h"
#include "backends/catalog/names.h"
#include "backends/catalog/rows.h"
#include "backends/catalog/schema.h"
#include "backends/catalog/store_contents.h"
#include "core/api/event.h"
#include "core/api/kit/search/job_facts.h"
#include "core/base/ascii.h"

namespace scriptorium::catalog {
namespace {

void add_accounts_of_owners(sqlite::Connection& db) {
  std::map<std::int64_t, std::vector<std::int64_t>> accounts;
  sqlite::Statement select(db,
                           "SELECT DISTINCT owner, account FROM jobs WHERE account NOT NULL "
                           "ORDER BY owner, account");
  while (select.step()) accounts[select.integer(0)].push_back(select.integer(1));
  sqlite::Statement insert(db, "INSERT INTO fields VALUES(?, ?)");
  for (const auto& [owner, list] : accounts)
    insert.run(field_key(kAccountsOfOwner, owner), sqlite::Blob{pack_ids(list)});
}

// What format 5 has of the runs, from their records.
void add_runs(sqlite::Connection& db) {
  // As in schema.cc.
  for (std::string_view rest = kRunColumns; !rest.empty();) {
    const std::string column(take_until(rest, ','));
    db.execute("ALTER TABLE later ADD COLUMN " + column +
               (column == " programs" ? " TEXT" : " INTEGER"));
  }
  db.execute("CREATE INDEX later_ended ON later(ended) WHERE ended NOT NULL");
  struct Row {
    std::int64_t job = 0;
    std::string event;
    std::int64_t record = 0;
  };
  std::vector<Row> rows;
  sqlite::Statement select(db, "SELECT job, event, record FROM later ORDER BY record");
  while (select.step()) {
    Row& row = rows.emplace_back();
    select.read(row.job, row.event, row.record);
  }
  NameWriter names(db);
  ContentReader contents(db);
  sqlite::Statement update(db, std::string("UPDATE later SET (") + kRunColumns + ") = (" +
                                   marks(kRunColumns) + ") WHERE job = ? AND event = ?");
  for (const Row& row : rows) {
    const auto record = contents.read(row.record);
    const auto event = record ? event_from_json(*record) : Result<Event>(record.error());
    if (!event) continue;  // damaged, which `catalog check` finds
    JobRow of;
    const auto run = join(of, *event);
    if (!run) continue;
    bind_run(update, run, names);
    update.run(row.job, sqlite::Blob{row.event});
  }
}

}  // namespace

bool convert_tables(sqlite::Connection& db, std::int64_t format) {
  db.execute("BEGIN IMMEDIATE");
  if (db.integer("SELECT 1 FROM sqlite_schema WHERE name = 'pairs'")) {  // a segment
    // Format 3 has `places` and kAccountsOfOwner.
    if (format < 3) {
      db.execute("CREATE TABLE places(id INTEGER PRIMARY KEY, list BLOB NOT NULL)");
      add_accounts_of_owners(db);
    }
    // The lists of format 3 have no salt.
    if (format == 3) db.execute("DELETE FROM places");
    add_runs(db);
  }
  db.run("UPDATE meta SET value = ? WHERE key = 'format'", kFormat);
  return db.execute("COMMIT");
}

}  // namespace scriptorium::catalog
