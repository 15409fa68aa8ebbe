#include "core/api/kit/search/text_matcher.h"

#include <re2/filtered_re2.h>
#include <re2/re2.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/api/kit/search/literal_search.h"
#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium {
namespace {

constexpr std::size_t kMostExpressionBytes = 1024;
constexpr std::int64_t kMostExpressionMemory = std::int64_t{8} << 20;
constexpr unsigned kMostRepeats = 100;
constexpr std::string_view kByLine = "(?m)";
// A literal that every match holds is worth looking for if it is not too short, and if there are
// not too many of them.
constexpr int kShortestAtom = 3;
constexpr std::size_t kMostAtoms = 8;

using Found = std::optional<std::pair<std::size_t, std::size_t>>;

bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

re2::StringPiece piece_of(std::string_view text) noexcept { return {text.data(), text.size()}; }

// ---- texts

// Parts of a text without blanks, in order, with any run of blanks between them.
struct Pieces {
  std::vector<std::string> list;  // lower case
  bool blank_before = false;
  bool blank_after = false;
};

Pieces pieces_of(std::string_view text) {
  Pieces pieces;
  pieces.blank_before = !text.empty() && is_blank(text.front());
  pieces.blank_after = !text.empty() && is_blank(text.back());
  for (std::size_t at = 0; at < text.size();) {
    if (is_blank(text[at])) {
      ++at;
      continue;
    }
    const std::size_t end = std::min(text.find_first_of(" \t", at), text.size());
    pieces.list.push_back(to_lower(text.substr(at, end - at)));
    at = end;
  }
  return pieces;
}

bool folded_equal(std::string_view bytes, std::string_view folded) noexcept {
  for (std::size_t i = 0; i < folded.size(); ++i) {
    if (to_lower(bytes[i]) != folded[i]) return false;
  }
  return true;
}

class Literal {
 public:
  Literal(std::string_view text, bool prefix) : pieces_(pieces_of(text)) {
    if (pieces_.list.empty()) return;
    word_before_ = !pieces_.blank_before && is_word_byte(text.front());
    word_after_ = !pieces_.blank_after && !prefix && is_word_byte(text.back());
    choose_anchor();
    prepare_stream();
  }

  // With `edges` as core/api/query.h says; without, in any surroundings.
  Found find(std::string_view bytes, std::size_t from, bool edges) const {
    if (pieces_.list.empty()) return find_blanks(bytes, from);
    LiteralSearch::Budget budget{.left = 8 * bytes.size() + 4096};
    const LiteralSearch& anchor = edges ? *anchor_ : *loose_anchor_;
    for (std::size_t at = from;;) {
      const auto position = anchor.find(bytes, at, budget);
      if (!position) return std::nullopt;
      if (budget.exhausted) return find_in_stream(bytes, from, edges);
      if (const auto whole = around(bytes, from, *position, edges, budget)) return whole;
      if (budget.exhausted) return find_in_stream(bytes, from, edges);
      at = *position + 1;
    }
  }

 private:
  using Edge = LiteralSearch::Edge;

  void choose_anchor() {
    const auto& list = pieces_.list;
    unsigned least = ~0U;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const LiteralSearch search(list[i]);
      if (search.commonness() >= least) continue;
      least = search.commonness();
      anchor_index_ = i;
    }
    const bool first = anchor_index_ == 0;
    const bool last = anchor_index_ + 1 == list.size();
    const Edge blank_before = first && !pieces_.blank_before ? Edge::kAny : Edge::kBlank;
    const Edge blank_after = last && !pieces_.blank_after ? Edge::kAny : Edge::kBlank;
    loose_anchor_.emplace(list[anchor_index_], blank_before, blank_after);
    anchor_.emplace(list[anchor_index_], first && word_before_ ? Edge::kWord : blank_before,
                    last && word_after_ ? Edge::kWord : blank_after);
  }

  // Text of blanks alone, or none.
  Found find_blanks(std::string_view bytes, std::size_t from) const {
    if (from > bytes.size()) return std::nullopt;
    if (!pieces_.blank_before) return std::pair{from, from};
    const std::size_t begin = bytes.find_first_of(" \t", from);
    if (begin == std::string_view::npos) return std::nullopt;
    return std::pair{begin, std::min(bytes.find_first_not_of(" \t", begin), bytes.size())};
  }

  bool edges_hold(std::string_view bytes, std::size_t begin, std::size_t end) const {
    if (word_before_ && begin > 0 && is_word_byte(bytes[begin - 1])) return false;
    return !(word_after_ && end < bytes.size() && is_word_byte(bytes[end]));
  }

  // The other pieces, seen from where the anchor is.
  Found around(std::string_view bytes, std::size_t from, std::size_t anchor, bool edges,
               LiteralSearch::Budget& budget) const {
    const auto& list = pieces_.list;
    std::size_t begin = anchor;
    const std::size_t least = from;
    std::size_t cost = 0;
    const auto skip_back = [&] {
      const std::size_t before = begin;
      while (begin > least && is_blank(bytes[begin - 1])) --begin;
      cost += before - begin;
      return begin < before;
    };
    bool good = true;
    for (std::size_t i = anchor_index_; good && i-- > 0;) {
      good = skip_back() && begin - least >= list[i].size() &&
             folded_equal(bytes.substr(begin - list[i].size()), list[i]);
      if (good) begin -= list[i].size();
      cost += list[i].size();
    }
    if (good && pieces_.blank_before) good = skip_back();
    std::size_t end = anchor + list[anchor_index_].size();
    const auto skip = [&] {
      const std::size_t before = end;
      while (end < bytes.size() && is_blank(bytes[end])) ++end;
      cost += end - before;
      return end > before;
    };
    for (std::size_t i = anchor_index_ + 1; good && i < list.size(); ++i) {
      good = skip() && bytes.size() - end >= list[i].size() &&
             folded_equal(bytes.substr(end), list[i]);
      if (good) end += list[i].size();
      cost += list[i].size();
    }
    if (good && pieces_.blank_after) good = skip();
    if (cost > budget.left) budget.exhausted = true;
    budget.left -= std::min(cost, budget.left);
    if (!good || (edges && !edges_hold(bytes, begin, end))) return std::nullopt;
    return std::pair{begin, end};
  }

  // ---- for texts that nearly occur at every byte: Knuth, Morris and Pratt's search over the bytes
  // with each run of blanks as one, whose cost does not depend on the text.
  void prepare_stream() {
    if (pieces_.blank_before) stream_ = " ";
    for (std::size_t i = 0; i < pieces_.list.size(); ++i)
      stream_ += (i == 0 ? "" : " ") + pieces_.list[i];
    if (pieces_.blank_after) stream_ += ' ';
    borders_.assign(stream_.size(), 0);
    for (std::size_t i = 1; i < stream_.size(); ++i) {
      std::size_t border = borders_[i - 1];
      while (border > 0 && stream_[i] != stream_[border]) border = borders_[border - 1];
      borders_[i] = stream_[i] == stream_[border] ? border + 1 : 0;
    }
  }

  Found find_in_stream(std::string_view bytes, std::size_t from, bool edges) const {
    const std::size_t size = stream_.size();
    std::vector<std::size_t> starts(size);  // of the last bytes of the stream, as a ring
    std::size_t count = 0;
    std::size_t matched = 0;
    for (std::size_t at = from; at < bytes.size(); ++at) {
      const bool blank = is_blank(bytes[at]);
      if (blank && at > from && is_blank(bytes[at - 1])) continue;
      const char c = blank ? ' ' : to_lower(bytes[at]);
      starts[count++ % size] = at;
      while (matched > 0 && stream_[matched] != c) matched = borders_[matched - 1];
      if (stream_[matched] == c) ++matched;
      if (matched < size) continue;
      const std::size_t begin = starts[count % size];
      std::size_t end = at + 1;
      while (pieces_.blank_after && end < bytes.size() && is_blank(bytes[end])) ++end;
      if (!edges || edges_hold(bytes, begin, end)) return std::pair{begin, end};
      matched = borders_[matched - 1];
    }
    return std::nullopt;
  }

  Pieces pieces_;
  bool word_before_ = false;
  bool word_after_ = false;
  std::size_t anchor_index_ = 0;
  std::optional<LiteralSearch> anchor_;
  std::optional<LiteralSearch> loose_anchor_;
  std::string stream_;
  std::vector<std::size_t> borders_;
};

// ---- expressions

// The largest count of a repeat such as {3,20}, outside of classes and quoted text.
unsigned most_repeats(std::string_view expression) {
  unsigned most = 0;
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\') {
      if (!in_class && expression.substr(i, 2) == "\\Q") {
        const std::size_t end = expression.find("\\E", i + 2);
        if (end == std::string_view::npos) break;
        i = end;
      }
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
      if (expression.substr(i + 1, 1) == "^") ++i;
      if (expression.substr(i + 1, 1) == "]") ++i;  // the first ] is a member
    } else if (c == '{') {
      std::string_view counts = expression.substr(i + 1);
      const bool whole = counts.find('}') != std::string_view::npos;
      counts = counts.substr(0, counts.find('}'));
      const std::string_view low = take_until(counts, ',');
      if (!whole || !is_all_digits(low) || (!counts.empty() && !is_all_digits(counts))) continue;
      most = std::max({most, parse_number<unsigned>(low).value_or(~0U),
                       counts.empty() ? 0 : parse_number<unsigned>(counts).value_or(~0U)});
    }
  }
  return most;
}

Error refused(std::string message) { return Error{ErrorKind::kInvalidConfig, std::move(message)}; }

class Expression {
 public:
  static Result<Expression> create(const Query& node) {
    if (node.text.size() > kMostExpressionBytes) {
      return refused("the expression has " + std::to_string(node.text.size()) +
                     " bytes; at most 1024 are allowed");
    }
    if (most_repeats(node.text) > kMostRepeats)
      return refused("the expression repeats something more than 100 times");
    re2::RE2::Options options(re2::RE2::Quiet);
    options.set_encoding(re2::RE2::Options::EncodingLatin1);
    options.set_max_mem(kMostExpressionMemory);
    options.set_case_sensitive(!node.ignore_case);
    const std::string pattern = std::string(kByLine) + node.text;
    Expression expression;
    expression.by_variable_ = node.part == JobPart::kEnvironment;
    expression.re_ = std::make_unique<re2::RE2>(piece_of(pattern), options);
    if (!expression.re_->ok()) {
      std::string reason = expression.re_->error();
      if (const std::size_t ours = reason.find(kByLine); ours != std::string::npos)
        reason.erase(ours, kByLine.size());
      return refused("the expression does not compile: " + reason);
    }
    expression.prepare_filter(pattern, options);
    return expression;
  }

  Found find(std::string_view bytes, std::size_t from) const {
    if (from > bytes.size() || !may_match(bytes.substr(from))) return std::nullopt;
    if (!by_variable_) return find_in(bytes, 0, bytes.size(), from);
    // Each variable is a text of its own.
    std::size_t begin = from == 0 ? 0 : bytes.rfind('\0', from - 1) + 1;  // npos + 1 is 0
    for (;;) {
      const std::size_t end = std::min(bytes.find('\0', begin), bytes.size());
      if (const auto found = find_in(bytes, begin, end, std::max(begin, from))) return found;
      if (end + 1 >= bytes.size()) return std::nullopt;
      begin = end + 1;
    }
  }

  // Faster than find(): the automaton stops where it knows, and no begin is looked for.
  bool matches(std::string_view bytes) const {
    if (!may_match(bytes)) return false;
    if (!by_variable_) return matches_in(bytes);
    for (std::size_t begin = 0;;) {
      const std::size_t end = std::min(bytes.find('\0', begin), bytes.size());
      if (matches_in(bytes.substr(begin, end - begin))) return true;
      if (end + 1 >= bytes.size()) return false;
      begin = end + 1;
    }
  }

  std::optional<std::size_t> find_possible(std::string_view bytes, std::size_t from) const {
    if (!is_only_by_atom_ || from > bytes.size()) return from;
    LiteralSearch::Budget budget{.left = 8 * bytes.size() + 4096};
    return atoms_.front().find(bytes, from, budget);
  }

  bool may_match(std::string_view bytes) const {
    if (atoms_.empty()) return true;
    std::vector<int> present;
    for (std::size_t i = 0; i < atoms_.size(); ++i) {
      LiteralSearch::Budget budget{.left = 8 * bytes.size() + 4096};
      if (atoms_[i].find(bytes, 0, budget)) present.push_back(static_cast<int>(i));
    }
    if (present.size() == atoms_.size()) return true;
    std::vector<int> possible;
    filter_->AllPotentials(present, &possible);
    return !possible.empty();
  }

 private:
  // RE2 knows which literals a match must hold; without them it need not run.
  void prepare_filter(const std::string& pattern, const re2::RE2::Options& options) {
    auto filter = std::make_unique<re2::FilteredRE2>(kShortestAtom);
    int id = 0;
    if (filter->Add(piece_of(pattern), options, &id) != re2::RE2::NoError) return;
    std::vector<std::string> atoms;
    filter->Compile(&atoms);
    if (atoms.empty() || atoms.size() > kMostAtoms) return;
    for (const std::string& atom : atoms) {
      if (atom.empty()) return;
    }
    for (const std::string& atom : atoms) atoms_.emplace_back(atom);
    filter_ = std::move(filter);
    is_only_by_atom_ = atoms_.size() == 1 && !may_match({});
  }

  bool matches_in(std::string_view text) const {
    return re_->Match(piece_of(text), 0, text.size(), re2::RE2::UNANCHORED, nullptr, 0);
  }
  Found find_in(std::string_view bytes, std::size_t begin, std::size_t end,
                std::size_t from) const {
    const std::string_view text = bytes.substr(begin, end - begin);
    re2::StringPiece found;
    if (!re_->Match(piece_of(text), from - begin, text.size(), re2::RE2::UNANCHORED, &found, 1))
      return std::nullopt;
    // An empty match at the end of empty bytes has no address.
    const std::size_t at = found.data() == nullptr
                               ? from
                               : begin + static_cast<std::size_t>(found.data() - text.data());
    return std::pair{at, at + found.size()};
  }

  std::unique_ptr<re2::RE2> re_;
  std::unique_ptr<re2::FilteredRE2> filter_;
  std::vector<LiteralSearch> atoms_;  // as numbered by filter_; empty: it may match anything
  bool is_only_by_atom_ = false;      // every match holds the one atom
  bool by_variable_ = false;
};

}  // namespace

struct TextMatcher::Impl {
  std::optional<Literal> literal;
  std::optional<Expression> expression;
};

TextMatcher::TextMatcher(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
TextMatcher::TextMatcher(TextMatcher&&) noexcept = default;
TextMatcher& TextMatcher::operator=(TextMatcher&&) noexcept = default;
TextMatcher::~TextMatcher() = default;

Result<TextMatcher> TextMatcher::create(const Query& node) {
  auto impl = std::make_unique<Impl>();
  if (node.kind == Query::Kind::kText) {
    impl->literal.emplace(node.text, node.prefix);
  } else if (node.kind == Query::Kind::kExpression) {
    auto expression = Expression::create(node);
    if (!expression) return expression.error();
    impl->expression.emplace(*std::move(expression));
  } else {
    return refused("this part of a query is neither a text nor an expression");
  }
  return TextMatcher(std::move(impl));
}

bool TextMatcher::matches(std::string_view bytes) const {
  if (impl_->literal) return impl_->literal->find(bytes, 0, true).has_value();
  return impl_->expression->matches(bytes);
}

Found TextMatcher::find(std::string_view bytes, std::size_t from) const {
  if (impl_->literal) return impl_->literal->find(bytes, from, true);
  return impl_->expression->find(bytes, from);
}

bool TextMatcher::may_match(std::string_view bytes) const {
  if (impl_->literal) return impl_->literal->find(bytes, 0, false).has_value();
  return impl_->expression->may_match(bytes);
}

std::optional<std::size_t> TextMatcher::find_possible(std::string_view bytes,
                                                      std::size_t from) const {
  if (impl_->expression) return impl_->expression->find_possible(bytes, from);
  const auto found = impl_->literal->find(bytes, from, false);
  return found ? std::optional(found->first) : std::nullopt;
}

}  // namespace scriptorium
