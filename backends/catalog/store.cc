#include "backends/catalog/store.h"

#include <sqlite3.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "backends/catalog/lock.h"
#include "core/api/kit/search/job_facts.h"
#include "core/base/fault_point.h"

namespace scriptorium::catalog {
namespace {

constexpr std::size_t kNewestCache = 16 << 20;
constexpr std::size_t kOlderCache = 1 << 20;
constexpr std::size_t kMostOlderOpen = 12;
// Pages of -wal from which it is moved into the database, and from which readers that prevent its
// reuse are waited for.
constexpr std::uint64_t kCheckpointPages = 4'000;
constexpr std::uint64_t kTooManyPages = 16'000;
constexpr std::chrono::milliseconds kReaderPatience{2'000};
// Pages of the word index that one step may merge.
constexpr std::int64_t kMergePages = 500;
// Pages that one step gives back to the file system.
constexpr int kFreedPages = 250;
// How long one step unites blocks of an old segment.
constexpr std::chrono::milliseconds kFinishStep{20};
// Events of a job whose script never came belong together if they are not further apart.
constexpr std::int64_t kLongestJob = 30 * kDay * kSecond;

std::int64_t quarter_of(Timestamp time) {
  const CivilDate date = civil_date(time);
  return std::stoll(date.year) * 4 + (std::stoll(date.month) - 1) / 3;
}

bool lacks_its_bytes(const Event& event) {
  return std::any_of(event.files.begin(), event.files.end(), [](const EventFile& file) {
    return file.bytes == nullptr && (file.name == "script" || file.name == "environment");
  });
}

// Whether it has a file of its row that is lost: what a rebuild could not save comes once more.
bool completes(const Event& event, const JobEntry& entry) {
  const auto has = [&](std::string_view name) {
    const EventFile* file = event.file(name);
    return file != nullptr && file->bytes != nullptr;
  };
  return (!entry.script && has("script")) || (!entry.environment && has("environment"));
}

// Whether a row without a submission is of the same job as this one.
bool is_completed_by(const JobRow& row, const Event& submission) {
  const std::int64_t apart = row.time.nanoseconds - submission.time.nanoseconds;
  return row.event_id.empty() && apart + kClockSlack >= 0 && apart <= kLongestJob &&
         (!row.started_at ||
          row.started_at->nanoseconds + kClockSlack >= submission.time.nanoseconds);
}

bool is_life_of(const JobRow& row, const Event& later, const JobRow& facts) {
  const std::int64_t apart = later.time.nanoseconds - row.time.nanoseconds;
  if (row.event_id.empty()) return std::max(apart, -apart) <= kLongestJob;
  // Of an id that was used again, the use may come before the script.
  if (row.verified && later.user.verified && row.user && later.user.name &&
      row.user != later.user.name)
    return false;
  return can_be_life_of(row.time, later.time) &&
         (!facts.started_at || facts.started_at->nanoseconds + kClockSlack >= row.time.nanoseconds);
}

}  // namespace

// What one call of put() changes.
class Store::Batch {
 public:
  // The event at `index` is decided by the commit of this segment.
  void add(std::size_t index, SegmentWriter* segment) { events_.emplace_back(index, segment); }
  std::vector<SegmentWriter*> segments() const {
    std::vector<SegmentWriter*> segments;
    for (const auto& [index, segment] : events_) {
      if (std::find(segments.begin(), segments.end(), segment) == segments.end())
        segments.push_back(segment);
    }
    return segments;
  }
  void fail(const SegmentWriter* of, const Error& error, std::vector<Stored>& results) const {
    for (const auto& [index, segment] : events_) {
      if (of == nullptr || segment == of) results[index] = {Stored::Kind::kFailed, error};
    }
  }

 private:
  std::vector<std::pair<std::size_t, SegmentWriter*>> events_;
};

Store::Store(const CatalogConfig& config, std::string instance, Logger& log, const Clock& clock)
    : config_(config), instance_(std::move(instance)), log_(log), clock_(clock) {}
Store::~Store() = default;

Store::Figures Store::figures() const {
  return {jobs_, segments_, pending_bytes_, longest_commit_us_};
}

Result<void> Store::start() {
  const std::lock_guard guard(writing_);
  if (auto made = make_root(config_.root, config_.reader_group); !made) return made;
  const auto lock = WriterLock::take(config_.root);
  if (!lock) return lock.error();
  const auto format = convert_catalog(config_.root);
  if (!format) return format.error();
  if (*format != kFormat) {
    log_.info("CATALOG_CONVERTED", "the catalog has the format of this version now",
              {{"sink", instance_}, {"from", *format}, {"to", kFormat}});
  }
  if (auto opened = open(); !opened) return opened;
  note_figures();
  return {};
}

void Store::close() {
  const std::lock_guard guard(writing_);
  const auto finish = [](sqlite::Connection& db) {
    // The file stays, empty: who may only read could not make it.
    sqlite3_wal_checkpoint_v2(db.handle(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  };
  for (Older& older : older_) {
    if (older.writer) finish(older.writer->db());
  }
  if (newest_) finish(newest_->db());
  if (catalog_) finish(*catalog_);
  forget_after_error();
}

// Connections of an aborted transaction are closed: the next batch begins with what is on disk.
void Store::forget_after_error() {
  for (Older& older : older_) older.writer.reset();
  newest_.reset();
  families_.reset();
  if (catalog_) catalog_->rollback();
  catalog_.reset();
  catalog_version_ = -1;
}

// ---- opening

Result<void> Store::open() {
  // A repair puts another file in its place.
  const FileId file = file_id(catalog_file(config_.root));
  if (catalog_ && file != catalog_file_) forget_after_error();
  if (!catalog_) {
    catalog_file_ = file;
    auto catalog = open_catalog_writer(config_.root);
    if (!catalog) return catalog.error();
    catalog_ = *std::move(catalog);
    families_ = std::make_unique<Families>(*catalog_);
    catalog_version_ = -1;
  }
  const std::int64_t version = catalog_->integer("PRAGMA data_version").value_or(0);
  if (version != catalog_version_ || !newest_) {
    families_->forget();
    if (auto loaded = load_segments(); !loaded) return loaded;
    catalog_version_ = version;
  }
  if (auto error = catalog_->take_error()) return *std::move(error);
  newest_->refresh();
  return {};
}

Result<void> Store::load_segments() {
  const std::vector<SegmentInfo> segments = list_segments(*catalog_);
  if (auto error = catalog_->take_error()) return *std::move(error);
  const auto open = std::find_if(segments.begin(), segments.end(), [](const SegmentInfo& info) {
    return info.state == SegmentState::kOpen;
  });
  std::vector<Older> older;
  for (const SegmentInfo& info : segments) {
    if (info.state != SegmentState::kSealed) continue;
    const auto known = std::find_if(older_.begin(), older_.end(),
                                    [&](const Older& o) { return o.info.id == info.id; });
    older.push_back(known != older_.end() ? std::move(*known) : Older{});
    older.back().info = info;
  }
  older_ = std::move(older);
  if (open == segments.end()) {
    newest_.reset();
    return begin_segment();
  }
  if (!newest_ || newest_info_.id != open->id) {
    auto writer = SegmentWriter::open(config_.root, open->id, kNewestCache);
    if (!writer) return writer.error();
    newest_ = *std::move(writer);
    newest_info_ = *open;
  }
  return {};
}

bool Store::is_segment_due() const {
  if (newest_->jobs() == 0) return false;
  return newest_->jobs() >= static_cast<std::uint64_t>(config_.segment_jobs) ||
         quarter_of(newest_info_.created) != quarter_of(clock_.now());
}

// The next segment, which becomes the newest.
Result<void> Store::begin_segment() {
  const std::int64_t id = next_segment(*catalog_);
  const SegmentInfo info{id, SegmentState::kOpen, clock_.now()};
  if (auto added = add_segment(config_.root, *catalog_, id, info.created); !added) return added;
  if (newest_) {
    Older older;
    older.info = newest_info_;
    older.info.state = SegmentState::kSealed;
    older_.insert(older_.begin(), std::move(older));
    newest_.reset();
  }
  FAULT_POINT("catalog.segment_added");
  auto writer = SegmentWriter::open(config_.root, id, kNewestCache);
  if (!writer) return writer.error();
  newest_ = *std::move(writer);
  newest_info_ = info;
  return {};
}

Result<SegmentWriter*> Store::use(Older& older) {
  if (older.damaged) return static_cast<SegmentWriter*>(nullptr);
  if (!older.writer) {
    auto writer = SegmentWriter::open(config_.root, older.info.id, kOlderCache);
    if (!writer) {
      if (writer.error().kind() != ErrorKind::kCorrupt) return writer.error();
      note_damage(older, writer.error());
      return static_cast<SegmentWriter*>(nullptr);
    }
    older.writer = *std::move(writer);
  } else if (older.batch != batches_) {
    older.writer->refresh();
  }
  older.batch = batches_;
  if (!older.examined) {
    older.range = older.writer->range();
    older.jobs = older.writer->jobs();
    older.pending_bytes = older.writer->pending_bytes();
    older.finished =
        older.writer->db().integer("SELECT 1 FROM meta WHERE key = 'finished'").has_value();
    older.examined = older.writer->db().ok();
  }
  if (auto error = older.writer->db().take_error()) {
    older.writer.reset();
    if (error->kind() != ErrorKind::kCorrupt) return *std::move(error);
    note_damage(older, *error);
    return static_cast<SegmentWriter*>(nullptr);
  }
  return older.writer.get();
}

void Store::note_damage(Older& older, const Error& error) {
  older.damaged = true;
  log_.error(
      "CATALOG_SEGMENT_DAMAGED",
      "a segment of the catalog is damaged: its jobs are not found and take no later events. "
      "Look at the disk, then run `scriptorium catalog rebuild`",
      {{"sink", instance_}, {"segment", segment_name(older.info.id)}, {"reason", error.message()}});
}

void Store::close_idle() {
  std::vector<Older*> open;
  for (Older& older : older_) {
    if (older.writer) open.push_back(&older);
  }
  if (open.size() <= kMostOlderOpen) return;
  std::sort(open.begin(), open.end(),
            [](const Older* a, const Older* b) { return a->batch < b->batch; });
  for (std::size_t i = 0; i + kMostOlderOpen < open.size(); ++i) open[i]->writer.reset();
}

// ---- a batch

std::vector<Stored> Store::put(const std::vector<const Event*>& events) {
  const std::lock_guard guard(writing_);
  std::vector<Stored> results(events.size());
  const auto fail_all = [&](const Error& error) {
    forget_after_error();
    for (Stored& result : results) result = {Stored::Kind::kFailed, error};
    return results;
  };
  ++batches_;
  const auto lock = WriterLock::take(config_.root);
  if (!lock) return fail_all(lock.error());
  if (auto opened = open(); !opened) return fail_all(opened.error());
  if (is_segment_due()) {
    if (auto begun = begin_segment(); !begun) return fail_all(begun.error());
  }
  Batch batch;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto segment = put_one(*events[i], results[i]);
    if (!segment) {
      results[i] = {Stored::Kind::kFailed, segment.error()};
    } else if (*segment != nullptr) {
      batch.add(i, *segment);
    }
    // Of an old segment only its own events fail; without the newest or the families nothing can be
    // stored.
    if (auto error = newest_->db().take_error()) return fail_all(*error);
    if (auto error = catalog_->take_error()) return fail_all(*error);
  }
  for (SegmentWriter* segment : batch.segments()) {
    if (segment->in_transaction()) segment->seal_due();
  }
  if (auto error = newest_->db().take_error()) return fail_all(*error);
  if (catalog_->in_transaction()) {
    catalog_->execute("COMMIT");
    if (auto error = catalog_->take_error()) return fail_all(*error);
    FAULT_POINT("catalog.families_committed");
  }
  for (SegmentWriter* segment : batch.segments()) {
    const auto begin = std::chrono::steady_clock::now();
    segment->commit();
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::steady_clock::now() - begin)
                          .count();
    longest_commit_us_ =
        std::max<std::uint64_t>(longest_commit_us_, static_cast<std::uint64_t>(took));
    if (auto error = segment->db().take_error()) {
      batch.fail(segment, *error, results);
      for (Older& older : older_) {
        if (older.writer.get() != segment) continue;
        older.writer.reset();
        if (error->kind() == ErrorKind::kCorrupt) note_damage(older, *error);
      }
      if (newest_.get() == segment) newest_.reset();
    }
  }
  FAULT_POINT("catalog.committed");
  close_idle();
  note_figures();
  return results;
}

Result<std::vector<Store::Found>> Store::find(const Event& event, std::string_view job_id) {
  std::vector<Found> found;
  for (JobEntry& entry : newest_->find(event, job_id))
    found.push_back({newest_.get(), std::move(entry)});
  for (Older& older : older_) {
    if (older.damaged || (older.examined && !older.range.may_have(job_id))) continue;
    const auto segment = use(older);
    if (!segment) return segment.error();
    if (*segment == nullptr || !older.range.may_have(job_id)) continue;
    for (JobEntry& entry : (*segment)->find(event, job_id))
      found.push_back({*segment, std::move(entry)});
  }
  return found;
}

Result<SegmentWriter*> Store::put_one(const Event& event, Stored& result) {
  result = {Stored::Kind::kStored, std::nullopt};
  return event.kind == "job.script" ? put_submission(event, result) : put_later(event, result);
}

Result<SegmentWriter*> Store::put_submission(const Event& event, Stored& result) {
  auto found = find(event, event.job.id);
  if (!found) return found.error();
  Found* replaced = nullptr;
  for (Found& job : *found) {
    const std::string& id = job.entry.row.event_id;
    if (id == event.id && !completes(event, job.entry)) {
      result.kind = Stored::Kind::kFoundAgain;
      return job.segment;
    }
    if (!id.empty() && (id == event.id || id == event.replaces || id == event.supersedes))
      replaced = &job;
  }
  for (Found& job : *found) {
    if (replaced != nullptr || job.entry.row.event_id.empty()) continue;
    // An event that another one has replaced may be delivered once more.
    const auto record = job.segment->record(job.entry);
    if (!record && record.error().kind() == ErrorKind::kTransient) return record.error();
    if (record && (record->replaces == event.id || record->supersedes == event.id)) {
      result.kind = Stored::Kind::kFoundAgain;
      return job.segment;
    }
  }
  if (replaced == nullptr && !takes_incomplete_ && lacks_its_bytes(event)) {
    // Nothing is here that could be moved: else core would have read the bytes from here.
    if (event.replaces) return static_cast<SegmentWriter*>(nullptr);
    result = {Stored::Kind::kFailed,
              Error{ErrorKind::kPermanent, "the event came without the bytes of its files"}};
    return static_cast<SegmentWriter*>(nullptr);
  }
  if (replaced == nullptr) {
    for (Found& job : *found) {
      if (is_completed_by(job.entry.row, event) &&
          (replaced == nullptr || job.entry.row.time < replaced->entry.row.time))
        replaced = &job;
    }
  }
  if (replaced != nullptr) {
    replaced->segment->begin();
    replaced->segment->replace_submission(replaced->entry, event, *families_);
    return replaced->segment;
  }
  newest_->begin();
  newest_->add_submission(event, *families_);
  return newest_.get();
}

Result<SegmentWriter*> Store::put_later(const Event& event, Stored& result) {
  auto found = find(event, owning_job_id(event));
  if (!found) return found.error();
  for (Found& job : *found) {
    if (!job.segment->has_later(job.entry.id, event)) continue;
    result.kind = Stored::Kind::kFoundAgain;
    return job.segment;
  }
  JobRow facts;
  if (!found->empty()) join(facts, event);
  Found* best = nullptr;
  for (Found& job : *found) {
    if (!is_life_of(job.entry.row, event, facts)) continue;
    const bool better = best == nullptr ||
                        (best->entry.row.event_id.empty() && !job.entry.row.event_id.empty()) ||
                        (best->entry.row.event_id.empty() == job.entry.row.event_id.empty() &&
                         best->entry.row.time < job.entry.row.time);
    if (better) best = &job;
  }
  if (best != nullptr) {
    best->segment->begin();
    best->segment->add_later(best->entry, event);
    return best->segment;
  }
  newest_->begin();
  newest_->add_later_alone(event);
  return newest_.get();
}

// ---- afterwards

Result<void> Store::tidy() {
  const std::lock_guard guard(writing_);
  if (!newest_) return {};  // the last batch failed, and the next one opens everything again
  const auto lock = WriterLock::take(config_.root);
  if (!lock) return lock.error();
  if (auto opened = open(); !opened) return opened;
  auto done = tidy_newest();
  if (done) done = finish_one();
  if (!done) forget_after_error();
  note_figures();
  return done;
}

Result<void> Store::tidy_newest() {
  for (bool more = true; more;) {
    newest_->begin();
    more = newest_->seal_due();
    newest_->commit();
    if (auto error = newest_->db().take_error()) return *std::move(error);
    FAULT_POINT("catalog.sealed");
  }
  sqlite::Connection& db = newest_->db();
  if (db.wal_pages() >= kCheckpointPages)
    db.checkpoint(db.wal_pages() >= kTooManyPages ? kReaderPatience : std::chrono::milliseconds(0));
  return {};
}

Result<void> Store::finish_one() {
  for (Older& older : older_) {
    if (older.damaged || (older.examined && older.finished)) continue;
    const auto segment = use(older);
    if (!segment) return segment.error();
    if (*segment == nullptr) continue;
    const auto finished = finish_step(older, **segment);
    if (!finished) {
      older.writer.reset();
      older.frequent.reset();  // it takes for written what was not committed
      if (finished.error().kind() != ErrorKind::kCorrupt) return finished.error();
      note_damage(older, finished.error());
      continue;
    }
    older.finished = *finished;
    older.pending_bytes = (*segment)->pending_bytes();
    return {};
  }
  return {};
}

bool Store::unite_blocks(Older& older, sqlite::Connection& db) {
  if (!older.to_unite) {
    auto groups = groups_to_regroup(db);
    if (!groups) {
      db.fail(groups.error());
      return false;
    }
    older.to_unite = *std::move(groups);
    std::reverse(older.to_unite->begin(), older.to_unite->end());
  }
  const auto end = std::chrono::steady_clock::now() + kFinishStep;
  while (!older.to_unite->empty() && db.ok() && std::chrono::steady_clock::now() < end) {
    // What is damaged stays as it is.
    regroup(db, older.to_unite->back(), kSealedBlockBytes);
    older.to_unite->pop_back();
  }
  return db.ok() && older.to_unite->empty();
}

Result<bool> Store::finish_step(Older& older, SegmentWriter& segment) {
  sqlite::Connection& db = segment.db();
  if (db.integer("SELECT 1 FROM meta WHERE key = 'finished'")) return true;
  segment.begin();
  bool finished = false;
  if (segment.pending_bytes() > 0) {
    segment.seal_all();
  } else if (!db.integer("SELECT 1 FROM meta WHERE key = 'united'")) {
    if (unite_blocks(older, db)) {
      db.execute("INSERT INTO meta VALUES('united', 1)");
      older.to_unite.reset();
    }
  } else if (!db.integer("SELECT 1 FROM meta WHERE key = 'frequent'")) {
    if (!older.frequent) older.frequent = std::make_unique<FrequentWordsWriter>(db);
    if (older.frequent->step(db, std::chrono::steady_clock::now() + kFinishStep)) {
      db.execute("INSERT INTO meta VALUES('frequent', 1)");
      older.frequent.reset();
    }
  } else if (!db.integer("SELECT 1 FROM meta WHERE key = 'merging'")) {
    // A negative number puts all of the index on one level, so that the next steps merge it into
    // one (https://sqlite.org/fts5.html#the_merge_command).
    db.run("INSERT INTO words(words, rank) VALUES('merge', ?)", -kMergePages);
    db.execute("INSERT INTO meta VALUES('merging', 1)");
  } else if (!db.integer("SELECT 1 FROM meta WHERE key = 'merged'")) {
    const int before = sqlite3_total_changes(db.handle());
    db.run("INSERT INTO words(words, rank) VALUES('merge', ?)", kMergePages);
    if (sqlite3_total_changes(db.handle()) - before < 2)
      db.execute("INSERT INTO meta VALUES('merged', 1)");
  } else {
    db.execute("PRAGMA incremental_vacuum(" + std::to_string(kFreedPages) + ")");
    // A segment that was made before there was an incremental one keeps its free pages.
    finished = db.number("PRAGMA freelist_count") == 0 || db.number("PRAGMA auto_vacuum") == 0;
    if (finished) db.execute("INSERT INTO meta VALUES('finished', 1); PRAGMA optimize");
  }
  segment.commit();
  if (auto error = db.take_error()) return *std::move(error);
  FAULT_POINT("catalog.finish_step");
  if (finished || db.wal_pages() >= kCheckpointPages) db.checkpoint(std::chrono::milliseconds(0));
  return finished;
}

void Store::note_figures() {
  Figures figures;
  for (Older& older : older_) {
    if (older.writer && older.writer->db().ok())
      older.pending_bytes = older.writer->pending_bytes();
    figures.jobs += older.jobs;
    figures.pending_bytes += older.pending_bytes;
  }
  if (newest_) {
    figures.jobs += newest_->jobs();
    figures.pending_bytes += newest_->pending_bytes();
  }
  jobs_ = figures.jobs;
  pending_bytes_ = figures.pending_bytes;
  segments_ = older_.size() + (newest_info_.id != 0 ? 1 : 0);
}

}  // namespace scriptorium::catalog
