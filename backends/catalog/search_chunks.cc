#include "backends/catalog/search_chunks.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <string>
#include <utility>

#include "backends/catalog/names.h"
#include "core/api/kit/search/query_matcher.h"
#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium::catalog {
namespace {

constexpr std::int64_t kLeastValue = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMostValue = std::numeric_limits<std::int64_t>::max();
// Beyond these the index saves no time: the rows are read instead.
constexpr std::size_t kMostNamesRead = 20'000;
constexpr std::size_t kMostNamesUsed = 1'000;
constexpr std::size_t kMostJobs = 5'000;
constexpr std::size_t kMostContents = 1'000;

std::string_view literal_prefix(std::string_view pattern) {
  return pattern.substr(0, pattern.find('*'));
}

// The first text that sorts after every text with this prefix: without case, or byte by byte.
// Nothing if there is none.
std::optional<std::string> end_of_prefix(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (prefix.empty()) return std::nullopt;
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

std::optional<std::uint64_t> hex_number(std::string_view digits) {
  std::uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

JobRow row_with_name(QueryField field, std::string_view text) {
  JobRow row;
  std::string value(text);
  switch (field) {
    case QueryField::kUser: row.user = std::move(value); break;
    case QueryField::kAccount: row.account = std::move(value); break;
    case QueryField::kPartition: row.partition = std::move(value); break;
    case QueryField::kQos: row.qos = std::move(value); break;
    case QueryField::kName: row.name = std::move(value); break;
    case QueryField::kCluster: row.cluster = std::move(value); break;
    case QueryField::kScheduler: row.scheduler = std::move(value); break;
    case QueryField::kWorkDir: row.work_dir = std::move(value); break;
    case QueryField::kInterpreter: row.interpreter = std::move(value); break;
    case QueryField::kState: row.state = std::move(value); break;
    case QueryField::kArray: row.array_job_id = std::move(value); break;
    case QueryField::kModule: row.modules.push_back(std::move(value)); break;
    case QueryField::kDirective: row.directives.push_back(std::move(value)); break;
    case QueryField::kSoftware: row.software.push_back(std::move(value)); break;
    case QueryField::kNode: row.nodes.push_back(std::move(value)); break;
    case QueryField::kFinding: row.findings.push_back(std::move(value)); break;
    default: break;
  }
  return row;
}

TimeSpan overlap(const TimeSpan& a, const TimeSpan& b) {
  return {std::max(a.from, b.from), std::min(a.to, b.to)};
}
TimeSpan hull(const TimeSpan& a, const TimeSpan& b) {
  if (a.from > a.to) return b;
  if (b.from > b.to) return a;
  return {std::min(a.from, b.from), std::max(a.to, b.to)};
}

}  // namespace

TimeSpan time_span(const Query& query) {
  switch (query.kind) {
    case Query::Kind::kAnd: {
      TimeSpan span;
      for (const Query& child : query.children) span = overlap(span, time_span(child));
      return span;
    }
    case Query::Kind::kOr: {
      TimeSpan span{kMostValue, kLeastValue};
      for (const Query& child : query.children) span = hull(span, time_span(child));
      return span;
    }
    case Query::Kind::kRange:
      if (query.field != QueryField::kSubmitted) return {};
      return {query.from.value_or(kLeastValue), query.to.value_or(kMostValue)};
    default: return {};
  }
}

FieldIndex::FieldIndex(SearchReader& reader)
    : reader_(reader),
      equal_names_(reader.db(), kSelectSameNames),
      names_between_(reader.db(),
                     "SELECT id, text FROM names WHERE field = ?1 AND text >= ?2 COLLATE NOCASE "
                     "AND text < ?3 COLLATE NOCASE AND typeof(text) = 'text'"),
      fields_(reader.db()),
      keys_(reader.db(), "SELECT id FROM contents WHERE key BETWEEN ? AND ?"),
      numbers_between_(reader.db(), "SELECT id FROM jobs WHERE job BETWEEN ? AND ?"),
      texts_between_(reader.db(), "SELECT id FROM jobs WHERE job >= ? AND job < ?"),
      owners_(reader.db(), "SELECT id, name FROM owners ORDER BY id") {}

IdSet FieldIndex::chunks(const Query& query) {
  switch (query.kind) {
    case Query::Kind::kAnd: {
      IdSet set = IdSet::all();
      for (const Query& child : query.children) set &= chunks(child);
      return set;
    }
    case Query::Kind::kOr: {
      IdSet set;
      for (const Query& child : query.children) {
        set |= chunks(child);
        if (set.is_unlimited()) return IdSet::all();
      }
      return set;
    }
    case Query::Kind::kField: return field_chunks(query);
    case Query::Kind::kRange: return range_chunks(query);
    default: return IdSet::all();
  }
}

std::optional<std::int64_t> FieldIndex::uid_name(std::string_view text) {
  return equal_names_.first(kNameOfUid, text);
}

IdSet FieldIndex::chunks_of_values(std::int64_t field, std::vector<std::int64_t> values) {
  IdSet set;
  if (values.empty()) return set;
  std::sort(values.begin(), values.end());
  // The keys of kAccountsOfOwner have owners.
  const FieldReader::Chunks chunks = field == kAccountsOfOwner ? FieldReader::Chunks{} : limit_;
  fields_.for_each(field, chunks, [&](std::int64_t key, std::string_view list) {
    if (may_have_value(list, values)) set.add(chunk_of_key(key));
  });
  return set;
}

IdSet FieldIndex::chunks_of_range(std::int64_t field, std::int64_t from, std::int64_t to) {
  IdSet set;
  fields_.for_each(field, limit_, [&](std::int64_t key, std::string_view list) {
    if (may_have_value(list, from, to)) set.add(chunk_of_key(key));
  });
  return set;
}

IdSet FieldIndex::chunks_of_jobs(const std::vector<std::int64_t>& jobs) {
  IdSet set;
  for (const std::int64_t job : jobs) set.add(job / kChunkJobs);
  return set;
}

std::optional<std::vector<std::int64_t>> FieldIndex::names(QueryField field, const Query& query) {
  std::vector<std::int64_t> found;
  std::size_t read = 0;
  const bool by_part = field == QueryField::kSoftware;  // which may be behind the kind
  const bool shortened = by_part || field == QueryField::kModule || field == QueryField::kDirective;
  const bool exact = !shortened && query.text.find('*') == std::string::npos;
  sqlite::Statement& statement = exact ? equal_names_ : names_between_;
  if (exact) {
    statement.bind(name_field(field), std::string_view(query.text));
  } else {
    // A comparison without case ends at a NUL.
    const std::string prefix =
        by_part ? ""
                : to_lower(literal_prefix(
                      std::string_view(query.text).substr(0, query.text.find('\0'))));
    statement.bind(name_field(field), std::string_view(prefix));
    if (const auto end = end_of_prefix(prefix)) {
      statement.bind(std::string_view(*end));
    } else {
      statement.bind(sqlite::Blob{""});  // sorts after every text
    }
  }
  while (statement.step()) {
    if (field_matches(query, row_with_name(field, statement.text(1))))
      found.push_back(statement.integer(0));
    if (++read > kMostNamesRead || found.size() > kMostNamesUsed) {
      statement.reset();
      return std::nullopt;
    }
  }
  return found;
}

IdSet FieldIndex::chunks_of_script(std::string_view prefix) {
  if (prefix.empty() || prefix.size() > 64) return IdSet::all();
  std::string first(prefix.substr(0, 16));
  std::string last = first;
  first.append(16 - first.size(), '0');
  last.append(16 - last.size(), 'f');
  const auto from = hex_number(first);
  const auto to = hex_number(last);
  if (!from || !to) return IdSet::all();
  std::vector<std::int64_t> contents;
  // Both ends have the same first bit, so their order as signed integers is the same.
  keys_.bind(static_cast<std::int64_t>(*from), static_cast<std::int64_t>(*to));
  while (keys_.step() && contents.size() <= kMostContents) contents.push_back(keys_.integer(0));
  keys_.reset();
  if (contents.size() > kMostContents) return IdSet::all();
  IdSet set;
  for (const std::int64_t content : contents) {
    reader_.for_each_job_of_script(content,
                                   [&](const RawJob& job) { set.add(job.id / kChunkJobs); });
  }
  return set;
}

IdSet FieldIndex::chunks_of_job_id(std::string_view pattern) {
  const bool exact = pattern.find('*') == std::string_view::npos;
  // Up to the first byte that another case or the pattern lets differ.
  std::size_t size = 0;
  while (size < pattern.size() && pattern[size] != '*' && pattern[size] != '\0' &&
         to_lower(pattern[size]) == pattern[size] &&
         !(pattern[size] >= 'a' && pattern[size] <= 'z'))
    ++size;
  const std::string prefix(pattern.substr(0, size));
  if (prefix.empty()) return IdSet::all();
  std::vector<std::int64_t> jobs;
  const auto collect = [&](sqlite::Statement& from) {
    while (jobs.size() <= kMostJobs && from.step()) jobs.push_back(from.integer(0));
    from.reset();
  };
  if (const auto number = job_number(prefix)) {
    // 47* is 47, 470 to 479, 4700 to 4799 and so on.
    const bool whole = exact && size == pattern.size();
    std::int64_t from = *number;
    std::int64_t count = 1;
    for (int digits = 0; digits < 19; ++digits) {
      numbers_between_.bind(from, from + (count - 1));
      collect(numbers_between_);
      if (whole || from == 0 || from > (kMostValue - 9) / 10 || (from + count) > kMostValue / 10)
        break;
      from *= 10;
      count *= 10;
    }
  }
  texts_between_.bind(std::string_view(prefix));
  if (const auto end = end_of_prefix(prefix)) {
    texts_between_.bind(std::string_view(*end));
    collect(texts_between_);
  } else {
    return IdSet::all();
  }
  return jobs.size() > kMostJobs ? IdSet::all() : chunks_of_jobs(jobs);
}

IdSet FieldIndex::field_chunks(const Query& query) {
  const QueryField field = query.field;
  switch (field) {
    case QueryField::kJob: return chunks_of_job_id(query.text);
    case QueryField::kScript:
      return query.text.find('*') == std::string::npos ? chunks_of_script(to_lower(query.text))
                                                       : IdSet::all();
    case QueryField::kArray:
      if (query.text == "true" || query.text == "false") return IdSet::all();
      break;
    case QueryField::kFinding: {
      JobRow redacted;
      redacted.redacted = true;
      if (field_matches(query, redacted)) return IdSet::all();
      break;
    }
    case QueryField::kComplete:
    case QueryField::kVerified: {
      std::vector<std::int64_t> values;
      for (const bool value : {false, true}) {
        JobRow row;
        row.complete = value;
        row.verified = value;
        if (field_matches(query, row)) values.push_back(value ? 1 : 0);
      }
      return chunks_of_values(name_field(field), std::move(values));
    }
    case QueryField::kFamily:
    case QueryField::kExit: {
      const auto number = parse_number<std::int64_t>(query.text);
      if (!number) return IdSet::all();
      return chunks_of_values(name_field(field), {*number});
    }
    case QueryField::kElapsed:
    case QueryField::kMemory:
    case QueryField::kCpu:
    case QueryField::kGpu:
    case QueryField::kSubmitted:
    case QueryField::kStarted:
    case QueryField::kEnded:
    case QueryField::kSecret:
    case QueryField::kRequestedMemory:
    case QueryField::kRequestedCpu:
    case QueryField::kRequestedGpu:
    case QueryField::kRequestedTime: return IdSet::all();
    default: break;
  }
  auto list = names(field, query);
  if (!list) return IdSet::all();
  IdSet set = chunks_of_values(name_field(field), *std::move(list));
  if (field == QueryField::kUser) {
    if (const auto uid = uid_name(query.text)) set |= chunks_of_values(kNameOfUid, {*uid});
  }
  return set;
}

IdSet FieldIndex::range_chunks(const Query& query) {
  if (query.field == QueryField::kExit && !query.percent)
    return chunks_of_range(name_field(query.field), query.from.value_or(kLeastValue),
                           query.to.value_or(kMostValue));
  // Ranges of submission are held against the chunks' own times.
  return IdSet::all();
}

IdSet FieldIndex::visible_chunks(const Visibility& visibility) {
  if (visibility.all) return IdSet::all();
  IdSet set;
  const auto add = [&](QueryField field, std::string_view value) {
    std::vector<std::int64_t> ids;
    equal_names_.bind(name_field(field), value);
    while (equal_names_.step()) ids.push_back(equal_names_.integer(0));
    set |= chunks_of_values(name_field(field), std::move(ids));
  };
  for (const Visibility::User& user : visibility.users) add(QueryField::kUser, user.name);
  for (const Visibility::Account& account : visibility.accounts)
    add(QueryField::kAccount, account.name);
  return set;
}

namespace {

// What a query asks of a field where all else is beside the point: each must hold.
void collect_required(const Query& query, QueryField field, std::vector<const Query*>& required) {
  if (query.kind == Query::Kind::kField && query.field == field) required.push_back(&query);
  if (query.kind != Query::Kind::kAnd) return;
  for (const Query& child : query.children) collect_required(child, field, required);
}

// owners.name without its mark.
std::string_view user_of_owner(std::string_view name) {
  if (name.starts_with('?')) name.remove_prefix(1);
  return name;
}

}  // namespace

IdSet FieldIndex::owners_with_account(const Query& query) {
  IdSet owners = IdSet::all();
  std::vector<const Query*> accounts;
  collect_required(query, QueryField::kAccount, accounts);
  for (const Query* const account : accounts) {
    const auto list = names(QueryField::kAccount, *account);
    if (list) owners &= chunks_of_values(kAccountsOfOwner, *list);
  }
  return owners;
}

std::optional<std::vector<std::int64_t>> FieldIndex::owners(const Query& query,
                                                            const Visibility& visibility) {
  std::vector<const Query*> users;
  collect_required(query, QueryField::kUser, users);
  std::erase_if(users, [&](const Query* user) { return uid_name(user->text).has_value(); });
  const bool visible_by_name = !visibility.all && visibility.accounts.empty();
  const IdSet with_account = owners_with_account(query);
  if (users.empty() && !visible_by_name && with_account.is_unlimited()) return std::nullopt;
  std::vector<std::int64_t> ids;
  owners_.bind();
  while (owners_.step()) {
    const std::string_view name = user_of_owner(owners_.text(1));
    JobRow row;
    row.user = std::string(name);
    const bool asked = std::all_of(users.begin(), users.end(),
                                   [&](const Query* user) { return field_matches(*user, row); });
    const bool visible =
        !visible_by_name ||
        std::any_of(visibility.users.begin(), visibility.users.end(),
                    [&](const Visibility::User& user) { return user.name == name; });
    if (asked && visible && with_account.has(owners_.integer(0))) ids.push_back(owners_.integer(0));
  }
  return ids;
}

}  // namespace scriptorium::catalog
