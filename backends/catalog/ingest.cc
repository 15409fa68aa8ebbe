#include "backends/catalog/ingest.h"

#include <algorithm>
#include <utility>

#include "backends/catalog/segments.h"
#include "core/api/kit/search/job_facts.h"
#include "core/base/fault_point.h"
#include "core/base/sha256.h"
#include "core/base/text.h"

namespace scriptorium::catalog {
namespace {

constexpr std::size_t kMostOwnerIds = 8'192;
constexpr std::size_t kKeyBytes = 16;

const EventFile* file_with_bytes(const Event& event, std::string_view name) {
  const EventFile* file = event.file(name);
  return file != nullptr && file->bytes != nullptr ? file : nullptr;
}

void keep_outcome(const JobRow& from, JobRow& into) {
  into.state = from.state;
  into.exit_code = from.exit_code;
  into.exit_signal = from.exit_signal;
  into.started_at = from.started_at;
  into.ended_at = from.ended_at;
  into.elapsed_seconds = from.elapsed_seconds;
  into.cpu_seconds = from.cpu_seconds;
  into.cpus = from.cpus;
  into.cpu_ratio = from.cpu_ratio;
  into.memory_peak_bytes = from.memory_peak_bytes;
  into.memory_limit_bytes = from.memory_limit_bytes;
  into.gpus = from.gpus;
  into.gpu_ratio = from.gpu_ratio;
  into.time_limit_seconds = from.time_limit_seconds;
  into.nodes = from.nodes;
  into.findings = from.findings;
  into.lives = from.lives;
  into.runs = from.runs;
  into.failed_runs = from.failed_runs;
  into.account_named_at = from.account_named_at;
  if (from.account_named_at) into.account = from.account;
}

}  // namespace

std::string owner_name(const User& user) {
  if (!user.verified) return "?" + user.name.value_or("");
  return user.name ? *user.name : user.id.value_or("?");
}

std::string record_of(const Event& event) {
  return event_json(event, {.script_text = false, .environment = false, .exact_times = true});
}

std::string later_key(std::string_view event_id) {
  auto bytes = event_id.size() == 64 ? hex_decode(event_id) : std::nullopt;
  if (!bytes) bytes = hex_decode(sha256_hex(event_id));
  return bytes->substr(0, kKeyBytes);
}

bool SegmentWriter::Range::may_have(std::string_view job_id) const noexcept {
  const auto number = job_number(job_id);
  return number ? *number >= least && *number <= most : has_texts;
}

Result<std::unique_ptr<SegmentWriter>> SegmentWriter::open(const std::string& root,
                                                           std::int64_t segment,
                                                           std::size_t cache_bytes) {
  auto db = open_segment_writer(root, segment);
  if (!db) return db.error();
  (*db)->execute("PRAGMA cache_size = -" + std::to_string(cache_bytes / 1024));
  // What is sealed stays in a block, so its pending row need not be overwritten as long as that
  // costs a page of its own.
  (*db)->execute("PRAGMA secure_delete = FAST");
  (*db)->manual_checkpoints();
  std::unique_ptr<SegmentWriter> writer(new SegmentWriter(*std::move(db), segment));
  writer->refresh();
  if (auto error = writer->db().take_error()) return *std::move(error);
  return writer;
}

SegmentWriter::SegmentWriter(ConnectionPtr db, std::int64_t id)
    : db_(std::move(db)),
      id_(id),
      names_(*db_),
      rows_(*db_, names_),
      row_reader_(*db_),
      contents_(*db_),
      reader_(std::make_unique<ContentReader>(*db_)),
      fields_(*db_, names_),
      sums_(*db_, names_),
      sealer_(std::make_unique<Sealer>(*db_, contents_)),
      data_version_(*db_, "PRAGMA data_version"),
      find_owner_(*db_, "SELECT id FROM owners WHERE name = ?"),
      insert_owner_(*db_, "INSERT INTO owners(name) VALUES(?)"),
      find_later_(*db_, "SELECT record FROM later WHERE job = ? AND event = ?"),
      insert_later_(*db_, std::string("INSERT INTO later(job, event, record, ") + kRunColumns +
                              ") VALUES(?, ?, ?, " + marks(kRunColumns) + ")"),
      list_later_(*db_, "SELECT event, record FROM later WHERE job = ? ORDER BY record"),
      change_later_(*db_, "UPDATE later SET record = ? WHERE job = ? AND event = ?"),
      runs_of_job_(*db_, std::string("SELECT ") + kRunColumns +
                             " FROM later WHERE job = ? AND ended NOT NULL"),
      insert_unfinished_(*db_, "INSERT OR IGNORE INTO unfinished VALUES(?, ?)"),
      remove_unfinished_(*db_, "DELETE FROM unfinished WHERE time = ? AND job = ?"),
      script_in_use_(*db_, "SELECT 1 FROM jobs WHERE script = ? LIMIT 1"),
      owners_(kMostOwnerIds) {}

SegmentWriter::~SegmentWriter() { db_->rollback(); }

void SegmentWriter::refresh() {
  const std::int64_t version = data_version_.first().value_or(0);
  if (version == seen_version_) return;
  seen_version_ = version;
  names_.forget();
  row_reader_.forget();
  reader_->forget();
  fields_.forget();
  sums_.forget();
  owners_.clear();
  contents_.load_sums();
  sealer_->load_young_blocks();
  jobs_ = db_->number("SELECT sum(jobs) FROM daily");
}

bool SegmentWriter::begin() { return in_transaction() || db_->execute("BEGIN IMMEDIATE"); }

bool SegmentWriter::commit() {
  if (!in_transaction()) return db_->ok();
  fields_.flush();
  sums_.flush();
  FAULT_POINT("catalog.before_commit");
  return db_->execute("COMMIT");
}

std::uint64_t SegmentWriter::pending_bytes() const noexcept {
  return contents_.pending_bytes(ContentKind::kScript) +
         contents_.pending_bytes(ContentKind::kEnvironment) +
         contents_.pending_bytes(ContentKind::kRecord);
}

SegmentWriter::Range SegmentWriter::range() {
  Range range;
  // Integers come before texts.
  const auto most = db_->integer("SELECT job FROM jobs WHERE job < '' ORDER BY job DESC LIMIT 1");
  if (most) {
    range.most = *most;
    range.least = db_->integer("SELECT job FROM jobs ORDER BY job LIMIT 1").value_or(0);
  }
  range.has_texts = db_->integer("SELECT 1 FROM jobs WHERE job >= '' LIMIT 1").has_value();
  return range;
}

// ---- looking up

std::vector<JobEntry> SegmentWriter::find(const Event& event, std::string_view job_id) {
  std::vector<JobEntry> found;
  const auto jobs = row_reader_.jobs_with_id(job_id);
  if (!jobs) {
    db_->fail(jobs.error());
    return found;
  }
  for (const std::int64_t job : *jobs) {
    auto entry = row_reader_.read_entry(job);
    if (!entry) {
      db_->fail(entry.error());
      return found;
    }
    if (*entry && (*entry)->row.cluster == event.cluster &&
        (*entry)->row.scheduler == event.scheduler)
      found.push_back(**std::move(entry));
  }
  return found;
}

bool SegmentWriter::has_later(std::int64_t job, const Event& event) {
  return find_later_.first(job, sqlite::Blob{later_key(event.id)}).has_value();
}

Result<Event> SegmentWriter::record(const JobEntry& entry) {
  if (!entry.record) return Error{ErrorKind::kVanished, "the job has no record"};
  auto json = reader_->read(*entry.record);
  if (!json) return json.error();
  return event_from_json(*json);
}

// ---- changing

std::int64_t SegmentWriter::owner_id(const std::string& name) {
  if (const std::int64_t* known = owners_.find(name)) return *known;
  auto id = find_owner_.first(name);
  if (!id && insert_owner_.run(name)) id = db_->last_insert_id();
  if (!id || !db_->ok()) return 0;
  return owners_.insert(name, *id);
}

void SegmentWriter::set_contents(JobEntry& entry, const Event& event) {
  const Timestamp time = entry.row.time;
  entry.script.reset();
  entry.environment.reset();
  if (const EventFile* script = file_with_bytes(event, "script"))
    entry.script = contents_.add_script(entry.owner, *script->bytes, script->sha256,
                                        entry.row.family.value_or(0), time);
  if (const EventFile* environment = file_with_bytes(event, "environment"))
    entry.environment =
        contents_.add(entry.owner, ContentKind::kEnvironment, *environment->bytes, time);
  entry.record = contents_.add(entry.owner, ContentKind::kRecord, record_of(event), time);
}

void SegmentWriter::set_family(JobEntry& entry, const Event& event, Families& families) {
  entry.row.family.reset();
  const EventFile* script = file_with_bytes(event, "script");
  if (script == nullptr) return;
  const std::uint64_t family =
      families.family_of(owner_name(event.user), event.job.name.value_or(""), *script);
  if (family != 0) entry.row.family = family;
}

void SegmentWriter::add_submission(const Event& event, Families& families) {
  JobEntry entry;
  entry.row = row_of(event);
  set_family(entry, event, families);
  entry.owner = owner_id(owner_name(event.user));
  set_contents(entry, event);
  entry.id = rows_.insert(entry);
  note_unfinished(nullptr, entry);
  fields_.add(entry.id, entry.owner, entry.row);
  fields_.count(entry.row, 1);
  ++jobs_;
}

void SegmentWriter::note_unfinished(const JobRow* before, const JobEntry& entry) {
  const bool was = before != nullptr && is_unfinished(*before);
  const bool is = is_unfinished(entry.row);
  if (was && is && before->time == entry.row.time) return;
  if (was) remove_unfinished_.run(before->time, entry.id);
  if (is) insert_unfinished_.run(entry.row.time, entry.id);
}

void SegmentWriter::replace_submission(JobEntry& entry, Event event, Families& families) {
  const JobEntry before = entry;
  // Core gives bytes only for what it still has; the rest is here.
  const auto complete = [&](const char* name, std::optional<std::int64_t> content) {
    const auto file = std::find_if(event.files.begin(), event.files.end(),
                                   [&](const EventFile& f) { return f.name == name; });
    if (file == event.files.end() || file->bytes != nullptr || !content) return;
    auto bytes = reader_->read(*content);
    if (!bytes) return db_->fail(bytes.error());
    if (bytes->size() == file->size) file->bytes = make_bytes(*std::move(bytes));
  };
  complete("script", before.script);
  complete("environment", before.environment);

  entry.row = row_of(event);
  keep_outcome(before.row, entry.row);
  set_family(entry, event, families);
  entry.owner = owner_id(owner_name(event.user));
  set_contents(entry, event);
  if (entry.owner != before.owner) move_later(entry);
  if (entry.row.modules != before.row.modules) change_modules(before.row, entry);
  note_unfinished(&before.row, entry);
  rows_.update(entry);
  if (before.script && before.script != entry.script && !script_in_use_.first(*before.script))
    contents_.remove(*before.script);
  if (before.environment) contents_.remove(*before.environment);
  if (before.record) contents_.remove(*before.record);
  fields_.count(before.row, -1);
  fields_.count(entry.row, 1);
  fields_.add(entry.id, entry.owner, entry.row);
  FAULT_POINT("catalog.replaced");
}

void SegmentWriter::move_later(const JobEntry& entry) {
  std::vector<std::pair<std::string, std::int64_t>> records;
  list_later_.bind(entry.id);
  while (list_later_.step()) records.emplace_back(list_later_.text(0), list_later_.integer(1));
  for (const auto& [event, record] : records) {
    auto bytes = reader_->read(record);
    if (!bytes) return db_->fail(bytes.error());
    const std::int64_t moved =
        contents_.add(entry.owner, ContentKind::kRecord, *bytes, entry.row.time);
    change_later_.run(moved, entry.id, sqlite::Blob{event});
    contents_.remove(record);
  }
}

void SegmentWriter::insert_later(const JobEntry& entry, const Event& event,
                                 const std::optional<JobRun>& run) {
  const std::int64_t record =
      contents_.add(entry.owner, ContentKind::kRecord, record_of(event), entry.row.time);
  const std::string key = later_key(event.id);
  insert_later_.bind(entry.id, sqlite::Blob{key}, record);
  bind_run(insert_later_, run, names_);
  insert_later_.run();
  if (run) sums_.add(entry.id, key, *run, entry.row.modules);
}

void SegmentWriter::change_modules(const JobRow& before, const JobEntry& entry) {
  NameReader names(*db_);
  runs_of_job_.bind(entry.id);
  while (runs_of_job_.step()) {
    if (const auto run = read_run(runs_of_job_, 0, names))
      sums_.change_modules(*run, before.modules, entry.row.modules);
  }
}

void SegmentWriter::add_later(JobEntry& entry, const Event& event) {
  const JobRow before = entry.row;
  const auto run = join(entry.row, event);
  insert_later(entry, event, run);
  note_unfinished(&before, entry);
  if (entry.row.event_id.empty() || entry.row.account != before.account) {
    rows_.update(entry);
    fields_.count(before, -1);
    fields_.count(entry.row, 1);
  } else {
    rows_.update_outcome(entry);
  }
  fields_.add(entry.id, entry.owner, entry.row);
}

void SegmentWriter::add_later_alone(const Event& event) {
  JobEntry entry;
  entry.row.cluster = event.cluster;
  entry.row.scheduler = event.scheduler;
  entry.row.id = owning_job_id(event);
  entry.row.time = event.time;
  const auto run = join(entry.row, event);
  entry.owner = owner_id(owner_name(event.user));
  entry.id = rows_.insert(entry);
  insert_later(entry, event, run);
  note_unfinished(nullptr, entry);
  fields_.add(entry.id, entry.owner, entry.row);
  fields_.count(entry.row, 1);
  ++jobs_;
}

}  // namespace scriptorium::catalog
