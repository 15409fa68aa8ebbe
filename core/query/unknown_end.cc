#include "core/query/unknown_end.h"

#include <algorithm>
#include <utility>

namespace scriptorium::query {
namespace {

using Kind = Query::Kind;

Query combined(Kind kind, std::vector<Query> children) {
  Query query;
  query.kind = kind;
  query.children = std::move(children);
  return query;
}

bool is_outcome(const Query& query) {
  return (query.kind == Kind::kField || query.kind == Kind::kRange) &&
         is_outcome_field(query.field);
}

bool asks_for_outcome(const Query& query) {
  if (query.kind == Kind::kNot) return false;
  return is_outcome(query) || std::ranges::any_of(query.children, asks_for_outcome);
}

// The query with every outcome as it would have to be for the job to be found.
Query at_best(const Query& query, bool found) {
  if (is_outcome(query)) return found ? Query{} : combined(Kind::kNot, {Query{}});
  Query best = query;
  for (Query& child : best.children) child = at_best(child, found != (query.kind == Kind::kNot));
  return best;
}

}  // namespace

std::optional<Query> unknown_end(const Query& query) {
  if (!asks_for_outcome(query)) return std::nullopt;
  Query state;
  state.kind = Kind::kField;
  state.field = QueryField::kState;
  state.text = "*";
  return combined(Kind::kAnd, {at_best(query, true), combined(Kind::kNot, {std::move(state)}),
                               combined(Kind::kNot, {query})});
}

}  // namespace scriptorium::query
