#include "backends/catalog/search_need.h"

#include <re2/filtered_re2.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "backends/catalog/words.h"

namespace scriptorium::catalog {
namespace {

// More words or literals than these narrow no further, and each costs a look into the index.
constexpr std::size_t kMostWordsOfText = 24;
constexpr std::size_t kMostLiterals = 32;
constexpr int kShortestLiteral = 3;
constexpr std::size_t kShortestPrefix = 2;

Need word(std::string_view text, bool prefix) {
  Need need;
  need.kind = Need::Kind::kWord;
  need.word = text;
  need.prefix = prefix;
  return need;
}

Need combined(Need::Kind kind, std::vector<Need> children) {
  const bool all = kind == Need::Kind::kAnd;
  Need need;
  for (Need& child : children) {
    if (child.kind == Need::Kind::kAnything) {
      if (!all) return {};
      continue;
    }
    if (child.kind == kind) {
      std::move(child.children.begin(), child.children.end(), std::back_inserter(need.children));
    } else {
      need.children.push_back(std::move(child));
    }
  }
  if (need.children.empty()) return {};
  if (need.children.size() == 1) {
    Need only = std::move(need.children.front());
    return only;
  }
  need.kind = kind;
  return need;
}

// Each word within the text is a whole word of a script that has the text: what is beside the
// text's first and last byte does not continue a word, except for a prefix.
Need text_need(const Query& query) {
  std::vector<std::string> words = words_of_text(query.text);
  const bool whole = words.size() <= kMostWordsOfText;
  if (!whole) words.resize(kMostWordsOfText);
  const bool open =
      whole && query.prefix && !query.text.empty() && is_indexed_byte(query.text.back());
  std::vector<Need> needs;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool last = i + 1 == words.size();
    if (last && open) {
      if (words[i].size() >= kShortestPrefix || words.size() == 1)
        needs.push_back(word(words[i], true));
      break;
    }
    needs.push_back(word(words[i], false));
    if (last || (i + 2 == words.size() && open)) continue;
    Need pair;
    pair.kind = Need::Kind::kPair;
    pair.word = words[i];
    pair.second = words[i + 1];
    needs.push_back(std::move(pair));
  }
  return combined(Need::Kind::kAnd, std::move(needs));
}

// A block whose scripts all have the word has none without it. Only for a text that is one word and
// nothing else, since the index knows no more.
Need without_text(const Query& query) {
  if (query.part != JobPart::kScript || query.text.empty() || query.text.size() >= kMostWordBytes ||
      !std::all_of(query.text.begin(), query.text.end(), is_indexed_byte))
    return {};
  Need need = word(words_of_text(query.text).front(), query.prefix);
  need.kind = Need::Kind::kNotInAll;
  return need;
}

}  // namespace

// Which literals (in lower case) a match of an expression has, as RE2 knows it.
class ExpressionLiterals {
 public:
  explicit ExpressionLiterals(const Query& query) : filter_(kShortestLiteral) {
    re2::RE2::Options options(re2::RE2::Quiet);
    options.set_encoding(re2::RE2::Options::EncodingLatin1);
    options.set_max_mem(std::int64_t{8} << 20);
    options.set_case_sensitive(!query.ignore_case);
    int id = 0;
    if (filter_.Add("(?m)" + query.text, options, &id) == re2::RE2::NoError)
      filter_.Compile(&literals_);
  }

  const std::vector<std::string>& list() const noexcept { return literals_; }
  bool allow(const std::vector<int>& present) const {
    std::vector<int> possible;
    filter_.AllPotentials(present, &possible);
    return !possible.empty();
  }

 private:
  re2::FilteredRE2 filter_;
  std::vector<std::string> literals_;
};

namespace {

// A literal may lie within longer words of the script, so only a word that the literal itself ends
// is known whole.
Need literal_need(std::string_view literal) {
  std::vector<Need> needs;
  for (std::size_t at = 0; at < literal.size();) {
    if (static_cast<unsigned char>(literal[at]) >= 0x80) return {};  // folded as Latin-1
    if (!is_indexed_byte(literal[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < literal.size() && is_indexed_byte(literal[end])) ++end;
    const std::string_view run = literal.substr(at, std::min(end - at, kMostWordBytes));
    const bool open = end == literal.size();
    if (at > 0 && (!open || run.size() >= kShortestPrefix)) needs.push_back(word(run, open));
    at = end;
  }
  return combined(Need::Kind::kAnd, std::move(needs));
}

Need expression_need(const Query& query) {
  Need need;
  need.literals = std::make_shared<const ExpressionLiterals>(query);
  const auto& literals = need.literals->list();
  if (literals.empty() || literals.size() > kMostLiterals) return {};
  bool narrows = false;
  for (const std::string& literal : literals) {
    need.children.push_back(literal_need(literal));
    narrows = narrows || need.children.back().kind != Need::Kind::kAnything;
  }
  if (!narrows) return {};
  need.kind = Need::Kind::kExpression;
  return need;
}

Need need_of(const Query& query, bool negated) {
  switch (query.kind) {
    case Query::Kind::kAnd:
    case Query::Kind::kOr: {
      std::vector<Need> needs;
      for (const Query& child : query.children) needs.push_back(need_of(child, negated));
      const bool all = (query.kind == Query::Kind::kAnd) != negated;
      return combined(all ? Need::Kind::kAnd : Need::Kind::kOr, std::move(needs));
    }
    case Query::Kind::kNot:
      return query.children.empty() ? Need{} : need_of(query.children.front(), !negated);
    case Query::Kind::kText:
      if (negated) return without_text(query);
      return query.part == JobPart::kScript ? text_need(query) : Need{};
    case Query::Kind::kExpression:
      return negated || query.part != JobPart::kScript ? Need{} : expression_need(query);
    case Query::Kind::kAll:
    case Query::Kind::kField:
    case Query::Kind::kRange:
    case Query::Kind::kVariable: return {};
  }
  return {};
}

bool is_of_words(const Need& need) {
  if (need.kind == Need::Kind::kWord) return true;
  return (need.kind == Need::Kind::kAnd || need.kind == Need::Kind::kOr) &&
         std::all_of(need.children.begin(), need.children.end(), is_of_words);
}

std::string quoted(const Need& need, std::string_view mark = {}) {
  std::string text = "\"";
  text += mark;
  text += need.word;  // is_indexed_byte() alone
  return text + (need.prefix ? "\" *" : "\"");
}

// The blocks whose scripts all have the word.
std::string in_all(const Need& need) {
  const std::string mark(1, kInAll);
  return quoted(need, mark) + " OR (\"" + mark + "\" AND " + quoted(need) + ")";
}

std::string match_of(const Need& need);
std::string match_of(const std::vector<const Need*>& needs, std::string_view between) {
  std::string text;
  for (const Need* const need : needs) {
    if (!text.empty()) text += between;
    const bool alone = need->kind == Need::Kind::kWord || needs.size() == 1;
    text += alone ? match_of(*need) : "(" + match_of(*need) + ")";
  }
  return text;
}
std::string match_of(const Need& need) {
  if (need.kind == Need::Kind::kWord) return quoted(need);
  std::vector<const Need*> children;
  for (const Need& child : need.children) children.push_back(&child);
  return match_of(children, need.kind == Need::Kind::kAnd ? " AND " : " OR ");
}

using Find = std::function<IdSet(const std::string&)>;

IdSet blocks_of_expression(const Need& need, const Find& find) {
  std::vector<IdSet> sets;
  for (const Need& child : need.children) sets.push_back(blocks_of(child, find));
  std::unordered_map<std::uint64_t, bool> decided;
  const auto allowed = [&](std::uint64_t present) {
    const auto [place, is_new] = decided.try_emplace(present, false);
    if (is_new) {
      std::vector<int> list;
      for (std::size_t i = 0; i < sets.size(); ++i) {
        if ((present >> i & 1) != 0) list.push_back(static_cast<int>(i));
      }
      place->second = need.literals->allow(list);
    }
    return place->second;
  };
  std::uint64_t everywhere = 0;
  IdSet named;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].is_unlimited()) {
      everywhere |= std::uint64_t{1} << i;
    } else {
      named |= sets[i];
    }
  }
  if (allowed(everywhere)) return IdSet::all();  // also without any of the sets
  IdSet result;
  named.for_each([&](std::int64_t id) {
    std::uint64_t present = everywhere;
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if (sets[i].has(id)) present |= std::uint64_t{1} << i;
    }
    if (allowed(present)) result.add(id);
  });
  return result;
}

// Words of one level go into one expression: FTS5 merges their lists faster than we do.
IdSet blocks_of_children(const Need& need, const Find& find) {
  const bool all = need.kind == Need::Kind::kAnd;
  std::vector<const Need*> words;
  IdSet result = all ? IdSet::all() : IdSet();
  const auto take = [&](const IdSet& set) { all ? result &= set : result |= set; };
  for (const Need& child : need.children) {
    if (is_of_words(child)) words.push_back(&child);
  }
  if (!words.empty()) take(find(match_of(words, all ? " AND " : " OR ")));
  for (const Need& child : need.children) {
    if (!is_of_words(child)) take(blocks_of(child, find));
  }
  return result;
}

}  // namespace

Need script_need(const Query& query) { return need_of(query, false); }

IdSet blocks_of(const Need& need, const Find& find) {
  switch (need.kind) {
    case Need::Kind::kAnything:
    case Need::Kind::kPair: return IdSet::all();
    case Need::Kind::kWord: return find(quoted(need));
    case Need::Kind::kNotInAll: return ~find(in_all(need));
    case Need::Kind::kExpression: return blocks_of_expression(need, find);
    case Need::Kind::kAnd:
    case Need::Kind::kOr: return blocks_of_children(need, find);
  }
  return IdSet::all();
}

bool has_pairs(const Need& need) {
  return need.kind == Need::Kind::kPair ||
         std::any_of(need.children.begin(), need.children.end(), has_pairs);
}

bool pairs_allow(const Need& need, std::string_view filter) {
  const auto allow = [&](const Need& child) { return pairs_allow(child, filter); };
  switch (need.kind) {
    case Need::Kind::kPair: return may_have_pair(filter, need.word, need.second);
    case Need::Kind::kAnd: return std::all_of(need.children.begin(), need.children.end(), allow);
    case Need::Kind::kOr: return std::any_of(need.children.begin(), need.children.end(), allow);
    case Need::Kind::kAnything:
    case Need::Kind::kWord:
    case Need::Kind::kNotInAll:
    case Need::Kind::kExpression: return true;
  }
  return true;
}

namespace {

bool has_whole_word(const Need& need, Need::Kind kind) {
  return (need.kind == kind && !need.prefix) ||
         std::any_of(need.children.begin(), need.children.end(),
                     [&](const Need& child) { return has_whole_word(child, kind); });
}

// The scripts in which `need` can hold: `with` and `without` say which have a whole word or lack
// it, and `all` is what is not known.
template <typename Set>
Set possible_scripts(const Need& need, const Set& all,
                     const std::function<Set(const std::string&)>& with,
                     const std::function<Set(const std::string&)>& without,
                     const std::function<Set(const std::string&, const std::string&)>& with_pair) {
  if (need.kind == Need::Kind::kWord && !need.prefix) return with(need.word);
  if (need.kind == Need::Kind::kNotInAll && !need.prefix) return without(need.word);
  if (need.kind == Need::Kind::kPair) return with_pair(need.word, need.second);
  const bool is_and = need.kind == Need::Kind::kAnd;
  if (!is_and && need.kind != Need::Kind::kOr) return all;
  Set scripts = is_and ? all : Set();
  for (const Need& child : need.children) {
    const Set of_child = possible_scripts(child, all, with, without, with_pair);
    is_and ? scripts &= of_child : scripts |= of_child;
  }
  return scripts;
}

}  // namespace

bool has_words_together(const Need& need) {
  const auto count = [&](Need::Kind kind) {
    return std::count_if(need.children.begin(), need.children.end(),
                         [&](const Need& child) { return has_whole_word(child, kind); });
  };
  if (need.kind == Need::Kind::kAnd && count(Need::Kind::kWord) > 0 &&
      count(Need::Kind::kWord) + count(Need::Kind::kNotInAll) > 1)
    return true;
  return std::any_of(need.children.begin(), need.children.end(), has_words_together);
}

std::map<std::string, IdSet> unwanted_words(const Need& need,
                                            const std::function<IdSet(const std::string&)>& find) {
  std::map<std::string, IdSet> words;
  if (need.kind == Need::Kind::kNotInAll && !need.prefix) words[need.word] = find(quoted(need));
  for (const Need& child : need.children) words.merge(unwanted_words(child, find));
  return words;
}

bool places_allow(const Need& need, std::string_view places,
                  const std::function<bool(const std::string&)>& is_in_block) {
  return possible_scripts<Scripts>(
             need, ~Scripts(),
             [&](const std::string& word) { return scripts_with(places, word).possible; },
             [&](const std::string& word) {
               return is_in_block(word) ? ~scripts_with(places, word).certain : ~Scripts();
             },
             [](const std::string&, const std::string&) { return ~Scripts(); })
      .any();
}

IdSet scripts_for(const Need& need, const std::function<IdSet(const std::string&)>& with,
                  const std::function<IdSet(const std::string&)>& without,
                  const std::function<IdSet(const std::string&, const std::string&)>& with_pair) {
  return possible_scripts(need, IdSet::all(), with, without, with_pair);
}

bool words_allow(const Need& need, std::string_view filter) {
  const auto allow = [&](const Need& child) { return words_allow(child, filter); };
  switch (need.kind) {
    case Need::Kind::kWord: return need.prefix || may_have_word(filter, need.word);
    case Need::Kind::kPair:
      return may_have_word(filter, need.word) && may_have_word(filter, need.second);
    case Need::Kind::kAnd: return std::all_of(need.children.begin(), need.children.end(), allow);
    case Need::Kind::kOr: return std::any_of(need.children.begin(), need.children.end(), allow);
    case Need::Kind::kAnything:
    case Need::Kind::kNotInAll:
    case Need::Kind::kExpression: return true;
  }
  return true;
}

}  // namespace scriptorium::catalog
