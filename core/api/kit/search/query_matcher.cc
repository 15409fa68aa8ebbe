#include "core/api/kit/search/query_matcher.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/api/event.h"
#include "core/api/kit/search/field_glob.h"
#include "core/api/kit/search/text_matcher.h"

namespace scriptorium {
namespace {

constexpr std::size_t kMostLineBytes = 1024;
constexpr std::size_t kLineBytesBefore = 256;  // of a cut line, before its first match
constexpr std::size_t kMostMarks = 64;

using Verdict = QueryMatcher::Verdict;

// ---- the tree, with what its leaves need compiled

struct Node {
  const Query* query = nullptr;
  std::optional<TextMatcher> text;
  std::vector<Node> children;
  bool needs_text = false;  // it, or one below it
};

Result<Node> compile(const Query& query) {
  Node node;
  node.query = &query;
  switch (query.kind) {
    case Query::Kind::kText:
    case Query::Kind::kExpression: {
      auto matcher = TextMatcher::create(query);
      if (!matcher) return matcher.error();
      node.text.emplace(*std::move(matcher));
      node.needs_text = true;
      break;
    }
    case Query::Kind::kVariable: node.needs_text = true; break;
    default: break;
  }
  node.children.reserve(query.children.size());
  for (const Query& child : query.children) {
    auto compiled = compile(child);
    if (!compiled) return compiled.error();
    node.needs_text = node.needs_text || compiled->needs_text;
    node.children.push_back(*std::move(compiled));
  }
  return node;
}

// Calls use(variable) for each variable whose name and value match, the last of a name counting.
template <typename Use>
void each_variable(const Query& node, std::string_view environment, Use use) {
  if (environment.empty() || environment.back() != '\0') return;
  const std::vector<Variable> variables = split_environment(environment);
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const Variable& variable = variables[i];
    if (variable.value.data() == nullptr || !glob_in_case(node.name, variable.name) ||
        !glob_in_any_case(node.text, variable.value)) {
      continue;
    }
    const bool again = std::any_of(
        variables.begin() + static_cast<std::ptrdiff_t>(i) + 1, variables.end(),
        [&](const Variable& v) { return v.value.data() != nullptr && v.name == variable.name; });
    if (!again) use(variable, i);
  }
}

bool variable_matches(const Query& node, std::string_view environment) {
  bool any = false;
  each_variable(node, environment, [&](const Variable&, std::size_t) { any = true; });
  return any;
}

Verdict judge_node(const Node& node, const JobRow& job) {
  switch (node.query->kind) {
    case Query::Kind::kText:
    case Query::Kind::kExpression:
    case Query::Kind::kVariable: return Verdict::kNeedsText;
    case Query::Kind::kNot: {
      const Verdict verdict =
          node.children.empty() ? Verdict::kNo : judge_node(node.children.front(), job);
      if (verdict == Verdict::kNeedsText) return verdict;
      return verdict == Verdict::kYes ? Verdict::kNo : Verdict::kYes;
    }
    case Query::Kind::kAnd:
    case Query::Kind::kOr: {
      const Verdict decides = node.query->kind == Query::Kind::kAnd ? Verdict::kNo : Verdict::kYes;
      Verdict all = decides == Verdict::kNo ? Verdict::kYes : Verdict::kNo;
      for (const Node& child : node.children) {
        const Verdict verdict = judge_node(child, job);
        if (verdict == decides) return decides;
        if (verdict == Verdict::kNeedsText) all = verdict;
      }
      return all;
    }
    default: return field_matches(*node.query, job) ? Verdict::kYes : Verdict::kNo;
  }
}

bool node_matches(const Node& node, const JobRow& job, const JobTexts& texts) {
  const Verdict verdict = judge_node(node, job);
  if (verdict != Verdict::kNeedsText) return verdict == Verdict::kYes;
  const auto below = [&](const Node& child) { return node_matches(child, job, texts); };
  switch (node.query->kind) {
    case Query::Kind::kAnd: return std::all_of(node.children.begin(), node.children.end(), below);
    case Query::Kind::kOr: return std::any_of(node.children.begin(), node.children.end(), below);
    case Query::Kind::kNot: return !below(node.children.front());
    case Query::Kind::kVariable:
      return variable_matches(*node.query, texts.read(JobPart::kEnvironment));
    default: return node.text->matches(texts.read(node.query->part));
  }
}

void collect_positive(const Node& node, bool positive, std::vector<const Node*>& found) {
  if (node.query->kind == Query::Kind::kNot) positive = !positive;
  if (positive && (node.text || node.query->kind == Query::Kind::kVariable)) found.push_back(&node);
  for (const Node& child : node.children) collect_positive(child, positive, found);
}

// ---- lines

// Walks the lines of a part: of a script ended by a newline, of an environment by a NUL.
class Lines {
 public:
  Lines(JobPart part, std::string_view bytes)
      : part_(part), bytes_(bytes), end_mark_(part == JobPart::kScript ? '\n' : '\0') {}

  struct Place {
    std::uint64_t number = 1;
    std::size_t begin = 0;
    std::size_t end = 0;  // without its end mark
  };
  // The line of a byte at or after the last one asked for.
  Place at(std::size_t position) {
    while (line_end(place_.begin) < position && line_end(place_.begin) < bytes_.size()) {
      place_.begin = line_end(place_.begin) + 1;
      ++place_.number;
    }
    place_.end = line_end(place_.begin);
    return place_;
  }
  std::optional<Place> after(const Place& place) const {
    if (place.end + 1 >= bytes_.size()) return std::nullopt;
    return Place{place.number + 1, place.end + 1, line_end(place.end + 1)};
  }
  std::optional<Place> before(const Place& place) const {
    if (place.begin == 0) return std::nullopt;
    const std::size_t end = place.begin - 1;
    // npos + 1 is 0.
    return Place{place.number - 1, end == 0 ? 0 : bytes_.rfind(end_mark_, end - 1) + 1, end};
  }

  Searchable::Line text_of(const Place& place,
                           std::vector<std::pair<std::size_t, std::size_t>> marks) const;

 private:
  std::size_t line_end(std::size_t begin) const {
    return std::min(bytes_.find(end_mark_, begin), bytes_.size());
  }

  JobPart part_;
  std::string_view bytes_;
  char end_mark_;
  Place place_;
};

bool is_continuation(char c) noexcept { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// `marks` are positions in the whole part.
Searchable::Line Lines::text_of(const Place& place,
                                std::vector<std::pair<std::size_t, std::size_t>> marks) const {
  std::size_t begin = place.begin;
  std::size_t end = place.end;
  if (part_ == JobPart::kScript && end > begin && bytes_[end - 1] == '\r') --end;
  std::sort(marks.begin(), marks.end());
  if (end - begin > kMostLineBytes) {
    if (!marks.empty() && marks.front().first > begin + kLineBytesBefore)
      begin = std::min(marks.front().first - kLineBytesBefore, end - kMostLineBytes);
    for (int i = 0; i < 3 && begin > place.begin && is_continuation(bytes_[begin]); ++i) ++begin;
    end = std::min(end, begin + kMostLineBytes);
    for (int i = 0; i < 3 && end < place.end && end > begin && is_continuation(bytes_[end]); ++i)
      --end;
  }
  Searchable::Line line;
  line.part = part_;
  line.number = place.number;
  line.text = std::string(bytes_.substr(begin, end - begin));
  for (const auto& [mark_begin, mark_end] : marks) {
    const std::size_t from = std::clamp(mark_begin, begin, end) - begin;
    const std::size_t to = std::clamp(mark_end, begin, end) - begin;
    if (from >= to) continue;
    if (!line.marks.empty() && from <= line.marks.back().second) {
      line.marks.back().second = std::max(line.marks.back().second, static_cast<std::uint32_t>(to));
    } else if (line.marks.size() < kMostMarks) {
      line.marks.emplace_back(static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to));
    }
  }
  return line;
}

// The matches of one leaf in a part, in order.
class Matches {
 public:
  Matches(const Node& node, std::string_view bytes) : node_(&node), bytes_(bytes) {
    if (!node.text) {
      each_variable(*node.query, bytes, [&](const Variable& variable, std::size_t) {
        const auto begin = static_cast<std::size_t>(variable.name.data() - bytes.data());
        const auto end =
            static_cast<std::size_t>(variable.value.data() + variable.value.size() - bytes.data());
        variables_.emplace_back(begin, end);
      });
    }
    seek(0);
  }
  const std::optional<std::pair<std::size_t, std::size_t>>& next() const { return next_; }
  void seek(std::size_t from) {
    if (node_->text) {
      next_ = from > bytes_.size() ? std::nullopt : node_->text->find(bytes_, from);
      return;
    }
    const auto found = std::find_if(variables_.begin(), variables_.end(),
                                    [&](const auto& range) { return range.first >= from; });
    next_ = found == variables_.end() ? std::nullopt : std::optional(*found);
  }

 private:
  const Node* node_;
  std::string_view bytes_;
  std::vector<std::pair<std::size_t, std::size_t>> variables_;
  std::optional<std::pair<std::size_t, std::size_t>> next_;
};

class LineCollector {
 public:
  LineCollector(std::size_t most, std::size_t context) : most_(most), context_(context) {}

  void add(JobPart part, std::string_view bytes, const std::vector<const Node*>& leaves) {
    if (bytes.empty()) return;
    std::vector<Matches> matches;
    for (const Node* leaf : leaves) {
      if (part_of(*leaf) == part) matches.emplace_back(*leaf, bytes);
    }
    Lines lines(part, bytes);
    std::uint64_t shown = 0;  // the last line's number
    while (hits_ < most_) {
      std::optional<std::size_t> first;
      for (const Matches& match : matches) {
        if (match.next())
          first = std::min(first.value_or(match.next()->first), match.next()->first);
      }
      if (!first || *first >= bytes.size()) return;
      const Lines::Place place = lines.at(*first);
      std::vector<std::pair<std::size_t, std::size_t>> marks;
      for (Matches& match : matches) take(match, place, marks);
      remove_context_from(part, place.number);
      add_before(lines, place, shown);
      found_.push_back(lines.text_of(place, std::move(marks)));
      shown = place.number;
      ++hits_;
      add_after(lines, place, shown);
    }
  }
  std::vector<Searchable::Line> take_lines() { return std::move(found_); }

 private:
  static JobPart part_of(const Node& leaf) {
    return leaf.text ? leaf.query->part : JobPart::kEnvironment;
  }

  static void take(Matches& match, const Lines::Place& place,
                   std::vector<std::pair<std::size_t, std::size_t>>& marks) {
    std::size_t taken = 0;
    while (match.next() && match.next()->first <= place.end) {
      const auto [begin, end] = *match.next();
      if (taken++ < kMostMarks) marks.emplace_back(begin, std::min(end, place.end));
      // The rest of a line with very many matches is not marked.
      match.seek(taken < kMostMarks ? std::max(end, begin + 1) : place.end + 1);
    }
  }

  // A line that was context of the one before may itself have a match.
  void remove_context_from(JobPart part, std::uint64_t number) {
    while (!found_.empty() && found_.back().part == part && found_.back().number >= number)
      found_.pop_back();
  }

  void add_before(const Lines& lines, Lines::Place place, std::uint64_t shown) {
    std::vector<Lines::Place> places;
    for (std::size_t i = 0; i < context_; ++i) {
      const auto before = lines.before(place);
      const std::uint64_t last =
          found_.empty() || shown == 0 ? 0 : std::max(shown, found_.back().number);
      if (!before || before->number <= last) break;
      places.push_back(*before);
      place = *before;
    }
    for (auto at = places.rbegin(); at != places.rend(); ++at)
      found_.push_back(lines.text_of(*at, {}));
  }
  void add_after(const Lines& lines, Lines::Place place, std::uint64_t) {
    for (std::size_t i = 0; i < context_; ++i) {
      const auto after = lines.after(place);
      if (!after) break;
      found_.push_back(lines.text_of(*after, {}));
      place = *after;
    }
  }

  std::size_t most_;
  std::size_t context_;
  std::size_t hits_ = 0;
  std::vector<Searchable::Line> found_;
};

}  // namespace

struct QueryMatcher::Impl {
  Query query;  // the nodes point into it
  Node root;
  std::vector<const Node*> positive;
};

QueryMatcher::QueryMatcher(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
QueryMatcher::QueryMatcher(QueryMatcher&&) noexcept = default;
QueryMatcher& QueryMatcher::operator=(QueryMatcher&&) noexcept = default;
QueryMatcher::~QueryMatcher() = default;

Result<QueryMatcher> QueryMatcher::create(const Query& query) {
  auto impl = std::make_unique<Impl>();
  impl->query = query;
  auto root = compile(impl->query);
  if (!root) return root.error();
  impl->root = *std::move(root);
  collect_positive(impl->root, true, impl->positive);
  return QueryMatcher(std::move(impl));
}

bool QueryMatcher::matches(const JobRow& job, const JobTexts& texts) const {
  return node_matches(impl_->root, job, texts);
}

Verdict QueryMatcher::judge(const JobRow& job) const { return judge_node(impl_->root, job); }

bool QueryMatcher::has_text() const noexcept { return !impl_->positive.empty(); }

std::vector<Searchable::Line> QueryMatcher::lines(const JobTexts& texts, std::size_t most,
                                                  std::size_t context) const {
  LineCollector collector(most, context);
  for (const JobPart part : {JobPart::kScript, JobPart::kEnvironment}) {
    const bool wanted =
        std::any_of(impl_->positive.begin(), impl_->positive.end(), [&](const Node* leaf) {
          return (leaf->text ? leaf->query->part : JobPart::kEnvironment) == part;
        });
    if (wanted && most > 0) collector.add(part, texts.read(part), impl_->positive);
  }
  return collector.take_lines();
}

}  // namespace scriptorium
