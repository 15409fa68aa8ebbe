#include "backends/catalog/schema.h"

#include <algorithm>
#include <string>

#include "backends/catalog/block.h"

namespace scriptorium::catalog {
namespace {

constexpr const char* kCatalogTables = R"sql(
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE segments(id INTEGER PRIMARY KEY, state INTEGER NOT NULL, created INTEGER NOT NULL);
-- Jobs that a person would call the same: stable_name() and the script's signature of the first one,
-- and of the last one that differed much, if any did.
CREATE TABLE families(id INTEGER PRIMARY KEY, owner TEXT NOT NULL,
                      name TEXT NOT NULL, signature BLOB NOT NULL,
                      last_name TEXT, last_signature BLOB);
CREATE INDEX families_owner ON families(owner);
)sql";

constexpr const char* kSegmentTables = R"sql(
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
-- Whose blocks: the verified name, or '?' and the claimed one (without a name: '?').
CREATE TABLE owners(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
-- Texts that repeat. `field` as in schema.h.
CREATE TABLE names(id INTEGER PRIMARY KEY, field INTEGER NOT NULL, text TEXT NOT NULL);
-- A list (directives, modules, software, nodes, findings) is a blob: the names.id of its items
-- (pack_ids()).
CREATE INDEX names_text ON names(field, text COLLATE NOCASE) WHERE typeof(text) = 'text';
-- One row a job. `job` is an integer if it is written in digits. time: nanoseconds. script,
-- environment and record: contents.id. Other integers without a unit: names.id.
CREATE TABLE jobs(
  id INTEGER PRIMARY KEY, owner INTEGER NOT NULL, cluster INTEGER NOT NULL,
  scheduler INTEGER NOT NULL, job NOT NULL, time INTEGER NOT NULL, event BLOB,
  script INTEGER, environment INTEGER, record INTEGER,
  name INTEGER, array_job INTEGER, array_spec INTEGER, het INTEGER,
  user INTEGER, uid INTEGER, grp INTEGER, account INTEGER, partition INTEGER, qos INTEGER,
  work_dir INTEGER, interpreter INTEGER, directives INTEGER, modules INTEGER,
  software INTEGER,
  script_size INTEGER, environment_size INTEGER, flags INTEGER NOT NULL, family INTEGER);
CREATE INDEX jobs_job ON jobs(job);
CREATE INDEX jobs_script ON jobs(script);
-- What later events said of a job. Times in nanoseconds, ratios from 0 to 1. account_named: the end
-- of the newest run that names an account, in seconds; NULL: jobs.account is the submission's.
CREATE TABLE outcomes(
  job INTEGER PRIMARY KEY, state INTEGER, exit_code INTEGER, exit_signal INTEGER,
  started INTEGER, ended INTEGER, elapsed REAL, cpu_seconds REAL, cpus INTEGER, cpu_ratio REAL,
  memory_peak INTEGER, memory_limit INTEGER, gpus INTEGER, gpu_ratio REAL, time_limit INTEGER,
  nodes INTEGER, findings INTEGER, lives INTEGER NOT NULL, runs INTEGER NOT NULL,
  failed_runs INTEGER NOT NULL, account_named INTEGER);
-- The later events themselves, each once. event: the id's first 16 bytes. The others are of the run
-- that a usage.job describes (rows.h), else NULL; ended: seconds, owner: owner_of_run(), programs:
-- "SHARE NAME" lines.
CREATE TABLE later(job INTEGER NOT NULL, event BLOB NOT NULL, record INTEGER NOT NULL,
                   ended INTEGER, user INTEGER, owner INTEGER, account INTEGER,
                   partition INTEGER, core_seconds INTEGER, unused_core_seconds INTEGER, gpu_seconds INTEGER,
                   unused_gpu_seconds INTEGER, nodes INTEGER, findings INTEGER, programs TEXT,
                   PRIMARY KEY(job, event)) WITHOUT ROWID;
CREATE INDEX later_ended ON later(ended) WHERE ended NOT NULL;
-- block and place are NULL while the content is pending. Of scripts: sha256, and its first 8 bytes as
-- a big-endian integer in `key`.
CREATE TABLE contents(id INTEGER PRIMARY KEY, owner INTEGER NOT NULL, kind INTEGER NOT NULL,
                      block INTEGER, place INTEGER, key INTEGER, sha BLOB);
CREATE INDEX contents_key ON contents(key) WHERE key IS NOT NULL;
-- base: the pending content against whose bytes `data` is packed; NULL for none. newest and oldest,
-- here (of scripts), in script_blocks and in chunks: of jobs.time of the jobs that use it.
CREATE TABLE pending(id INTEGER PRIMARY KEY, owner INTEGER NOT NULL, kind INTEGER NOT NULL,
                     base INTEGER, raw INTEGER NOT NULL, newest INTEGER, oldest INTEGER,
                     data BLOB NOT NULL);
CREATE INDEX pending_owner ON pending(kind, owner);
-- garbage: how many of its contents no row of `contents` names any more. ids: the contents.id of
-- each place (pack_ids()); a row of `contents` that names another block or place is not meant.
CREATE TABLE blocks(id INTEGER PRIMARY KEY, owner INTEGER NOT NULL, kind INTEGER NOT NULL,
                    raw INTEGER NOT NULL, count INTEGER NOT NULL, garbage INTEGER NOT NULL,
                    ids BLOB NOT NULL, data BLOB NOT NULL);
-- young: 1 without words in the index.
CREATE TABLE script_blocks(id INTEGER PRIMARY KEY, owner INTEGER NOT NULL,
                           newest INTEGER NOT NULL, oldest INTEGER NOT NULL,
                           young INTEGER NOT NULL);
CREATE INDEX script_blocks_newest ON script_blocks(newest);
CREATE INDEX script_blocks_young ON script_blocks(id) WHERE young;
-- Of a young block: a filter of its words (filter_of_words()).
CREATE TABLE pairs(id INTEGER PRIMARY KEY, filter BLOB NOT NULL);
-- list: scripts_with(). A young block has none, nor one that was written before format 4.
CREATE TABLE places(id INTEGER PRIMARY KEY, list BLOB NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(w, content='', detail=none, columnsize=0, tokenize='ascii');
CREATE TABLE chunks(id INTEGER PRIMARY KEY, newest INTEGER NOT NULL, oldest INTEGER NOT NULL);
-- id: field_key() of a QueryField or kNameOfUid, and a chunk. list: the values that jobs of the
-- chunk have, ascending (pack_ids()): names.id; for kFamily the family, for kExit the code, for
-- kComplete and kVerified 1 or 0. kArray has names.id of the array, or 0 for a job of none.
-- kAccountsOfOwner has an owner instead of a chunk.
CREATE TABLE fields(id INTEGER PRIMARY KEY, list BLOB NOT NULL);
-- How many jobs of a day (seconds / kDay of jobs.time) a combination has; 0 means unknown.
CREATE TABLE daily(day INTEGER NOT NULL, cluster INTEGER NOT NULL, user INTEGER NOT NULL,
                   account INTEGER NOT NULL, partition INTEGER NOT NULL, verified INTEGER NOT NULL,
                   jobs INTEGER NOT NULL,
                   PRIMARY KEY(day, cluster, user, account, partition, verified)) WITHOUT ROWID;
)sql";

// What format 7 has beside format 6.
constexpr const char* kTablesOf7 = R"sql(
-- What the runs of a time had (sums.h). name: names.id of kNameOfSums.
CREATE TABLE sums(kind INTEGER NOT NULL, time INTEGER NOT NULL, name INTEGER NOT NULL,
                  data BLOB NOT NULL, PRIMARY KEY(kind, time, name)) WITHOUT ROWID;
-- The most wasteful runs of each day, as rows of `later`. waste: seconds of a core.
CREATE TABLE wasteful(day INTEGER NOT NULL, waste INTEGER NOT NULL, job INTEGER NOT NULL,
                      event BLOB NOT NULL, PRIMARY KEY(day, waste, job, event)) WITHOUT ROWID;
-- The jobs that have a user and no known end. time: of jobs.
CREATE TABLE unfinished(time INTEGER NOT NULL, job INTEGER NOT NULL, PRIMARY KEY(time, job))
  WITHOUT ROWID;
-- For a reader who sees the runs of one account.
CREATE INDEX later_account ON later(account, ended) WHERE ended NOT NULL;
CREATE INDEX jobs_family ON jobs(family, time) WHERE family NOT NULL;
)sql";

// And format 8.
constexpr const char* kIndicesOf8 = R"sql(
-- One person's runs, with all that is asked of them, as they lie far apart in `later`. Format 7 has
-- an index of that name with less.
DROP INDEX IF EXISTS later_user;
CREATE INDEX later_user ON later(user, ended, owner, account, partition, core_seconds,
                                 unused_core_seconds, gpu_seconds, unused_gpu_seconds, nodes,
                                 findings, programs, record) WHERE ended NOT NULL;
-- One person's jobs, and those whose owner may not be known.
CREATE INDEX jobs_owner ON jobs(owner, time);
CREATE INDEX jobs_alone ON jobs(time) WHERE event IS NULL;
)sql";

// And format 9.
constexpr const char* kTablesOf9 = R"sql(
-- Of a finished segment (frequent_words.h).
CREATE TABLE frequent(word BLOB NOT NULL, scripts BLOB NOT NULL);
CREATE UNIQUE INDEX frequent_word ON frequent(word);
)sql";

// That of kSegmentTables alone.
constexpr std::int64_t kFormatOfTables = 6;

std::string other_format(std::int64_t format) {
  return "is a catalog of format " + std::to_string(format) + "; this version uses format " +
         std::to_string(kFormat);
}

}  // namespace

std::string catalog_file(const std::string& root) { return root + "/catalog.db"; }
std::string segment_file(const std::string& root, std::int64_t segment) {
  const std::string number = std::to_string(segment);
  return root + "/segments/" + std::string(6 - std::min<std::size_t>(6, number.size()), '0') +
         number + ".db";
}
std::string lock_file(const std::string& root) { return root + "/writer.lock"; }

bool create_catalog_tables(sqlite::Connection& db) {
  db.execute("BEGIN IMMEDIATE");
  db.execute(kCatalogTables);
  db.run("INSERT INTO meta VALUES('format', ?)", kFormat);
  return db.execute("COMMIT");
}

bool create_segment_tables(sqlite::Connection& db, std::int64_t segment) {
  // So that a finished segment can be cut to what it needs, in short steps.
  db.execute("PRAGMA auto_vacuum = INCREMENTAL");
  db.execute("BEGIN IMMEDIATE");
  db.execute(kSegmentTables);
  add_newer_tables(db, kFormatOfTables);
  db.run("INSERT INTO meta VALUES('format', ?), ('segment', ?)", kFormat, segment);
  return db.execute("COMMIT");
}

void add_newer_tables(sqlite::Connection& db, std::int64_t format) {
  if (format < 7) db.execute(kTablesOf7);
  if (format < 8) db.execute(kIndicesOf8);
  if (format < 9) db.execute(kTablesOf9);
}

bool prepare_writer(sqlite::Connection& db) {
  return db.execute(
      "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;"
      "PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;"
      "PRAGMA journal_size_limit = 16777216");
}

bool prepare_reader(sqlite::Connection& db) {
  return db.execute(
      "PRAGMA query_only = ON; PRAGMA cache_size = -1024; PRAGMA temp_store = MEMORY");
}

Result<std::int64_t> format_of(sqlite::Connection& db) {
  std::int64_t format = 0;
  if (db.integer("SELECT 1 FROM sqlite_schema WHERE name = 'meta'"))
    format = db.integer("SELECT value FROM meta WHERE key = 'format'").value_or(0);
  if (auto error = db.take_error()) return *std::move(error);
  if (format >= kOldestFormat && format <= kFormat) return format;
  if (format == 0) return Error{ErrorKind::kCorrupt, "is not a catalog: it has no format"};
  const std::string of = other_format(format);
  return Error{ErrorKind::kInvalidConfig,
               format > kFormat
                   ? of + "; use the version that wrote it"
                   : of + ": begin with an empty directory and run `scriptorium sinks fill`"};
}

Result<void> check_format(sqlite::Connection& db) {
  const auto format = format_of(db);
  if (!format) return format.error();
  if (*format == kFormat) return {};
  return Error{ErrorKind::kInvalidConfig,
               other_format(*format) + "; restart the daemon, which converts it"};
}

}  // namespace scriptorium::catalog
