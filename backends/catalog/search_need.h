#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/catalog/id_set.h"
#include "core/api/query.h"

// What a query asks of the index of words: which blocks of scripts can have a script for which the
// query holds. Too many blocks are harmless, since the texts decide; one too few would lose a job.
// Pure.
namespace scriptorium::catalog {

class ExpressionLiterals;

struct Need {
  enum class Kind : std::uint8_t {
    kAnything,    // every block
    kWord,        // `word`, with `prefix` a word that begins so
    kPair,        // `word` and after it `second`; not in `words`, but in the block's filter
    kNotInAll,    // not each script has `word` (with `prefix`: one that begins so)
    kExpression,  // `literals` decides by which of the children hold
    kAnd,         // children: two or more
    kOr,          // children: two or more
  };
  Kind kind = Kind::kAnything;
  std::string word;
  std::string second;
  bool prefix = false;
  std::vector<Need> children;
  std::shared_ptr<const ExpressionLiterals> literals;
};

// Needs of the script in which the query holds, for a job that has one.
Need script_need(const Query& query);

// The blocks that `need` leaves, pairs not considered. `find` answers an FTS5 expression with the
// ids of its rows; the expression holds words of our own (words.h) in double quotes, AND, OR,
// brackets and `*`, and nothing else.
IdSet blocks_of(const Need& need, const std::function<IdSet(const std::string&)>& find);

bool has_pairs(const Need& need);
// Whether the filter of a block lets `need` hold, words not considered.
bool pairs_allow(const Need& need, std::string_view filter);
// Whether one script must have two words, or one and not another.
bool has_words_together(const Need& need);
// The words that a script must not have, and the blocks that have them; `find` as of blocks_of().
std::map<std::string, IdSet> unwanted_words(const Need& need,
                                            const std::function<IdSet(const std::string&)>& find);
// Whether one script of a block has the words, and not those that it must not have, by the block's
// `places.list`. `is_in_block`: whether the block is known to have a word.
bool places_allow(const Need& need, std::string_view places,
                  const std::function<bool(const std::string&)>& is_in_block);
// Of numbered scripts those in which `need` can hold; with(word) and without(word): those that can
// have it, and those that can lack it; with_pair(word, second): those in which it can follow.
IdSet scripts_for(const Need& need, const std::function<IdSet(const std::string&)>& with,
                  const std::function<IdSet(const std::string&)>& without,
                  const std::function<IdSet(const std::string&, const std::string&)>& with_pair);
// As places_allow() for the filter of words that a young block has.
bool words_allow(const Need& need, std::string_view filter);

}  // namespace scriptorium::catalog
