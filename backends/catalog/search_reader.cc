#include "backends/catalog/search_reader.h"

#include <algorithm>
#include <utility>

#include "backends/catalog/names.h"
#include "backends/catalog/segments.h"
#include "core/base/text.h"

namespace scriptorium::catalog {
namespace {

constexpr std::size_t kMostCachedBytes = std::size_t{1} << 20;
// The writer lets 8 MiB of scripts wait.
constexpr std::size_t kMostWaitingBytes = std::size_t{32} << 20;
// A base of a family has the owner's first base; there are no longer chains.
constexpr int kMostWaitingBases = 4;
constexpr std::size_t kMostProblems = 20;  // of a segment in one answer
// A block is kBlockBytes and one content more; compaction makes larger ones.
constexpr std::size_t kMostBlockBytes = std::size_t{256} << 20;

constexpr const char* kRawColumns =
    "id, time, script, environment, flags, family, cluster, scheduler, name, array_job, user, uid, "
    "account, partition, qos, work_dir, interpreter, directives, modules, software";

RawJob raw_job(const sqlite::Statement& from) {
  RawJob job;
  from.read(job.id, job.time, job.script, job.environment, job.flags, job.family, job.cluster,
            job.scheduler, job.name, job.array_job, job.user, job.uid, job.account, job.partition,
            job.qos, job.work_dir, job.interpreter, job.directives, job.modules, job.software);
  return job;
}

template <typename Number>
void take(const sqlite::Statement& from, int column, std::optional<Number>& into) {
  if (!from.is_null(column)) into = static_cast<Number>(from.integer(column));
}
void take(const sqlite::Statement& from, int column, std::optional<double>& into) {
  if (!from.is_null(column)) into = from.real(column);
}

}  // namespace

std::optional<std::int64_t RawJob::*> name_column(QueryField field) {
  switch (field) {
    case QueryField::kUser: return &RawJob::user;
    case QueryField::kAccount: return &RawJob::account;
    case QueryField::kPartition: return &RawJob::partition;
    case QueryField::kQos: return &RawJob::qos;
    case QueryField::kName: return &RawJob::name;
    case QueryField::kCluster: return &RawJob::cluster;
    case QueryField::kScheduler: return &RawJob::scheduler;
    case QueryField::kWorkDir: return &RawJob::work_dir;
    case QueryField::kInterpreter: return &RawJob::interpreter;
    case QueryField::kModule: return &RawJob::modules;
    case QueryField::kDirective: return &RawJob::directives;
    case QueryField::kSoftware: return &RawJob::software;
    default: return std::nullopt;
  }
}

Result<std::unique_ptr<SearchReader>> SearchReader::open(const std::string& root,
                                                         std::int64_t segment) {
  auto db = open_segment_reader(root, segment);
  if (!db) return db.error();
  return std::unique_ptr<SearchReader>(new SearchReader(segment, *std::move(db)));
}

SearchReader::SearchReader(std::int64_t segment, std::unique_ptr<sqlite::Connection> db)
    : segment_(segment),
      db_(std::move(db)),
      rows_(std::make_unique<RowReader>(*db_)),
      version_(*db_, "PRAGMA data_version"),
      chunks_(*db_, "SELECT id, newest, oldest FROM chunks"),
      chunk_jobs_(*db_, std::string("SELECT ") + kRawColumns +
                            " FROM jobs WHERE id >= ?1 AND id < ?2 AND (?3 IS NULL OR owner IN "
                            "(?3, ?4) OR event IS NULL) AND " +
                            kIsJob + " ORDER BY id DESC"),
      script_jobs_(*db_, std::string("SELECT ") + kRawColumns +
                             " FROM jobs INDEXED BY jobs_script WHERE script = ? ORDER BY id DESC"),
      environments_(*db_,
                    "SELECT id, time, environment FROM jobs WHERE id >= ? AND id < ? "
                    "ORDER BY id DESC"),
      job_(*db_, std::string("SELECT ") + kRawColumns + " FROM jobs WHERE id = ? AND " + kIsJob),
      owned_jobs_(*db_,
                  "SELECT id, time FROM jobs INDEXED BY jobs_owner WHERE owner = ? AND time "
                  "BETWEEN ? AND ? LIMIT ?"),
      jobs_alone_(*db_,
                  "SELECT id, time FROM jobs INDEXED BY jobs_alone WHERE event IS NULL AND time "
                  "BETWEEN ? AND ? LIMIT ?"),
      outcome_(
          *db_,
          "SELECT state, exit_code, exit_signal, ended, elapsed, cpus, cpu_ratio, "
          "memory_peak, memory_limit, gpus, gpu_ratio, nodes, findings, started, time_limit FROM "
          "outcomes "
          "WHERE job = ?"),
      job_id_(*db_, "SELECT job FROM jobs WHERE id = ?"),
      array_spec_(*db_, "SELECT array_spec FROM jobs WHERE id = ?"),
      sha_(*db_, "SELECT sha FROM contents WHERE id = ?"),
      block_(*db_, "SELECT kind, ids, data FROM blocks WHERE id = ?"),
      block_ids_(*db_, "SELECT id, place FROM contents WHERE block = ? AND kind = 0"),
      place_(*db_, "SELECT block, place FROM contents WHERE id = ?"),
      places_(*db_,
              "SELECT id, block, place FROM contents WHERE id BETWEEN ? AND ? AND kind = 1 "
              "ORDER BY id"),
      pending_(*db_, "SELECT base, data FROM pending WHERE id = ?"),
      waiting_scripts_(*db_, "SELECT id, owner, newest, base, data FROM pending WHERE kind = 0") {}

bool SearchReader::begin() {
  db_->execute("BEGIN");
  // The first read takes the snapshot.
  const std::int64_t version = version_.first().value_or(0);
  const bool changed = std::exchange(seen_version_, version) != version;
  if (changed) forget();
  return changed;
}

void SearchReader::end() { db_->rollback(); }

void SearchReader::forget() {
  recent_.clear();
  by_key_.clear();
  cached_bytes_ = 0;
  known_places_.clear();
  has_read_waiting_ = false;
}

std::vector<SearchReader::Chunk> SearchReader::chunks() {
  std::vector<Chunk> list;
  chunks_.bind();
  while (chunks_.step()) {
    Chunk& chunk = list.emplace_back();
    chunks_.read(chunk.id, chunk.newest, chunk.oldest);
  }
  return list;
}

void SearchReader::for_each_job(std::int64_t chunk,
                                const std::optional<std::vector<std::int64_t>>& owners,
                                const std::function<void(const RawJob&)>& use) {
  // A chunk's number that cannot be one is damage.
  if (chunk < 0 || chunk > IdSet::kEnd) return;
  chunk_jobs_.bind(chunk * kChunkJobs, (chunk + 1) * kChunkJobs);
  if (owners && (owners->size() == 1 || owners->size() == 2)) {
    chunk_jobs_.bind(owners->front(), owners->back());
  } else {
    chunk_jobs_.bind(nullptr, nullptr);
  }
  while (chunk_jobs_.step()) use(raw_job(chunk_jobs_));
}

void SearchReader::for_each_job_of_script(std::int64_t content,
                                          const std::function<void(const RawJob&)>& use) {
  script_jobs_.bind(content);
  while (script_jobs_.step()) use(raw_job(script_jobs_));
}

void SearchReader::for_each_environment(
    std::int64_t chunk, const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& use) {
  if (chunk < 0 || chunk > IdSet::kEnd) return;
  environments_.bind(chunk * kChunkJobs, (chunk + 1) * kChunkJobs);
  while (environments_.step())
    use(environments_.integer(0), environments_.integer(1), environments_.integer(2));
}

std::optional<RawJob> SearchReader::job(std::int64_t id) {
  std::optional<RawJob> job;
  if (job_.bind(id).step()) job = raw_job(job_);
  job_.reset();
  return job;
}

std::vector<SearchReader::TimedJob> SearchReader::jobs_of(const std::vector<std::int64_t>& owners,
                                                          std::int64_t from, std::int64_t to,
                                                          std::size_t most) {
  std::vector<TimedJob> jobs;
  const auto add = [&](sqlite::Statement& job) {
    while (job.step()) jobs.push_back({.id = job.integer(0), .time = job.integer(1)});
  };
  for (const std::int64_t owner : owners) {
    owned_jobs_.bind(owner, from, to, most - jobs.size());
    add(owned_jobs_);
  }
  jobs_alone_.bind(from, to, most - jobs.size());
  add(jobs_alone_);
  return jobs;
}

RawOutcome SearchReader::outcome(std::int64_t job) {
  RawOutcome outcome;
  JobRow& row = outcome.row;
  if (outcome_.bind(job).step()) {
    outcome.state = outcome_.integer(0);
    take(outcome_, 1, row.exit_code);
    take(outcome_, 2, row.exit_signal);
    if (!outcome_.is_null(3)) row.ended_at = Timestamp{outcome_.integer(3)};
    take(outcome_, 4, row.elapsed_seconds);
    take(outcome_, 5, row.cpus);
    take(outcome_, 6, row.cpu_ratio);
    take(outcome_, 7, row.memory_peak_bytes);
    take(outcome_, 8, row.memory_limit_bytes);
    take(outcome_, 9, row.gpus);
    take(outcome_, 10, row.gpu_ratio);
    outcome.nodes = outcome_.integer(11);
    outcome.findings = outcome_.integer(12);
    if (!outcome_.is_null(13)) row.started_at = Timestamp{outcome_.integer(13)};
    take(outcome_, 14, row.time_limit_seconds);
  }
  outcome_.reset();
  return outcome;
}

JobRow SearchReader::with_names(RawOutcome outcome) {
  JobRow& row = outcome.row;
  if (outcome.state != 0) row.state = std::string(name(outcome.state));
  if (outcome.nodes != 0) row.nodes = rows_->names().items(outcome.nodes);
  if (outcome.findings != 0) row.findings = rows_->names().items(outcome.findings);
  return std::move(row);
}

std::string SearchReader::job_id(std::int64_t job) {
  std::string id;
  if (job_id_.bind(job).step()) id = job_id_.text(0);
  job_id_.reset();
  return id;
}

std::string SearchReader::array_spec(std::int64_t job) {
  const auto id = array_spec_.first(job);
  return id ? std::string(name(*id)) : std::string();
}

std::string SearchReader::sha256(std::int64_t script) {
  std::string sha;
  if (sha_.bind(script).step()) sha = hex_encode(sha_.text(0));
  sha_.reset();
  return sha;
}

std::string_view SearchReader::name(std::int64_t id) { return rows_->names().text(id); }

std::shared_ptr<const SearchReader::BlockRow> SearchReader::cached(std::int64_t key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found->second);
  return found->second->block;
}

void SearchReader::keep(std::int64_t key, std::shared_ptr<const BlockRow> block) {
  cached_bytes_ += block->block.all().size();
  recent_.push_front({key, std::move(block)});
  by_key_[key] = recent_.begin();
  while (cached_bytes_ > kMostCachedBytes && recent_.size() > 1) {
    cached_bytes_ -= recent_.back().block->block.all().size();
    by_key_.erase(recent_.back().key);
    recent_.pop_back();
  }
}

std::shared_ptr<const SearchReader::BlockRow> SearchReader::block(std::int64_t id) {
  if (auto known = cached(id)) return known;
  auto row = read_block(id);
  if (row) keep(id, row);
  return row;
}

std::shared_ptr<const SearchReader::BlockRow> SearchReader::scan_block(std::int64_t id) {
  if (auto known = cached(id)) return known;
  auto row = read_block(id);
  if (row) scanned_ = row;
  return row;
}

void SearchReader::keep_block(std::int64_t id, std::shared_ptr<const BlockRow> block) {
  if (by_key_.contains(id)) return;
  if (scanned_ == block) scanned_.reset();
  keep(id, std::move(block));
}

std::shared_ptr<SearchReader::BlockRow> SearchReader::read_block(std::int64_t id) {
  if (id <= 0) return nullptr;
  auto row = scanned_.use_count() == 1 ? std::exchange(scanned_, nullptr) : nullptr;
  if (!row) row = std::make_shared<BlockRow>();
  row->ids.clear();
  std::optional<Error> damage;
  bool has_ids = true;
  if (!block_.bind(id).step()) {
    block_.reset();
    return nullptr;
  }
  const bool of_scripts = block_.integer(0) == static_cast<std::int64_t>(ContentKind::kScript);
  auto unpacked = row->block.unpack_again(block_.text(2), kMostBlockBytes);
  if (!unpacked) {
    damage = unpacked.error();
  } else {
    if (of_scripts) {
      auto ids = block_.is_null(1) ? std::nullopt : unpack_ids(block_.text(1));
      has_ids = ids && ids->size() == row->block.size();
      if (has_ids) row->ids = *std::move(ids);
    }
  }
  block_.reset();
  if (damage) {
    add_problem("block " + std::to_string(id) + ": " + damage->message());
    return nullptr;
  }
  if (!has_ids) {
    // Slow, and only for a damaged list: all of `contents` is read.
    add_problem("block " + std::to_string(id) + ": the list of its contents is damaged");
    row->ids.assign(row->block.size(), 0);
    block_ids_.bind(id);
    while (block_ids_.step()) {
      const std::uint64_t place = block_ids_.number(1);
      if (place < row->ids.size()) row->ids[place] = block_ids_.integer(0);
    }
  }
  bytes_ += row->block.all().size();
  return row;
}

bool SearchReader::is_at(std::int64_t content, std::int64_t block, std::size_t place) {
  const bool found = place_.bind(content).step() && place_.integer(0) == block &&
                     !place_.is_null(0) && place_.number(1) == place;
  place_.reset();
  return found;
}

std::optional<SearchReader::Place> SearchReader::place_of(std::int64_t content) {
  const auto known =
      std::lower_bound(known_places_.begin(), known_places_.end(), content,
                       [](const auto& entry, std::int64_t id) { return entry.first < id; });
  if (known != known_places_.end() && known->first == content) return known->second;
  std::optional<Place> place;
  if (place_.bind(content).step()) place = Place{place_.integer(0), place_.number(1)};
  place_.reset();
  return place;
}

void SearchReader::read_places(std::int64_t first, std::int64_t last) {
  known_places_.clear();
  places_.bind(first, last);
  while (places_.step())
    known_places_.emplace_back(places_.integer(0), Place{places_.integer(1), places_.number(2)});
}

std::optional<SearchReader::Text> SearchReader::text(std::int64_t content) {
  const auto found = place_of(content);
  const std::string what = "content " + std::to_string(content);
  if (!found) {
    if (db_->ok()) add_problem(what + " is missing");
    return std::nullopt;
  }
  const auto [id, place] = *found;
  if (id != 0) {
    auto row = block(id);
    if (row && place < row->block.size()) return Text{row, row->block[place]};
    if (row) {
      add_problem(what + ": block " + std::to_string(id) + " has no place " +
                  std::to_string(place));
    } else if (db_->ok() && !db_->damaged()) {
      add_problem(what + ": block " + std::to_string(id) + " cannot be read");
    }
    return std::nullopt;
  }
  if (auto known = cached(-content)) return Text{known, known->block[0]};
  auto unpacked = unpack_pending(content);
  if (!unpacked || unpacked->size() == 0) {
    if (db_->ok())
      add_problem(what + ": " + (unpacked ? std::string("is empty") : unpacked.error().message()));
    return std::nullopt;
  }
  auto row = std::make_shared<BlockRow>();
  row->block = *std::move(unpacked);
  row->ids.assign(1, content);
  bytes_ += row->block.all().size();
  keep(-content, row);
  return Text{row, row->block[0]};
}

const std::map<std::int64_t, SearchReader::WaitingScript>& SearchReader::waiting_scripts() {
  if (std::exchange(has_read_waiting_, true)) return waiting_;
  const auto before = std::exchange(waiting_, {});
  waiting_bytes_ = 0;
  waiting_scripts_.bind();
  while (waiting_scripts_.step()) {
    WaitingScript& script = waiting_[waiting_scripts_.integer(0)];
    script.owner = waiting_scripts_.integer(1);
    script.newest = waiting_scripts_.integer(2);
    script.base = waiting_scripts_.integer(3);
    script.packed = waiting_scripts_.text(4);
  }
  if (!db_->ok()) has_read_waiting_ = false;
  // A base comes before what is packed against it.
  const auto unpacked_of = [](const auto& scripts, std::int64_t id) {
    const auto found = scripts.find(id);
    return found == scripts.end() ? nullptr : found->second.unpacked;
  };
  for (auto& [id, script] : waiting_) {
    const auto same = before.find(id);
    if (same == before.end() || same->second.packed != script.packed ||
        same->second.base != script.base || !same->second.unpacked)
      continue;
    if (script.base != 0) {
      const auto base = unpacked_of(waiting_, script.base);
      if (!base || base != unpacked_of(before, script.base)) continue;
    }
    script.unpacked = same->second.unpacked;
    waiting_bytes_ += script.unpacked->block.all().size();
  }
  return waiting_;
}

std::shared_ptr<const SearchReader::BlockRow> SearchReader::unpack_waiting(std::int64_t content,
                                                                           int depth) {
  const auto found = waiting_.find(content);
  if (found == waiting_.end() || depth > kMostWaitingBases) return nullptr;
  WaitingScript& script = found->second;
  if (script.unpacked) return script.unpacked;
  std::shared_ptr<const BlockRow> base;
  if (script.base != 0) {
    base = unpack_waiting(script.base, depth + 1);
    if (!base) return nullptr;
  }
  auto block = Block::unpack(script.packed, kMostBlockBytes, base ? base->block[0] : "");
  if (!block || block->size() != 1) return nullptr;
  auto row = std::make_shared<BlockRow>();
  row->block = *std::move(block);
  if (waiting_bytes_ < kMostWaitingBytes) {
    script.unpacked = row;
    waiting_bytes_ += row->block.all().size();
  }
  return row;
}

std::optional<SearchReader::Text> SearchReader::waiting_text(std::int64_t content) {
  const auto row = unpack_waiting(content, 0);
  if (!row) return text(content);  // which says what is wrong with it
  bytes_ += row->block.all().size();
  return Text{row, row->block[0]};
}

std::optional<SearchReader::Text> SearchReader::pending_text(std::int64_t content) {
  auto unpacked = unpack_pending(content);
  if (!unpacked || unpacked->size() == 0) return text(content);
  auto row = std::make_shared<BlockRow>();
  row->block = *std::move(unpacked);
  bytes_ += row->block.all().size();
  return Text{row, row->block[0]};
}

Result<Block> SearchReader::unpack_pending(std::int64_t content) {
  if (!pending_.bind(content).step()) return Error{ErrorKind::kCorrupt, "is not pending"};
  std::optional<std::int64_t> base;
  pending_.read(base);
  const std::string data(pending_.text(1));
  pending_.reset();
  if (!base) return Block::unpack(data, kMostBlockBytes);
  // A base is older than what is packed against it, so this ends.
  if (*base >= content) return Error{ErrorKind::kCorrupt, "is packed against a later one"};
  const auto prefix = text(*base);
  if (!prefix) return Error{ErrorKind::kCorrupt, "what it is packed against cannot be read"};
  return Block::unpack(data, kMostBlockBytes, prefix->bytes);
}

void SearchReader::add_problem(const std::string& what) {
  const std::string problem = segment_name(segment_) + ": " + what;
  if (problems_.size() >= kMostProblems ||
      std::find(problems_.begin(), problems_.end(), problem) != problems_.end())
    return;
  problems_.push_back(problem);
}

std::vector<std::string> SearchReader::take_problems() { return std::exchange(problems_, {}); }

}  // namespace scriptorium::catalog
