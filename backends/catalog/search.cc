#include "backends/catalog/search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/catalog/coordinators.h"
#include "backends/catalog/runs.h"
#include "backends/catalog/search_collector.h"
#include "backends/catalog/search_facets.h"
#include "backends/catalog/search_pool.h"
#include "backends/catalog/search_records.h"
#include "backends/catalog/search_segment.h"

namespace scriptorium::catalog {
namespace {

using Request = Searchable::Request;
using Answer = Searchable::Answer;

constexpr std::int64_t kLastTime = std::numeric_limits<std::int64_t>::max();
// A longer answer comes in pages, so that its memory is bounded.
constexpr std::size_t kMostHits = 50'000;
constexpr std::chrono::milliseconds kBetweenReports{50};

// Takes matches for the hits, and for count and facets if they are asked for.
class Taker final : public MatchTaker {
 public:
  Taker(const Request& request, const Position& below, bool counts, bool samples,
        std::size_t sample)
      : hits_(std::min(request.limit, kMostHits), below),
        sample_(samples ? sample : 0, Position{}),
        counts_(counts),
        samples_(samples),
        facets_(request.facets) {}

  bool wants(const Position& position) override {
    if (counts_ && (!samples_ || sample_.wants(position))) return true;
    return hits_.wants(position);
  }
  void take(const Position& position, const RawJob& job) override {
    if (hits_.wants(position)) hits_.add(position, job);
    if (!counts_) return;
    ++matches_;
    if (!samples_) {
      fresh_.push_back(job);
    } else if (sample_.wants(position)) {
      sample_.add(position, job);
    }
  }
  bool is_complete(std::int64_t newest_left) const {
    return hits_.are_complete(newest_left) &&
           (!counts_ || (samples_ && sample_.are_complete(newest_left)));
  }

  NewestMatches& hits() { return hits_; }
  NewestMatches& sample() { return sample_; }
  FacetCounter& facets() { return facets_; }
  std::uint64_t matches() const noexcept { return matches_; }
  // Matches that no facet has counted yet.
  std::vector<RawJob> take_fresh() { return std::exchange(fresh_, {}); }

 private:
  NewestMatches hits_;
  NewestMatches sample_;
  const bool counts_;
  const bool samples_;
  FacetCounter facets_;
  std::uint64_t matches_ = 0;
  std::vector<RawJob> fresh_;
};

// The search in one segment: all branches, once it is its turn.
struct SegmentSearch {
  explicit SegmentSearch(ReaderPool::Lent lent)
      : reader(std::move(lent)), bytes_before(reader->bytes_unpacked()) {}

  std::optional<std::int64_t> newest_left() {
    if (!planned) return newest;
    std::optional<std::int64_t> left;
    for (const auto& branch : branches) left = std::max(left, branch->newest_left());
    return left;
  }
  BranchSearch* next_branch() {
    BranchSearch* next = nullptr;
    std::optional<std::int64_t> left;
    for (const auto& branch : branches) {
      const auto own = branch->newest_left();
      if (own && (!left || *own > *left)) {
        left = own;
        next = branch.get();
      }
    }
    return next;
  }

  ReaderPool::Lent reader;
  std::uint64_t bytes_before;          // that it unpacked for earlier questions
  std::optional<std::int64_t> newest;  // of all jobs; nothing: it has none
  bool planned = false;
  IdSet found;
  std::vector<std::unique_ptr<BranchSearch>> branches;  // after what they borrow
};

// One question to the end.
class Search {
 public:
  Search(ReaderPool& pool, const Clock& clock, const SearchLimits& limits, const Request& request)
      : pool_(pool),
        clock_(clock),
        limits_(limits),
        request_(request),
        budget_(clock, request.deadline, request.stop) {}

  Result<Answer> run();

 private:
  Result<void> prepare();
  Result<void> open_segments();
  bool count_by_day();
  Result<void> find();
  Result<void> plan(SegmentSearch& segment);
  Result<void> step(SegmentSearch& segment);
  // Whether the search may go on after what a connection said.
  Result<void> check(SegmentSearch& segment, bool lose_segment);
  void count_fresh(SegmentSearch& segment);
  bool renew_snapshots();  // if they are old
  void report(std::int64_t newest_left);
  Result<void> fill_hits(Answer& answer);
  void fill_counts(Answer& answer);
  Searchable::Hit hit_of(SearchReader& reader, const Match& match, JobRow row);
  SegmentSearch* segment_of(std::int64_t id);

  ReaderPool& pool_;
  const Clock& clock_;
  const SearchLimits& limits_;
  const Request& request_;
  Budget budget_;
  Position below_;
  std::vector<Branch> branches_;
  std::optional<QueryMatcher> matcher_;
  std::vector<std::unique_ptr<SegmentSearch>> segments_;  // after what they borrow
  std::vector<std::string> problems_;
  std::optional<Taker> taker_;
  bool counts_ = false;                      // by looking at matches
  bool samples_ = false;                     // over the newest of them only
  bool counted_by_day_ = false;              // from sums
  std::optional<std::int64_t> newest_left_;  // what the search did not come to
  bool all_searched_ = false;
  SteadyTime snapshot_since_;
  SteadyTime reported_;
  bool has_reported_ = false;
};

Result<void> Search::prepare() {
  if (!request_.after.empty()) {
    auto position = position_of(request_.after);
    if (!position) return position.error();
    below_ = *position;
  }
  auto branches = branches_of(request_.query);
  if (!branches) return branches.error();
  branches_ = *std::move(branches);
  auto matcher = QueryMatcher::create(request_.query);
  if (!matcher) return matcher.error();
  matcher_.emplace(*std::move(matcher));
  return {};
}

Result<void> Search::open_segments() {
  auto list = pool_.segments();
  if (!list) return list.error();
  for (const SegmentInfo& info : *list) {
    auto lent = pool_.lend_or_note(info, problems_);
    if (!lent) continue;
    auto segment = std::make_unique<SegmentSearch>(*std::move(lent));
    SearchReader& reader = *segment->reader;
    segment->reader.limit(budget_);
    reader.begin();
    sqlite::Statement newest(reader.db(), "SELECT max(newest) FROM chunks");
    if (newest.bind().step() && !newest.is_null(0)) segment->newest = newest.integer(0);
    newest.reset();
    const bool is_too_old = std::ranges::all_of(
        branches_, [&](const Branch& branch) { return segment->newest < branch.span.from; });
    if (is_too_old) segment->newest.reset();
    if (!reader.db().ok() && budget_.was_over()) segment->newest = kLastTime;
    if (auto checked = check(*segment, true); !checked) return checked.error();
    segments_.push_back(std::move(segment));
  }
  snapshot_since_ = clock_.steady();
  return {};
}

bool Search::count_by_day() {
  if (!is_of_daily_sums(request_.query, request_.facets)) return false;
  auto condition = Condition::create(request_.query);
  if (!condition) return false;
  for (const auto& segment : segments_) {
    if (!add_daily_sums(*segment->reader, *condition, request_.visibility, taker_->facets()))
      return false;
    if (!segment->reader->db().ok()) return false;
  }
  return true;
}

Result<void> Search::check(SegmentSearch& segment, bool lose_segment) {
  sqlite::Connection& db = segment.reader->db();
  if (db.ok()) return {};
  const auto error = db.take_error();
  if (budget_.was_over()) return {};  // SQLite was interrupted
  if (error->kind() != ErrorKind::kCorrupt) return *error;
  segment.reader->add_problem(error->message());
  if (lose_segment) {
    segment.planned = true;
    segment.branches.clear();
  }
  return {};
}

Result<void> Search::plan(SegmentSearch& segment) {
  const std::int64_t newest = counts_ ? kLastTime : below_.time;
  segment.planned = true;
  for (const Branch& branch : branches_) {
    segment.branches.push_back(
        std::make_unique<BranchSearch>(*segment.reader, branch, request_.visibility, budget_,
                                       *taker_, segment.found, newest, limits_.jobs_of_owners));
    segment.branches.back()->plan();
    if (!segment.reader->db().ok() || budget_.was_over()) break;
  }
  const bool interrupted = budget_.was_over();
  auto checked = check(segment, true);
  // What was not planned is not searched.
  if (interrupted) {
    segment.branches.clear();
    segment.planned = false;
  }
  return checked;
}

SegmentSearch* Search::segment_of(std::int64_t id) {
  const auto found = std::find_if(segments_.begin(), segments_.end(), [&](const auto& segment) {
    return segment->reader->segment() == id;
  });
  return found == segments_.end() ? nullptr : found->get();
}

bool Search::renew_snapshots() {
  const SteadyTime now = clock_.steady();
  if (now - snapshot_since_ < limits_.snapshot) return false;
  snapshot_since_ = now;
  for (const auto& segment : segments_) {
    segment->reader->end();
    if (!segment->reader->begin() || !segment->planned) continue;
    // Blocks may have been sealed or rewritten.
    for (const auto& branch : segment->branches) branch->plan();
  }
  return true;
}

void Search::report(std::int64_t newest_left) {
  if (!request_.progress) return;
  const SteadyTime now = clock_.steady();
  if (std::exchange(has_reported_, true) && now - reported_ < kBetweenReports) return;
  reported_ = now;
  Searchable::Progress progress;
  progress.searched_back_to = Timestamp{newest_left};
  for (const auto& segment : segments_) {
    progress.bytes += segment->reader->bytes_unpacked() - segment->bytes_before;
    for (const auto& branch : segment->branches) progress.jobs += branch->jobs_seen();
  }
  request_.progress(progress);
}

void Search::count_fresh(SegmentSearch& segment) {
  for (const RawJob& job : taker_->take_fresh()) taker_->facets().add(*segment.reader, job);
}

Result<void> Search::step(SegmentSearch& segment) {
  if (!segment.planned) return plan(segment);
  BranchSearch* const branch = segment.next_branch();
  branch->step();
  count_fresh(segment);
  const bool damaged = !segment.reader->db().ok() && !budget_.was_over();
  if (auto checked = check(segment, false); !checked) return checked;
  if (damaged) branch->skip();
  report(*newest_left_);
  return {};
}

Result<void> Search::find() {
  for (;;) {
    SegmentSearch* next = nullptr;
    std::int64_t others = std::numeric_limits<std::int64_t>::min();
    newest_left_.reset();
    for (const auto& segment : segments_) {
      if (auto checked = check(*segment, true); !checked) return checked;
      const auto left = segment->newest_left();
      if (!left) continue;
      const bool newer = !newest_left_ || *left > *newest_left_;
      if (newest_left_) others = std::max(others, newer ? *newest_left_ : *left);
      if (!newer) continue;
      newest_left_ = left;
      next = segment.get();
    }
    if (next == nullptr) {
      all_searched_ = true;
      return {};
    }
    // Until another segment has what is newer.
    while (newest_left_ && *newest_left_ >= others) {
      if (taker_->is_complete(*newest_left_) || budget_.is_over()) return {};
      if (auto stepped = step(*next); !stepped) return stepped;
      if (renew_snapshots() || !next->reader->db().ok()) break;
      newest_left_ = next->newest_left();
    }
  }
}

Searchable::Hit Search::hit_of(SearchReader& reader, const Match& match, JobRow row) {
  Searchable::Hit hit;
  hit.job = std::move(row);
  if (request_.most_lines == 0 || !matcher_->has_text()) return hit;
  std::vector<SearchReader::Text> alive;
  const JobTexts texts{[&](JobPart part) {
    const std::int64_t content =
        part == JobPart::kScript ? match.job.script : match.job.environment;
    auto text = content == 0 ? std::nullopt : reader.text(content);
    if (!text) return std::string_view();
    alive.push_back(*std::move(text));
    return alive.back().bytes;
  }};
  hit.lines = matcher_->lines(texts, request_.most_lines, request_.context_lines);
  return hit;
}

Result<void> Search::fill_hits(Answer& answer) {
  const std::size_t limit = std::min(request_.limit, kMostHits);
  const bool refused = taker_->hits().refused_some();
  std::vector<Match> matches = taker_->hits().take();
  if (!all_searched_ && newest_left_) {
    // What lies beside or behind unopened candidates may not be the next in order.
    std::erase_if(matches,
                  [&](const Match& match) { return match.position.time <= *newest_left_; });
  }
  // The rest is bounded by the number of hits, and belongs to the answer.
  for (const auto& segment : segments_) segment->reader.unlimited();
  for (const Match& match : matches) {
    SegmentSearch* const segment = segment_of(match.position.segment);
    renew_snapshots();
    auto row = segment->reader->rows().read(match.position.id);
    if (!row && row.error().kind() != ErrorKind::kCorrupt) return row.error();
    if (!row) {
      segment->reader->add_problem(row.error().message());
    } else if (*row) {
      answer.hits.push_back(hit_of(*segment->reader, match, **std::move(row)));
    }
  }
  const bool is_full = limit > 0 && matches.size() == limit;
  if (limit == 0) {
    answer.finished = all_searched_ || !budget_.was_over();
  } else if (is_full) {
    if (!all_searched_ || refused) answer.next = to_text(matches.back().position);
  } else if (!all_searched_) {
    answer.finished = false;
    answer.next = to_text(std::min(below_, Position{*newest_left_, kLastTime, kLastTime}));
  }
  if (!answer.finished && newest_left_ && *newest_left_ != kLastTime)
    answer.searched_back_to = Timestamp{std::min(*newest_left_, below_.time)};
  return {};
}

void Search::fill_counts(Answer& answer) {
  if (!request_.count && request_.facets.empty()) return;
  bool exact = all_searched_ || counted_by_day_;
  std::uint64_t jobs = counted_by_day_ ? taker_->facets().jobs() : taker_->matches();
  if (samples_) {
    std::vector<Match> sample = taker_->sample().take();
    exact = exact && !taker_->sample().refused_some();
    jobs = std::max<std::uint64_t>(sample.size(), exact ? jobs : 0);
    for (const auto& segment : segments_) {
      for (const Match& match : sample) {
        if (match.position.segment == segment->reader->segment())
          taker_->facets().add(*segment->reader, match.job);
      }
    }
  }
  for (const auto& segment : segments_) taker_->facets().end_segment(*segment->reader);
  if (request_.count) answer.count = Searchable::Count{jobs, !exact};
  answer.facets = taker_->facets().take(request_.facet_values, exact);
}

Result<Answer> Search::run() {
  if (auto prepared = prepare(); !prepared) return prepared.error();
  if (auto opened = open_segments(); !opened) return opened.error();

  const bool is_counted = request_.count || !request_.facets.empty();
  if (is_counted) {
    taker_.emplace(request_, below_, false, false, limits_.sample);
    counted_by_day_ = count_by_day();
    for (const auto& segment : segments_) {
      if (auto checked = check(*segment, true); !checked) return checked.error();
    }
  }
  if (!counted_by_day_) {
    using Source = Condition::Source;
    counts_ = is_counted;
    samples_ = is_counted && !request_.exact &&
               std::any_of(branches_.begin(), branches_.end(), [](const Branch& branch) {
                 return branch.condition.reads(Source::kScript) ||
                        branch.condition.reads(Source::kEnvironment);
               });
    taker_.emplace(request_, below_, counts_, samples_, limits_.sample);
  }
  if (request_.limit > 0 || counts_) {
    if (auto found = find(); !found) return found.error();
  } else {
    all_searched_ = true;
  }
  Answer answer;
  if (auto filled = fill_hits(answer); !filled) return filled.error();
  fill_counts(answer);
  answer.problems = std::move(problems_);
  for (const auto& segment : segments_) {
    for (std::string& problem : segment->reader->take_problems())
      answer.problems.push_back(std::move(problem));
  }
  return answer;
}

class CatalogSearch final : public Searchable {
 public:
  CatalogSearch(std::string root, const Clock& clock, SearchLimits limits)
      : root_(std::move(root)), pool_(root_), clock_(clock), limits_(limits) {}

  Speed speed() const noexcept override { return Speed::kIndexed; }

  Result<Answer> search(const Request& request) override {
    return Search(pool_, clock_, limits_, request).run();
  }

  Result<std::vector<Record>> get(const Selector& selector, const Visibility& visibility,
                                  std::size_t limit) override {
    return read_records(pool_, selector, visibility, limit);
  }

  Result<std::vector<JobRow>> family(std::uint64_t family, const Visibility& visibility,
                                     std::optional<Timestamp> before, std::size_t limit) override {
    return read_family(pool_, family, visibility, before, limit);
  }

  Result<RunAnswer> runs(const RunRequest& request,
                         const std::function<void(const JobRun&)>& use) override {
    return read_runs(pool_, clock_, request, use);
  }

  Result<RunAnswer> sums(const SumRequest& request,
                         const std::function<void(const RunSumRow&)>& use) override {
    return read_sums(pool_, clock_, request, use);
  }

  Result<std::uint64_t> unfinished(Timestamp from, Timestamp until,
                                   const Visibility& visibility) override {
    return count_unfinished(pool_, from, until, visibility);
  }

  Result<std::vector<CoordinatorList>> coordinators() override { return read_coordinators(root_); }
  Result<void> keep_coordinators(const CoordinatorList& list) override {
    const std::lock_guard keeping(keeping_);
    return catalog::keep_coordinators(root_, list);
  }

 private:
  const std::string root_;
  ReaderPool pool_;
  const Clock& clock_;
  const SearchLimits limits_;
  std::mutex keeping_;  // at a reload, the former source and the new one may both bring a list
};

}  // namespace

std::unique_ptr<Searchable> make_search(std::string root, const Clock& clock, SearchLimits limits) {
  return std::make_unique<CatalogSearch>(std::move(root), clock, limits);
}

}  // namespace scriptorium::catalog
