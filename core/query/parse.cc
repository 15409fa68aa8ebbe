#include "core/query/parse.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/api/kit/search/text_matcher.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"
#include "core/query/field_value.h"

// A parser by recursive descent over the bytes of the query. What stands between blanks is a word;
// only a few characters at its beginning, and a colon behind the name of a field, have a meaning.
namespace scriptorium::query {
namespace {

constexpr std::string_view kQuotesMakeText = "quotes make it text: ";

bool is_space(char c) noexcept {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

std::string quote_for_message(std::string_view text) { return "\"" + printable(text, 40) + "\""; }

// Names that people use for a field.
struct OtherName {
  std::string_view name;
  std::string_view field;
};
constexpr OtherName kOtherNames[] = {{"memory", "mem"},
                                     {"rss", "mem"},
                                     {"cpus", "cpu"},
                                     {"cores", "cpu"},
                                     {"gpus", "gpu"},
                                     {"host", "node"},
                                     {"hosts", "node"},
                                     {"nodes", "node"},
                                     {"nodelist", "node"},
                                     {"date", "submitted"},
                                     {"submit", "submitted"},
                                     {"start", "started"},
                                     {"end", "ended"},
                                     {"id", "job"},
                                     {"jobid", "job"},
                                     {"jobname", "name"},
                                     {"owner", "user"},
                                     {"username", "user"},
                                     {"uid", "user"},
                                     {"group", "account"},
                                     {"project", "account"},
                                     {"queue", "partition"},
                                     {"dir", "workdir"},
                                     {"cwd", "workdir"},
                                     {"directory", "workdir"},
                                     {"path", "workdir"},
                                     {"sha", "script"},
                                     {"hash", "script"},
                                     {"status", "state"},
                                     {"outcome", "state"},
                                     {"modules", "module"},
                                     {"conda", "software"},
                                     {"container", "software"},
                                     {"image", "software"},
                                     {"option", "directive"},
                                     {"sbatch", "directive"},
                                     {"environment", "env"},
                                     {"variable", "env"},
                                     {"duration", "elapsed"},
                                     {"runtime", "elapsed"},
                                     {"walltime", "elapsed"},
                                     {"rc", "exit"},
                                     {"code", "exit"},
                                     {"shell", "interpreter"},
                                     {"problem", "finding"},
                                     {"user.name", "user"},
                                     {"user.id", "user"},
                                     {"job.id", "job"},
                                     {"job.name", "name"},
                                     {"job.account", "account"},
                                     {"job.partition", "partition"},
                                     {"job.qos", "qos"},
                                     {"job.work_dir", "workdir"},
                                     {"job.state", "state"},
                                     {"job.submitted_at", "submitted"},
                                     {"job.ended_at", "ended"},
                                     {"script.modules", "module"},
                                     {"script.software", "software"},
                                     {"script.software.name", "software"},
                                     {"script.directives", "directive"},
                                     {"script.interpreter", "interpreter"},
                                     {"script.sha256", "script"},
                                     {"host.name", "node"}};

std::string likely_field(std::string_view name) {
  const std::string lower = to_lower(name);
  for (const OtherName& other : kOtherNames) {
    if (other.name == lower) return std::string(other.field);
  }
  std::vector<std::string> names = query_field_names();
  for (const char* more : {"since", "until", "before", "after", "time", "env"})
    names.emplace_back(more);
  return did_you_mean(lower, names).value_or("");
}

// What a colon ends the name of.
struct FieldName {
  enum class Kind { kField, kVariable, kEnvironment, kMoment };
  Kind kind = Kind::kField;
  QueryField field = QueryField::kUser;
  MomentWord moment = MomentWord::kSince;
  std::string variable;
  std::string word;  // as typed
};

std::optional<FieldName> field_name_of(std::string_view typed) {
  FieldName name;
  name.word = std::string(typed);
  const std::string lower = to_lower(typed);
  if (lower == "env") {
    name.kind = FieldName::Kind::kEnvironment;
    return name;
  }
  if (lower.starts_with("env.") && lower.size() > 4) {
    name.kind = FieldName::Kind::kVariable;
    name.variable = std::string(typed.substr(4));
    return name;
  }
  if (const auto moment = moment_word_of(lower)) {
    name.kind = FieldName::Kind::kMoment;
    name.moment = *moment;
    return name;
  }
  const auto field = lower == "time" ? QueryField::kSubmitted : query_field_of(lower);
  if (!field) return std::nullopt;
  name.field = *field;
  return name;
}

class Parser {
 public:
  Parser(std::string_view text, const Moment& moment) : text_(text), moment_(moment) {}

  Parsed run() {
    Parsed parsed;
    check_bytes();
    skip_spaces();
    if (!error_ && !at_end()) {
      parsed.query = any_of(nullptr, 0);
      if (!error_ && !at_end()) fail(at_, 1, "\")\" without \"(\"", "quotes make it text: \")\"");
      if (!error_ && depth_of(parsed.query) > kMostQueryDepth)
        fail(0, 1, "too deeply nested", "at most 32 levels are allowed");
    }
    parsed.error = std::move(error_);
    return parsed;
  }

 private:
  using Kind = Query::Kind;

  // ---- errors: the first one counts, and ends the parsing
  void fail(std::size_t position, std::size_t length, std::string problem, std::string hint) {
    if (error_) return;
    error_ = ParseError{.position = position,
                        .length = std::max<std::size_t>(length, 1),
                        .problem = std::move(problem),
                        .hint = std::move(hint)};
    at_ = text_.size();
  }

  void check_bytes() {
    if (text_.size() > kMostQueryBytes) {
      fail(kMostQueryBytes, 1, "the query has " + std::to_string(text_.size()) + " bytes",
           "at most 4096 are allowed");
    } else if (const std::size_t nul = text_.find('\0'); nul != std::string_view::npos) {
      fail(nul, 1, "a NUL byte", "no text contains it");
    }
  }

  // ---- reading
  bool at_end() const noexcept { return at_ >= text_.size(); }
  char here() const noexcept { return at_end() ? '\0' : text_[at_]; }
  char next() const noexcept { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0'; }
  void skip_spaces() noexcept {
    while (!at_end() && is_space(text_[at_])) ++at_;
  }
  // Whether a word or a bracket ends at this byte.
  bool ends_at(std::size_t position) const noexcept {
    return position >= text_.size() || is_space(text_[position]) || text_[position] == ')';
  }
  bool at_keyword(std::string_view word) const noexcept {
    const std::size_t end = at_ + word.size();
    return text_.substr(at_, word.size()) == word &&
           (end >= text_.size() || is_space(text_[end]) || text_[end] == '(' || text_[end] == ')');
  }
  bool take_keyword(std::string_view word) {
    if (!at_keyword(word)) return false;
    at_ += word.size();
    skip_spaces();
    return true;
  }

  // ---- OR, AND, NOT; `field` is that of "field:( )"
  Query any_of(const FieldName* field, std::size_t depth) {
    std::vector<Query> children;
    const std::size_t begin = at_;
    children.push_back(all_of(field, depth));
    while (!error_ && at_keyword("OR")) {
      const std::size_t operator_at = at_;
      take_keyword("OR");
      if (at_end() || here() == ')') missing_side(operator_at, "OR");
      children.push_back(all_of(field, depth));
    }
    return joined(Kind::kOr, std::move(children), begin);
  }

  Query all_of(const FieldName* field, std::size_t depth) {
    std::vector<Query> children;
    const std::size_t begin = at_;
    for (const char* word : {"OR", "AND"}) {
      if (at_keyword(word)) missing_side(at_, word);
    }
    children.push_back(one_of(field, depth));
    for (;;) {
      skip_spaces();
      if (error_ || at_end() || here() == ')' || at_keyword("OR")) break;
      const std::size_t operator_at = at_;
      if (take_keyword("AND") &&
          (at_end() || here() == ')' || at_keyword("OR") || at_keyword("AND")))
        missing_side(operator_at, "AND");
      children.push_back(one_of(field, depth));
    }
    return joined(Kind::kAnd, std::move(children), begin);
  }

  void missing_side(std::size_t position, const std::string& word) {
    fail(position, word.size(), word + " needs something on both sides",
         std::string(kQuotesMakeText) + "\"" + word + "\"");
  }

  static Query joined(Kind kind, std::vector<Query> children, std::size_t position) {
    if (children.size() == 1) return std::move(children.front());
    Query query;
    query.kind = kind;
    query.position = position;
    for (Query& child : children) {
      if (child.kind != kind) {
        query.children.push_back(std::move(child));
        continue;
      }
      for (Query& inner : child.children) query.children.push_back(std::move(inner));
    }
    return query;
  }

  Query one_of(const FieldName* field, std::size_t depth) {
    if (error_) return {};
    if (depth >= kMostQueryDepth) {
      fail(at_, 1, "too deeply nested", "at most 32 levels are allowed");
      return {};
    }
    const std::size_t begin = at_;
    if (take_keyword("NOT")) {
      if (at_end() || here() == ')' || at_keyword("OR") || at_keyword("AND")) {
        fail(begin, 3, "NOT needs something behind it", "quotes make it text: \"NOT\"");
        return {};
      }
      return negated(one_of(field, depth + 1), begin);
    }
    if (here() == '-' && next() != '-') {
      if (ends_at(at_ + 1)) {
        fail(begin, 1, "a single - excludes what stands directly behind it",
             "quotes make it text: \"-\"");
        return {};
      }
      ++at_;
      return negated(one_of(field, depth + 1), begin);
    }
    if (here() == '(') return group(field, depth);
    return field == nullptr ? term(depth) : value_of(*field, begin);
  }

  static Query negated(Query child, std::size_t position) {
    Query query;
    query.kind = Kind::kNot;
    query.position = position;
    query.children.push_back(std::move(child));
    return query;
  }

  Query group(const FieldName* field, std::size_t depth) {
    const std::size_t open = at_++;
    skip_spaces();
    if (here() == ')' && !at_end()) {
      fail(open, at_ + 1 - open, "nothing between the brackets", "quotes make it text: \"()\"");
      return {};
    }
    if (at_end()) {
      fail(open, 1, "\"(\" without \")\"", "quotes make it text: \"(\"");
      return {};
    }
    Query query = any_of(field, depth + 1);
    if (!error_ && at_end()) fail(open, 1, "\"(\" without \")\"", "quotes make it text: \"(\"");
    if (!error_) ++at_;
    return query;
  }

  // ---- leaves
  Query leaf(Kind kind, std::size_t position) {
    if (++terms_ > kMostQueryTerms)
      fail(position, 1, "too many words and fields", "at most 64 are allowed");
    Query query;
    query.kind = kind;
    query.position = position;
    return query;
  }

  Query term(std::size_t depth) {
    const std::size_t begin = at_;
    if (const auto name = take_field_name()) return field_term(*name, begin, depth);
    if (error_) return {};
    return text_term(begin, JobPart::kScript);
  }

  // A word, a phrase or an expression that is looked for in a part.
  Query text_term(std::size_t begin, JobPart part) {
    if (here() == '"') return phrase(begin, part);
    if (const auto end = expression_end()) return expression(begin, *end, part);
    return word(begin, part);
  }

  // The name before a colon, and the colon.
  std::optional<FieldName> take_field_name() {
    std::size_t colon = at_;
    while (colon < text_.size() && !is_space(text_[colon]) && text_[colon] != ':' &&
           text_[colon] != '"' && text_[colon] != '(' && text_[colon] != ')')
      ++colon;
    const std::string_view typed = text_.substr(at_, colon - at_);
    if (colon >= text_.size() || text_[colon] != ':' || typed.empty()) {
      check_comparison(typed);
      return std::nullopt;
    }
    if (auto name = field_name_of(typed)) {
      at_ = colon + 1;
      return name;
    }
    const char after = colon + 1 < text_.size() ? text_[colon + 1] : ' ';
    const bool letters = typed.size() > 1 && std::all_of(typed.begin(), typed.end(), is_letter);
    const bool dotted = typed.find('.') != std::string_view::npos && !likely_dotted(typed).empty();
    // http://..., a::b and C:\x are no fields.
    if ((!letters && !dotted) || after == ':' || after == '\\' ||
        text_.substr(colon + 1, 2) == "//") {
      return std::nullopt;
    }
    const std::string likely = dotted ? likely_dotted(typed) : likely_field(typed);
    std::size_t end = colon + 1;
    while (!ends_at(end)) ++end;
    fail(at_, typed.size(), "unknown field " + quote_for_message(typed),
         (likely.empty() ? std::string() : "did you mean \"" + likely + "\"? ") +
             std::string(kQuotesMakeText) + quote_for_message(text_.substr(at_, end - at_)));
    return std::nullopt;
  }

  // What Kibana's users call a field, "user.name".
  static std::string likely_dotted(std::string_view typed) {
    const std::string lower = to_lower(typed);
    for (const std::string_view prefix : {"environment.", "variable."}) {
      if (lower.starts_with(prefix)) return "env." + std::string(typed.substr(prefix.size()));
    }
    for (const OtherName& other : kOtherNames) {
      if (other.name == lower) return std::string(other.field);
    }
    return {};
  }

  // "mem>64G": a colon was forgotten.
  void check_comparison(std::string_view word) {
    const std::size_t sign = word.find_first_of("<>");
    if (sign == std::string_view::npos || sign + 1 >= word.size()) return;
    const auto name = field_name_of(word.substr(0, sign));
    if (!name || name->kind != FieldName::Kind::kField || !is_range_field(name->field)) return;
    const std::string field(word.substr(0, sign));
    fail(at_, word.size(), "a comparison needs a colon",
         "write " + field + ":" + printable(word.substr(sign), 40) + "; " +
             std::string(kQuotesMakeText) + quote_for_message(word));
  }

  Query field_term(const FieldName& name, std::size_t begin, std::size_t depth) {
    skip_spaces();
    if (at_end() || here() == ')') {
      fail(begin, name.word.size() + 1,
           quote_for_message(name.word) + " needs a value behind the colon",
           std::string(kQuotesMakeText) + quote_for_message(name.word + ":"));
      return {};
    }
    if (here() == '(') {
      if (depth + 1 >= kMostQueryDepth) {
        fail(at_, 1, "too deeply nested", "at most 32 levels are allowed");
        return {};
      }
      return group(&name, depth + 1);
    }
    return value_of(name, begin);
  }

  // One value of a field.
  Query value_of(const FieldName& name, std::size_t begin) {
    if (name.kind == FieldName::Kind::kEnvironment) return text_term(begin, JobPart::kEnvironment);
    const std::size_t value_at = at_;
    const bool in_quotes = here() == '"';
    std::string value = in_quotes ? take_quoted() : take_value();
    if (error_) return {};
    const std::size_t length = at_ - value_at;
    if (name.kind == FieldName::Kind::kVariable) {
      Query query = leaf(Kind::kVariable, begin);
      query.name = name.variable;
      query.text = std::move(value);
      return query;
    }
    auto made = name.kind == FieldName::Kind::kMoment
                    ? moment_value(name.moment, value, moment_)
                    : field_value(name.field, value, moment_, in_quotes);
    if (!made) {
      fail(value_at, length, name.word + ": " + made.error().problem, made.error().hint);
      return {};
    }
    Query query = leaf(Kind::kField, begin);
    query = *std::move(made);
    query.position = begin;
    for (Query& child : query.children) child.position = begin;
    terms_ += query.children.empty() ? 0 : query.children.size() - 1;
    return query;
  }

  // A value without quotes, with blanks after a comparison: "> 64G".
  std::string take_value() {
    const std::size_t begin = at_;
    while (here() == '<' || here() == '>' || here() == '=') ++at_;
    std::string value(text_.substr(begin, at_ - begin));
    if (at_ > begin) skip_spaces();
    if (at_ > begin && here() == '"') return value + take_quoted();
    return value + std::string(take_word());
  }

  // Up to a blank, or a bracket that was opened outside of the word. Quotes inside of it hold
  // blanks together: --comment="two words".
  std::string_view take_word() {
    const std::size_t begin = at_;
    std::size_t open = 0;
    while (!at_end() && !is_space(here())) {
      if (here() == '(') ++open;
      if (here() == ')' && open-- == 0) break;
      if (here() == '"') {
        const std::size_t close = text_.find('"', at_ + 1);
        if (close != std::string_view::npos) at_ = close;
      }
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  Query word(std::size_t begin, JobPart part) {
    const std::size_t word_at = at_;
    const std::string_view typed = take_word();
    // Text that was copied from a page or a letter.
    for (const std::string_view quote : {"\u201c", "\u201d", "\u201e"}) {
      if (!typed.starts_with(quote)) continue;
      fail(word_at, quote.size(), "a typographic quote", "write \" before and after a phrase");
      return {};
    }
    std::string_view literal = typed;
    while (!literal.empty() && literal.back() == '*') literal.remove_suffix(1);
    if (const std::size_t star = literal.find('*'); star != std::string_view::npos) {
      fail(word_at + star, 1, "* may only be the end of a word",
           std::string(kQuotesMakeText) + quote_for_message(typed) + "; /a.*b/ is an expression");
      return {};
    }
    // "*" alone: everything.
    if (literal.empty() && part == JobPart::kScript) return leaf(Kind::kAll, begin);
    if (literal.empty()) {
      Query query = leaf(Kind::kVariable, begin);
      query.name = "*";
      query.text = "*";
      return query;
    }
    return text_leaf(begin, part, literal, literal.size() < typed.size());
  }

  Query text_leaf(std::size_t begin, JobPart part, std::string_view literal, bool prefix) {
    Query query = leaf(Kind::kText, begin);
    query.part = part;
    for (const char c : literal) {
      const bool blank = c == ' ' || c == '\t';
      if (!blank) {
        query.text += c;
      } else if (query.text.empty() || query.text.back() != ' ') {
        query.text += ' ';
      }
    }
    query.prefix = prefix && is_word_byte(query.text.back());
    return query;
  }

  // The text between quotes; \" and \\ stand for the second character.
  std::string take_quoted() {
    const std::size_t open = at_++;
    std::string value;
    while (!at_end() && here() != '"') {
      if (here() == '\\' && (next() == '"' || next() == '\\')) ++at_;
      value += here();
      ++at_;
    }
    if (at_end()) {
      fail(open, 1, "a quote without its end",
           "close it with \", or write \\\" for a quote itself");
      return {};
    }
    ++at_;
    return value;
  }

  Query phrase(std::size_t begin, JobPart part) {
    const std::size_t open = at_;
    const std::string value = take_quoted();
    if (error_) return {};
    if (std::all_of(value.begin(), value.end(), is_space)) {
      fail(open, at_ - open, "nothing between the quotes", "* finds every job");
      return {};
    }
    const bool prefix = here() == '*';
    while (here() == '*') ++at_;
    return text_leaf(begin, part, value, prefix);
  }

  // Where the slash is that ends an expression which begins here: the first without a backslash, if
  // the word ends behind it or behind an "i". /scratch/user is a path.
  std::optional<std::size_t> expression_end() const {
    if (here() != '/') return std::nullopt;
    for (std::size_t i = at_ + 1; i < text_.size(); ++i) {
      if (text_[i] == '\\') {
        ++i;
      } else if (text_[i] == '/') {
        const bool flag = i + 1 < text_.size() && text_[i + 1] == 'i';
        const bool ends = ends_at(i + 1) || (flag && ends_at(i + 2));
        return ends && i > at_ + 1 ? std::optional(i) : std::nullopt;
      }
    }
    return std::nullopt;
  }

  Query expression(std::size_t begin, std::size_t end, JobPart part) {
    Query query = leaf(Kind::kExpression, begin);
    query.part = part;
    const std::size_t open = at_;
    for (++at_; at_ < end; ++at_) {
      if (here() == '\\') {
        if (next() != '/') query.text += '\\';
        ++at_;
      }
      query.text += here();
    }
    ++at_;
    query.ignore_case = here() == 'i';
    if (query.ignore_case) ++at_;
    if (error_) return query;
    if (const auto matcher = TextMatcher::create(query); !matcher) {
      fail(open, end + 1 - open, printable(matcher.error().message()),
           "the syntax is RE2's; " + std::string(kQuotesMakeText) +
               quote_for_message(text_.substr(open, end + 1 - open)));
    }
    return query;
  }

  static std::size_t depth_of(const Query& query) {
    std::size_t deepest = 0;
    for (const Query& child : query.children) deepest = std::max(deepest, depth_of(child));
    return deepest + 1;
  }

  std::string_view text_;
  const Moment& moment_;
  std::size_t at_ = 0;
  std::size_t terms_ = 0;
  std::optional<ParseError> error_;
};

}  // namespace

Parsed parse(std::string_view text, Timestamp now, UtcOffset zone) {
  const Moment moment{.now = now, .zone = zone};
  return Parser(text, moment).run();
}

std::string error_text(std::string_view text, const ParseError& error, std::string_view where) {
  constexpr std::size_t kMostShown = 4 * kMostQueryBytes;
  const std::size_t position = std::min(error.position, text.size());
  const std::size_t length = std::clamp<std::size_t>(error.length, 1, 64);
  std::string message = std::string(where) + ":1:" + std::to_string(position + 1) + ": " +
                        error.problem + (error.hint.empty() ? "" : "; " + error.hint) + "\n";
  // Only the surroundings of a long query, each part printable on its own.
  constexpr std::size_t kBefore = 60;
  constexpr std::size_t kAfter = 60;
  std::size_t begin = position > kBefore ? position - kBefore : 0;
  while (begin < position && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) ++begin;
  const std::string before =
      (begin > 0 ? "..." : "") + printable(text.substr(begin, position - begin), kMostShown);
  const std::string_view wrong = text.substr(position, length);
  const std::string_view rest = text.substr(position + wrong.size());
  const std::string marked = printable(wrong, kMostShown);
  message += "  " + before + marked + printable(rest.substr(0, kAfter), kMostShown) +
             (rest.size() > kAfter ? "..." : "") + "\n";
  // A terminal shows a character of several bytes in one column.
  const auto columns = [](std::string_view shown) {
    return static_cast<std::size_t>(std::count_if(shown.begin(), shown.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
  };
  const std::size_t carets = std::max<std::size_t>(columns(marked), 1);
  return message + "  " + std::string(columns(before), ' ') + "^" + std::string(carets - 1, '~') +
         "\n";
}

}  // namespace scriptorium::query
