#include "backends/catalog/check.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/catalog/block.h"
#include "backends/catalog/field_lists.h"
#include "backends/catalog/frequent_words.h"
#include "backends/catalog/ingest.h"
#include "backends/catalog/names.h"
#include "backends/catalog/readable.h"
#include "backends/catalog/rows.h"
#include "backends/catalog/sums.h"
#include "backends/catalog/words.h"
#include "core/api/kit/search/job_facts.h"
#include "core/base/text.h"

namespace scriptorium::catalog {
namespace {

// Contents are read no faster after the first ones, so that half of a core and most of a disk
// remain for others.
constexpr double kMostBytesPerSecond = 40e6;
constexpr double kFirstBytes = 64e6;
// More are counted, and not named.
constexpr std::size_t kMostFindings = 2'000;

// Which words a block has: their number and a sum that does not depend on their order.
struct WordSum {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  void add(std::string_view word) {
    ++count;
    sum += std::hash<std::string_view>{}(word) | 1U;
  }
  bool operator==(const WordSum&) const = default;
};

WordSum sum_of_list(std::string_view list) {
  WordSum sum;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    if (end > 0) sum.add(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return sum;
}

// Columns of `jobs` (j) and `outcomes` (o) that hold values of `fields`.
struct FieldColumn {
  const char* column;
  std::int64_t field;
  bool is_list = false;
};
const std::array kFieldColumns{
    FieldColumn{"j.cluster", name_field(QueryField::kCluster)},
    FieldColumn{"j.scheduler", name_field(QueryField::kScheduler)},
    FieldColumn{"j.user", name_field(QueryField::kUser)},
    FieldColumn{"j.uid", kNameOfUid},
    FieldColumn{"j.account", name_field(QueryField::kAccount)},
    FieldColumn{"j.partition", name_field(QueryField::kPartition)},
    FieldColumn{"j.qos", name_field(QueryField::kQos)},
    FieldColumn{"j.name", name_field(QueryField::kName)},
    FieldColumn{"j.work_dir", name_field(QueryField::kWorkDir)},
    FieldColumn{"j.interpreter", name_field(QueryField::kInterpreter)},
    FieldColumn{"j.family", name_field(QueryField::kFamily)},
    FieldColumn{"coalesce(j.array_job, 0)", name_field(QueryField::kArray)},
    FieldColumn{"j.flags & 1", name_field(QueryField::kVerified)},
    FieldColumn{"(j.flags & 2) = 0", name_field(QueryField::kComplete)},
    FieldColumn{"CASE WHEN j.flags & 4 THEN (SELECT id FROM names WHERE field = ?3 AND text = "
                "'secret' AND typeof(text) = 'text') END",
                name_field(QueryField::kFinding)},
    FieldColumn{"j.directives", name_field(QueryField::kDirective), true},
    FieldColumn{"j.modules", name_field(QueryField::kModule), true},
    FieldColumn{"j.software", name_field(QueryField::kSoftware), true},
    FieldColumn{"o.state", name_field(QueryField::kState)},
    FieldColumn{"o.exit_code", name_field(QueryField::kExit)},
    FieldColumn{"o.nodes", name_field(QueryField::kNode), true},
    FieldColumn{"o.findings", name_field(QueryField::kFinding), true},
};

// Whether a value of a field is names.id.
bool is_name(std::int64_t field, std::int64_t value) {
  constexpr std::array kNumbers{QueryField::kFamily, QueryField::kExit, QueryField::kVerified,
                                QueryField::kComplete};
  return std::none_of(kNumbers.begin(), kNumbers.end(),
                      [&](QueryField number) { return name_field(number) == field; }) &&
         (value != 0 || field != name_field(QueryField::kArray));
}

class SegmentCheck {
 public:
  SegmentCheck(EventReader& segment, const SegmentInfo& info, Connection& families,
               const MaintainedSink::Control& control, MaintainedSink::Report& report)
      : segment_(segment),
        db_(segment.db()),
        info_(info),
        name_(segment_name(info.id)),
        control_(control),
        report_(report),
        family_(families, "SELECT 1 FROM families WHERE id = ?"),
        families_(families),
        owner_(db_, "SELECT name FROM owners WHERE id = ?"),
        later_(db_, std::string("SELECT event, record, ") + kRunColumns +
                        " FROM later WHERE job = ? ORDER BY record"),
        names_(db_),
        named_(db_, "SELECT 1 FROM names WHERE id = ? AND field = ?"),
        items_(db_, "SELECT text FROM names WHERE id = ?"),
        fields_(db_),
        frequent_(db_) {}

  void run() {
    const std::pair<const char*, void (SegmentCheck::*)()> steps[] = {
        {"database", &SegmentCheck::check_database},
        {"blocks", &SegmentCheck::check_blocks},
        {"jobs", &SegmentCheck::check_jobs},
        {"sums", &SegmentCheck::check_sums},
        {"sums of runs", &SegmentCheck::check_run_sums},
        {"wasteful runs", &SegmentCheck::check_wasteful},
    };
    for (const auto& [step, check] : steps) {
      if (control_.stop.stop_requested()) return;
      step_ = step;
      db_.execute("BEGIN");
      (this->*check)();
      end_transaction();
    }
  }

 private:
  struct BlockFacts {
    std::int64_t owner = 0;
    std::int64_t kind = 0;
    std::int64_t garbage = 0;
    std::vector<std::int64_t> ids;
    std::size_t named = 0;  // by rows of `contents`
    bool readable = false;
    WordSum words;
  };
  using Blocks = std::map<std::int64_t, BlockFacts>;

  void find(const std::string& place, const std::string& problem, bool lost = false) {
    if (++report_.figures["findings"] <= kMostFindings)
      report_.findings.push_back({name_ + ": " + place, problem, lost});
  }
  // What a statement could not read is a finding, too.
  void end_transaction() {
    if (const auto error = db_.take_error()) find(step_, "cannot be read: " + error->message());
    db_.rollback();
  }
  // One finding for each row: a place, and a number of it.
  template <typename... Values>
  void find_rows(const std::string& place, const std::string& problem, const std::string& sql,
                 const Values&... values) {
    sqlite::Statement select(db_, sql);
    select.bind(values...);
    while (select.step()) find(place + " " + std::string(select.text(0)), problem);
    if (const auto error = db_.take_error()) find(place, "cannot be read: " + error->message());
  }
  void progress(std::uint64_t done, std::uint64_t of) {
    if (control_.progress) control_.progress(name_ + ": " + step_, done, of);
  }
  void pace(std::size_t bytes);

  void check_database();
  void check_blocks();
  BlockFacts facts_of(const sqlite::Statement& row);
  void check_script_block(const sqlite::Statement& row, const Block& block, BlockFacts& facts);
  void check_contents(Blocks& blocks);
  void check_words(const Blocks& blocks);
  void check_jobs();
  void check_job(const JobEntry& entry);
  bool check_submission(const JobEntry& entry, const std::string& place, JobRow& should);
  bool check_later(const JobEntry& entry, const std::string& place, JobRow& should);
  void check_fields(std::int64_t first);
  void check_accounts();
  void add_values(const sqlite::Statement& row,
                  std::set<std::pair<std::int64_t, std::int64_t>>& into);
  void check_sums();
  void check_run_sums();
  void check_wasteful();

  EventReader& segment_;
  Connection& db_;
  const SegmentInfo& info_;
  const std::string name_;
  const MaintainedSink::Control& control_;
  MaintainedSink::Report& report_;
  sqlite::Statement family_;
  Connection& families_;
  sqlite::Statement owner_;
  sqlite::Statement later_;
  NameReader names_;
  sqlite::Statement named_;
  sqlite::Statement items_;
  FieldReader fields_;
  FrequentWords frequent_;
  std::string step_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double bytes_ = 0;
};

void SegmentCheck::pace(std::size_t bytes) {
  report_.figures["bytes"] += bytes;
  bytes_ += static_cast<double>(bytes);
  const std::chrono::duration<double> due((bytes_ - kFirstBytes) / kMostBytesPerSecond);
  const auto ahead = due - (std::chrono::steady_clock::now() - begin_);
  if (ahead > std::chrono::milliseconds(20)) std::this_thread::sleep_for(ahead);
}

void SegmentCheck::check_database() {
  sqlite::Statement check(db_, "PRAGMA integrity_check(20)");
  while (check.step()) {
    if (check.text(0) != "ok") find("database", std::string(check.text(0)));
  }
}

// ---- blocks, contents and words

SegmentCheck::BlockFacts SegmentCheck::facts_of(const sqlite::Statement& row) {
  const std::string place = "block " + std::to_string(row.integer(0));
  BlockFacts facts;
  facts.owner = row.integer(1);
  facts.kind = row.integer(2);
  facts.garbage = row.integer(5);
  const auto block = Block::unpack(row.text(7));
  auto ids = unpack_ids(row.text(6));
  if (ids) facts.ids = *std::move(ids);
  if (!block) {
    find(place, block.error().message());
    return facts;
  }
  facts.readable = true;
  if (facts.ids.size() != block->size()) find(place, "its list of contents is damaged");
  if (row.number(3) != block->all().size() || row.number(4) != block->size())
    find(place, "states another size than it has");
  if (facts.kind == static_cast<std::int64_t>(ContentKind::kScript))
    check_script_block(row, *block, facts);
  // A transaction that waits lets -wal grow, where somebody writes.
  if (info_.state != SegmentState::kOpen) pace(block->all().size());
  return facts;
}

void SegmentCheck::check_script_block(const sqlite::Statement& row, const Block& block,
                                      BlockFacts& facts) {
  const std::string place = "block " + std::to_string(row.integer(0));
  if (row.is_null(8) || row.integer(8) != facts.owner)
    return find(place, "its row in script_blocks is missing or of another owner");
  const bool young = row.integer(9) != 0;
  const BlockWords words = words_of(block);
  if (!young) facts.words = sum_of_list(words.list);
  if (row.text(10) != (young ? filter_of_words(block) : words.filter))
    find(place, "its filter of words is not that of its scripts");
  if (!frequent_.have_pairs_of(row.integer(0), block))
    find(place, "has word pairs that the lists of frequent words lack");
  // A block that was written before format 4 has none.
  if (!row.is_null(11) &&
      (young || (row.text(11) != words.places && !is_earlier_list(row.text(11), words.places))))
    find(place, "has words in other scripts than it says");
}

void SegmentCheck::check_blocks() {
  Blocks blocks;
  const std::uint64_t all = db_.number("SELECT count(*) FROM blocks");
  {
    sqlite::Statement select(
        db_,
        "SELECT b.id, b.owner, b.kind, b.raw, b.count, b.garbage, b.ids, b.data, s.owner, s.young, "
        "p.filter, l.list FROM blocks b LEFT JOIN script_blocks s ON s.id = b.id "
        "LEFT JOIN pairs p ON p.id = b.id LEFT JOIN places l ON l.id = b.id ORDER BY b.id");
    while (select.step()) {
      if (control_.stop.stop_requested()) return;
      blocks[select.integer(0)] = facts_of(select);
      if (blocks.size() % 64 == 0) progress(blocks.size(), all);
    }
  }
  report_.figures["blocks"] += blocks.size();
  if (!db_.ok()) return;
  if (!frequent_.check())
    find("the list of frequent words", "is damaged or not that of its scripts");
  check_contents(blocks);
  check_words(blocks);
}

void SegmentCheck::check_contents(Blocks& blocks) {
  sqlite::Statement select(db_, "SELECT id, owner, kind, block, place, key, sha FROM contents");
  while (select.step()) {
    ++report_.figures["contents"];
    const std::int64_t id = select.integer(0);
    const std::string place = "content " + std::to_string(id);
    const bool is_script = select.integer(2) == static_cast<std::int64_t>(ContentKind::kScript);
    if (is_script == select.is_null(6) ||
        (is_script && select.integer(5) != content_key(select.text(6))))
      find(place, "its key is not that of its hash");
    if (select.is_null(3)) continue;
    const auto block = blocks.find(select.integer(3));
    const std::uint64_t at = select.number(4);
    if (block == blocks.end()) {
      find(place, "its block is missing");
      continue;
    }
    BlockFacts& facts = block->second;
    ++facts.named;
    if (at >= facts.ids.size() || facts.ids[at] != id || facts.owner != select.integer(1) ||
        facts.kind != select.integer(2))
      find(place, "its block has another content in its place");
  }
  for (const auto& [id, facts] : blocks) {
    if (static_cast<std::int64_t>(facts.ids.size() - facts.named) != facts.garbage)
      find("block " + std::to_string(id), "counts its unused contents wrongly");
  }
  find_rows("content", "its pending row is missing or of another owner",
            "SELECT c.id FROM contents c LEFT JOIN pending p ON p.id = c.id WHERE c.block IS NULL "
            "AND (p.id IS NULL OR p.owner <> c.owner OR p.kind <> c.kind)");
  find_rows("pending row", "belongs to no content",
            "SELECT id FROM pending WHERE id NOT IN (SELECT id FROM contents WHERE block IS NULL)");
}

// fts5vocab lists each word with its blocks.
void SegmentCheck::check_words(const Blocks& blocks) {
  db_.execute(
      "CREATE VIRTUAL TABLE IF NOT EXISTS temp.index_words USING fts5vocab('main', 'words', "
      "'instance')");
  std::unordered_map<std::int64_t, WordSum> indexed;
  sqlite::Statement select(db_, "SELECT term, doc FROM temp.index_words");
  while (select.step() && !control_.stop.stop_requested())
    indexed[select.integer(1)].add(select.text(0));
  select.reset();
  if (!db_.ok() || control_.stop.stop_requested()) return;
  for (const auto& [id, facts] : blocks) {
    const auto found = indexed.find(id);
    const WordSum sum = found == indexed.end() ? WordSum{} : found->second;
    if (found != indexed.end()) indexed.erase(found);
    if (facts.readable && !(sum == facts.words))
      find("block " + std::to_string(id), "the index has other words than its scripts");
  }
  for (const auto& [id, sum] : indexed)
    find("block " + std::to_string(id), "the index has words of it, and it is not there");
}

// ---- jobs

bool SegmentCheck::check_submission(const JobEntry& entry, const std::string& place,
                                    JobRow& should) {
  const auto event = segment_.submission(entry);
  if (!event) {
    find(place, event.error().message());
    return false;
  }
  should = row_of(*event);
  std::size_t bytes = 0;
  for (const EventFile& file : event->files) {
    if (file.bytes != nullptr) bytes += file.bytes->size();
    if (file.bytes == nullptr && (file.name == "script" || file.name == "environment"))
      find(place, "its " + file.name + " is lost", true);
    if (file.name == "script" && file.bytes != nullptr &&
        (!entry.row.family || !family_.first(*entry.row.family)))
      find(place, "belongs to no family of catalog.db");
  }
  if (const auto error = families_.take_error()) find(place, error->message());
  pace(bytes);
  const bool has_owner = owner_.bind(entry.owner).step();
  if (!has_owner || owner_.text(0) != owner_name(event->user))
    find(place, "its contents are in blocks of another owner");
  owner_.reset();
  return true;
}

bool SegmentCheck::check_later(const JobEntry& entry, const std::string& place, JobRow& should) {
  struct Later {
    std::string key;
    std::int64_t record = 0;
    std::optional<JobRun> run;
  };
  std::vector<Later> rows;
  later_.bind(entry.id);
  while (later_.step())
    rows.push_back({std::string(later_.text(0)), later_.integer(1), read_run(later_, 2, names_)});
  if (!entry.record && rows.empty()) find(place, "has no event");
  for (Later& row : rows) {
    const auto event = segment_.record(row.record);
    if (!event) {
      find(place, event.error().message());
      return false;
    }
    if (row.key != later_key(event->id))
      find(place, "a later event has another id than its record");
    if (!entry.record && &row == &rows.front()) {
      // As add_later_alone() began it.
      should.cluster = event->cluster;
      should.scheduler = event->scheduler;
      should.id = owning_job_id(*event);
      should.time = event->time;
    }
    const auto run = join(should, *event);
    // That of a run that was converted is its job's, if that is verified.
    if (row.run && run && (!run->uid || !row.run->uid)) row.run->uid = run->uid;
    if (row.run != (run ? std::optional(as_stored(*run)) : std::nullopt))
      find(place, "the run of a later event is not what its record says");
  }
  return true;
}

void SegmentCheck::check_job(const JobEntry& entry) {
  ++report_.figures["jobs"];
  const std::string place = "job " + printable(entry.row.id);
  JobRow should;
  if (entry.record && !check_submission(entry, place, should)) return;
  if (!check_later(entry, place, should)) return;
  should.family = entry.row.family;
  if (!entry.script) should.script_sha256.reset();  // it is kept with the script
  for (auto* list :
       {&should.directives, &should.modules, &should.software, &should.nodes, &should.findings}) {
    if (!list->empty()) *list = split_lines(join_lines(*list));  // as names keep it
  }
  if (!(should == entry.row)) find(place, "its row is not what its events say");
}

void SegmentCheck::check_jobs() {
  const std::int64_t end = db_.integer("SELECT max(id) FROM jobs").value_or(0) + 1;
  for (std::int64_t first = 0; first < end; first += kChunkJobs) {
    if (control_.stop.stop_requested()) return;
    progress(static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(end));
    // Each chunk sees one state, and lets -wal be used again after it.
    end_transaction();
    db_.execute("BEGIN");
    segment_.rows().forget();
    names_.forget();
    segment_.contents().forget();
    const auto read = segment_.rows().read_range(first, first + kChunkJobs, [&](JobEntry&& entry) {
      check_job(entry);
      return true;
    });
    if (!read) find("jobs from row " + std::to_string(first), read.error().message());
    check_fields(first);
  }
}

void SegmentCheck::add_values(const sqlite::Statement& row,
                              std::set<std::pair<std::int64_t, std::int64_t>>& into) {
  for (std::size_t i = 0; i < kFieldColumns.size(); ++i) {
    const auto column = static_cast<int>(i);
    const std::int64_t field = kFieldColumns[i].field;
    if (row.is_null(column)) continue;
    if (!kFieldColumns[i].is_list) {
      into.emplace(field, row.integer(column));
      continue;
    }
    if (items_.bind(row.integer(column)).step()) {
      for (const std::int64_t item :
           unpack_ids(items_.text(0)).value_or(std::vector<std::int64_t>{}))
        into.emplace(field, item);
    }
    items_.reset();
  }
}

// The lists of a chunk have all values of its jobs.
void SegmentCheck::check_fields(std::int64_t first) {
  std::string columns;
  for (const FieldColumn& field : kFieldColumns)
    columns += (columns.empty() ? "" : ", ") + std::string(field.column);
  std::set<std::pair<std::int64_t, std::int64_t>> values;
  sqlite::Statement select(db_, "SELECT " + columns +
                                    " FROM jobs j LEFT JOIN outcomes o ON o.job = j.id WHERE j.id "
                                    ">= ?1 AND j.id < ?2");
  select.bind(first, first + kChunkJobs, name_field(QueryField::kFinding));
  while (select.step()) add_values(select, values);
  const std::int64_t chunk = first / kChunkJobs;
  std::optional<std::int64_t> field;
  std::vector<std::int64_t> list;
  for (const auto& [of, value] : values) {
    if (of != field) list = fields_.values(of, chunk).value_or(std::vector<std::int64_t>{});
    field = of;
    if (is_name(of, value) && !named_.first(value, of) && db_.ok())
      find("name " + std::to_string(value), "is missing or of another field");
    if (std::binary_search(list.begin(), list.end(), value) || !db_.ok()) continue;
    find("chunk " + std::to_string(chunk),
         "its list of field " + std::to_string(of) + " lacks a value that a job has");
  }
}

void SegmentCheck::check_accounts() {
  sqlite::Statement select(db_,
                           "SELECT DISTINCT owner, account FROM jobs WHERE account NOT NULL "
                           "ORDER BY owner");
  std::optional<std::int64_t> owner;
  std::vector<std::int64_t> list;
  while (select.step()) {
    if (owner != select.integer(0))
      list =
          fields_.values(kAccountsOfOwner, select.integer(0)).value_or(std::vector<std::int64_t>{});
    owner = select.integer(0);
    if (!std::binary_search(list.begin(), list.end(), select.integer(1)))
      find("owner " + std::to_string(*owner), "its list of accounts lacks one that a job has");
  }
}

// ---- what is counted, and what is beside the jobs

void SegmentCheck::check_sums() {
  check_accounts();
  find_rows(
      "day", "is counted wrongly in daily",
      std::string(
          "SELECT day FROM (SELECT (time - ((time % ?1) + ?1) % ?1) / ?1 AS day, cluster, "
          "coalesce(user, 0) AS user, coalesce(account, 0) AS account, coalesce(partition, 0) AS "
          "partition, flags & 1 AS verified, count(*) AS n FROM jobs WHERE ") +
          kIsJob +
          " GROUP BY 1, 2, 3, 4, 5, 6 UNION ALL SELECT day, cluster, user, account, partition, "
          "verified, -jobs FROM daily WHERE jobs <> "
          "0) GROUP BY day, cluster, user, account, partition, verified HAVING sum(n) <> 0",
      kDay * kSecond);
  find_rows("chunk", "does not cover the time of its jobs",
            "SELECT j.chunk FROM (SELECT id / ?1 AS chunk, max(time) AS newest, min(time) AS "
            "oldest FROM jobs GROUP BY 1) j LEFT JOIN chunks c ON c.id = j.chunk WHERE c.id IS "
            "NULL OR c.newest < j.newest OR c.oldest > j.oldest",
            kChunkJobs);
  find_rows("block", "does not cover the time of its jobs",
            "SELECT DISTINCT s.id FROM jobs j JOIN contents c ON c.id = j.script JOIN "
            "script_blocks s ON s.id = c.block WHERE j.time > s.newest OR j.time < s.oldest");
  find_rows("pending row", "does not cover the time of its jobs",
            "SELECT DISTINCT p.id FROM jobs j JOIN pending p ON p.id = j.script WHERE j.time > "
            "p.newest OR j.time < p.oldest");
  find_rows("script block", "has no block",
            "SELECT id FROM script_blocks WHERE id NOT IN (SELECT id FROM blocks)");
  find_rows("row", "has a content of another owner or kind",
            "SELECT j.id FROM jobs j JOIN contents c ON c.id IN (j.script, j.environment, "
            "j.record) WHERE c.owner <> j.owner OR c.kind <> CASE c.id WHEN j.script THEN 0 WHEN "
            "j.environment THEN 1 ELSE 2 END");
  find_rows("content", "belongs to no job",
            "SELECT id FROM contents WHERE id NOT IN (SELECT script FROM jobs WHERE script NOT "
            "NULL UNION ALL SELECT environment FROM jobs WHERE environment NOT NULL UNION ALL "
            "SELECT record FROM jobs WHERE record NOT NULL UNION ALL SELECT record FROM later)");
  const std::string unfinished = std::string("SELECT time, id FROM jobs WHERE ") + kIsUnfinished;
  find_rows("time", "is one of a job whose end is known, or lacks one of a job without",
            "SELECT time FROM (SELECT * FROM unfinished EXCEPT " + unfinished +
                ") UNION ALL SELECT time FROM (" + unfinished +
                " EXCEPT SELECT * FROM unfinished)");
  for (const char* table : {"outcomes", "later"}) {
    find_rows(std::string(table) + " of row", "there is no such job",
              std::string("SELECT DISTINCT job FROM ") + table +
                  " WHERE job NOT IN (SELECT id FROM jobs)");
  }
}

void SegmentCheck::check_run_sums() {
  // By kind, time and the text of the name.
  using Key = std::tuple<std::int64_t, std::int64_t, std::string>;
  std::map<Key, RunTotals> should;
  names_.forget();
  sqlite::Statement select(db_, std::string("SELECT ") + kRunColumns +
                                    ", (SELECT modules FROM jobs WHERE id = later.job) FROM later "
                                    "WHERE ended NOT NULL");
  while (select.step()) {
    auto run = read_run(select, 0, names_);
    if (!run) continue;
    if (!select.is_null(kRunColumnCount))
      run->modules = split_lines(names_.text(select.integer(kRunColumnCount)));
    const std::int64_t ended = run->ended_at.nanoseconds / kSecond;
    const bool measured = is_measured(*run);
    should[{kQuarters, unit_of(ended, kQuarter), measured ? "1" : "0"}].add(*run);
    for (std::uint8_t by = 0; by < kRunsByCount && measured; ++by)
      for_each_share(
          static_cast<RunsBy>(by), *run,
          [&](const std::string& name, std::uint64_t begin, std::uint64_t end, std::uint64_t of) {
            should[{by, unit_of(ended, kDay), name}].add(*run, begin, end, of);
          });
  }
  std::map<Key, RunTotals> is;
  sqlite::Statement stored(db_, "SELECT kind, time, name, data FROM sums");
  while (stored.step()) {
    const std::int64_t kind = stored.integer(0);
    const auto sum = unpack_sum(stored.text(3));
    if (!sum) continue;
    RunTotals& totals = is[{kind, stored.integer(1),
                            kind == kQuarters ? std::to_string(stored.integer(2))
                                              : std::string(names_.text(stored.integer(2)))}];
    totals += totals_of(*sum, names_);
  }
  if (is == should) return;
  std::set<std::pair<std::int64_t, std::int64_t>> times;  // kind, time
  for (const auto& [one, other] : {std::pair(&is, &should), std::pair(&should, &is)}) {
    for (const auto& [key, totals] : *one) {
      const auto same = other->find(key);
      if (same == other->end() || !(same->second == totals))
        times.emplace(std::get<0>(key), std::get<1>(key));
    }
  }
  for (const auto& [kind, time] : times)
    find("sum " + std::to_string(kind) + " of time " + std::to_string(time),
         "is not what its runs add up to");
}

void SegmentCheck::check_wasteful() {
  const std::string waste = "(coalesce(l.unused_core_seconds, 0) + " +
                            std::to_string(kCoreHoursOfGpuHour) +
                            " * coalesce(l.unused_gpu_seconds, 0))";
  const std::string day = "((l.ended - ((l.ended % ?1) + ?1) % ?1) / ?1)";
  const std::string problem = "does not have its most wasteful runs";
  find_rows("day", problem,
            "SELECT DISTINCT w.day FROM wasteful w LEFT JOIN later l ON l.job = w.job AND l.event "
            "= w.event WHERE l.ended IS NULL OR w.waste <> " +
                waste + " OR w.day <> " + day,
            kDay);
  find_rows("day", problem,
            "SELECT DISTINCT t.day FROM (SELECT " + day + " AS day, " + waste +
                " AS waste, row_number() OVER (PARTITION BY " + day + " ORDER BY " + waste +
                " DESC) AS place FROM later l WHERE l.ended NOT NULL) t WHERE t.waste > 0 AND "
                "t.place <= ?2 AND (SELECT count(*) FROM wasteful w WHERE w.day = t.day AND "
                "w.waste >= t.waste) < t.place",
            kDay, kWastefulOfDay);
}

}  // namespace

void check_segment(const std::string& root, const SegmentInfo& segment, Connection& families,
                   const MaintainedSink::Control& control, MaintainedSink::Report& report) {
  auto reader = EventReader::open(root, segment.id);
  if (!reader) {
    ++report.figures["findings"];
    report.findings.push_back({segment_name(segment.id), reader.error().message(), false});
    return;
  }
  // The temporary table of words is no change of the file.
  (*reader)->db().execute("PRAGMA query_only = OFF");
  SegmentCheck(**reader, segment, families, control, report).run();
}

}  // namespace scriptorium::catalog
