#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/coordinators.h"
#include "core/api/event.h"
#include "core/api/query.h"
#include "core/api/run_sum.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium {

// Whose jobs a reader may see. A job that is not visible does not exist for any call: it is neither
// returned nor counted.
struct Visibility {
  bool all = true;  // otherwise jobs with a verified owner in `users`, or an account in `accounts`
  // A job whose uid is known to be another than this one is of somebody else with that name: of
  // another cluster, or of a time when the name was another person's.
  struct User {
    std::string name;
    std::optional<std::string> uid = std::nullopt;  // in digits; absent: any
  };
  std::vector<User> users;
  struct Account {
    std::string cluster;
    std::string name;
  };
  std::vector<Account> accounts;  // of verified jobs only
};
bool is_visible(const JobRow& job, const Visibility& visibility);
bool is_visible(const JobRun& run, const Visibility& visibility);

// A sink that can answer questions about what it stored. A sink that implements this returns it
// from Sink::searchable(); it lives as long as its sink. Nothing that a user typed may reach the
// destination's own query language as text.
//
// Threads: any, several at once, beside deliver() and before start() or after stop().
class Searchable {
 public:
  Searchable() = default;
  Searchable(const Searchable&) = delete;
  Searchable& operator=(const Searchable&) = delete;
  virtual ~Searchable() = default;

  // Stores are asked in this order, and only the fastest that answers.
  enum class Speed : std::uint8_t { kIndexed, kRemote, kScan };
  virtual Speed speed() const noexcept = 0;

  struct Progress {
    std::optional<Timestamp> searched_back_to;
    std::uint64_t bytes = 0;  // of text, searched so far
    std::uint64_t jobs = 0;   // looked at
  };
  struct Request {
    Query query;
    std::size_t limit = 50;  // hits; 0: only counts and facets
    std::string after;       // `next` of an earlier answer; "": from the newest job on
    SteadyTime deadline = SteadyTime::max();
    std::stop_token stop;
    std::size_t most_lines = 3;     // matching lines of a hit; 0: none
    std::size_t context_lines = 0;  // before and after each of them
    bool count = false;             // count all jobs that match, not only the returned
    std::vector<QueryField>
        facets;  // values of these fields with their counts, most frequent first
    std::size_t facet_values = 20;
    bool exact = false;  // counts and facets over all matches even where that must read texts
    Visibility visibility;
    std::function<void(const Progress&)> progress;  // may be null; called by the searching thread
  };
  struct Line {
    JobPart part = JobPart::kScript;
    std::uint64_t number = 0;  // from 1 (environment: of the variable)
    std::string text;          // at most 1 KiB, around the first match
    std::vector<std::pair<std::uint32_t, std::uint32_t>>
        marks;  // begin, end in `text`; empty: context
  };
  struct Hit {
    JobRow job;
    std::vector<Line> lines;
  };
  struct FacetValue {
    std::string value;
    std::uint64_t jobs = 0;
  };
  struct Facet {
    QueryField field = QueryField::kUser;
    std::vector<FacetValue> values;
    bool exact = true;       // false: over the newest `over` matches only
    std::uint64_t over = 0;  // matches that were counted
  };
  struct Count {
    std::uint64_t jobs = 0;
    bool at_least = false;  // there may be more
  };
  struct Answer {
    std::vector<Hit> hits;  // newest first (JobRow::time)
    std::string next;       // "": there is nothing more
    bool finished = true;   // false: deadline or stop came first; `next` continues
    std::optional<Timestamp> searched_back_to;  // if not finished
    std::optional<Count> count;
    std::vector<Facet> facets;
    std::vector<std::string> problems;  // damaged parts that were left out
  };
  // Ends at the deadline with what it has. kInvalidConfig for a query that this store cannot
  // answer, with the reason; kTransient if the store cannot be asked now.
  virtual Result<Answer> search(const Request& request) = 0;

  // Which job is meant. An id may be used again, so several jobs can match.
  struct Selector {
    std::string id;  // "4711"; of an array or a task: see `get`
    std::optional<std::string> cluster;
    std::optional<Timestamp> time;  // JobRow::time
  };
  struct Record {
    JobRow job;
    std::shared_ptr<const Event> event;               // with bytes; null: no script was stored
    std::vector<std::shared_ptr<const Event>> later;  // usage.job, job.life, ...: oldest first
    std::vector<std::string> problems;                // what could not be read
  };
  // Newest first, at most `limit`. An id "10_3" or "10+1" also finds what is stored under the id of
  // the array or the leader if the store has no such job itself.
  virtual Result<std::vector<Record>> get(const Selector& selector, const Visibility& visibility,
                                          std::size_t limit) = 0;

  // The jobs of a family, newest first: one owner, a name without its changing numbers, and nearly
  // equal scripts. `before`, the time of an earlier answer's last job, continues it; jobs of one
  // time are never parted, so there may be more than `limit`. kInvalidConfig if the store has none.
  virtual Result<std::vector<JobRow>> family(std::uint64_t family, const Visibility& visibility,
                                             std::optional<Timestamp> before,
                                             std::size_t limit) = 0;

  struct RunRequest {
    Timestamp from;  // whole seconds, as `until`
    Timestamp until = Timestamp{std::numeric_limits<std::int64_t>::max()};
    bool modules = false;  // fill JobRun::modules
    bool origin = false;   // fill JobRun::cluster and JobRun::key
    // With `origin`: fill JobRun::event of the runs for which this is true; null: of none. An event
    // that cannot be read is a problem, and stays null.
    std::function<bool(const JobRun&)> with_event;
    // Not 0: only so many runs, and only of those that wasted something: the most wasteful first
    // (wasted_core_seconds()).
    std::size_t most_wasteful = 0;
    SteadyTime deadline = SteadyTime::max();
    std::stop_token stop;
    Visibility visibility;
  };
  struct RunAnswer {
    bool finished = true;               // false: deadline or stop came first
    std::vector<std::string> problems;  // what could not be read
  };
  // Calls use() for each run that ended at `from` or later and before `until`. kInvalidConfig: this
  // store has no runs but those in its events.
  virtual Result<RunAnswer> runs(const RunRequest& request,
                                 const std::function<void(const JobRun&)>& use);

  struct SumRequest {
    std::optional<RunsBy> by;       // absent: only rows without a name
    std::vector<Timestamp> bounds;  // two or more, ascending, in whole seconds
    SteadyTime deadline = SteadyTime::max();
    std::stop_token stop;
    Visibility visibility;
  };
  // What the runs had and did not use that ended in the periods from each of the bounds to the
  // next: the rows of one period and name, or of one quarter of an hour, add up to exactly that.
  // The time of a row is in its period. A store that keeps such sums need not read the runs for
  // them, which this does. Errors as runs().
  virtual Result<RunAnswer> sums(const SumRequest& request,
                                 const std::function<void(const RunSumRow&)>& use);

  // How many jobs were submitted at `from` or later and before `until`, have a user, and no known
  // end. kInvalidConfig: search() must count them.
  virtual Result<std::uint64_t> unfinished(Timestamp from, Timestamp until,
                                           const Visibility& visibility);

  // Who coordinates which accounts, for Visibility::accounts: of each cluster the list that the
  // daemon brought last. kInvalidConfig: this store keeps none.
  virtual Result<std::vector<CoordinatorList>> coordinators();
  // Replaces that of the list's cluster. The daemon calls it each hour, where coordinators() does
  // not say kInvalidConfig.
  virtual Result<void> keep_coordinators(const CoordinatorList& list);
};

}  // namespace scriptorium
