#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/api/query.h"
#include "core/base/time.h"

namespace scriptorium::query {

struct ParseError {
  std::size_t position = 0;  // byte in the query
  std::size_t length = 1;    // of what is wrong, at least 1
  std::string problem;       // "unknown field \"usr\""
  std::string hint;          // "did you mean \"user\"?", or what is allowed; "" if there is none
};
struct Parsed {
  Query query;
  std::optional<ParseError> error;  // then `query` is not to be used
};

// Parses what a person typed (the language: docs/search.md). `now` and `zone` give "today", "7d"
// and a date without a zone their meaning. Never fails otherwise; bounded by kMostQueryBytes,
// kMostQueryTerms and kMostQueryDepth. An empty text means every job. Pure.
Parsed parse(std::string_view text, Timestamp now, UtcOffset zone = kUtc);

// For a terminal: the message, the query (made printable) and a line of carets below what is wrong:
//   search:1:14: unknown field "usr"; did you mean "user"?
//     gromacs usr:alice
//             ^~~
std::string error_text(std::string_view text, const ParseError& error, std::string_view where);

// The query as text that parses to an equal tree (positions aside), for addresses and messages.
std::string to_text(const Query& query);

}  // namespace scriptorium::query
