#include "backends/catalog/search_records.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "backends/catalog/search_position.h"
#include "core/base/sha256.h"

namespace scriptorium::catalog {
namespace {

// An array may have had any number of tasks. Each takes some 5 KB.
constexpr std::size_t kMostLater = 10'000;

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

bool is_meant(const JobRow& row, const Searchable::Selector& selector) {
  return (!selector.cluster || row.cluster == *selector.cluster) &&
         (!selector.time || row.time == *selector.time);
}

// Readers of all segments, each within one transaction.
using Readers = std::map<std::int64_t, ReaderPool::Lent>;

Result<void> find_jobs(SearchReader& reader, std::string_view id,
                       const Searchable::Selector& selector, const Visibility& visibility,
                       std::vector<FoundJob>& found) {
  const auto jobs = reader.rows().jobs_with_id(id);
  if (!jobs) return jobs.error();
  for (const std::int64_t job : *jobs) {
    auto entry = reader.rows().read_entry(job);
    if (!entry) return entry.error();
    if (*entry && is_meant((*entry)->row, selector) && is_visible((*entry)->row, visibility))
      found.push_back({reader.segment(), **std::move(entry)});
  }
  return {};
}

// A segment that is being rewritten still has the jobs that were moved to a newer one. Of jobs in
// the order of position(), newest first.
void leave_out_moved(std::vector<FoundJob>& jobs) {
  std::map<std::tuple<std::string, std::string, Timestamp>, std::int64_t> newest;
  std::erase_if(jobs, [&](const FoundJob& job) {
    const JobRow& row = job.entry.row;
    const auto [known, is_new] = newest.try_emplace({row.cluster, row.id, row.time}, job.segment);
    return known->second != job.segment;
  });
}

// Newest first. A damaged segment is left out.
Result<std::vector<FoundJob>> find_jobs(Readers& readers, std::string_view id,
                                        const Searchable::Selector& selector,
                                        const Visibility& visibility, std::vector<Error>& damage) {
  std::vector<FoundJob> found;
  for (const auto& [number, reader] : readers) {
    const auto done = find_jobs(*reader, id, selector, visibility, found);
    if (!done && !can_go_on(done.error(), damage)) return done.error();
  }
  std::sort(found.begin(), found.end(),
            [](const FoundJob& a, const FoundJob& b) { return a.position() > b.position(); });
  leave_out_moved(found);
  return found;
}

// Null with a problem of the reader if it cannot be read.
std::shared_ptr<Event> read_event(SearchReader& reader, std::int64_t record) {
  const auto text = reader.text(record);
  if (!text) return nullptr;
  auto event = event_from_json(text->bytes);
  if (event) return std::make_shared<Event>(*std::move(event));
  reader.add_problem("record " + std::to_string(record) + ": " + event.error().message());
  return nullptr;
}

// The submission, with what is intact of its files.
std::shared_ptr<const Event> read_submission(SearchReader& reader, const JobEntry& entry) {
  auto event = entry.record ? read_event(reader, *entry.record) : nullptr;
  if (event == nullptr) return nullptr;
  for (EventFile& file : event->files) {
    const auto content = file.name == "script"        ? entry.script
                         : file.name == "environment" ? entry.environment
                                                      : std::nullopt;
    const auto text = content ? reader.text(*content) : std::nullopt;
    if (!text) continue;
    if (text->bytes.size() != file.size || sha256_hex(text->bytes) != file.sha256) {
      reader.add_problem(file.name + ": not what was stored");
    } else {
      file.bytes = make_bytes(std::string(text->bytes));
    }
  }
  return event;
}

std::vector<std::shared_ptr<const Event>> read_later(SearchReader& reader, std::int64_t job) {
  std::vector<std::int64_t> records;
  sqlite::Statement select(reader.db(),
                           "SELECT record FROM later WHERE job = ? ORDER BY record DESC LIMIT ?");
  select.bind(job, kMostLater);
  while (select.step()) records.push_back(select.integer(0));
  std::ranges::reverse(records);  // blocks have them in this order
  const std::uint64_t all =
      records.size() < kMostLater
          ? records.size()
          : reader.db().number("SELECT count(*) FROM later WHERE job = ?", job);
  if (all > records.size())
    reader.add_problem("a job has " + std::to_string(all) +
                       " later events, of which only the newest " + std::to_string(kMostLater) +
                       " are read");
  std::vector<std::shared_ptr<const Event>> events;
  for (const std::int64_t record : records) {
    if (auto event = read_event(reader, record)) events.push_back(std::move(event));
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
  explicit FamilyPage(std::size_t limit) : limit_(limit) {}

  bool wants(std::int64_t time) const {
    return limit_ > 0 && (jobs_ < limit_ || time >= by_time_.begin()->first);
  }
  void add(const Position& position, JobRow row) {
    auto& same_time = by_time_[position.time];
    // As leave_out_moved(): the newer segments were read before.
    const bool is_known = std::ranges::any_of(same_time, [&](const auto& known) {
      return known.first.segment != position.segment && known.second.id == row.id &&
             known.second.cluster == row.cluster;
    });
    if (is_known) return;
    same_time.emplace_back(position, std::move(row));
    ++jobs_;
    for (auto oldest = by_time_.begin(); jobs_ - oldest->second.size() >= limit_;
         oldest = by_time_.erase(oldest))
      jobs_ -= oldest->second.size();
  }
  std::vector<JobRow> take() {
    std::vector<JobRow> rows;
    for (auto same = by_time_.rbegin(); same != by_time_.rend(); ++same) {
      std::sort(same->second.begin(), same->second.end(),
                [](const auto& a, const auto& b) { return a.first > b.first; });
      for (auto& [position, row] : same->second) rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  const std::size_t limit_;
  std::map<std::int64_t, std::vector<std::pair<Position, JobRow>>> by_time_;
  std::size_t jobs_ = 0;
};

}  // namespace

Result<std::vector<Searchable::Record>> read_records(ReaderPool& pool,
                                                     const Searchable::Selector& selector,
                                                     const Visibility& visibility,
                                                     std::size_t limit) {
  const auto list = pool.segments();
  if (!list) return list.error();
  Readers readers;
  std::vector<Error> damage;
  for (const SegmentInfo& info : *list) {
    if (auto lent = pool.lend(info.id)) {
      (*lent)->begin();
      readers.emplace(info.id, *std::move(lent));
    } else {
      leave_out(lent.error(), damage);
    }
  }
  auto found = find_jobs(readers, selector.id, selector, visibility, damage);
  if (found && found->empty()) {
    const std::string_view whole = whole_of(selector.id);
    if (!whole.empty()) found = find_jobs(readers, whole, selector, visibility, damage);
  }
  if (!found) return found.error();
  // The job may be in what cannot be read.
  if (found->empty() && !damage.empty()) return damage.front();
  if (found->size() > limit) found->resize(limit);

  std::vector<Searchable::Record> records;
  for (FoundJob& job : *found) {
    SearchReader& reader = *readers.at(job.segment);
    Searchable::Record& record = records.emplace_back();
    record.event = read_submission(reader, job.entry);
    record.later = read_later(reader, job.entry.id);
    record.job = std::move(job.entry.row);
    for (const Error& error : damage)
      record.problems.push_back("jobs of this id may be missing: " + error.message());
    for (std::string& problem : reader.take_problems())
      record.problems.push_back(std::move(problem));
    if (auto error = reader.db().take_error())
      record.problems.push_back(segment_name(job.segment) + ": " + error->message());
  }
  return records;
}

Result<std::vector<JobRow>> read_family(ReaderPool& pool, std::uint64_t family,
                                        const Visibility& visibility,
                                        std::optional<Timestamp> before, std::size_t limit) {
  const auto list = pool.segments();
  if (!list) return list.error();
  FamilyPage page(limit);
  std::vector<Error> damage;
  for (const SegmentInfo& info : *list) {
    auto lent = pool.lend(info.id);
    if (!lent) {
      leave_out(lent.error(), damage);
      continue;
    }
    SearchReader& reader = **lent;
    reader.begin();
    sqlite::Statement jobs(
        reader.db(),
        "SELECT id, time FROM jobs INDEXED BY jobs_family WHERE family = ? AND time < ? "
        "ORDER BY time DESC");
    jobs.bind(static_cast<std::int64_t>(family),
              before ? before->nanoseconds : std::numeric_limits<std::int64_t>::max());
    while (jobs.step() && page.wants(jobs.integer(1))) {
      auto row = reader.rows().read(jobs.integer(0));
      if (!row) reader.db().fail(row.error());
      if (row && *row && is_visible(**row, visibility))
        page.add({jobs.integer(1), reader.segment(), jobs.integer(0)}, **std::move(row));
    }
    jobs.reset();
    if (auto error = reader.db().take_error()) {
      if (!can_go_on(*error, damage)) return *std::move(error);
    }
  }
  std::vector<JobRow> rows = page.take();
  if (rows.empty() && !damage.empty()) return damage.front();
  return rows;
}

}  // namespace scriptorium::catalog
