#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/api/query.h"
#include "core/query/values.h"

// The value behind a field's colon, as a node of the tree in the one form that evaluators know.
namespace scriptorium::query {

struct ValueError {
  std::string problem;
  std::string hint;
};

// A node, or what is wrong with the value.
class ValueResult {
 public:
  ValueResult(Query query) : query_(std::move(query)) {}  // NOLINT(google-explicit-constructor)
  ValueResult(ValueError error)
      : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  explicit operator bool() const noexcept { return query_.has_value(); }
  Query operator*() && { return *std::move(query_); }
  const ValueError& error() const noexcept { return error_; }

 private:
  std::optional<Query> query_;
  ValueError error_;
};

// `in_quotes`: "<" and ".." in a text have no meaning.
ValueResult field_value(QueryField field, std::string_view value, const Moment& moment,
                        bool in_quotes);

// Shorthands for when a job was submitted.
enum class MomentWord { kSince, kAfter, kBefore, kUntil };
std::optional<MomentWord> moment_word_of(std::string_view word) noexcept;
ValueResult moment_value(MomentWord word, std::string_view value, const Moment& moment);

}  // namespace scriptorium::query
