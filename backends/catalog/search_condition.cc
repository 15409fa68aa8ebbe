#include "backends/catalog/search_condition.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/ascii.h"

namespace scriptorium::catalog {
namespace {

// More than a parser lets pass, since somebody may also add to a parsed tree.
constexpr std::size_t kMostDepth = kMostQueryDepth + 8;
constexpr std::size_t kMostNodes = 4 * kMostQueryTerms + 64;

struct Size {
  std::size_t nodes = 0;
  std::size_t bytes = 0;
  bool too_deep = false;
};

// Not deeper than is allowed, whatever the tree.
void measure(const Query& query, std::size_t depth, Size& size) {
  ++size.nodes;
  size.bytes += query.text.size() + query.name.size();
  if (depth > kMostDepth) {
    size.too_deep = true;
    return;
  }
  if (size.nodes > kMostNodes) return;
  for (const Query& child : query.children) measure(child, depth + 1, size);
}

Result<void> check_limits(const Query& query) {
  const auto refuse = [](std::string what) {
    return Error{ErrorKind::kInvalidConfig, std::move(what)};
  };
  Size size;
  measure(query, 1, size);
  if (size.too_deep)
    return refuse("the query is nested deeper than " + std::to_string(kMostQueryDepth) + " levels");
  if (size.nodes > kMostNodes)
    return refuse("the query has more than " + std::to_string(kMostQueryTerms) + " terms");
  if (size.bytes > kMostQueryBytes)
    return refuse("the query has more than " + std::to_string(kMostQueryBytes) + " bytes");
  return {};
}

Condition::Source source_of(const Query& query) {
  switch (query.kind) {
    case Query::Kind::kText:
    case Query::Kind::kExpression:
      return query.part == JobPart::kScript ? Condition::Source::kScript
                                            : Condition::Source::kEnvironment;
    case Query::Kind::kVariable: return Condition::Source::kEnvironment;
    default: break;
  }
  return is_outcome_field(query.field) || query.field == QueryField::kFinding
             ? Condition::Source::kOutcome
             : Condition::Source::kRow;
}

// The longest part without `*` of "NAME=value".
std::string literal_of_variable(const Query& query) {
  const std::string whole = query.name + '=' + query.text;
  std::string_view longest;
  for (std::string_view rest = whole; !rest.empty();) {
    const std::string_view part = take_until(rest, '*');
    if (part.size() > longest.size()) longest = part;
  }
  return std::string(longest);
}

}  // namespace

bool Condition::Leaf::holds_in(std::string_view bytes) const {
  if (!variable) return text->matches(bytes);
  static const JobRow kNoRow;
  return variable->matches(kNoRow, JobTexts{[&](JobPart) { return bytes; }});
}

Result<Condition> Condition::create(const Query& query) {
  if (auto limits = check_limits(query); !limits) return limits.error();
  Condition condition;
  if (auto root = condition.add(query); !root) return root.error();
  return condition;
}

Result<std::size_t> Condition::add_leaf(const Query& query) {
  Leaf leaf;
  leaf.query = query;
  leaf.query.children.clear();
  leaf.source = source_of(query);
  if (query.kind == Query::Kind::kText || query.kind == Query::Kind::kExpression) {
    auto matcher = TextMatcher::create(leaf.query);
    if (!matcher) return matcher.error();
    leaf.text.emplace(*std::move(matcher));
  } else if (query.kind == Query::Kind::kVariable) {
    auto matcher = QueryMatcher::create(leaf.query);
    if (!matcher) return matcher.error();
    leaf.variable.emplace(*std::move(matcher));
    if (const std::string literal = literal_of_variable(leaf.query); !literal.empty())
      leaf.literal.emplace(literal);
  }
  if (leaf.source >= Source::kScript) leaf.holds_for_empty = leaf.holds_in({});
  leaves_.push_back(std::move(leaf));
  return leaves_.size() - 1;
}

Result<std::size_t> Condition::add(const Query& query) {
  Node node;
  node.kind = query.kind;
  switch (query.kind) {
    case Query::Kind::kAll: break;
    case Query::Kind::kAnd:
    case Query::Kind::kOr:
    case Query::Kind::kNot:
      for (const Query& child : query.children) {
        auto index = add(child);
        if (!index) return index.error();
        node.children.push_back(*index);
        node.dearest = std::max(node.dearest, nodes_[*index].dearest);
      }
      std::sort(node.children.begin(), node.children.end(), [&](std::size_t a, std::size_t b) {
        return std::pair(nodes_[a].dearest, a) < std::pair(nodes_[b].dearest, b);
      });
      break;
    default: {
      auto leaf = add_leaf(query);
      if (!leaf) return leaf.error();
      node.leaf = *leaf;
      node.dearest = leaves_[*leaf].source;
    }
  }
  nodes_.push_back(std::move(node));
  return nodes_.size() - 1;
}

bool Condition::reads(Source source) const noexcept {
  return std::any_of(leaves_.begin(), leaves_.end(),
                     [&](const Leaf& leaf) { return leaf.source == source; });
}

bool Condition::needs(Source source) const {
  return decide([&](std::size_t index) {
           const Leaf& leaf = leaves_[index];
           if (leaf.source != source) return Truth::kOpen;
           return leaf.holds_for_empty ? Truth::kYes : Truth::kNo;
         }) == Truth::kNo;
}

}  // namespace scriptorium::catalog
