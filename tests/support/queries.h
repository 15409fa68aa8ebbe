#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/api/query.h"
#include "core/base/time.h"

// What tests and benchmarks of searches share: parts of a query, and a clock for deadlines.
namespace scriptorium::test {

inline Query text_query(std::string text, JobPart part = JobPart::kScript) {
  Query query;
  query.kind = Query::Kind::kText;
  query.text = std::move(text);
  query.part = part;
  return query;
}
inline Query prefix_query(std::string text) {
  Query query = text_query(std::move(text));
  query.prefix = true;
  return query;
}
inline Query expression_query(std::string text, JobPart part = JobPart::kScript) {
  Query query = text_query(std::move(text), part);
  query.kind = Query::Kind::kExpression;
  return query;
}
inline Query variable_query(std::string name, std::string value) {
  Query query;
  query.kind = Query::Kind::kVariable;
  query.name = std::move(name);
  query.text = std::move(value);
  return query;
}
inline Query field_query(QueryField field, std::string value) {
  Query query;
  query.kind = Query::Kind::kField;
  query.field = field;
  query.text = std::move(value);
  return query;
}
inline Query combined_query(Query::Kind kind, std::vector<Query> children) {
  Query query;
  query.kind = kind;
  query.children = std::move(children);
  return query;
}
inline Query all_of_query(std::vector<Query> children) {
  return combined_query(Query::Kind::kAnd, std::move(children));
}
inline Query any_of_query(std::vector<Query> children) {
  return combined_query(Query::Kind::kOr, std::move(children));
}
inline Query not_query(Query child) {
  return combined_query(Query::Kind::kNot, {std::move(child)});
}

// Time passes only by being asked for. Threads: any.
class TickingClock final : public Clock {
 public:
  explicit TickingClock(std::chrono::milliseconds tick) : tick_(tick) {}

  Timestamp now() const override { return {}; }
  SteadyTime steady() const override { return at(looks_.fetch_add(1) + 1); }
  // What steady() says after so many more looks.
  SteadyTime after(std::int64_t looks) const { return at(looks_.load() + looks); }

 private:
  SteadyTime at(std::int64_t looks) const { return SteadyTime(tick_ * looks); }

  const std::chrono::milliseconds tick_;
  mutable std::atomic<std::int64_t> looks_{0};
};

}  // namespace scriptorium::test
