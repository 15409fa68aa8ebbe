#include "backends/catalog/convert.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/catalog/field_lists.h"
#include "backends/catalog/ingest_fields.h"
#include "backends/catalog/names.h"
#include "backends/catalog/rows.h"
#include "backends/catalog/schema.h"
#include "backends/catalog/store_contents.h"
#include "backends/catalog/sums.h"
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

// Format 8 has of each run whose it is, where format 7 has only whether its user is verified. The
// uid is that of its job, if that is verified: a job's environment may claim any.
void add_owners_of_runs(sqlite::Connection& db) {
  db.execute(
      "ALTER TABLE later RENAME COLUMN verified TO owner; DROP INDEX IF EXISTS later_user;"
      "CREATE TEMP TABLE found(of_cluster INTEGER, of_uid INTEGER, owner INTEGER NOT NULL, "
      "PRIMARY KEY(of_cluster, of_uid)) WITHOUT ROWID");
  const std::string uid = "CASE WHEN flags & 1 THEN coalesce(uid, 0) ELSE 0 END";
  NameReader texts(db);
  NameWriter names(db);
  sqlite::Statement select(db, "SELECT DISTINCT cluster, " + uid + " FROM jobs");
  sqlite::Statement insert(db, "INSERT INTO temp.found VALUES(?, ?, ?)");
  while (select.step()) {
    const std::string cluster(texts.text(select.integer(0)));
    const std::string of(texts.text(select.integer(1)));
    const std::int64_t owner = names.id(kNameOfOwner, std::string_view(owner_of_run(cluster, of)));
    insert.run(select.integer(0), select.integer(1), owner);
  }
  db.execute(
      "UPDATE later SET owner = (SELECT CASE WHEN later.owner THEN f.owner ELSE -f.owner END FROM "
      "jobs j JOIN temp.found f ON of_cluster = cluster AND of_uid = " +
      uid + " WHERE j.id = later.job) WHERE ended NOT NULL; DROP TABLE temp.found");
}

// Format 6 does not count what is not is_job().
void count_jobs_only(sqlite::Connection& db) {
  sqlite::Statement select(
      db, std::string("SELECT (time - ((time % ?1) + ?1) % ?1) / ?1, cluster, coalesce(user, 0), "
                      "coalesce(account, 0), coalesce(partition, 0), flags & 1, count(*) FROM jobs "
                      "WHERE NOT ") +
              kIsJob + " GROUP BY 1, 2, 3, 4, 5, 6");
  sqlite::Statement update(db,
                           "UPDATE daily SET jobs = jobs - ? WHERE day = ? AND cluster = ? AND "
                           "user = ? AND account = ? AND partition = ? AND verified = ?");
  select.bind(kDay * kSecond);
  while (select.step()) {
    update.run(select.integer(6), select.integer(0), select.integer(1), select.integer(2),
               select.integer(3), select.integer(4), select.integer(5));
  }
}

// Format 6 has in a job's row the account that its runs name.
void add_named_accounts(sqlite::Connection& db) {
  const std::string named = "account NOT NULL AND owner > 0 AND ended NOT NULL";
  db.execute("ALTER TABLE outcomes ADD COLUMN account_named INTEGER");
  db.execute(
      "UPDATE outcomes SET account_named = (SELECT max(ended) FROM later WHERE job = "
      "outcomes.job AND " +
      named + ")");
  std::vector<std::int64_t> jobs;
  sqlite::Statement select(db,
                           "SELECT DISTINCT j.id FROM later l JOIN jobs j ON j.id = l.job WHERE "
                           "l.account NOT NULL AND l.owner > 0 AND l.ended NOT NULL AND l.account "
                           "IS NOT j.account");
  while (select.step()) jobs.push_back(select.integer(0));
  NameReader texts(db);
  NameWriter names(db);
  RowReader reader(db);
  RowWriter rows(db, names);
  FieldWriter fields(db, names);
  sqlite::Statement runs(db, std::string("SELECT ") + kRunColumns +
                                 " FROM later WHERE job = ? AND " + named + " ORDER BY record");
  for (const std::int64_t job : jobs) {
    auto entry = reader.read_entry(job);
    if (!entry) db.fail(entry.error());
    if (!entry || !*entry) return;
    JobRow& row = (*entry)->row;
    fields.count(row, -1);
    row.account_named_at.reset();
    runs.bind(job);
    while (runs.step()) take_account(row, *read_run(runs, 0, texts), row.runs > 0);
    fields.count(row, 1);
    fields.add(job, (*entry)->owner, row);
    rows.update(**entry);
  }
  fields.flush();
}

// Format 7 keeps sums of the runs.
void add_sums(sqlite::Connection& db) {
  constexpr std::uint64_t kRunsAtOnce = 10'000;
  db.execute(std::string("INSERT INTO unfinished SELECT time, id FROM jobs WHERE ") +
             kIsUnfinished);
  NameReader texts(db);
  NameWriter names(db);
  SumWriter sums(db, names);
  sqlite::Statement select(db, std::string("SELECT ") + kRunColumns +
                                   ", job, event, (SELECT modules FROM jobs WHERE id = later.job) "
                                   "FROM later WHERE ended NOT NULL");
  std::uint64_t runs = 0;
  while (select.step()) {
    const auto run = read_run(select, 0, texts);
    if (!run) continue;
    const std::string modules(texts.text(select.integer(kRunColumnCount + 2)));
    sums.add(select.integer(kRunColumnCount), select.text(kRunColumnCount + 1), *run,
             modules.empty() ? std::vector<std::string>{} : split_lines(modules));
    if (++runs % kRunsAtOnce == 0) sums.flush();
  }
  sums.flush();
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
    if (format < 5) {
      add_runs(db);
    } else if (format < 8) {
      add_owners_of_runs(db);
    }
    if (format < 6) {
      count_jobs_only(db);
      add_named_accounts(db);
    }
    add_newer_tables(db, format);
    if (format < 7) add_sums(db);
    // Before it is finished again, a segment gets what format 9 has.
    if (format < 9) db.execute("DELETE FROM meta WHERE key = 'finished'");
  }
  db.run("UPDATE meta SET value = ? WHERE key = 'format'", kFormat);
  return db.execute("COMMIT");
}

}  // namespace scriptorium::catalog
