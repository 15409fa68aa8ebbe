#include <string>
#include <string_view>

#include "core/api/query.h"
#include "core/base/ascii.h"
#include "core/base/time.h"
#include "core/query/parse.h"

// The tree as the text that a person would type for it.
namespace scriptorium::query {
namespace {

using Kind = Query::Kind;

std::string in_quotes(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

// Whether a text keeps its meaning without quotes: behind a field's colon nearly all does.
bool is_plain(std::string_view text, std::string_view marks) {
  if (text.empty() || text == "AND" || text == "OR" || text == "NOT") return false;
  for (const char c : text) {
    if (!is_alphanumeric(c) && marks.find(c) == std::string_view::npos) return false;
  }
  return text.front() != '/' && text.front() != '-' && text.front() != '=';
}

std::string literal(const Query& query) {
  return (is_plain(query.text, "_./") ? query.text : in_quotes(query.text)) +
         (query.prefix ? "*" : "");
}

std::string expression(const Query& query) {
  std::string text = "/";
  for (std::size_t i = 0; i < query.text.size(); ++i) {
    if (query.text[i] == '/') text += '\\';
    text += query.text[i];
    if (query.text[i] == '\\' && i + 1 < query.text.size()) text += query.text[++i];
  }
  return text + (query.ignore_case ? "/i" : "/");
}

// An end of a range. A whole second stands for all of it, so the end is written as its second.
std::string time_text(std::int64_t nanoseconds, bool is_end) {
  const std::int64_t within = ((nanoseconds % kSecond) + kSecond) % kSecond;
  const bool whole = is_end ? within == kSecond - 1 : within == 0;
  return format_rfc3339({nanoseconds},
                        whole ? TimePrecision::kSeconds : TimePrecision::kNanoseconds);
}

std::string bound_text(const Query& query, std::int64_t value, bool is_end) {
  if (query.percent) return std::to_string(value) + "%";
  switch (query.field) {
    case QueryField::kRequestedTime:
    case QueryField::kElapsed: return std::to_string(value) + "s";
    case QueryField::kSubmitted:
    case QueryField::kStarted:
    case QueryField::kEnded: return time_text(value, is_end);
    default: return std::to_string(value);
  }
}

std::string range(const Query& query) {
  const std::string field = std::string(query_field_name(query.field)) + ":";
  if (!query.from && !query.to) return field + "*";
  const bool time = query.field == QueryField::kSubmitted || query.field == QueryField::kStarted ||
                    query.field == QueryField::kEnded;
  if (query.from == query.to && !time) return field + bound_text(query, *query.from, false);
  return field + (query.from ? bound_text(query, *query.from, false) : "") + ".." +
         (query.to ? bound_text(query, *query.to, true) : "");
}

std::string text_of(const Query& query, bool inner);

std::string joined(const Query& query, std::string_view between) {
  std::string text;
  for (const Query& child : query.children) {
    if (!text.empty()) text += between;
    text += text_of(child, true);
  }
  return text;
}

// `inner`: what holds several things gets brackets.
std::string text_of(const Query& query, bool inner) {
  constexpr std::string_view kMarks = "_./@%+,=*-:";
  const std::string env = query.part == JobPart::kEnvironment ? "env:" : "";
  switch (query.kind) {
    case Kind::kAll: return "*";
    case Kind::kAnd: return inner ? "(" + joined(query, " ") + ")" : joined(query, " ");
    case Kind::kOr: return inner ? "(" + joined(query, " OR ") + ")" : joined(query, " OR ");
    case Kind::kNot: {
      const std::string child = query.children.empty() ? "*" : text_of(query.children[0], true);
      // A second - would make a text of both.
      return child.front() == '-' ? "NOT " + child : "-" + child;
    }
    case Kind::kText: return env + literal(query);
    case Kind::kExpression: return env + expression(query);
    case Kind::kField:
      return std::string(query_field_name(query.field)) + ":" +
             (is_plain(query.text, kMarks) ? query.text : in_quotes(query.text));
    case Kind::kRange: return range(query);
    case Kind::kVariable:
      return "env." + query.name + ":" +
             (is_plain(query.text, kMarks) ? query.text : in_quotes(query.text));
  }
  return {};
}

}  // namespace

std::string to_text(const Query& query) {
  return query.kind == Kind::kAll ? "*" : text_of(query, false);
}

}  // namespace scriptorium::query
