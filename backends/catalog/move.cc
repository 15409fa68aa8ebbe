#include "backends/catalog/move.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>
#include <unordered_set>

#include "backends/catalog/ingest.h"
#include "backends/catalog/lock.h"
#include "backends/catalog/salvage.h"
#include "backends/catalog/store.h"
#include "core/api/kit/search/job_facts.h"
#include "core/api/kit/search/similarity.h"
#include "core/base/fault_point.h"
#include "core/base/file.h"
#include "core/base/text.h"

namespace scriptorium::catalog {
namespace {

constexpr std::size_t kEventsAtOnce = 200;
constexpr std::size_t kBytesAtOnce = std::size_t{8} << 20;
// The daemon wants the lock as well, most of the time.
constexpr std::chrono::seconds kPatience{60};
// After each batch: longer than the step in which a waiting process tries to get the lock.
constexpr std::chrono::milliseconds kTurnOfOthers{10};

using EventPtr = std::shared_ptr<const Event>;

// A copy for the record of a change.
EventPtr without_bytes(const Event& event) {
  auto copy = std::make_shared<Event>(event);
  for (EventFile& file : copy->files) file.bytes.reset();
  return copy;
}

class Silent final : public Logger {
 public:
  void log(LogLevel /*level*/, std::string_view /*id*/, std::string_view /*sentence*/,
           const Fields& /*fields*/) noexcept override {}
};

class Move {
 public:
  Move(const CatalogConfig& config, const Clock& clock, std::int64_t segment,
       const MaintainedSink::Control& control, MoveEditor* editor)
      : config_(config),
        clock_(clock),
        segment_(segment),
        file_(segment_file(config.root, segment)),
        name_(segment_name(segment)),
        control_(control),
        editor_(editor),
        store_(config_, "catalog", log_, clock) {}

  Result<Moved> run() {
    if (auto left = leave(); !left) return left.error();
    if (::access(file_.c_str(), F_OK) == 0) {
      if (auto copied = copy_events(); !copied) return copied.error();
      if (control_.stop.stop_requested()) return std::move(moved_);
      FAULT_POINT("catalog.moved");
    }
    if (auto removed = remove_file(); !removed) return removed.error();
    if (auto forgotten = change_catalog([&](Connection& catalog) {
          catalog.run("DELETE FROM segments WHERE id = ?", segment_);
        });
        !forgotten)
      return forgotten.error();
    moved_.finished = true;
    return std::move(moved_);
  }

 private:
  Result<void> change_catalog(const std::function<void(Connection&)>& steps);
  Result<void> check_room() const;
  Result<void> leave();
  Result<void> copy_events();
  Result<void> salvage(Connection& db);
  Result<bool> take(Event&& event);
  Result<bool> flush();
  Result<void> note_lost(Connection& db, const Salvage& salvage);
  Result<void> remove_file();
  Result<void> forget_names();
  void lost(const std::string& place, const std::string& problem) {
    moved_.lost.push_back({name_ + ": " + place, problem, true});
  }
  void progress(const char* step, std::uint64_t done, std::uint64_t of) const {
    if (control_.progress) control_.progress(name_ + ": " + step, done, of);
  }

  const CatalogConfig& config_;
  const Clock& clock_;
  const std::int64_t segment_;
  const std::string file_;
  const std::string name_;
  const MaintainedSink::Control& control_;
  MoveEditor* const editor_;
  Silent log_;
  Store store_;
  Moved moved_;

  std::uint64_t records_ = 0;
  std::vector<EventPtr> batch_;
  std::size_t batch_bytes_ = 0;
  std::vector<std::pair<EventPtr, EventPtr>> changes_;  // of the batch
  std::unordered_set<std::string> seen_;                // later_key() of each event
  std::unordered_set<std::string> jobs_;                // their ids
  // Of jobs whose name was changed; catalog.db has them in this form.
  std::unordered_set<std::string> former_names_;
};

Result<void> Move::change_catalog(const std::function<void(Connection&)>& steps) {
  const auto lock = WriterLock::take(config_.root, kPatience);
  if (!lock) return lock.error();
  auto catalog = open_catalog_writer(config_.root);
  if (!catalog) return catalog.error();
  (*catalog)->execute("BEGIN IMMEDIATE");
  if ((*catalog)->ok()) steps(**catalog);
  (*catalog)->execute("COMMIT");
  // No text that is removed stays in -wal.
  sqlite3_wal_checkpoint_v2((*catalog)->handle(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr,
                            nullptr);
  if (auto error = (*catalog)->take_error()) return *std::move(error);
  return {};
}

// From now on nobody writes to the segment. Its events get a new one, together with the few jobs
// that come meanwhile, and not among others of another time.
Result<void> Move::leave() {
  if (auto room = check_room(); !room) return room;
  {
    const auto lock = WriterLock::take(config_.root, kPatience);
    if (!lock) return lock.error();
    auto catalog = open_catalog_writer(config_.root);
    if (!catalog) return catalog.error();
    const auto state = (*catalog)->integer("SELECT state FROM segments WHERE id = ?", segment_);
    const std::int64_t next = next_segment(**catalog);
    if (auto error = (*catalog)->take_error()) return *std::move(error);
    const bool leaves = state && is_leaving(static_cast<SegmentState>(*state));
    if (!leaves) {
      auto added = add_segment(config_.root, **catalog, next, clock_.now());
      if (!added) return added;
    }
  }
  auto marked = change_catalog([&](Connection& catalog) {
    catalog.run("UPDATE segments SET state = ? WHERE id = ?",
                editor_ != nullptr ? SegmentState::kRedacting : SegmentState::kLeaving, segment_);
  });
  FAULT_POINT("catalog.leaving");
  return marked;
}

// All of it is here twice for a while.
Result<void> Move::check_room() const {
  struct statvfs disk{};
  struct stat st{};
  if (::stat(file_.c_str(), &st) != 0 || ::statvfs(config_.root.c_str(), &disk) != 0) return {};
  const std::uint64_t needed =
      static_cast<std::uint64_t>(st.st_size) +
      static_cast<std::uint64_t>(std::max<std::int64_t>(config_.min_free_bytes, 0));
  const std::uint64_t room = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (room >= needed) return {};
  return Error{ErrorKind::kExhausted, name_ + ": " + format_bytes(needed) +
                                          " are needed on root's file system, and " +
                                          format_bytes(room) + " are free"};
}

Result<void> Move::copy_events() {
  if (auto started = store_.start(); !started) return started;
  store_.take_incomplete();
  auto db = open_damaged_segment(config_.root, segment_);
  if (!db) return db.error();
  (*db)->execute("SELECT count(*) FROM jobs");
  if (auto error = (*db)->take_error()) {
    if (!is_damage(*error)) return *std::move(error);
    lost("rows", error->message());
  }
  if (auto done = salvage(**db); !done) return done;
  store_.close();
  return {};
}

Result<void> Move::salvage(Connection& db) {
  Salvage salvage(db);
  auto found = salvage.find_contents([&](std::uint64_t done, std::uint64_t of) {
    progress("reading", done, of);
    return !control_.stop.stop_requested();
  });
  if (!found || control_.stop.stop_requested()) return found;
  records_ = salvage.records();
  auto copied = salvage.for_each([&](Event&& event) { return take(std::move(event)); });
  if (!copied) return copied;
  const auto flushed = flush();
  if (!flushed) return flushed.error();
  if (control_.stop.stop_requested()) return {};
  if (auto noted = note_lost(db, salvage); !noted) return noted;
  return forget_names();
}

Result<bool> Move::take(Event&& event) {
  seen_.insert(later_key(event.id));
  jobs_.insert(owning_job_id(event));
  for (const EventFile& file : event.files) {
    if (file.bytes == nullptr && (file.name == "script" || file.name == "environment"))
      lost("job " + event.job.id, "its " + file.name + " is lost (event " + event.id + ")");
  }
  auto stored = std::make_shared<const Event>(std::move(event));
  if (editor_ != nullptr) {
    if (EventPtr after = editor_->edit(*stored)) {
      if (stored->job.name && stored->job.name != after->job.name)
        former_names_.insert(stable_name(*stored->job.name));
      changes_.emplace_back(without_bytes(*stored), without_bytes(*after));
      stored = std::move(after);
    }
  }
  batch_bytes_ += stored->bytes_size();
  batch_.push_back(std::move(stored));
  if (batch_.size() < kEventsAtOnce && batch_bytes_ < kBytesAtOnce) return true;
  return flush();
}

Result<bool> Move::flush() {
  if (batch_.empty()) return true;
  std::vector<const Event*> events;
  for (const EventPtr& event : batch_) events.push_back(event.get());
  for (const Stored& stored : store_.put(events)) {
    if (stored.kind == Stored::Kind::kFailed) return *stored.error;
  }
  if (editor_ != nullptr && !changes_.empty()) {
    if (auto noted = editor_->stored(changes_); !noted) return noted.error();
  }
  if (auto tidied = store_.tidy(); !tidied) return tidied.error();
  moved_.events += batch_.size();
  batch_.clear();
  changes_.clear();
  batch_bytes_ = 0;
  progress("writing", moved_.events, records_);
  std::this_thread::sleep_for(kTurnOfOthers);
  FAULT_POINT("catalog.move_batch");
  return !control_.stop.stop_requested();
}

// What the rows name, as far as they can be read, and no content is. By job id, SQLite reads their
// index, which is another copy.
Result<void> Move::note_lost(Connection& db, const Salvage& salvage) {
  bool readable = true;
  const auto pass_over = [&] {
    if (db.take_error()) readable = false;
  };
  sqlite::Statement jobs(db, "SELECT job, id FROM jobs ORDER BY job");
  sqlite::Statement event_of(db, "SELECT event FROM jobs WHERE id = ?");
  while (jobs.step()) {
    const std::string job(jobs.text(0));
    const bool has_row = event_of.bind(jobs.integer(1)).step();
    if (has_row && !event_of.is_null(0)) {
      const std::string id = event_of.id(0);
      if (!seen_.contains(later_key(id))) lost("job " + job, "is lost (event " + id + ")");
    } else if (!has_row && !jobs_.contains(job)) {
      lost("job " + job, "is lost");
    }
    event_of.reset();
  }
  pass_over();
  sqlite::Statement later(db,
                          "SELECT j.job, l.event FROM later l LEFT JOIN jobs j ON j.id = l.job");
  while (later.step()) {
    if (!seen_.contains(std::string(later.text(1))))
      lost("job " + std::string(later.text(0)), "what it used is lost");
  }
  pass_over();
  if (!readable) lost("rows", "some cannot be read, so there may be more jobs that are lost");
  // Damage by which no event is lost is of no interest any more.
  if (moved_.lost.empty()) return {};
  for (const std::string& place : salvage.damaged()) lost("damaged", place);
  return {};
}

// Families keep the names of their jobs.
Result<void> Move::forget_names() {
  if (former_names_.empty()) return {};
  return change_catalog([&](Connection& catalog) {
    sqlite::Statement first(catalog, "UPDATE families SET name = '' WHERE name = ?");
    sqlite::Statement last(
        catalog, "UPDATE families SET last_name = NULL, last_signature = NULL WHERE last_name = ?");
    for (const std::string& name : former_names_) {
      first.run(name);
      last.run(name);
    }
  });
}

// The database first: what lies beside one that is gone belongs to nothing.
Result<void> Move::remove_file() {
  for (const std::string ending : {"", "-wal", "-shm"}) {
    const std::string file = file_ + ending;
    struct stat st{};
    const bool is_kept = !moved_.lost.empty() && ending != "-shm" &&
                         ::stat(file.c_str(), &st) == 0 && st.st_size > 0;
    const std::string aside = file_ + std::string(kDamagedEnding) + ending;
    const int code = is_kept ? std::rename(file.c_str(), aside.c_str()) : ::unlink(file.c_str());
    if (code != 0 && errno != ENOENT) return system_error("remove " + file, errno);
    FAULT_POINT("catalog.move_file_removed");
  }
  return sync_parent(file_);
}

}  // namespace

Result<Moved> move_segment(const CatalogConfig& config, const Clock& clock, std::int64_t segment,
                           const MaintainedSink::Control& control, MoveEditor* editor) {
  return Move(config, clock, segment, control, editor).run();
}

}  // namespace scriptorium::catalog
