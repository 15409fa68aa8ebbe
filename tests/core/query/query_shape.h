#pragma once

#include <string>

#include "core/api/query.h"
#include "core/base/time.h"

// A tree as text that shows each member, for tests: (and (text "a") (field user "b")).
namespace scriptorium::query {

inline std::string shape(const Query& query) {
  using Kind = Query::Kind;
  const auto list = [&](const std::string& name) {
    std::string text = "(" + name;
    for (const Query& child : query.children) text += " " + shape(child);
    return text + ")";
  };
  const std::string part = query.part == JobPart::kEnvironment ? " env" : "";
  const std::string field(query_field_name(query.field));
  const auto bound = [&](const std::optional<std::int64_t>& value) -> std::string {
    if (!value) return "-";
    if (query.field != QueryField::kSubmitted && query.field != QueryField::kEnded)
      return std::to_string(*value) + (query.percent ? "%" : "");
    return format_rfc3339(
        {*value}, *value % kSecond == 0 ? TimePrecision::kSeconds : TimePrecision::kNanoseconds);
  };
  switch (query.kind) {
    case Kind::kAll: return "all";
    case Kind::kAnd: return list("and");
    case Kind::kOr: return list("or");
    case Kind::kNot: return list("not");
    case Kind::kText:
      return "(text" + part + " '" + query.text + "'" + (query.prefix ? " prefix" : "") + ")";
    case Kind::kExpression:
      return "(re" + part + " '" + query.text + "'" + (query.ignore_case ? " i" : "") + ")";
    case Kind::kField: return "(" + field + " '" + query.text + "')";
    case Kind::kRange: return "(" + field + " " + bound(query.from) + " " + bound(query.to) + ")";
    case Kind::kVariable: return "(var " + query.name + " '" + query.text + "')";
  }
  return "?";
}

}  // namespace scriptorium::query
