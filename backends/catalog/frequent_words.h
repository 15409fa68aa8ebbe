#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/catalog/block.h"
#include "backends/catalog/id_set.h"
#include "backends/catalog/search_need.h"
#include "core/api/kit/sqlite/connection.h"
#include "core/base/time.h"

// `frequent` of a finished segment: which of its scripts have a word, for the words that many of
// its blocks have. Two such words are often in the same blocks and seldom in one script: these
// lists say so of a whole segment at once, where `places` (words.h), of which they are made, does
// of a block.
//
// A row for each such word: a block (block.h) of two contents. Bit N of the first says whether the
// segment's script N can have it, and the second is a list of the blocks in which a script with
// that bit may lack it. The rows kFrequentBlocks and kFrequentFirst, which are written last, have
// the ids of the blocks that are covered (ascending), and the number of the first script of each
// and then how many there are. Lists of numbers are pack_ids(). As in `places`, a script may be a
// part of a large block. A block that is not covered, as a young one or one that came later, is
// looked at by itself; a covered one is never changed.
namespace scriptorium::catalog {

inline constexpr std::string_view kFrequentBlocks = "-";  // neither is a word
inline constexpr std::string_view kFrequentFirst = " ";

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

  // The words are taken in rounds, so that their bits fit into memory; the next one is the last.
  std::vector<std::string> words_left_;
  std::vector<std::int64_t> blocks_;  // to be covered; from the second round on those that are
  std::vector<std::int64_t> first_;   // empty before the end of the first round
  std::size_t next_block_ = 0;        // of this round
  FrequentLists lists_;               // of this round, without the words that are written
};

class FrequentWords {
 public:
  explicit FrequentWords(sqlite::Connection& db);
  // Blocks of which no script lets `need` hold. A damaged list says nothing.
  IdSet blocks_without(const Need& need);
  // Whether the lists are those of the segment's blocks; true also if there are none.
  bool check();

 private:
  std::optional<Block> list(std::string_view word);
  std::optional<std::vector<std::int64_t>> ids(std::string_view name);

  sqlite::Connection& db_;
  sqlite::Statement select_;
};

}  // namespace scriptorium::catalog
