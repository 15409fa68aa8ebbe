#include "core/cli/search_request.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/base/text.h"
#include "core/query/parse.h"

namespace scriptorium::cli {
namespace {

std::variant<std::vector<QueryField>, SearchProblem> facet_fields(const std::string& names) {
  std::vector<QueryField> fields;
  std::istringstream text(names);
  for (std::string name; std::getline(text, name, ',');) {
    const auto field = query_field_of(name);
    if (!field) {
      const auto near = did_you_mean(name, query_field_names());
      return SearchProblem{"--facets: unknown field \"" + printable(name) + "\"" +
                           (near ? "; did you mean \"" + *near + "\"?" : "")};
    }
    fields.push_back(*field);
  }
  return fields;
}

}  // namespace

std::string query_text(const Arguments& arguments) {
  std::string text;
  for (const std::string& word : arguments.query) text += (text.empty() ? "" : " ") + word;
  return text;
}

Query both(Query query, Query more) {
  if (query.kind == Query::Kind::kAll) return more;
  Query all;
  all.kind = Query::Kind::kAnd;
  all.children = {std::move(query), std::move(more)};
  return all;
}

std::optional<Query> since_node(const std::string& since, Timestamp now, UtcOffset zone) {
  query::Parsed parsed = query::parse("since:" + since, now, zone);
  const bool is_time = !parsed.error && parsed.query.kind == Query::Kind::kRange &&
                       parsed.query.field == QueryField::kSubmitted;
  return is_time ? std::optional<Query>{std::move(parsed.query)} : std::nullopt;
}

std::variant<Searchable::Request, SearchProblem> search_request(const Arguments& arguments,
                                                                Timestamp now, UtcOffset zone) {
  const std::string text = query_text(arguments);
  query::Parsed parsed = query::parse(text, now, zone);
  if (parsed.error) return SearchProblem{query::error_text(text, *parsed.error, "search")};
  Searchable::Request request;
  request.query = std::move(parsed.query);
  if (!arguments.since.empty()) {
    auto since = since_node(arguments.since, now, zone);
    if (!since) {
      return SearchProblem{"--since: \"" + printable(arguments.since) +
                           "\" is neither an age such as 7d, a date such as 2026-11-14, nor a "
                           "time such as 2026-11-14T08:00"};
    }
    request.query = both(std::move(request.query), *std::move(since));
  }
  auto facets = facet_fields(arguments.facets);
  if (const auto* problem = std::get_if<SearchProblem>(&facets)) return *problem;
  request.facets = std::get<std::vector<QueryField>>(std::move(facets));
  const bool only_sums = arguments.count || !request.facets.empty();
  request.limit = only_sums ? 0 : static_cast<std::size_t>(arguments.limit);
  request.count = arguments.count;
  request.exact = arguments.count || arguments.exact;
  request.after = arguments.after;
  const bool has_lines = !(arguments.ids || arguments.nul || arguments.csv);
  request.most_lines = has_lines ? 3 : 0;
  request.context_lines = static_cast<std::size_t>(arguments.context);
  return request;
}

}  // namespace scriptorium::cli
