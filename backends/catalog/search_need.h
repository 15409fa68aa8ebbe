#pragma once

#include <cstdint>
#include <functional>
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
// Whether two words must be in one script.
bool has_words_together(const Need& need);
// Whether one script of a block has the words, by the block's `places.list`.
bool places_allow(const Need& need, std::string_view places);
// The same for the filter of words that a young block has.
bool words_allow(const Need& need, std::string_view filter);

}  // namespace scriptorium::catalog
