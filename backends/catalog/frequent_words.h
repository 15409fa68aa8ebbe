#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backends/catalog/block.h"
#include "backends/catalog/id_set.h"
#include "backends/catalog/search_need.h"
#include "core/api/kit/sqlite/connection.h"
#include "core/base/time.h"

// `frequent` of a finished segment: which of its scripts have a word, for the words that many of
// its blocks have, and which of these words are ever side by side. Two such words are often in the
// same blocks and seldom in one script, or in one script and never in a phrase: these lists say so
// of a whole segment at once, where `places` (words.h), of which they are made, and `pairs` do of a
// block.
//
// A row for each such word: a block (block.h) of three contents. Bit N of the first says whether
// the segment's script N can have it; the second is a list of the blocks in which a script with
// that bit may lack it; the third has those of these words that follow it in a script, each with a
// blank behind it. The third is missing in rows of earlier versions, and if a block could not be
// read. The rows kFrequentBlocks and kFrequentFirst, which are written last, have in their second
// content the ids of the blocks that are covered (ascending), and the number of the first script of
// each and then how many there are. Lists of numbers are pack_ids(). As in `places`, a script may
// be a part of a large block. A block that is not covered, as a young one or one that came later,
// is looked at by itself; a covered one is never changed.
namespace scriptorium::catalog {

inline constexpr std::string_view kFrequentBlocks = "-";  // neither is a word
inline constexpr std::string_view kFrequentFirst = " ";

// Which of some words follow each other in a script (words.h).
class WordPairs {
 public:
  explicit WordPairs(const std::vector<std::string>& words);
  void add(std::string_view first, std::string_view second);
  void add(const Block& scripts);
  bool has_all_of(const Block& scripts) const;
  // The third content of a word's row.
  std::string after(std::string_view first) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const noexcept {
      return std::hash<std::string_view>()(word);
    }
  };
  template <typename Use>
  void for_each_pair(const Block& scripts, Use use) const;

  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> numbers_;
  std::vector<bool> pairs_;  // the first word's number times the number of words, plus the second's
};

// The lists while they are made.
struct FrequentLists {
  struct Word {
    IdSet blocks;                      // that have it, covered or not
    IdSet scripts;                     // that can have it
    std::vector<std::int64_t> unsure;  // as numbers of `blocks`
  };
  // Adds a block with its `places.list`; a damaged list is none.
  void add(std::int64_t id, std::string_view places);

  std::map<std::string, Word> words;
  std::vector<std::int64_t> blocks;
  std::vector<std::int64_t> first{0};
};

// Writes them in short steps, each within the caller's transaction. Errors stick to the connection,
// and the caller then begins with another writer. Threads: one at a time.
class FrequentWordsWriter {
 public:
  // Chooses the words, and removes what an interrupted one has left.
  explicit FrequentWordsWriter(sqlite::Connection& db);
  // Works until then; true: all is written.
  bool step(sqlite::Connection& db, SteadyTime end);

 private:
  void choose_words(sqlite::Connection& db);
  void end_round();

  void add_pairs(sqlite::Statement& data_of_block, std::int64_t block);

  // The words are taken in rounds, so that their bits fit into memory; the next one is the last.
  std::vector<std::string> words_left_;
  std::vector<std::int64_t> blocks_;  // to be covered; from the second round on those that are
  std::vector<std::int64_t> first_;   // empty before the end of the first round
  std::size_t next_block_ = 0;        // of this round
  FrequentLists lists_;               // of this round, without the words that are written
  std::optional<WordPairs> pairs_;    // complete at the end of the first round
};

class FrequentWords {
 public:
  explicit FrequentWords(sqlite::Connection& db);
  // Blocks of which no script lets `need` hold. A damaged list says nothing.
  IdSet blocks_without(const Need& need);
  // Whether the lists are those of the segment's blocks; true also if there are none.
  bool check();
  // Whether the lists have the pairs of a block's scripts; true also if it is not covered.
  bool have_pairs_of(std::int64_t id, const Block& scripts);

 private:
  std::optional<Block> list(std::string_view word);
  std::optional<std::vector<std::int64_t>> ids(std::string_view name);
  std::vector<std::string> words();
  void load_pairs();

  sqlite::Connection& db_;
  sqlite::Statement select_;
  std::optional<std::vector<std::int64_t>> covered_;  // of have_pairs_of(), as the next one
  std::optional<WordPairs> pairs_;
};

}  // namespace scriptorium::catalog
