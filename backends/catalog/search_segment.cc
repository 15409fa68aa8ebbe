#include "backends/catalog/search_segment.h"

#include <algorithm>
#include <utility>

namespace scriptorium::catalog {
namespace {

constexpr std::int64_t kEarliest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kLatest = std::numeric_limits<std::int64_t>::max();
// So few blocks are looked up one by one.
constexpr std::size_t kFewBlocks = 4096;
constexpr std::size_t kBlocksAtOnce = 512;
// Contents among which a chunk's environments are looked for: its jobs' own are some 800.
constexpr std::int64_t kMostPlacesRead = 16 * kChunkJobs;
constexpr std::size_t kMostWithoutScript = 10'000;
constexpr std::size_t kMostOwnersAsked = 64;
// What reading a job's row costs among those of its chunk, by itself with its outcome, and opening
// a block (about a microsecond, eight, and forty).
constexpr std::uint64_t kCostOfChunk = kChunkJobs;
constexpr std::uint64_t kCostOfJob = 8;
constexpr std::uint64_t kCostOfBlock = 40;

// A large id is never remembered, see IdSet.
bool was_opened(const IdSet& set, std::int64_t id) { return IdSet::is_small(id) && set.has(id); }

Branch make_branch(Query query, Condition condition) {
  Need need = script_need(query);
  const bool needs = condition.needs_script();
  const TimeSpan span = time_span(query);
  return {std::move(query), std::move(condition), std::move(need), needs, span};
}

bool reads_only_environments(const Condition& condition) {
  using Source = Condition::Source;
  return condition.needs_environment() && !condition.reads(Source::kRow) &&
         !condition.reads(Source::kOutcome) && !condition.reads(Source::kScript);
}

Query any_of(std::vector<Query> children) {
  if (children.size() == 1) {
    Query only = std::move(children.front());
    return only;
  }
  Query query;
  query.kind = Query::Kind::kOr;
  query.children = std::move(children);
  return query;
}

}  // namespace

Result<std::vector<Branch>> branches_of(const Query& query) {
  auto whole = Condition::create(query);
  if (!whole) return whole.error();
  std::vector<Query> of_scripts;
  std::vector<Query> others;
  if (query.kind == Query::Kind::kOr) {
    for (const Query& child : query.children) {
      const auto condition = Condition::create(child);
      const bool by_words = condition && condition->needs_script();
      (by_words ? of_scripts : others).push_back(child);
    }
  }
  std::vector<Branch> branches;
  if (of_scripts.empty() || others.empty()) {
    branches.push_back(make_branch(query, *std::move(whole)));
    return branches;
  }
  for (std::vector<Query>* const side : {&of_scripts, &others}) {
    Query part = any_of(std::move(*side));
    auto condition = Condition::create(part);
    if (!condition) return condition.error();
    branches.push_back(make_branch(std::move(part), *std::move(condition)));
  }
  return branches;
}

BranchSearch::BranchSearch(SearchReader& reader, const Branch& branch, const Visibility& visibility,
                           Budget& budget, MatchTaker& taker, IdSet& found, std::int64_t newest,
                           std::size_t most_jobs)
    : reader_(reader),
      branch_(branch),
      visibility_(visibility),
      budget_(budget),
      taker_(taker),
      found_(found),
      newest_(newest),
      most_jobs_(most_jobs),
      fields_(reader),
      judge_(reader, branch.condition, visibility),
      words_(reader.db(), "SELECT rowid FROM words WHERE words MATCH ?"),
      block_times_(reader.db(), "SELECT owner, newest, oldest FROM script_blocks WHERE id = ?"),
      all_blocks_(reader.db(), "SELECT id, owner, newest, oldest FROM script_blocks"),
      more_blocks_(reader.db(),
                   "SELECT newest, id FROM script_blocks WHERE (newest, id) < (?, ?) "
                   "ORDER BY newest DESC, id DESC LIMIT ?"),
      places_(reader.db(), "SELECT list FROM places WHERE id = ?"),
      pairs_(reader.db(), "SELECT filter FROM pairs WHERE id = ?"),
      frequent_(reader.db()),
      young_blocks_(reader.db(),
                    "SELECT s.id, p.filter FROM script_blocks s LEFT JOIN pairs p ON p.id = s.id "
                    "WHERE s.young"),
      without_script_(reader.db(), "SELECT id FROM jobs WHERE script IS NULL LIMIT ?"),
      has_pairs_(has_pairs(branch.need)),
      has_words_together_(has_words_together(branch.need)),
      only_environments_(reads_only_environments(branch.condition)) {}

// ---- which candidates there are

IdSet BranchSearch::find_words(const std::string& expression) {
  IdSet set;
  words_.bind(std::string_view(expression));
  while (words_.step()) set.add(words_.integer(0));
  if (reader_.db().ok() || budget_.was_over()) return set;
  // Without the index every block is read.
  const auto error = reader_.db().take_error();
  reader_.add_problem("the index of words: " + error->message());
  return IdSet::all();
}

void BranchSearch::plan() {
  judge_.forget();
  listed_.clear();
  block_queue_.clear();
  more_blocks_left_ = false;

  const bool by_words = branch_.need.kind != Need::Kind::kAnything;
  const bool by_row = !by_words && !branch_.needs_script;
  owners_ = fields_.owners(branch_.query, visibility_);
  const auto jobs = jobs_of_owners();
  if (jobs && by_row) return plan_jobs(*jobs);
  const auto find = [&](const std::string& words) { return find_words(words); };
  blocks_ = by_words ? blocks_of(branch_.need, find) : IdSet::all();
  unwanted_.clear();
  if (has_words_together_) {
    unwanted_ = unwanted_words(branch_.need, find);
    blocks_ = std::move(blocks_) - frequent_.blocks_without(branch_.need);
  }
  if (by_words) add_young_blocks();
  const auto costs_less = [&](std::uint64_t cost) {
    const std::uint64_t blocks = blocks_.is_unlimited()
                                     ? reader_.db().number("SELECT count(*) FROM script_blocks")
                                     : blocks_.size();
    return cost < blocks * kCostOfBlock;
  };
  if (jobs && costs_less(jobs->size() * kCostOfJob)) return plan_jobs(*jobs);
  in_time_ = chunks_in_time();
  IdSet chunks = fields_.chunks(branch_.query);
  chunks &= fields_.visible_chunks(visibility_);
  if (by_row || (!chunks.is_unlimited() && costs_less(chunks.size() * kCostOfChunk)))
    return plan_chunks(Kind::kChunk, chunks);
  plan_pending();
  if (!branch_.needs_script) plan_without_script(chunks);
  plan_blocks();
}

// The index does not have their words.
void BranchSearch::add_young_blocks() {
  young_ = {};
  young_blocks_.bind();
  while (young_blocks_.step()) {
    const std::int64_t id = young_blocks_.integer(0);
    young_.add(id);
    if (young_blocks_.is_null(1) || words_allow(branch_.need, young_blocks_.text(1)))
      blocks_.add(id);
  }
}

// Nothing if they are many, or may be anyone's.
std::optional<std::vector<SearchReader::TimedJob>> BranchSearch::jobs_of_owners() {
  if (!owners_ || owners_->size() > kMostOwnersAsked) return std::nullopt;
  auto jobs = reader_.jobs_of(*owners_, branch_.span.from, std::min(branch_.span.to, newest_),
                              most_jobs_ + 1);
  if (jobs.size() > most_jobs_) return std::nullopt;
  return jobs;
}

void BranchSearch::plan_jobs(const std::vector<SearchReader::TimedJob>& jobs) {
  for (const auto& [id, time] : jobs) {
    if (!was_opened(opened_jobs_, id)) listed_.push_back({time, Kind::kJob, id});
  }
  std::sort(listed_.begin(), listed_.end(), by_age);
}

// Those that can have a job of the time in question. The fields of others are not read.
std::vector<SearchReader::Chunk> BranchSearch::chunks_in_time() {
  std::vector<SearchReader::Chunk> chunks = reader_.chunks();
  std::erase_if(chunks, [&](const SearchReader::Chunk& chunk) {
    return chunk.newest < branch_.span.from || chunk.oldest > std::min(branch_.span.to, newest_);
  });
  const auto [first, last] =
      std::ranges::minmax_element(chunks, {}, [](const auto& chunk) { return chunk.id; });
  // A chunk's number that cannot be one is damage.
  if (first != chunks.end()) {
    fields_.limit(
        {.first = std::max<std::int64_t>(first->id, 0), .last = std::min(last->id, kLastChunk)});
  }
  return chunks;
}

void BranchSearch::plan_chunks(Kind kind, const IdSet& chunks) {
  for (const SearchReader::Chunk& chunk : in_time_) {
    if (chunks.has(chunk.id) && !was_opened(opened_chunks_, chunk.id))
      listed_.push_back({chunk.newest, kind, chunk.id});
  }
  std::sort(listed_.begin(), listed_.end(), by_age);
}

void BranchSearch::plan_pending() {
  for (const auto& [id, script] : reader_.waiting_scripts()) {
    if (!was_opened(opened_pending_, id) &&
        is_wanted_block(0, script.owner, script.newest, kEarliest))
      listed_.push_back({script.newest, Kind::kPending, id});
  }
}

void BranchSearch::plan_without_script(const IdSet& chunks) {
  IdSet with_such;
  std::size_t count = 0;
  without_script_.bind(kMostWithoutScript + 1);
  while (without_script_.step()) {
    with_such.add(without_script_.integer(0) / kChunkJobs);
    ++count;
  }
  if (count > kMostWithoutScript) with_such = IdSet::all();
  with_such &= chunks;
  plan_chunks(Kind::kChunkWithoutScript, with_such);
}

bool BranchSearch::is_wanted_block(std::int64_t id, std::int64_t owner, std::int64_t newest,
                                   std::int64_t oldest) const {
  if (id != 0 && (!blocks_.has(id) || was_opened(opened_blocks_, id))) return false;
  if (newest < branch_.span.from || oldest > std::min(branch_.span.to, newest_)) return false;
  return !owners_ || std::binary_search(owners_->begin(), owners_->end(), owner);
}

void BranchSearch::plan_blocks() {
  std::sort(listed_.begin(), listed_.end(), by_age);
  if (!blocks_.is_unlimited() && blocks_.size() <= kFewBlocks) {
    load_listed_blocks();
  } else if (owners_) {
    load_all_blocks();
  } else {
    more_blocks_left_ = true;
    last_block_time_ = kLatest;
    last_block_ = kLatest;
  }
  std::sort(block_queue_.begin(), block_queue_.end(), by_age);
}

void BranchSearch::load_listed_blocks() {
  blocks_.for_each([&](std::int64_t id) {
    if (!block_times_.bind(id).step()) return block_times_.reset();
    const std::int64_t newest = block_times_.integer(1);
    if (is_wanted_block(id, block_times_.integer(0), newest, block_times_.integer(2)))
      block_queue_.push_back({newest, Kind::kBlock, id});
    block_times_.reset();
  });
}

void BranchSearch::load_all_blocks() {
  all_blocks_.bind();
  while (all_blocks_.step()) {
    const std::int64_t id = all_blocks_.integer(0);
    const std::int64_t newest = all_blocks_.integer(2);
    if (is_wanted_block(id, all_blocks_.integer(1), newest, all_blocks_.integer(3)))
      block_queue_.push_back({newest, Kind::kBlock, id});
  }
}

void BranchSearch::load_more_blocks() {
  while (more_blocks_left_ && block_queue_.empty() && reader_.db().ok() && !budget_.is_over()) {
    std::size_t count = 0;
    more_blocks_.bind(last_block_time_, last_block_, kBlocksAtOnce);
    while (more_blocks_.step()) {
      ++count;
      last_block_time_ = more_blocks_.integer(0);
      last_block_ = more_blocks_.integer(1);
      if (!is_wanted_block(last_block_, 0, last_block_time_, kEarliest)) continue;
      if (newest_ != kLatest || branch_.span.to != kLatest) {
        const bool there = block_times_.bind(last_block_).step();
        const std::int64_t oldest = there ? block_times_.integer(2) : kLatest;
        block_times_.reset();
        if (oldest > std::min(branch_.span.to, newest_)) continue;
      }
      block_queue_.push_back({last_block_time_, Kind::kBlock, last_block_});
    }
    if (count < kBlocksAtOnce || last_block_time_ < branch_.span.from) more_blocks_left_ = false;
  }
  std::reverse(block_queue_.begin(), block_queue_.end());
}

// ---- in which order they are opened

std::vector<BranchSearch::Candidate>* BranchSearch::next_list() {
  if (block_queue_.empty() && more_blocks_left_) load_more_blocks();
  if (block_queue_.empty() && listed_.empty()) return nullptr;
  if (block_queue_.empty()) return &listed_;
  if (listed_.empty()) return &block_queue_;
  return listed_.back().newest > block_queue_.back().newest ? &listed_ : &block_queue_;
}

std::optional<std::int64_t> BranchSearch::newest_left() {
  const std::vector<Candidate>* const list = next_list();
  if (list != nullptr) return list->back().newest;
  if (more_blocks_left_) return last_block_time_;  // the budget ended while they were read
  return std::nullopt;
}

void BranchSearch::skip() {
  std::vector<Candidate>* const list = next_list();
  if (list == nullptr) return;
  const Candidate candidate = list->back();
  list->pop_back();
  switch (candidate.kind) {
    case Kind::kBlock: opened_blocks_.add(candidate.id); break;
    case Kind::kPending: opened_pending_.add(candidate.id); break;
    case Kind::kChunk:
    case Kind::kChunkWithoutScript: opened_chunks_.add(candidate.id); break;
    case Kind::kJob: opened_jobs_.add(candidate.id); break;
  }
}

void BranchSearch::step() {
  const std::vector<Candidate>* const list = next_list();
  if (list == nullptr) return;
  const Candidate candidate = list->back();
  switch (candidate.kind) {
    case Kind::kBlock: open_block(candidate.id); break;
    case Kind::kPending: open_pending(candidate.id); break;
    case Kind::kChunk:
    case Kind::kChunkWithoutScript: open_chunk(candidate); break;
    case Kind::kJob:
      if (const auto job = reader_.job(candidate.id)) consider(*job, std::nullopt);
      break;
  }
  if (budget_.was_over() || !reader_.db().ok()) return;
  skip();
}

// ---- what is in them

bool BranchSearch::filters_allow(std::int64_t block) {
  if (was_opened(young_, block)) return true;
  const auto allow = [&](sqlite::Statement& filter, auto decide) {
    const bool allowed = !filter.bind(block).step() || decide(branch_.need, filter.text(0));
    filter.reset();
    return allowed;
  };
  return (!has_pairs_ || allow(pairs_, pairs_allow)) &&
         (!has_words_together_ || allow(places_, [&](const Need& need, std::string_view places) {
           return places_allow(need, places, [&](const std::string& word) {
             const auto with_word = unwanted_.find(word);
             // Without the index, nothing is known of any block.
             return with_word != unwanted_.end() && !with_word->second.is_unlimited() &&
                    IdSet::is_small(block) && with_word->second.has(block);
           });
         }));
}

void BranchSearch::open_block(std::int64_t id) {
  if (!filters_allow(id)) return;
  const auto row = reader_.scan_block(id);
  if (!row) return;
  const BlockLeaves leaves = judge_.by_block(row->block);
  const Truths& truths = leaves.truths();
  if (truths.possible.empty()) return;
  // The lines of a hit are read from it once more.
  reader_.keep_block(id, row);
  truths.possible.for_each([&](std::int64_t at) {
    const auto place = static_cast<std::size_t>(at);
    if (budget_.is_over() || !reader_.db().ok()) return;
    const Text text{row->block[place], truths.certain.has(at) ? Truth::kYes : Truth::kOpen};
    if (reader_.is_at(row->ids[place], id, place)) consider_script(row->ids[place], text);
  });
}

void BranchSearch::open_pending(std::int64_t content) {
  const auto script = reader_.waiting_text(content);
  if (!script) return;
  const Text text{script->bytes, judge_.by_script(script->bytes)};
  if (text.truth != Truth::kNo) consider_script(content, text);
}

void BranchSearch::consider_script(std::int64_t content, const Text& text) {
  reader_.for_each_job_of_script(content, [&](const RawJob& job) {
    if (!budget_.was_over()) consider(job, text);
  });
}

void BranchSearch::consider(const RawJob& job, const std::optional<Text>& script) {
  const Position position{job.time, reader_.segment(), job.id};
  ++jobs_seen_;
  if (!taker_.wants(position) || was_opened(found_, job.id)) return;
  if (!judge_.is_visible(job)) return;
  if (!script || script->truth == Truth::kOpen) {
    const Truth truth = judge_.by_row(job);
    if (truth == Truth::kNo) return;
    if (truth == Truth::kOpen) {
      if (!script && !may_hold(job)) return;
      const auto bytes = script ? std::optional(script->bytes) : std::nullopt;
      if (!judge_.matches(job, bytes)) return;
    }
  }
  if (!reader_.db().ok()) return;
  found_.add(job.id);
  taker_.take(position, job);
}

// Whether the job's script is in a block that has the words, or in none.
bool BranchSearch::may_hold(const RawJob& job) {
  if (job.script == 0 || branch_.need.kind == Need::Kind::kAnything) return true;
  const auto place = reader_.place_of(job.script);
  return !place || place->block == 0 || blocks_.has(place->block);
}

// Reads of a job's row only what leads to its environment, unless that can match.
void BranchSearch::open_chunk_by_environment(std::int64_t chunk) {
  struct Short {
    std::int64_t time;
    std::int64_t id;
    std::int64_t environment;
  };
  std::vector<Short> jobs;
  std::int64_t first = kLatest;
  std::int64_t last = 0;
  reader_.for_each_environment(chunk, [&](std::int64_t id, std::int64_t time, std::int64_t of) {
    if (of == 0 || !taker_.wants({time, reader_.segment(), id})) return;
    jobs.push_back({time, id, of});
    first = std::min(first, of);
    last = std::max(last, of);
  });
  if (!jobs.empty() && last - first < kMostPlacesRead) reader_.read_places(first, last);
  std::sort(jobs.begin(), jobs.end(), [](const Short& a, const Short& b) {
    return std::pair(a.time, a.id) > std::pair(b.time, b.id);
  });
  for (const Short& job : jobs) {
    if (budget_.is_over() || !reader_.db().ok()) return;
    if (!taker_.wants({job.time, reader_.segment(), job.id})) continue;
    if (judge_.by_environment(job.environment) == Truth::kNo) {
      ++jobs_seen_;
      continue;
    }
    if (const auto row = reader_.job(job.id)) consider(*row, std::nullopt);
  }
}

void BranchSearch::open_chunk(const Candidate& candidate) {
  if (candidate.kind == Kind::kChunk && only_environments_)
    return open_chunk_by_environment(candidate.id);
  std::vector<RawJob> jobs;
  reader_.for_each_job(candidate.id, owners_, [&](const RawJob& job) {
    if (candidate.kind == Kind::kChunkWithoutScript && job.script != 0) return;
    if (taker_.wants({job.time, reader_.segment(), job.id})) jobs.push_back(job);
  });
  // The newest first: with enough of them the rest is not wanted any more.
  std::sort(jobs.begin(), jobs.end(), [](const RawJob& a, const RawJob& b) {
    return std::pair(a.time, a.id) > std::pair(b.time, b.id);
  });
  for (const RawJob& job : jobs) {
    if (budget_.is_over() || !reader_.db().ok()) return;
    consider(job, std::nullopt);
  }
}

}  // namespace scriptorium::catalog
