#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/catalog/frequent_words.h"
#include "backends/catalog/search_budget.h"
#include "backends/catalog/search_chunks.h"
#include "backends/catalog/search_condition.h"
#include "backends/catalog/search_judge.h"
#include "backends/catalog/search_need.h"
#include "backends/catalog/search_position.h"
#include "backends/catalog/search_reader.h"

namespace scriptorium::catalog {

// A query, or one side of its OR, ready to be searched for: a job is found if any branch finds it.
struct Branch {
  Query query;
  Condition condition;
  Need need;
  bool needs_script = false;
  TimeSpan span;
};
// Sides of an OR that need words of the script are searched for in blocks, the others in chunks of
// jobs. kInvalidConfig: as Condition::create().
Result<std::vector<Branch>> branches_of(const Query& query);

// Who takes what is found.
class MatchTaker {
 public:
  MatchTaker() = default;
  MatchTaker(const MatchTaker&) = delete;
  MatchTaker& operator=(const MatchTaker&) = delete;
  virtual ~MatchTaker() = default;
  // Whether a match there would make a difference.
  virtual bool wants(const Position& position) = 0;
  virtual void take(const Position& position, const RawJob& job) = 0;
};

// The search for one branch in one segment, as a list of candidates (blocks of scripts, pending
// scripts, chunks of jobs, jobs) that are opened newest first.
// Borrows everything. Threads: one at a time. Errors stick to the reader's connection.
class BranchSearch {
 public:
  // Jobs after `newest` (a time) are not wanted. most_jobs: SearchLimits::jobs_of_owners.
  BranchSearch(SearchReader& reader, const Branch& branch, const Visibility& visibility,
               Budget& budget, MatchTaker& taker, IdSet& found, std::int64_t newest,
               std::size_t most_jobs);

  // Makes the list of candidates, again if the segment has changed since; what was opened is left
  // out.
  void plan();
  // No job that is found later is newer. Nothing: all candidates are opened.
  std::optional<std::int64_t> newest_left();
  // Opens the next candidate, which stays the next if the budget ends meanwhile.
  void step();
  // Leaves out the next candidate, after damage.
  void skip();
  std::uint64_t jobs_seen() const noexcept { return jobs_seen_; }

 private:
  enum class Kind : std::uint8_t { kBlock, kPending, kChunk, kChunkWithoutScript, kJob };
  struct Candidate {
    std::int64_t newest = 0;
    Kind kind = Kind::kBlock;
    std::int64_t id = 0;
  };
  static bool by_age(const Candidate& a, const Candidate& b) noexcept {
    return std::pair(a.newest, a.id) < std::pair(b.newest, b.id);
  }
  struct Text {
    std::string_view bytes;
    Truth truth = Truth::kOpen;  // of the condition, whatever the row
  };

  IdSet find_words(const std::string& expression);
  void add_young_blocks();
  void plan_chunks(Kind kind, const IdSet& chunks);
  std::optional<std::vector<SearchReader::TimedJob>> jobs_of_owners();
  void plan_jobs(const std::vector<SearchReader::TimedJob>& jobs);
  std::vector<SearchReader::Chunk> chunks_in_time();
  void plan_blocks();
  void plan_pending();
  void plan_without_script(const IdSet& chunks);
  void load_listed_blocks();
  void load_all_blocks();
  void load_more_blocks();
  bool is_wanted_block(std::int64_t id, std::int64_t owner, std::int64_t newest,
                       std::int64_t oldest) const;
  std::vector<Candidate>* next_list();

  bool filters_allow(std::int64_t block);
  void open_block(std::int64_t id);
  void open_pending(std::int64_t content);
  void open_chunk(const Candidate& candidate);
  void open_chunk_by_environment(std::int64_t chunk);
  void consider_script(std::int64_t content, const Text& text);
  void consider(const RawJob& job, const std::optional<Text>& script);
  bool may_hold(const RawJob& job);

  SearchReader& reader_;
  const Branch& branch_;
  const Visibility& visibility_;
  Budget& budget_;
  MatchTaker& taker_;
  IdSet& found_;  // jobs that were found, by any branch
  std::int64_t newest_;
  std::size_t most_jobs_;
  FieldIndex fields_;
  Judge judge_;
  sqlite::Statement words_;
  sqlite::Statement block_times_;
  sqlite::Statement all_blocks_;
  sqlite::Statement more_blocks_;
  sqlite::Statement places_;
  sqlite::Statement pairs_;
  FrequentWords frequent_;
  sqlite::Statement young_blocks_;
  sqlite::Statement without_script_;

  IdSet blocks_ = IdSet::all();            // that have what `need` asks for
  std::map<std::string, IdSet> unwanted_;  // unwanted_words(), where they are looked for together
  std::optional<std::vector<std::int64_t>> owners_;
  std::vector<SearchReader::Chunk> in_time_;
  // Candidates that are left, the newest last.
  std::vector<Candidate> listed_;
  std::vector<Candidate> block_queue_;
  // Whether blocks are read as they are needed, and from where.
  bool more_blocks_left_ = false;
  std::int64_t last_block_time_ = 0;
  std::int64_t last_block_ = 0;
  // What was opened.
  IdSet young_;  // blocks without words in the index
  IdSet opened_blocks_;
  IdSet opened_pending_;
  IdSet opened_chunks_;
  IdSet opened_jobs_;
  bool has_pairs_;
  bool has_words_together_;
  bool only_environments_;  // the condition reads nothing else, and needs one
  std::uint64_t jobs_seen_ = 0;
};

}  // namespace scriptorium::catalog
