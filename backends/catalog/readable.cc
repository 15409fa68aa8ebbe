#include "backends/catalog/readable.h"

#include <algorithm>
#include <utility>

#include "backends/catalog/ingest.h"
#include "core/api/kit/search/job_facts.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/sha256.h"
#include "core/base/text.h"

namespace scriptorium::catalog {
namespace {

// Records that one call of list() reads, so that one that leaves most of them out comes back all
// the same.
constexpr std::size_t kMostRead = 5'000;

bool is_wanted(const Event& event, const ReadableSink::Query& query) {
  if (event.time < query.since) return false;
  return query.kinds.empty() ||
         std::any_of(query.kinds.begin(), query.kinds.end(), [&](const std::string& pattern) {
           return pattern == event.kind || glob_match(pattern, event.kind);
         });
}

// Retried later: a reader cannot know whether the files come back.
Error not_now(const Error& error) {
  return error.kind() == ErrorKind::kVanished ? Error{ErrorKind::kTransient, error.message()}
                                              : error;
}

}  // namespace

// ---- one segment

EventReader::EventReader(ConnectionPtr db)
    : db_(std::move(db)),
      rows_(*db_),
      contents_(*db_),
      later_(*db_, "SELECT record FROM later WHERE job = ? ORDER BY record"),
      later_one_(*db_, "SELECT record FROM later WHERE job = ? AND event = ?") {}

Result<std::unique_ptr<EventReader>> EventReader::open(const std::string& root,
                                                       std::int64_t segment) {
  auto db = open_segment_reader(root, segment);
  if (!db) return db.error();
  return std::unique_ptr<EventReader>(new EventReader(*std::move(db)));
}

Result<Event> EventReader::record(std::int64_t content) {
  auto json = contents_.read(content);
  if (!json) return json.error();
  auto event = event_from_json(*json);
  if (!event) return event.error().with_context("record " + std::to_string(content));
  return event;
}

Result<Event> EventReader::submission(const JobEntry& entry) {
  if (!entry.record) return Error{ErrorKind::kVanished, "no script of the job was stored"};
  auto event = record(*entry.record);
  if (!event) return event;
  for (EventFile& file : event->files) {
    const auto content = file.name == "script"        ? entry.script
                         : file.name == "environment" ? entry.environment
                                                      : std::nullopt;
    if (!content) continue;
    auto bytes = contents_.read(*content);
    if (!bytes) return bytes.error().with_context(file.name);
    if (bytes->size() != file.size || sha256_hex(*bytes) != file.sha256)
      return Error{ErrorKind::kCorrupt, file.name + ": not what was stored"};
    file.bytes = make_bytes(*std::move(bytes));
  }
  return event;
}

Result<std::vector<std::int64_t>> EventReader::later_records(std::int64_t job) {
  std::vector<std::int64_t> records;
  later_.bind(job);
  while (later_.step()) records.push_back(later_.integer(0));
  if (auto error = db_->take_error()) return *std::move(error);
  return records;
}

std::optional<std::int64_t> EventReader::later_record(std::int64_t job, std::string_view event_id) {
  return later_one_.first(job, sqlite::Blob{later_key(event_id)});
}

// ---- one event

Result<std::vector<SegmentInfo>> Archive::segments() const {
  auto catalog = open_catalog_reader(root_);
  if (!catalog) return not_now(catalog.error());
  auto segments = list_segments(**catalog);
  if (auto error = (*catalog)->take_error()) return *std::move(error);
  return segments;
}

// Null: it is not in this segment.
Result<std::shared_ptr<const Event>> Archive::fetch_from(std::int64_t id, const Event& locator) {
  auto segment = EventReader::open(root_, id);
  if (!segment) return not_now(segment.error());
  const auto jobs = (*segment)->rows().jobs_with_id(owning_job_id(locator));
  if (!jobs) return jobs.error();
  for (const std::int64_t job : *jobs) {
    auto entry = (*segment)->rows().read_entry(job);
    if (!entry) return entry.error();
    if (!*entry || (*entry)->row.cluster != locator.cluster ||
        (*entry)->row.scheduler != locator.scheduler)
      continue;
    if (const auto later = (*segment)->later_record(job, locator.id)) {
      auto event = (*segment)->record(*later);
      if (!event) return event.error();
      return std::make_shared<const Event>(*std::move(event));
    }
    if (!(*entry)->record) continue;
    if ((*entry)->row.event_id != locator.id) {
      const auto record = (*segment)->record(*(*entry)->record);
      if (!record || record->replaces != locator.id) continue;
    }
    auto event = (*segment)->submission(**entry);
    if (!event) return event.error();
    if (event->id != locator.id) {
      // As it was before its owner was known, for a sink that is still to get that.
      event->id = locator.id;
      event->user = locator.user;
      event->replaces.reset();
    }
    return std::make_shared<const Event>(*std::move(event));
  }
  return std::shared_ptr<const Event>();
}

Result<std::shared_ptr<const Event>> Archive::fetch(const Event& locator) {
  const auto segments = this->segments();
  if (!segments) return segments.error();
  std::optional<Error> failure;  // of a segment that may have it
  for (const SegmentInfo& info : *segments) {
    auto event = fetch_from(info.id, locator);
    if (event && *event != nullptr) return event;
    // Nothing more comes to a segment that is leaving, and its file may be gone by now.
    if (!event && !is_leaving(info.state)) failure = event.error();
  }
  if (failure) return *failure;
  return Error{ErrorKind::kVanished, "no record with the id " + locator.id + " is in the catalog"};
}

// ---- all of them

// A position is "SEGMENT:j:JOB" within the submissions, "SEGMENT:l:JOB:RECORD" within later events:
// the last that was read.
class Archive::Listing {
 public:
  Listing(const Query& query, std::size_t limit)
      : query_(query), limit_(std::max<std::size_t>(limit, 1)) {}

  Result<void> resume(std::string_view after) {
    if (after.empty()) return {};
    const auto number = [&](std::string_view text) { return parse_number<std::int64_t>(text); };
    const auto segment = number(take_until(after, ':'));
    const std::string_view phase = take_until(after, ':');
    const auto job = number(take_until(after, ':'));
    const auto record = after.empty() ? std::optional<std::int64_t>(0) : number(after);
    if (!segment || !job || !record || (phase != "j" && phase != "l"))
      return Error{ErrorKind::kPermanent, "not a position of a listing"};
    segment_ = *segment;
    in_later_ = phase == "l";
    job_ = *job;
    record_ = *record;
    return {};
  }
  bool is_full() const { return page_.events.size() >= limit_ || read_ >= kMostRead; }
  bool is_past(std::int64_t segment) const { return segment < segment_; }

  // What one segment has from the position on.
  Result<void> read(EventReader& segment, std::int64_t id) {
    if (id != segment_) {
      segment_ = id;
      in_later_ = false;
      job_ = record_ = 0;
    }
    if (!in_later_) {
      if (auto done = submissions(segment); !done || is_full()) return done;
      in_later_ = true;
      job_ = record_ = 0;
    }
    return later(segment);
  }

  Page finish(bool end) {
    page_.end = end;
    page_.position = std::to_string(segment_) + (in_later_ ? ":l:" : ":j:") + std::to_string(job_);
    if (in_later_) page_.position += ':' + std::to_string(record_);
    return std::move(page_);
  }

 private:
  Result<void> submissions(EventReader& segment) {
    sqlite::Statement select(
        segment.db(), "SELECT id, record FROM jobs WHERE id > ? AND record NOT NULL ORDER BY id");
    select.bind(job_);
    while (!is_full() && select.step()) {
      job_ = select.integer(0);
      if (auto taken = take(segment, select.integer(1)); !taken) return taken;
    }
    select.reset();
    if (auto error = segment.db().take_error()) return *std::move(error);
    return {};
  }
  Result<void> later(EventReader& segment) {
    sqlite::Statement select(segment.db(),
                             "SELECT job, record FROM later WHERE job >= ?1 AND "
                             "(job > ?1 OR record > ?2) ORDER BY job, record");
    select.bind(job_, record_);
    while (!is_full() && select.step()) {
      job_ = select.integer(0);
      record_ = select.integer(1);
      if (auto taken = take(segment, record_); !taken) return taken;
    }
    select.reset();
    if (auto error = segment.db().take_error()) return *std::move(error);
    return {};
  }
  Result<void> take(EventReader& segment, std::int64_t content) {
    ++read_;
    auto event = segment.record(content);
    if (!event) {
      const ErrorKind kind = event.error().kind();
      if (kind != ErrorKind::kCorrupt && kind != ErrorKind::kVanished) return event.error();
      ++page_.skipped;
    } else if (is_wanted(*event, query_)) {
      page_.events.push_back(std::make_shared<const Event>(*std::move(event)));
    }
    return {};
  }

  const Query& query_;
  const std::size_t limit_;
  std::int64_t segment_ = 0;
  bool in_later_ = false;
  std::int64_t job_ = 0;
  std::int64_t record_ = 0;
  std::size_t read_ = 0;
  Page page_;
};

Result<ReadableSink::Page> Archive::list(const Query& query, const std::string& after,
                                         std::size_t limit) {
  Listing listing(query, limit);
  if (auto resumed = listing.resume(after); !resumed) return resumed.error();
  const auto segments = this->segments();
  if (!segments) return segments.error();
  for (auto info = segments->rbegin(); info != segments->rend(); ++info) {
    if (listing.is_past(info->id)) continue;
    auto segment = EventReader::open(root_, info->id);
    if (!segment && is_leaving(info->state)) continue;
    if (!segment) return not_now(segment.error());
    if (auto read = listing.read(**segment, info->id); !read) return read.error();
    if (listing.is_full()) return listing.finish(false);
  }
  return listing.finish(true);
}

// ---- what `show` prints

Result<void> Archive::find_in(std::int64_t id, std::string_view job_id,
                              std::vector<StoredJob>& found) {
  auto segment = EventReader::open(root_, id);
  if (!segment) return not_now(segment.error());
  auto jobs = (*segment)->rows().jobs_with_id(job_id);
  if (!jobs) return jobs.error();
  std::sort(jobs->rbegin(), jobs->rend());
  for (const std::int64_t job : *jobs) {
    auto entry = (*segment)->rows().read_entry(job);
    if (!entry) return entry.error();
    if (!*entry || !(*entry)->record) continue;
    auto event = (*segment)->submission(**entry);
    if (!event) return event.error();
    // Of a segment that is leaving, it may be in a newer one already.
    if (std::any_of(found.begin(), found.end(),
                    [&](const StoredJob& known) { return known.event_id == event->id; }))
      continue;
    StoredJob& stored = found.emplace_back();
    stored.event_id = event->id;
    stored.location = root_ + "/" + segment_name(id) + ": job " + std::to_string(job);
    for (const EventFile& file : event->files) {
      if (file.bytes != nullptr) stored.files.push_back({file.name, stored.location, file.bytes});
    }
    stored.files.push_back(
        {"metadata", stored.location,
         make_bytes(event_json(*event, {.script_text = false, .environment = false, .indent = 2}) +
                    '\n')});
  }
  return {};
}

Result<std::vector<StoredJob>> Archive::find(std::string_view job_id) {
  std::vector<StoredJob> found;
  const auto segments = this->segments();
  if (!segments) return segments.error();
  std::optional<Error> failure;
  for (const SegmentInfo& info : *segments) {
    const auto read = find_in(info.id, job_id, found);
    if (!read && !is_leaving(info.state)) failure = read.error();
  }
  if (found.empty() && failure) return *failure;
  return found;
}

}  // namespace scriptorium::catalog
