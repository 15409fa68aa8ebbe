#include "backends/catalog/search_facets.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "backends/catalog/search_judge.h"
#include "core/api/kit/search/query_matcher.h"

namespace scriptorium::catalog {
namespace {

constexpr std::int64_t kDayNs = kDay * kSecond;
// Different values that are counted; a field with more is not exact.
constexpr std::size_t kMostValues = 200'000;

std::optional<std::int64_t RawJob::*> column_of(QueryField field) {
  if (field == QueryField::kArray) return &RawJob::array_job;
  return name_column(field);
}

bool is_list(QueryField field) {
  return field == QueryField::kModule || field == QueryField::kDirective ||
         field == QueryField::kSoftware;
}

// A job with these columns and its outcome, as far as field_values() needs it.
JobRow row_for(SearchReader& reader, QueryField field, const RawJob& job) {
  JobRow row = job.id == 0 ? JobRow{} : reader.with_names(reader.outcome(job.id));
  row.time = Timestamp{job.time};
  row.complete = (job.flags & kIncompleteFlag) == 0;
  row.verified = (job.flags & kVerifiedFlag) != 0;
  row.redacted = (job.flags & kRedactedFlag) != 0;
  if (job.family != 0) row.family = static_cast<std::uint64_t>(job.family);
  if (field == QueryField::kJob) row.id = reader.job_id(job.id);
  if (field == QueryField::kScript && job.script != 0)
    row.script_sha256 = reader.sha256(job.script);
  return row;
}

bool is_daily_field(QueryField field) {
  return field == QueryField::kUser || field == QueryField::kAccount ||
         field == QueryField::kPartition || field == QueryField::kCluster ||
         field == QueryField::kVerified;
}

bool is_of_days(const Query& query) {
  switch (query.kind) {
    case Query::Kind::kAll: return true;
    case Query::Kind::kAnd:
    case Query::Kind::kOr:
    case Query::Kind::kNot:
      return std::all_of(query.children.begin(), query.children.end(), is_of_days);
    case Query::Kind::kField: return is_daily_field(query.field);
    case Query::Kind::kRange:
      // Day by day, a range that begins or ends within one is not decided.
      return query.field == QueryField::kSubmitted && (!query.from || *query.from % kDayNs == 0) &&
             (!query.to || *query.to == std::numeric_limits<std::int64_t>::max() ||
              (*query.to + 1) % kDayNs == 0);
    default: return false;
  }
}

}  // namespace

FacetCounter::FacetCounter(const std::vector<QueryField>& fields) {
  for (const QueryField field : fields) fields_.emplace_back().field = field;
}

void FacetCounter::count(Field& field, const std::string& value, std::uint64_t jobs) {
  const auto found = field.by_value.find(value);
  if (found != field.by_value.end()) {
    found->second += jobs;
  } else if (field.by_value.size() < kMostValues) {
    field.by_value.emplace(value, jobs);
  } else {
    field.too_many = true;
  }
}

void FacetCounter::add(SearchReader& reader, const RawJob& job, std::uint64_t jobs) {
  jobs_ += jobs;
  for (Field& field : fields_) {
    if (const auto column = column_of(field.field)) {
      if (job.**column != 0) field.by_name[reader.segment()][job.**column] += jobs;
      continue;
    }
    for (const std::string& value : field_values(field.field, row_for(reader, field.field, job)))
      count(field, value, jobs);
  }
}

void FacetCounter::end_segment(SearchReader& reader) {
  for (Field& field : fields_) {
    for (const auto& [name, jobs] : field.by_name[reader.segment()]) {
      const std::string text(reader.name(name));
      if (!is_list(field.field)) {
        count(field, text, jobs);
        continue;
      }
      for (const std::string& one : split_lines(text)) count(field, one, jobs);
    }
    field.by_name.erase(reader.segment());
  }
}

std::vector<Searchable::Facet> FacetCounter::take(std::size_t values, bool exact) {
  std::vector<Searchable::Facet> facets;
  for (Field& field : fields_) {
    Searchable::Facet& facet = facets.emplace_back();
    facet.field = field.field;
    facet.exact = exact && !field.too_many;
    facet.over = jobs_;
    for (const auto& [value, jobs] : field.by_value) facet.values.push_back({value, jobs});
    const auto is_before = [](const Searchable::FacetValue& a, const Searchable::FacetValue& b) {
      return a.jobs != b.jobs ? a.jobs > b.jobs : a.value < b.value;
    };
    std::sort(facet.values.begin(), facet.values.end(), is_before);
    if (facet.values.size() > values) facet.values.resize(values);
  }
  return facets;
}

bool is_of_daily_sums(const Query& query, const std::vector<QueryField>& facets) {
  return is_of_days(query) && std::all_of(facets.begin(), facets.end(), is_daily_field);
}

bool add_daily_sums(SearchReader& reader, const Condition& condition, const Visibility& visibility,
                    FacetCounter& counter) {
  // The sums do not know whose uid a job has.
  if (!visibility.all && !visibility.users.empty()) return false;
  sqlite::Statement uid(
      reader.db(), "SELECT 1 FROM names WHERE field = ? AND text = ? AND typeof(text) = 'text'");
  for (const Condition::Leaf& leaf : condition.leaves()) {
    if (leaf.query.kind == Query::Kind::kField && leaf.query.field == QueryField::kUser &&
        uid.first(kNameOfUid, std::string_view(leaf.query.text)))
      return false;
  }
  Judge judge(reader, condition, visibility);
  sqlite::Statement sums(
      reader.db(), "SELECT day, cluster, user, account, partition, verified, jobs FROM daily");
  while (sums.step()) {
    RawJob job;
    std::int64_t day = 0;
    std::int64_t verified = 0;
    std::int64_t jobs = 0;
    sums.read(day, job.cluster, job.user, job.account, job.partition, verified, jobs);
    if (jobs <= 0) continue;
    job.time = day * kDayNs;
    job.flags = verified != 0 ? kVerifiedFlag : 0;
    if (judge.is_visible(job) && judge.by_row(job) == Truth::kYes)
      counter.add(reader, job, static_cast<std::uint64_t>(jobs));
  }
  counter.end_segment(reader);
  return true;
}

}  // namespace scriptorium::catalog
