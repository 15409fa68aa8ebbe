#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "core/api/query.h"
#include "core/api/searchable.h"
#include "core/base/result.h"

namespace scriptorium {

// The texts of one job, read when they are needed. A part that is not stored is empty.
struct JobTexts {
  std::function<std::string_view(JobPart)> read;  // the view lives as long as the job is looked at
};

// The reference meaning of a whole query: every searchable sink must find exactly the jobs that
// this finds.
// Threads: any, several at once.
class QueryMatcher {
 public:
  // kInvalidConfig: as TextMatcher::create().
  static Result<QueryMatcher> create(const Query& query);
  QueryMatcher(QueryMatcher&&) noexcept;
  QueryMatcher& operator=(QueryMatcher&&) noexcept;
  ~QueryMatcher();

  // Reads a text only if the row does not decide.
  bool matches(const JobRow& job, const JobTexts& texts) const;

  enum class Verdict { kNo, kYes, kNeedsText };
  Verdict judge(const JobRow& job) const;  // by the row alone

  // Every text and expression outside of a negation: what a hit's lines show.
  bool has_text() const noexcept;
  // The lines of a hit in which they are found, in order, at most `most`, each with `context` lines
  // before and after it.
  std::vector<Searchable::Line> lines(const JobTexts& texts, std::size_t most,
                                      std::size_t context) const;

 private:
  struct Impl;
  explicit QueryMatcher(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Whether one kField, kRange or kAll node holds for a row (kVariable needs the environment).
bool field_matches(const Query& node, const JobRow& job);

// The values that a job has in a field, for facets: none if unknown, several for modules, nodes,
// findings and directives.
std::vector<std::string> field_values(QueryField field, const JobRow& job);

}  // namespace scriptorium
