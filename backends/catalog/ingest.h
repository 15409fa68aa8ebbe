#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/catalog/ingest_fields.h"
#include "backends/catalog/names.h"
#include "backends/catalog/recent.h"
#include "backends/catalog/rows.h"
#include "backends/catalog/seal.h"
#include "backends/catalog/segments.h"
#include "backends/catalog/store_contents.h"
#include "backends/catalog/store_families.h"
#include "backends/catalog/sums.h"
#include "core/api/event.h"
#include "core/base/result.h"

namespace scriptorium::catalog {

// Whose blocks an event's contents belong to, as in `owners.name`.
std::string owner_name(const User& user);
// An event as it is stored in a record, and its key in `later`.
std::string record_of(const Event& event);
std::string later_key(std::string_view event_id);

// Writes events into one segment, whose connection it owns. Changes happen in one transaction from
// begin() to commit(). After any error the object is of no more use: destroying it rolls back.
// Threads: one at a time, with the writer's lock held.
class SegmentWriter {
 public:
  static Result<std::unique_ptr<SegmentWriter>> open(const std::string& root, std::int64_t segment,
                                                     std::size_t cache_bytes);
  ~SegmentWriter();

  std::int64_t id() const noexcept { return id_; }
  sqlite::Connection& db() noexcept { return *db_; }
  // The first use after the lock was taken: forgets what another process may have changed.
  void refresh();
  bool begin();  // does nothing if a transaction is open
  bool in_transaction() const { return db_->in_transaction(); }
  // Sets what was gathered, and commits.
  bool commit();

  // The rows of this job id, cluster and scheduler.
  std::vector<JobEntry> find(const Event& event, std::string_view job_id);
  bool has_later(std::int64_t job, const Event& event);
  // The event of a row's record, without bytes.
  Result<Event> record(const JobEntry& entry);
  Result<std::string> content(std::int64_t id) { return reader_->read(id); }

  // A job of which nothing is stored yet.
  void add_submission(const Event& event, Families& families);
  // The row becomes that of this event, and keeps what later events said: its owner became known, a
  // longer capture of it arrived, or only later events were known.
  void replace_submission(JobEntry& entry, Event event, Families& families);
  void add_later(JobEntry& entry, const Event& event);
  // A row of its own, until the job's script arrives.
  void add_later_alone(const Event& event);

  std::uint64_t jobs() const noexcept { return jobs_; }
  std::uint64_t pending_bytes() const noexcept;
  // One step of sealing what is due, or everything; true: there is more to do.
  bool seal_due() { return sealer_->seal_due(); }
  bool seal_all() { return sealer_->seal_all(); }

  // The integers among the job ids, and whether there are others. May name too much.
  struct Range {
    std::int64_t least = 0;
    std::int64_t most = -1;
    bool has_texts = false;
    bool may_have(std::string_view job_id) const noexcept;
  };
  Range range();

 private:
  SegmentWriter(ConnectionPtr db, std::int64_t id);

  std::int64_t owner_id(const std::string& name);
  void set_contents(JobEntry& entry, const Event& event);
  void insert_later(const JobEntry& entry, const Event& event, const std::optional<JobRun>& run);
  void change_modules(const JobRow& before, const JobEntry& entry);
  // What a row was is absent if it is new.
  void note_unfinished(const JobRow* before, const JobEntry& entry);
  void move_later(const JobEntry& entry);
  void set_family(JobEntry& entry, const Event& event, Families& families);

  ConnectionPtr db_;
  const std::int64_t id_;
  NameWriter names_;
  RowWriter rows_;
  RowReader row_reader_;
  ContentWriter contents_;
  std::unique_ptr<ContentReader> reader_;
  FieldWriter fields_;
  SumWriter sums_;
  std::unique_ptr<Sealer> sealer_;
  sqlite::Statement data_version_;
  sqlite::Statement find_owner_;
  sqlite::Statement insert_owner_;
  sqlite::Statement find_later_;
  sqlite::Statement insert_later_;
  sqlite::Statement list_later_;
  sqlite::Statement change_later_;
  sqlite::Statement runs_of_job_;
  sqlite::Statement insert_unfinished_;
  sqlite::Statement remove_unfinished_;
  sqlite::Statement script_in_use_;
  RecentMap<std::string, std::int64_t> owners_;
  std::int64_t seen_version_ = -1;
  std::uint64_t jobs_ = 0;
};

}  // namespace scriptorium::catalog
