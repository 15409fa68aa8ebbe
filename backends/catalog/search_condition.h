#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "backends/catalog/id_set.h"
#include "core/api/kit/search/literal_search.h"
#include "core/api/kit/search/query_matcher.h"
#include "core/api/kit/search/text_matcher.h"
#include "core/api/query.h"
#include "core/base/result.h"

// A query compiled to be decided step by step: first by what is cheap to know of a job, then by its
// texts. What is not known yet leaves parts of the tree open.
namespace scriptorium::catalog {

enum class Truth : std::uint8_t { kNo, kYes, kOpen };

// The same of many texts at once, by their places: where it may hold, and where it does.
struct Truths {
  IdSet possible;
  IdSet certain;
};

class Condition {
 public:
  // Where a leaf finds its answer, the cheapest first.
  enum class Source : std::uint8_t { kRow, kOutcome, kScript, kEnvironment };
  struct Leaf {
    Query query;  // without children
    Source source = Source::kRow;
    std::optional<TextMatcher> text;       // of kText and kExpression
    std::optional<QueryMatcher> variable;  // of kVariable
    // Of kVariable: what every environment has in which it holds; nothing if that is unknown.
    std::optional<LiteralSearch> literal;
    bool holds_for_empty = false;  // of the two text sources: for a text that is absent or empty

    bool holds_in(std::string_view text) const;
  };

  // kInvalidConfig for an expression that cannot be compiled, or a tree beyond the limits of
  // core/api/query.h.
  static Result<Condition> create(const Query& query);

  const std::vector<Leaf>& leaves() const noexcept { return leaves_; }
  bool reads(Source source) const noexcept;
  // Whether it can hold only for a job with a script, or with an environment: an absent one counts
  // as empty.
  bool needs_script() const { return needs(Source::kScript); }
  bool needs_environment() const { return needs(Source::kEnvironment); }

  // truth_of(leaf's index) -> Truth; it is asked for the cheapest leaves first, and for no more
  // than decide.
  template <typename TruthOf>
  Truth decide(const TruthOf& truth_of) const {
    return decide(nodes_.back(), truth_of);
  }
  // truths_of(leaf's index, places) -> Truths of these places.
  template <typename TruthsOf>
  Truths decide_all(const IdSet& places, const TruthsOf& truths_of) const {
    return decide_all(nodes_.back(), places, truths_of);
  }

 private:
  struct Node {
    Query::Kind kind = Query::Kind::kAll;
    Source dearest = Source::kRow;  // of its leaves
    std::size_t leaf = 0;
    std::vector<std::size_t> children;  // in nodes_, the cheapest first
  };

  bool needs(Source source) const;
  Result<std::size_t> add(const Query& query);
  Result<std::size_t> add_leaf(const Query& query);

  template <typename TruthOf>
  Truth decide(const Node& node, const TruthOf& truth_of) const {
    switch (node.kind) {
      case Query::Kind::kAll: return Truth::kYes;
      case Query::Kind::kNot: {
        const Truth truth =
            node.children.empty() ? Truth::kNo : decide(nodes_[node.children.front()], truth_of);
        if (truth == Truth::kOpen) return truth;
        return truth == Truth::kYes ? Truth::kNo : Truth::kYes;
      }
      case Query::Kind::kAnd:
      case Query::Kind::kOr: {
        const Truth decisive = node.kind == Query::Kind::kAnd ? Truth::kNo : Truth::kYes;
        Truth result = node.kind == Query::Kind::kAnd ? Truth::kYes : Truth::kNo;
        for (const std::size_t child : node.children) {
          const Truth truth = decide(nodes_[child], truth_of);
          if (truth == decisive) return truth;
          if (truth == Truth::kOpen) result = truth;
        }
        return result;
      }
      default: return truth_of(node.leaf);
    }
  }

  template <typename TruthsOf>
  Truths decide_all(const Node& node, const IdSet& places, const TruthsOf& truths_of) const {
    switch (node.kind) {
      case Query::Kind::kAll: return {places, places};
      case Query::Kind::kNot: {
        if (node.children.empty()) return {places, places};
        const Truths child = decide_all(nodes_[node.children.front()], places, truths_of);
        return {places - child.certain, places - child.possible};
      }
      case Query::Kind::kAnd: {
        Truths result{places, places};
        for (const std::size_t child : node.children) {
          const Truths truths = decide_all(nodes_[child], result.possible, truths_of);
          result.possible = truths.possible;
          result.certain &= truths.certain;
          if (result.possible.empty()) break;
        }
        return result;
      }
      case Query::Kind::kOr: {
        Truths result;
        for (const std::size_t child : node.children) {
          const Truths truths = decide_all(nodes_[child], places - result.certain, truths_of);
          result.possible |= truths.possible;
          result.certain |= truths.certain;
        }
        return result;
      }
      default: return truths_of(node.leaf, places);
    }
  }

  std::vector<Node> nodes_;  // children before their parents, so the root is the last
  std::vector<Leaf> leaves_;
};

}  // namespace scriptorium::catalog
