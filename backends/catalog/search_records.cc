#include "backends/catalog/search_records.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "backends/catalog/field_lists.h"
#include "backends/catalog/id_set.h"
#include "backends/catalog/names.h"
#include "backends/catalog/readable.h"
#include "backends/catalog/search_position.h"
#include "core/base/sha256.h"

namespace scriptorium::catalog {
namespace {

struct FoundJob {
  std::int64_t segment = 0;
  JobEntry entry;

  Position position() const { return {entry.row.time.nanoseconds, segment, entry.id}; }
};

// Whether the other segments answer all the same, after this one did not; `damage` says so then.
bool can_go_on(const Error& error, std::vector<Error>& damage) {
  if (error.kind() != ErrorKind::kCorrupt) return false;
  damage.push_back(error);
  return true;
}
// The same of one that did not open; it may have been removed a moment ago.
void leave_out(const Error& error, std::vector<Error>& damage) {
  if (error.kind() != ErrorKind::kVanished) damage.push_back(error);
}

// An open segment; each is read within one transaction.
using OpenSegments = std::map<std::int64_t, std::unique_ptr<EventReader>>;

bool is_meant(const JobRow& row, const Searchable::Selector& selector) {
  return (!selector.cluster || row.cluster == *selector.cluster) &&
         (!selector.time || row.time == *selector.time);
}

Result<void> find_jobs(EventReader& segment, std::int64_t number, std::string_view id,
                       const Searchable::Selector& selector, const Visibility& visibility,
                       std::vector<FoundJob>& found) {
  const auto jobs = segment.rows().jobs_with_id(id);
  if (!jobs) return jobs.error();
  for (const std::int64_t job : *jobs) {
    auto entry = segment.rows().read_entry(job);
    if (!entry) return entry.error();
    if (*entry && is_meant((*entry)->row, selector) && is_visible((*entry)->row, visibility))
      found.push_back({number, **std::move(entry)});
  }
  return {};
}

// Newest first. A damaged segment is left out.
Result<std::vector<FoundJob>> find_jobs(OpenSegments& segments, std::string_view id,
                                        const Searchable::Selector& selector,
                                        const Visibility& visibility, std::vector<Error>& damage) {
  std::vector<FoundJob> found;
  for (const auto& [number, segment] : segments) {
    const auto done = find_jobs(*segment, number, id, selector, visibility, found);
    if (!done && !can_go_on(done.error(), damage)) return done.error();
  }
  std::sort(found.begin(), found.end(),
            [](const FoundJob& a, const FoundJob& b) { return a.position() > b.position(); });
  return found;
}

// The submission, with what is intact of its files.
std::shared_ptr<const Event> read_event(EventReader& segment, const JobEntry& entry,
                                        std::vector<std::string>& problems) {
  if (!entry.record) return nullptr;
  auto event = segment.record(*entry.record);
  if (!event) {
    problems.push_back("the record of the submission: " + event.error().message());
    return nullptr;
  }
  for (EventFile& file : event->files) {
    const auto content = file.name == "script"        ? entry.script
                         : file.name == "environment" ? entry.environment
                                                      : std::nullopt;
    if (!content) continue;
    auto bytes = segment.contents().read(*content);
    if (!bytes) {
      problems.push_back(file.name + ": " + bytes.error().message());
    } else if (bytes->size() != file.size || sha256_hex(*bytes) != file.sha256) {
      problems.push_back(file.name + ": not what was stored");
    } else {
      file.bytes = make_bytes(*std::move(bytes));
    }
  }
  return std::make_shared<const Event>(*std::move(event));
}

std::vector<std::shared_ptr<const Event>> read_later(EventReader& segment, std::int64_t job,
                                                     std::vector<std::string>& problems) {
  std::vector<std::shared_ptr<const Event>> events;
  const auto records = segment.later_records(job);
  if (!records) {
    problems.push_back("later events: " + records.error().message());
    return events;
  }
  for (const std::int64_t record : *records) {
    if (auto event = segment.record(record)) {
      events.push_back(std::make_shared<const Event>(*std::move(event)));
    } else {
      problems.push_back("a later event: " + event.error().message());
    }
  }
  std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
    return std::pair(a->time, std::string_view(a->id)) <
           std::pair(b->time, std::string_view(b->id));
  });
  return events;
}

// "10" of "10_3" and "10+1"; "" of any other id.
std::string_view whole_of(std::string_view id) {
  const std::size_t end = id.find_first_of("_+");
  return end == std::string_view::npos || end == 0 ? std::string_view() : id.substr(0, end);
}

// The newest jobs of a family before a time. Jobs of one time are taken all or none, so that the
// next page can begin at a time.
class FamilyPage {
 public:
  FamilyPage(std::size_t limit, std::int64_t before) : limit_(limit), before_(before) {}

  bool wants(std::int64_t time) const {
    return time < before_ && limit_ > 0 && (jobs_ < limit_ || time >= by_time_.begin()->first);
  }
  void add(const Position& position) {
    by_time_[position.time].push_back(position);
    ++jobs_;
    for (auto oldest = by_time_.begin(); jobs_ - oldest->second.size() >= limit_;
         oldest = by_time_.erase(oldest))
      jobs_ -= oldest->second.size();
  }
  // Whether nothing at this time or earlier can belong to it.
  bool is_complete(std::int64_t newest_left) const {
    return limit_ == 0 || (jobs_ >= limit_ && by_time_.begin()->first > newest_left);
  }
  std::vector<Position> take() {
    std::vector<Position> all;
    for (const auto& [time, jobs] : by_time_) all.insert(all.end(), jobs.begin(), jobs.end());
    std::sort(all.begin(), all.end(), std::greater<>());
    return all;
  }

 private:
  std::size_t limit_;
  std::int64_t before_;
  std::map<std::int64_t, std::vector<Position>> by_time_;
  std::size_t jobs_ = 0;
};

// The family's jobs of one chunk.
void collect_family(SearchReader& reader, std::int64_t chunk, std::uint64_t family,
                    const Visibility& visibility, FamilyPage& page) {
  std::vector<Position> jobs;
  reader.for_each_job(chunk, std::nullopt, [&](const RawJob& job) {
    if (static_cast<std::uint64_t>(job.family) == family && page.wants(job.time))
      jobs.push_back({job.time, reader.segment(), job.id});
  });
  for (const Position& position : jobs) {
    if (!page.wants(position.time)) continue;
    auto row = reader.rows().read(position.id);
    if (row && *row && is_visible(**row, visibility)) page.add(position);
  }
}

}  // namespace

Result<std::vector<Searchable::Record>> read_records(const std::string& root, ReaderPool& pool,
                                                     const Searchable::Selector& selector,
                                                     const Visibility& visibility,
                                                     std::size_t limit) {
  const auto list = pool.segments();
  if (!list) return list.error();
  OpenSegments segments;
  std::vector<Error> damage;
  for (const SegmentInfo& info : *list) {
    auto segment = EventReader::open(root, info.id);
    if (segment) {
      (*segment)->db().execute("BEGIN");
      segments.emplace(info.id, *std::move(segment));
    } else {
      leave_out(segment.error(), damage);
    }
  }
  auto found = find_jobs(segments, selector.id, selector, visibility, damage);
  if (found && found->empty()) {
    const std::string_view whole = whole_of(selector.id);
    if (!whole.empty()) found = find_jobs(segments, whole, selector, visibility, damage);
  }
  if (!found) return found.error();
  // The job may be in what cannot be read.
  if (found->empty() && !damage.empty()) return damage.front();
  if (found->size() > limit) found->resize(limit);

  std::vector<Searchable::Record> records;
  for (FoundJob& job : *found) {
    EventReader& segment = *segments.at(job.segment);
    Searchable::Record& record = records.emplace_back();
    for (const Error& error : damage)
      record.problems.push_back("jobs of this id may be missing: " + error.message());
    record.event = read_event(segment, job.entry, record.problems);
    record.later = read_later(segment, job.entry.id, record.problems);
    record.job = std::move(job.entry.row);
  }
  return records;
}

namespace {

// Their newest job and number, the newest first.
std::vector<std::pair<std::int64_t, std::int64_t>> chunks_of_family(SearchReader& reader,
                                                                    std::uint64_t family) {
  const std::int64_t wanted[] = {static_cast<std::int64_t>(family)};
  IdSet having;
  FieldReader fields(reader.db());
  fields.for_each(name_field(QueryField::kFamily), [&](std::int64_t key, std::string_view list) {
    if (may_have_value(list, wanted)) having.add(chunk_of_key(key));
  });
  std::vector<std::pair<std::int64_t, std::int64_t>> chunks;
  for (const SearchReader::Chunk& chunk : reader.chunks()) {
    if (having.has(chunk.id)) chunks.emplace_back(chunk.newest, chunk.id);
  }
  std::sort(chunks.rbegin(), chunks.rend());
  return chunks;
}

}  // namespace

Result<std::vector<JobRow>> read_family(ReaderPool& pool, std::uint64_t family,
                                        const Visibility& visibility,
                                        std::optional<Timestamp> before, std::size_t limit) {
  const auto list = pool.segments();
  if (!list) return list.error();
  FamilyPage page(limit, before ? before->nanoseconds : std::numeric_limits<std::int64_t>::max());
  std::map<std::int64_t, ReaderPool::Lent> segments;
  std::vector<Error> damage;
  for (const SegmentInfo& info : *list) {
    auto lent = pool.lend(info.id);
    if (!lent) {
      leave_out(lent.error(), damage);
      continue;
    }
    SearchReader& reader = **lent;
    reader.begin();
    for (const auto& [time, chunk] : chunks_of_family(reader, family)) {
      if (page.is_complete(time)) break;
      collect_family(reader, chunk, family, visibility, page);
    }
    if (auto error = reader.db().take_error()) {
      if (!can_go_on(*error, damage)) return *std::move(error);
    }
    segments.emplace(info.id, *std::move(lent));
  }
  std::vector<JobRow> rows;
  for (const Position& position : page.take()) {
    auto row = segments.at(position.segment)->rows().read(position.id);
    if (!row && !can_go_on(row.error(), damage)) return row.error();
    if (row && *row) rows.push_back(**std::move(row));
  }
  if (rows.empty() && !damage.empty()) return damage.front();
  return rows;
}

}  // namespace scriptorium::catalog
