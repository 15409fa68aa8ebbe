#include "backends/catalog/runs.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/catalog/ingest.h"
#include "backends/catalog/row_sums.h"
#include "backends/catalog/rows.h"
#include "backends/catalog/search_budget.h"
#include "backends/catalog/search_judge.h"
#include "backends/catalog/sums.h"

namespace scriptorium::catalog {
namespace {

using Use = std::function<void(const JobRun&)>;
using RunAnswer = Searchable::RunAnswer;

constexpr std::uint64_t kRunsBetweenChecks = 256;

std::int64_t seconds_of(Timestamp time) { return time.nanoseconds / kSecond; }
Timestamp time_of(std::int64_t seconds) { return {seconds * kSecond}; }

// A run, and where the event is that describes it.
struct FoundRun {
  JobRun run;
  std::int64_t segment = 0;
  std::int64_t record = 0;
};

// The most wasteful of the runs that it is given.
class MostWasteful {
 public:
  explicit MostWasteful(std::size_t most) : most_(most) {}

  // A run that wasted no more than this is none of them.
  std::uint64_t least() const noexcept {
    return list_.size() < most_ ? 0 : wasted_core_seconds(list_.back().run);
  }
  void add(FoundRun found) {
    const std::uint64_t waste = wasted_core_seconds(found.run);
    if (waste <= least()) return;
    const auto place = std::ranges::upper_bound(
        list_, waste, std::greater{}, [](const FoundRun& f) { return wasted_core_seconds(f.run); });
    list_.insert(place, std::move(found));
    if (list_.size() > most_) list_.pop_back();
  }
  std::vector<FoundRun> take() { return std::move(list_); }

 private:
  const std::size_t most_;
  std::vector<FoundRun> list_;
};

// The runs of one segment that a reader may see.
class SegmentRuns {
 public:
  using UseRow = std::function<void(const sqlite::Statement&)>;
  using UseFound = std::function<void(FoundRun&&)>;
  // What is read of each: for sums the figures and names alone.
  enum class Part : std::uint8_t { kWhole, kForSums };

  SegmentRuns(SearchReader& reader, const Searchable::RunRequest& request, Budget& budget,
              Part part = Part::kWhole)
      : reader_(reader),
        db_(reader.db()),
        request_(request),
        budget_(budget),
        names_(reader.rows().names()),
        part_(part),
        by_time_(db_, select("ended >= ? AND ended < ?")),
        by_user_(db_, select("ended >= ? AND ended < ? AND user = ?", "INDEXED BY later_user")),
        by_account_(db_,
                    select("ended >= ? AND ended < ? AND account = ?", "INDEXED BY later_account")),
        one_(db_, select("job = ? AND event = ?")),
        wasteful_(db_, "SELECT waste, job, event FROM wasteful WHERE day = ? ORDER BY waste DESC"),
        least_(db_, kSelectLeastWasteful) {}

  // All that ended in the time that was asked for.
  void read(const UseFound& use) {
    each_day(request_.from, request_.until,
             [&](std::int64_t begin, std::int64_t end) { read_within(begin, end, use); });
  }
  // Those of a part of that time.
  void read_rows(Timestamp from, Timestamp until, const UseRow& use) {
    each_day(from, until,
             [&](std::int64_t begin, std::int64_t end) { rows_within(begin, end, use); });
  }

  // The same for those alone of which one may be among the most wasteful.
  void read_wasteful(MostWasteful& most) {
    most_ = &most;
    const auto add = [&](FoundRun&& found) { most.add(std::move(found)); };
    // What is known is of all users' runs.
    if (!request_.visibility.all || request_.most_wasteful > kWastefulOfDay) return read(add);
    std::vector<std::pair<std::int64_t, std::int64_t>> parts;
    each_day(request_.from, request_.until, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t day = unit_of(begin, kDay) * kDay;
      if (seconds_of(request_.from) > day || seconds_of(request_.until) < day + kDay) {
        parts.emplace_back(begin, end);
      } else {
        add_wasteful(most, begin, end);
      }
    });
    // Of a day that counts in part, the most wasteful that are known may be of the other part.
    for (const auto& [begin, end] : parts) {
      begin_transaction();
      if (least_known(begin) > most.least()) {
        read_within(begin, end, add);
      } else {
        add_wasteful(most, begin, end);
      }
      reader_.end();
    }
  }

  // Within one transaction of the reader.
  void rows_within(std::int64_t begin, std::int64_t end, const UseRow& use) {
    if (request_.visibility.all) {
      by_time_.bind(begin, end);
      return use_rows(by_time_, use);
    }
    if (!ids_) ids_ = {.users = ids_of_users(), .accounts = ids_of_accounts()};
    for (const std::int64_t user : ids_->users) {
      by_user_.bind(begin, end, user);
      use_rows(by_user_, use);
    }
    for (const std::int64_t account : ids_->accounts) {
      by_account_.bind(begin, end, account);
      use_rows(by_account_, use, ids_->users);
    }
  }

  std::shared_ptr<const Event> event_of(const FoundRun& found) {
    const auto text = reader_.text(found.record);
    if (!text) return nullptr;
    auto event = event_from_json(text->bytes);
    if (event && later_key(event->id) == found.run.key)
      return std::make_shared<const Event>(*std::move(event));
    reader_.add_problem("record " + std::to_string(found.record) + " is not that of its run");
    return nullptr;
  }

 private:
  // Where they are in the statements.
  enum Column : std::uint8_t { kModules = kRunColumnCount, kWaste, kJob, kEvent, kRecord };

  std::string select(const std::string& where, const std::string& with = "") const {
    std::string columns = kRunColumns;
    columns += request_.modules ? ", (SELECT modules FROM jobs WHERE id = later.job)" : ", NULL";
    // wasted_core_seconds()
    if (part_ == Part::kWhole)
      columns += ", ifnull(unused_core_seconds, 0) + " + std::to_string(kCoreHoursOfGpuHour) +
                 " * ifnull(unused_gpu_seconds, 0), job, event, record";
    return "SELECT " + columns + " FROM later " + with + " WHERE " + where;
  }

  // The names of a segment stay what they are, so that one answer holds for all runs with them.
  bool is_seen(const sqlite::Statement& row) {
    if (request_.visibility.all) return true;
    const auto [known, is_new] = seen_owners_.try_emplace(
        {row.integer(kRunUser), row.integer(kRunOwner), row.integer(kRunAccount)}, false);
    if (is_new) {
      const auto run = read_run(row, 0, names_);
      known->second = run && is_visible(*run, request_.visibility);
    }
    return known->second;
  }

  void begin_transaction() {
    if (reader_.begin()) ids_.reset();
  }

  // Each day, or part of one, that may have runs, in a transaction of its own, so that the -wal of
  // a daemon that writes can be used again in between. Of some users' runs, which are few, each
  // week.
  void each_day(Timestamp from, Timestamp until,
                const std::function<void(std::int64_t begin, std::int64_t end)>& use) {
    if (!ended_) {
      ended_ = {.oldest = db_.integer("SELECT min(ended) FROM later WHERE ended NOT NULL"),
                .newest = db_.integer("SELECT max(ended) FROM later WHERE ended NOT NULL")};
    }
    if (!ended_->oldest || !ended_->newest) return;
    const std::int64_t unit = request_.visibility.all ? kDay : 7 * kDay;
    const std::int64_t end = std::min(seconds_of(until), *ended_->newest + 1);
    std::int64_t begin = std::max(seconds_of(from), *ended_->oldest);
    while (begin < end && !budget_.is_over() && db_.ok()) {
      const std::int64_t next = std::min((unit_of(begin, unit) + 1) * unit, end);
      begin_transaction();
      use(begin, next);
      reader_.end();
      begin = next;
    }
  }

  std::vector<std::int64_t> ids_of(QueryField field, const std::string& text) {
    std::vector<std::int64_t> ids;
    sqlite::Statement find(db_, kSelectSameNames);
    find.bind(name_field(field), std::string_view(text));
    while (find.step()) ids.push_back(find.integer(0));
    return ids;
  }
  std::vector<std::int64_t> ids_of_users() {
    std::vector<std::int64_t> ids;
    for (const Visibility::User& user : request_.visibility.users)
      std::ranges::copy(ids_of(QueryField::kUser, user.name), std::back_inserter(ids));
    return distinct(std::move(ids));
  }
  std::vector<std::int64_t> ids_of_accounts() {
    std::vector<std::int64_t> ids;
    for (const Visibility::Account& account : request_.visibility.accounts)
      std::ranges::copy(ids_of(QueryField::kAccount, account.name), std::back_inserter(ids));
    return distinct(std::move(ids));
  }
  static std::vector<std::int64_t> distinct(std::vector<std::int64_t> ids) {
    std::ranges::sort(ids);
    ids.erase(std::ranges::unique(ids).begin(), ids.end());
    return ids;
  }

  // Without the runs of these users.
  void use_rows(sqlite::Statement& row, const UseRow& use,
                const std::vector<std::int64_t>& without = {}) {
    while (row.step()) {
      if (++rows_ % kRunsBetweenChecks == 0 && budget_.is_over()) break;
      if (most_ != nullptr && row.number(kWaste) <= most_->least()) continue;
      if (!without.empty() && std::ranges::binary_search(without, row.integer(kRunUser))) continue;
      if (is_seen(row)) use(row);
    }
    row.reset();
  }

  // Those of a day that are known as its most wasteful and ended in this part of it.
  void add_wasteful(MostWasteful& most, std::int64_t begin, std::int64_t end) {
    wasteful_.bind(unit_of(begin, kDay));
    while (wasteful_.step() && wasteful_.number(0) > most.least()) {
      one_.bind(wasteful_.integer(1), sqlite::Blob{wasteful_.text(2)});
      while (one_.step()) {
        auto found = found_in(one_);
        if (!found) continue;
        const std::int64_t ended = seconds_of(found->run.ended_at);
        if (ended >= begin && ended < end) most.add(*std::move(found));
      }
    }
    wasteful_.reset();
  }
  // What the last of them wasted; 0 if there are no more than these.
  std::uint64_t least_known(std::int64_t begin) {
    return static_cast<std::uint64_t>(
        least_.first(unit_of(begin, kDay), kWastefulOfDay - 1).value_or(0));
  }

  void read_within(std::int64_t begin, std::int64_t end, const UseFound& use) {
    rows_within(begin, end, [&](const sqlite::Statement& row) {
      if (auto found = found_in(row)) use(*std::move(found));
    });
  }
  std::optional<FoundRun> found_in(const sqlite::Statement& row) {
    auto run = read_run(row, 0, names_);
    if (!run) return std::nullopt;
    if (!row.is_null(kModules)) run->modules = names_.items(row.integer(kModules));
    if (request_.origin) run->key = row.text(kEvent);
    return FoundRun{
        .run = *std::move(run), .segment = reader_.segment(), .record = row.integer(kRecord)};
  }

  SearchReader& reader_;
  sqlite::Connection& db_;
  const Searchable::RunRequest& request_;
  Budget& budget_;
  NameReader& names_;
  const Part part_;
  struct Ended {
    std::optional<std::int64_t> oldest;
    std::optional<std::int64_t> newest;
  };
  std::optional<Ended> ended_;  // when it was first asked for
  struct Ids {
    std::vector<std::int64_t> users;
    std::vector<std::int64_t> accounts;
  };
  std::optional<Ids> ids_;  // names.id of those whose runs may be seen
  sqlite::Statement by_time_;
  sqlite::Statement by_user_;
  sqlite::Statement by_account_;
  sqlite::Statement one_;
  sqlite::Statement wasteful_;
  sqlite::Statement least_;
  MostWasteful* most_ = nullptr;  // null: all are asked for
  std::uint64_t rows_ = 0;
  // Of the ids of user, owner and account: whether their runs may be seen.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, bool> seen_owners_;
};

// The runs of which sums are made.
Searchable::RunRequest runs_for(const Searchable::SumRequest& request) {
  return {.from = request.bounds.front(),
          .until = request.bounds.back(),
          .modules = request.by == RunsBy::kModule,
          .with_event = {},
          .stop = {},
          .visibility = request.visibility};
}

// What `sums` of one segment adds to the answer, for a reader who sees all jobs.
class SegmentSums {
 public:
  SegmentSums(SearchReader& reader, const Searchable::SumRequest& request, Budget& budget)
      : reader_(reader),
        db_(reader.db()),
        request_(request),
        budget_(budget),
        asked_(runs_for(request)),
        runs_(reader, asked_, budget, SegmentRuns::Part::kForSums),
        names_(reader.rows().names()),
        of_rows_(request.by, names_),
        select_(db_, "SELECT time, name, data FROM sums WHERE kind = ? AND time >= ? AND time < ?"),
        has_runs_(db_, "SELECT 1 FROM later WHERE ended >= ? AND ended < ? LIMIT 1") {}

  // In one transaction, so that all rows are of the same runs.
  void read(const std::function<void(const RunSumRow&)>& use) {
    reader_.begin();
    for (std::size_t i = 0; i + 1 < request_.bounds.size() && !budget_.is_over(); ++i) {
      const std::int64_t from = seconds_of(request_.bounds[i]);
      const std::int64_t until = seconds_of(request_.bounds[i + 1]);
      read_quarters(from, until, use);
      if (request_.by) read_names(from, until, use);
    }
    reader_.end();
  }

 private:
  // The whole units of [from, until), as [begin, end).
  struct Units {
    std::int64_t begin;
    std::int64_t end;
  };
  static Units units_within(std::int64_t from, std::int64_t until, std::int64_t unit) {
    return {.begin = -unit_of(-from, unit), .end = unit_of(until, unit)};
  }

  void each_stored(
      std::int64_t kind, Units units,
      const std::function<void(std::int64_t time, std::int64_t name, const StoredSum& sum)>& use) {
    std::uint64_t seen = 0;
    select_.bind(kind, units.begin, units.end);
    while (select_.step()) {
      if (++seen % kRunsBetweenChecks == 0 && budget_.is_over()) break;
      if (const auto sum = unpack_sum(select_.text(2))) {
        use(select_.integer(0), select_.integer(1), *sum);
      } else {
        reader_.add_problem("a row of its sums is damaged; `scriptorium catalog check` names it");
      }
    }
    select_.reset();
  }
  void each_row(std::int64_t from, std::int64_t until, const SegmentRuns::UseRow& use) {
    if (from < until) runs_.rows_within(from, until, use);
  }
  void read_quarters(std::int64_t from, std::int64_t until,
                     const std::function<void(const RunSumRow&)>& use) {
    const auto add = [&](const sqlite::Statement& row) { of_rows_.add_in_time(row); };
    const Units whole = units_within(from, until, kQuarter);
    if (whole.begin >= whole.end) {
      each_row(from, until, add);
      return of_rows_.give(time_of(from), use);
    }
    each_row(from, whole.begin * kQuarter, add);
    each_row(whole.end * kQuarter, until, add);
    of_rows_.give(time_of(from), use);
    each_stored(kQuarters, whole,
                [&](std::int64_t time, std::int64_t is_measured, const StoredSum& stored) {
                  const RunTotals totals = totals_of(stored, names_);
                  use({.name = std::nullopt,
                       .time = time_of(time * kQuarter),
                       .is_measured = is_measured != 0,
                       .sum = totals});
                });
  }

  using Names = std::map<std::string, RunTotals, std::less<>>;

  void read_names(std::int64_t from, std::int64_t until,
                  const std::function<void(const RunSumRow&)>& use) {
    Names names;
    Units days = units_within(from, until, kDay);
    if (days.begin > days.end) {
      add_rows(from, until);
    } else {
      const std::int64_t first = days.begin * kDay;
      const std::int64_t last = days.end * kDay;
      if (is_whole_day({from, first}, {first - kDay, from})) --days.begin;
      if (is_whole_day({last, until}, {until, last + kDay})) ++days.end;
      add_days(names, days);
    }
    of_rows_.give(time_of(from), [&](const RunSumRow& row) {
      RunTotals& totals = names[std::string(*row.name)];
      totals += row.sum;
      std::erase_if(totals.findings, [](const auto& finding) { return finding.second == 0; });
    });
    if (budget_.is_over()) return;  // what was to be taken away may still be there
    for (const auto& [name, totals] : names) {
      if (totals.jobs > 0) use({.name = name, .time = time_of(from), .sum = totals});
    }
  }

  void add_rows(std::int64_t from, std::int64_t until,
                RowSums::Change change = RowSums::Change::kAdd) {
    each_row(from, until, [&](const sqlite::Statement& row) { of_rows_.add_by_name(row, change); });
  }

  void add_days(Names& names, Units days) {
    std::unordered_map<std::int64_t, StoredSum> by_name;
    each_stored(static_cast<std::int64_t>(*request_.by), days,
                [&](std::int64_t /*day*/, std::int64_t name, const StoredSum& stored) {
                  StoredSum& sum = by_name[name];
                  sum.sum += stored.sum;
                  for (const auto& [finding, jobs] : stored.findings) sum.findings[finding] += jobs;
                });
    for (const auto& [name, stored] : by_name) {
      const RunTotals totals = totals_of(stored, names_);
      names[std::string(names_.text(name))] += totals;
    }
  }

  // Of the day in which a period begins or ends, what is within it is added. Or the runs outside
  // are taken away, where they are fewer; then the day is still to be added as a whole.
  struct Part {
    std::int64_t begin;
    std::int64_t end;
  };
  bool is_whole_day(Part within, Part outside) {
    if (within.begin == within.end || !has_runs(within)) return false;
    if (!has_runs(outside)) return true;
    if (within.end - within.begin <= outside.end - outside.begin) {
      add_rows(within.begin, within.end);
      return false;
    }
    add_rows(outside.begin, outside.end, RowSums::Change::kRemove);
    return true;
  }
  bool has_runs(Part part) { return has_runs_.first(part.begin, part.end).has_value(); }

  SearchReader& reader_;
  sqlite::Connection& db_;
  const Searchable::SumRequest& request_;
  Budget& budget_;
  const Searchable::RunRequest asked_;
  SegmentRuns runs_;
  NameReader& names_;
  RowSums of_rows_;
  sqlite::Statement select_;
  sqlite::Statement has_runs_;
};

// Calls use() with each segment that can be read.
Result<RunAnswer> each_segment(ReaderPool& pool, Budget& budget,
                               const std::function<void(SearchReader&)>& use) {
  const auto segments = pool.segments();
  if (!segments) return segments.error();
  RunAnswer answer;
  for (const SegmentInfo& info : *segments) {
    auto lent = pool.lend_or_note(info, answer.problems);
    if (!lent) continue;
    SearchReader& reader = **lent;
    use(reader);
    for (std::string& problem : reader.take_problems())
      answer.problems.push_back(std::move(problem));
    if (auto error = reader.db().take_error()) {
      if (error->kind() != ErrorKind::kCorrupt) return *std::move(error);
      answer.problems.push_back(segment_name(info.id) + ": " + error->message());
    }
  }
  answer.finished = !budget.is_over();
  return answer;
}

}  // namespace

Result<RunAnswer> read_runs(ReaderPool& pool, const Clock& clock,
                            const Searchable::RunRequest& request, const Use& use) {
  Budget budget(clock, request.deadline, request.stop);
  MostWasteful most(request.most_wasteful);
  auto answer = each_segment(pool, budget, [&](SearchReader& reader) {
    SegmentRuns runs(reader, request, budget);
    if (request.most_wasteful > 0) return runs.read_wasteful(most);
    runs.read([&](FoundRun&& found) {
      if (request.with_event && request.with_event(found.run))
        found.run.event = runs.event_of(found);
      use(found.run);
    });
  });
  if (!answer) return answer;
  for (FoundRun& found : most.take()) {
    if (request.with_event && request.with_event(found.run)) {
      // Its segment may be gone since then.
      auto lent = pool.lend(found.segment);
      if (!lent) continue;
      SearchReader& reader = **lent;
      reader.begin();
      found.run.event = SegmentRuns(reader, request, budget).event_of(found);
      reader.end();
      for (std::string& problem : reader.take_problems())
        answer->problems.push_back(std::move(problem));
    }
    use(found.run);
  }
  return answer;
}

Result<RunAnswer> read_sums(ReaderPool& pool, const Clock& clock,
                            const Searchable::SumRequest& request,
                            const std::function<void(const RunSumRow&)>& use) {
  Budget budget(clock, request.deadline, request.stop);
  if (request.visibility.all) {
    return each_segment(pool, budget, [&](SearchReader& reader) {
      SegmentSums(reader, request, budget).read(use);
    });
  }
  const Searchable::RunRequest asked = runs_for(request);
  return each_segment(pool, budget, [&](SearchReader& reader) {
    RowSums sums(request.by, reader.rows().names());
    SegmentRuns runs(reader, asked, budget, SegmentRuns::Part::kForSums);
    for (std::size_t i = 0; i + 1 < request.bounds.size(); ++i) {
      runs.read_rows(request.bounds[i], request.bounds[i + 1], [&](const sqlite::Statement& row) {
        sums.add_in_time(row);
        sums.add_by_name(row);
      });
      sums.give(request.bounds[i], use);
    }
  });
}

Result<std::uint64_t> count_unfinished(ReaderPool& pool, Timestamp from, Timestamp until,
                                       const Visibility& visibility) {
  const auto segments = pool.segments();
  if (!segments) return segments.error();
  std::uint64_t jobs = 0;
  for (const SegmentInfo& info : *segments) {
    std::vector<std::string> problems;
    auto lent = pool.lend_or_note(info, problems);
    if (!problems.empty()) return Error{ErrorKind::kTransient, problems.front()};
    if (!lent) continue;
    SearchReader& reader = **lent;
    reader.begin();
    if (visibility.all) {
      jobs += reader.db().number("SELECT count(*) FROM unfinished WHERE time >= ? AND time < ?",
                                 from.nanoseconds, until.nanoseconds);
    } else {
      VisibleJobs visible(reader, visibility);
      sqlite::Statement select(reader.db(),
                               "SELECT job FROM unfinished WHERE time >= ? AND time < ?");
      select.bind(from.nanoseconds, until.nanoseconds);
      while (select.step()) {
        const auto job = reader.job(select.integer(0));
        jobs += job && visible.has(*job) ? 1 : 0;
      }
    }
    if (auto error = reader.db().take_error()) return *std::move(error);
  }
  return jobs;
}

}  // namespace scriptorium::catalog
