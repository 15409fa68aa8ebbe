#include "backends/catalog/runs.h"

#include <algorithm>
#include <utility>

#include "backends/catalog/ingest.h"
#include "backends/catalog/rows.h"

namespace scriptorium::catalog {
namespace {

// A job's environment may claim any uid.
const std::string kIfVerified = " AND flags & " + std::to_string(kVerifiedFlag);

std::int64_t seconds_of(Timestamp time) { return time.nanoseconds / kSecond; }

// The runs of one segment that ended in [from, until), both in seconds.
class SegmentRuns {
 public:
  SegmentRuns(SearchReader& reader, const Searchable::RunRequest& request)
      : reader_(reader),
        db_(reader.db()),
        request_(request),
        names_(db_),
        select_(db_, std::string("SELECT ") + kRunColumns + ", event, record" +
                         column_of_job("modules", request.modules) +
                         column_of_job("cluster", request.origin || is_restricted(request)) +
                         column_of_job("uid", is_restricted(request), kIfVerified) +
                         " FROM later WHERE ended >= ? AND ended < ?") {}

  // A day at a time, so that the -wal of a daemon that writes can be used again in between.
  void read(const std::function<void(const JobRun&)>& use) {
    const auto oldest = db_.integer("SELECT min(ended) FROM later WHERE ended NOT NULL");
    const auto newest = db_.integer("SELECT max(ended) FROM later WHERE ended NOT NULL");
    if (!oldest || !newest) return;
    const std::int64_t end = std::min(seconds_of(request_.until), *newest + 1);
    for (std::int64_t day = std::max(seconds_of(request_.from), *oldest); day < end; day += kDay) {
      if (request_.stop.stop_requested() || !db_.ok()) return;
      if (reader_.begin()) names_.forget();
      read_day(day, std::min(day + kDay, end), use);
      reader_.end();
    }
  }

 private:
  // Where they are in select_.
  enum Column { kEvent = kRunColumnCount, kRecord, kModules, kCluster, kUid };
  static bool is_restricted(const Searchable::RunRequest& request) {
    return !request.visibility.all;
  }
  static std::string column_of_job(const std::string& name, bool is_asked,
                                   const std::string& condition = "") {
    return is_asked ? ", (SELECT " + name + " FROM jobs WHERE id = later.job" + condition + ")"
                    : ", NULL";
  }

  void read_day(std::int64_t begin, std::int64_t end,
                const std::function<void(const JobRun&)>& use) {
    select_.bind(begin, end);
    while (select_.step()) {
      auto run = read_run(select_, 0, names_);
      if (!run) continue;
      if (!select_.is_null(kUid)) run->uid = names_.text(select_.integer(kUid));
      if (!select_.is_null(kCluster)) run->cluster = names_.text(select_.integer(kCluster));
      if (!is_visible(*run, request_.visibility)) continue;
      if (!select_.is_null(kModules))
        run->modules = split_lines(names_.text(select_.integer(kModules)));
      if (request_.origin) {
        run->key = select_.text(kEvent);
        if (request_.with_event && request_.with_event(*run)) run->event = event_of(*run);
      }
      use(*run);
    }
    select_.reset();
  }

  std::shared_ptr<const Event> event_of(const JobRun& run) {
    const auto text = reader_.text(select_.integer(kRecord));
    if (!text) return nullptr;
    auto event = event_from_json(text->bytes);
    if (event && later_key(event->id) == run.key)
      return std::make_shared<const Event>(*std::move(event));
    reader_.add_problem("record " + std::to_string(select_.integer(kRecord)) +
                        " is not that of its run");
    return nullptr;
  }

  SearchReader& reader_;
  sqlite::Connection& db_;
  const Searchable::RunRequest& request_;
  NameReader names_;
  sqlite::Statement select_;
};

}  // namespace

Result<std::vector<std::string>> read_runs(ReaderPool& pool, const Searchable::RunRequest& request,
                                           const std::function<void(const JobRun&)>& use) {
  const auto segments = pool.segments();
  if (!segments) return segments.error();
  std::vector<std::string> problems;
  for (const SegmentInfo& info : *segments) {
    auto lent = pool.lend_or_note(info, problems);
    if (!lent) continue;
    SearchReader& reader = **lent;
    SegmentRuns(reader, request).read(use);
    for (std::string& problem : reader.take_problems()) problems.push_back(std::move(problem));
    if (auto error = reader.db().take_error()) {
      if (error->kind() != ErrorKind::kCorrupt) return *std::move(error);
      problems.push_back(segment_name(info.id) + ": " + error->message());
    }
  }
  return problems;
}

}  // namespace scriptorium::catalog
