#include "backends/file/searchable.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "backends/file/leaf_jobs.h"
#include "backends/file/outcome.h"
#include "backends/file/tree_leaves.h"
#include "core/api/kit/search/query_matcher.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::file {
namespace {

constexpr std::size_t kMostProblems = 20;

bool mentions(const Query& query, QueryField field) {
  const bool leaf = query.kind == Query::Kind::kField || query.kind == Query::Kind::kRange;
  return (leaf && query.field == field) ||
         std::ranges::any_of(query.children,
                             [&](const Query& child) { return mentions(child, field); });
}

// What only the bytes of a script or an environment can tell.
bool needs_texts(const Query& query) {
  switch (query.kind) {
    case Query::Kind::kText:
    case Query::Kind::kExpression:
    case Query::Kind::kVariable: return true;
    default: return std::ranges::any_of(query.children, needs_texts);
  }
}

Error needs_catalog(const std::string& what) {
  return Error{ErrorKind::kInvalidConfig,
               "a file tree is searched by user, time, id, name and what else its metadata say, "
               "not by " +
                   what + "; add [sink.catalog], reload, and run `scriptorium sinks fill catalog`"};
}

}  // namespace

// ---- positions

ScanPosition ScanPosition::of(const JobRow& job) {
  std::string key;
  for (const std::string* part : {&job.cluster, &job.scheduler, &job.id}) key += *part + '\0';
  return {.time = job.time.nanoseconds, .key = key + job.event_id};
}

std::string ScanPosition::text() const { return std::to_string(time) + "/" + hex_encode(key); }

std::optional<ScanPosition> ScanPosition::from_text(std::string_view text) {
  const auto time = parse_number<std::int64_t>(take_until(text, '/'));
  auto key = hex_decode(text);
  if (!time || !key) return std::nullopt;
  return ScanPosition{.time = *time, .key = *std::move(key)};
}

// ---- one search

class TreeSearch::Scan {
 public:
  Scan(const Request& request, const QueryMatcher& matcher, const Layout& layout,
       const Clock& clock, int root)
      : request_(request),
        matcher_(matcher),
        layout_(layout),
        clock_(clock),
        root_(root),
        wanted_(wanted_by(request.query, request.visibility)),
        counting_(request.count || !request.facets.empty()) {}

  Result<Answer> run() {
    if (!request_.after.empty()) {
      after_ = ScanPosition::from_text(request_.after);
      if (!after_)
        return Error{ErrorKind::kInvalidConfig,
                     "the position to continue from is not one of this "
                     "store"};
    }
    last_ =
        after_.value_or(ScanPosition{.time = std::numeric_limits<std::int64_t>::max(), .key = ""});
    const std::function<bool()> ended = [this] { return this->ended(); };
    const Leaves leaves = find_leaves(layout_, root_, wanted_, ended);
    if (leaves.closed > 0) {
      answer_.problems.push_back("directories that this user may not open, left out: " +
                                 std::to_string(leaves.closed));
    }
    if (!leaves.finished) unfinished_ = true;
    for (std::size_t begin = 0; begin < leaves.list.size() && !unfinished_ && !full_;) {
      std::size_t end = begin;
      while (end < leaves.list.size() && leaves.list[end].span == leaves.list[begin].span) ++end;
      part({leaves.list.begin() + static_cast<std::ptrdiff_t>(begin),
            leaves.list.begin() + static_cast<std::ptrdiff_t>(end)});
      begin = end;
      if (full_ && begin < leaves.list.size()) more_ = true;
    }
    return finish();
  }

 private:
  struct Candidate {
    ScanPosition position;
    JobRow job;
  };

  static bool comes_first(const Candidate& a, const Candidate& b) {
    return a.position < b.position;
  }
  bool ended() const {
    return request_.stop.stop_requested() || clock_.steady() >= request_.deadline;
  }
  bool is_after(const ScanPosition& position) const { return !after_ || *after_ < position; }
  bool has_room() const { return answer_.hits.size() < request_.limit; }
  // Whether any further job can change the answer.
  bool done() const { return !counting_ && !has_room(); }

  void part(const std::vector<Leaf>& leaves) {
    // What a person got before is read again only to be counted.
    if (!counting_ && after_ && leaves.front().span.from > after_->time) return;
    std::vector<Candidate> candidates;
    bool dropped = false;
    const std::function<bool()> ended = [this] { return this->ended(); };
    for (const Leaf& leaf : leaves) {
      LeafRead read = read_leaf(layout_, root_, leaf, wanted_, ended);
      note(std::move(read.problems));
      if (!read.finished) return stop_before(leaves.front().span);
      for (LeafJob& job : read.jobs) consider(job.row, candidates);
      jobs_ += read.jobs.size();
      progress();
      dropped = shrink(candidates) || dropped;
    }
    std::ranges::sort(candidates, comes_first);
    for (Candidate& candidate : candidates) {
      if (!has_room()) {
        more_ = true;
        break;
      }
      last_ = candidate.position;
      answer_.hits.push_back({.job = std::move(candidate.job), .lines = {}});
    }
    if (dropped) more_ = true;
    if (done()) full_ = true;
  }

  void consider(JobRow& job, std::vector<Candidate>& candidates) {
    if (!is_visible(job, request_.visibility)) return;
    if (matcher_.judge(job) != QueryMatcher::Verdict::kYes) return;
    count(job);
    ScanPosition position = ScanPosition::of(job);
    if (is_after(position)) candidates.push_back({std::move(position), std::move(job)});
  }

  // Keeps the newest, so that memory has a bound.
  bool shrink(std::vector<Candidate>& candidates) const {
    const std::size_t most = request_.limit + 1;
    if (candidates.size() <= 2 * most) return false;
    const auto cut = candidates.begin() + static_cast<std::ptrdiff_t>(most);
    std::ranges::nth_element(candidates, cut, comes_first);
    candidates.erase(cut, candidates.end());
    return true;
  }

  void count(const JobRow& job) {
    ++matched_;
    for (const QueryField field : request_.facets) {
      for (const std::string& value : field_values(field, job)) ++facets_[field][value];
    }
  }

  void note(std::vector<std::string> problems) {
    for (std::string& problem : problems) {
      if (answer_.problems.size() < kMostProblems) answer_.problems.push_back(std::move(problem));
    }
  }

  void progress() const {
    if (!request_.progress) return;
    Progress progress;
    if (last_.time != std::numeric_limits<std::int64_t>::max())
      progress.searched_back_to = Timestamp{last_.time};
    progress.jobs = jobs_;
    request_.progress(progress);
  }

  // Nothing of this part was returned, and all that is newer was.
  void stop_before(const TimeSpan& span) {
    unfinished_ = true;
    constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();
    const ScanPosition begin{.time = span.to < kGreatest ? span.to + 1 : kGreatest, .key = ""};
    if (last_ < begin) last_ = begin;
  }

  Result<Answer> finish() {
    answer_.finished = !unfinished_;
    if (unfinished_) {
      answer_.next = last_.text();
      if (last_.time != std::numeric_limits<std::int64_t>::max())
        answer_.searched_back_to = Timestamp{last_.time};
    } else if (more_ && !answer_.hits.empty()) {
      answer_.next = ScanPosition::of(answer_.hits.back().job).text();
    }
    const bool all = !unfinished_ && !full_;
    if (request_.count) answer_.count = Count{.jobs = matched_, .at_least = !all};
    for (const QueryField field : request_.facets) {
      Facet facet{.field = field, .values = {}, .exact = all, .over = matched_};
      for (const auto& [value, jobs] : facets_[field]) facet.values.push_back({value, jobs});
      std::ranges::sort(facet.values, [](const FacetValue& a, const FacetValue& b) {
        return a.jobs != b.jobs ? a.jobs > b.jobs : a.value < b.value;
      });
      if (facet.values.size() > request_.facet_values) facet.values.resize(request_.facet_values);
      answer_.facets.push_back(std::move(facet));
    }
    return std::move(answer_);
  }

  const Request& request_;
  const QueryMatcher& matcher_;
  const Layout& layout_;
  const Clock& clock_;
  const int root_;
  const Wanted wanted_;
  const bool counting_;
  std::optional<ScanPosition> after_;

  Answer answer_;
  ScanPosition last_;        // everything before it was looked at
  bool unfinished_ = false;  // deadline or stop
  bool full_ = false;        // nothing further can change the answer
  bool more_ = false;        // there may be another hit
  std::uint64_t matched_ = 0;
  std::map<QueryField, std::map<std::string, std::uint64_t>> facets_;
  std::uint64_t jobs_ = 0;
};

Result<UniqueFd> TreeSearch::open_root() const {
  UniqueFd fd(::open(config_.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return Error{ErrorKind::kTransient, root_error("root " + config_.root, errno).message()};
  // A root that may be entered but not listed needs O_PATH; one that may be, does not.
  if (UniqueFd readable(::open(config_.root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); readable)
    return readable;
  return fd;
}

Result<Searchable::Answer> TreeSearch::search(const Request& request) {
  if (needs_texts(request.query)) return needs_catalog("words of scripts or environments");
  for (const QueryField field : {QueryField::kModule, QueryField::kSoftware, QueryField::kFamily}) {
    if (mentions(request.query, field) || std::ranges::count(request.facets, field) != 0)
      return needs_catalog(std::string(query_field_name(field)));
  }
  const auto matcher = QueryMatcher::create(request.query);
  if (!matcher) return matcher.error();
  const auto root = open_root();
  if (!root) return root.error();
  return Scan(request, *matcher, layout_, clock_, root->get()).run();
}

// ---- one job

Result<std::vector<Searchable::Record>> TreeSearch::get_id(const Selector& selector,
                                                           const Visibility& visibility,
                                                           std::size_t limit) const {
  const auto root = open_root();
  if (!root) return root.error();
  Wanted wanted = wanted_by({.kind = Query::Kind::kAll}, visibility);
  wanted.job_id = safe_value(selector.id);
  if (selector.time)
    wanted.time = {.from = selector.time->nanoseconds, .to = selector.time->nanoseconds};
  const std::function<bool()> never = [] { return false; };
  std::vector<std::pair<ScanPosition, Record>> found;
  const Leaves leaves = find_leaves(layout_, root->get(), wanted, never);
  for (std::size_t i = 0; i < leaves.list.size(); ++i) {
    const Leaf& leaf = leaves.list[i];
    // What follows is older.
    if (found.size() >= limit && i > 0 && !(leaf.span == leaves.list[i - 1].span)) break;
    const LeafRead read = read_leaf(layout_, root->get(), leaf, wanted, never);
    for (const LeafJob& candidate : read.jobs) {
      const JobRow& row = candidate.row;
      if (row.id != selector.id || (selector.cluster && row.cluster != *selector.cluster) ||
          (selector.time && row.time != *selector.time) || !is_visible(row, visibility)) {
        continue;
      }
      auto job = OpenJob::open(root->get(), leaf, candidate.files);
      if (!job) continue;
      Record record;
      record.event = job->event();
      record.job = job->whole_row();
      record.later = job->later();
      std::ranges::sort(record.later, [](const auto& a, const auto& b) {
        return a->time != b->time ? a->time < b->time : a->id < b->id;
      });
      record.problems = job->problems();
      found.emplace_back(ScanPosition::of(row), std::move(record));
    }
  }
  std::ranges::sort(found, [](const auto& a, const auto& b) { return a.first < b.first; });
  if (found.size() > limit) found.resize(limit);
  std::vector<Record> records;
  for (auto& [position, record] : found) records.push_back(std::move(record));
  return records;
}

Result<std::vector<Searchable::Record>> TreeSearch::get(const Selector& selector,
                                                        const Visibility& visibility,
                                                        std::size_t limit) {
  auto records = get_id(selector, visibility, limit);
  const std::size_t mark = selector.id.find_first_of("_+");
  if (!records || !records->empty() || mark == std::string::npos || mark == 0) return records;
  Selector whole = selector;
  whole.id.resize(mark);
  return get_id(whole, visibility, limit);
}

Result<std::vector<JobRow>> TreeSearch::family(std::uint64_t /*family*/,
                                               const Visibility& /*visibility*/,
                                               std::optional<Timestamp> /*before*/,
                                               std::size_t /*limit*/) {
  return needs_catalog("family");
}

}  // namespace scriptorium::file
