// What a person types, up to the first NUL, held against the bytes behind it: an error lies within
// the query, a tree becomes text and the same tree again, and whatever is found is found by every
// way to look for it.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/api/kit/search/query_matcher.h"
#include "core/api/kit/search/text_matcher.h"
#include "core/query/parse.h"

namespace {

using namespace scriptorium;

void check_texts(const Query& query, const std::string& bytes) {
  if (query.kind == Query::Kind::kText || query.kind == Query::Kind::kExpression) {
    const auto matcher = TextMatcher::create(query);
    if (!matcher) std::abort();
    const auto found = matcher->find(bytes);
    if (found && (found->first > found->second || found->second > bytes.size())) std::abort();
    if (found.has_value() != matcher->matches(bytes)) std::abort();
    if (found && !matcher->may_match("x " + bytes + " x")) std::abort();
  }
  for (const Query& child : query.children) check_texts(child, bytes);
}

void forget_positions(Query& query) {
  query.position = 0;
  for (Query& child : query.children) forget_positions(child);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t nul = input.find('\0');
  const std::string text(input.substr(0, nul));
  const std::string bytes(nul == std::string_view::npos ? "" : input.substr(nul + 1));
  const Timestamp now{1'795'275'000 * kSecond};
  const UtcOffset zone = [](Timestamp) { return std::int64_t{3600}; };

  query::Parsed parsed = query::parse(text, now, zone);
  if (parsed.error) {
    if (parsed.error->position > text.size() || parsed.error->length == 0) std::abort();
    if (query::error_text(text, *parsed.error, "fuzz").empty()) std::abort();
    return 0;
  }
  const std::string again = query::to_text(parsed.query);
  query::Parsed second = query::parse(again, now, zone);
  // More quotes and brackets than were typed may exceed a limit.
  if (second.error) {
    if (again.size() <= kMostQueryBytes && !second.error->problem.starts_with("too")) std::abort();
  } else {
    forget_positions(parsed.query);
    forget_positions(second.query);
    if (!(second.query == parsed.query)) std::abort();
  }
  check_texts(parsed.query, bytes);

  const auto matcher = QueryMatcher::create(parsed.query);
  if (!matcher) std::abort();
  JobRow job;
  job.user = "alice";
  job.modules = {"GROMACS/2023"};
  const JobTexts texts{[&](JobPart) { return std::string_view(bytes); }};
  const bool found = matcher->matches(job, texts);
  const auto verdict = matcher->judge(job);
  if (verdict != QueryMatcher::Verdict::kNeedsText &&
      found != (verdict == QueryMatcher::Verdict::kYes))
    std::abort();
  for (const Searchable::Line& line : matcher->lines(texts, 3, 1)) {
    if (line.text.size() > 1024 || line.number == 0) std::abort();
    for (const auto& [begin, end] : line.marks) {
      if (begin >= end || end > line.text.size()) std::abort();
    }
  }
  return 0;
}
