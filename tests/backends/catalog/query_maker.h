#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/event.h"
#include "core/query/parse.h"
#include "tests/backends/catalog/search_lab.h"

namespace scriptorium::test {

// Random queries whose terms are drawn from jobs, so that they find something.
class QueryMaker {
 public:
  QueryMaker(JobMaker& make, const std::vector<SearchLab::Job>& jobs) : make_(make), jobs_(jobs) {}

  Query query(int depth = 3) {
    Query query;
    const std::size_t kind = make_.below(depth > 0 ? 10 : 6);
    switch (kind) {
      case 6:
      case 7: query.kind = Query::Kind::kAnd; break;
      case 8: query.kind = Query::Kind::kOr; break;
      case 9:
        query.kind = Query::Kind::kNot;
        query.children.push_back(this->query(depth - 1));
        return query;
      case 0:
      case 1:
      case 2: return text();
      case 3:
      case 4: return make_.one_in(3) ? range() : field();
      default: return make_.one_in(3) ? variable() : make_.one_in(8) ? Query{} : expression();
    }
    const std::size_t children = 2 + make_.below(2);
    for (std::size_t i = 0; i < children; ++i) query.children.push_back(this->query(depth - 1));
    return query;
  }

 private:
  const SearchLab::Job& job() { return jobs_[make_.below(jobs_.size())]; }

  std::string in_odd_case(std::string text) {
    if (!make_.one_in(3)) return text;
    for (char& c : text) {
      if (make_.one_in(2) && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    return text;
  }

  // From a text of a job: words, parts of words, runs with punctuation.
  std::string part_of(const std::string& whole) {
    if (whole.empty()) return make_.any(JobMaker::kWords);
    std::size_t begin = make_.below(whole.size());
    std::size_t end = std::min(whole.size(), begin + 1 + make_.below(make_.one_in(3) ? 25 : 9));
    if (!make_.one_in(4)) {
      // To the edges of words, mostly.
      while (begin > 0 && is_word_byte(whole[begin]) && is_word_byte(whole[begin - 1])) --begin;
      while (end < whole.size() && is_word_byte(whole[end - 1]) && is_word_byte(whole[end])) ++end;
    }
    return whole.substr(begin, end - begin);
  }

  Query text() {
    Query query;
    query.kind = Query::Kind::kText;
    query.part = make_.one_in(8) ? JobPart::kEnvironment : JobPart::kScript;
    if (make_.one_in(3)) {
      query.text = make_.any(JobMaker::kWords);
      if (make_.one_in(12)) query.text = "rare" + std::to_string(make_.below(400));
    } else {
      const SearchLab::Job& from = job();
      query.text = part_of(query.part == JobPart::kScript ? from.script : from.environment);
    }
    query.text = in_odd_case(query.text);
    if (make_.one_in(3)) {
      query.prefix = true;
      query.text.resize(1 + make_.below(query.text.size()));
    }
    if (make_.one_in(40)) query.text = make_.one_in(2) ? "  " : "$";
    return query;
  }

  Query expression() {
    static const std::vector<std::string> kExpressions{"gro[m]acs",
                                                       "run|echo",
                                                       "mpirun\\s+np",
                                                       "^#SBATCH --mem=\\d+G",
                                                       "x*",
                                                       "rare1\\d\\d",
                                                       "\\bdata\\b",
                                                       "gamma$",
                                                       "(alpha|beta)_run",
                                                       "^$",
                                                       "[a-z]+_[0-9]+",
                                                       "GMX_MPI",
                                                       "export.PATH",
                                                       "np.{0,3}16",
                                                       "\\x00",
                                                       "OMP_NUM_THREADS=[3-8]",
                                                       "NOTE=.*run",
                                                       "/(run|sort)/",
                                                       ".echo.",
                                                       "-train-",
                                                       "=data=",
                                                       " python ",
                                                       "bash\n",
                                                       "\xff"};
    Query query;
    query.kind = Query::Kind::kExpression;
    query.text = make_.any(kExpressions);
    query.part = make_.one_in(5) ? JobPart::kEnvironment : JobPart::kScript;
    query.ignore_case = make_.one_in(3);
    return query;
  }

  Query variable() {
    Query query;
    query.kind = Query::Kind::kVariable;
    static const std::vector<std::string> kNames{"OMP_NUM_THREADS", "OMP*", "USER", "NOTE", "*"};
    static const std::vector<std::string> kValues{"1", "2", "*", "alice", "*run*", "ECHO*", "bob"};
    query.name = make_.any(kNames);
    query.text = make_.any(kValues);
    return query;
  }

  Query field() {
    Query query;
    query.kind = Query::Kind::kField;
    query.field = static_cast<QueryField>(make_.below(kQueryFieldCount));
    const std::vector<std::string> values = field_values(query.field, job().row);
    query.text = values.empty() ? make_.any(JobMaker::kWords) : make_.any(values);
    const std::size_t shape = make_.below(8);
    const std::size_t cut = make_.below(query.text.size() + 1);
    if (shape == 0) query.text = query.text.substr(0, cut) + "*";
    if (shape == 1) query.text = "*" + query.text.substr(cut);
    if (shape == 2) query.text.insert(cut, "*");
    if (shape == 3) query.text.resize(cut);
    if (query.field == QueryField::kModule && shape > 4)
      query.text = query.text.substr(0, query.text.find('/'));
    if (query.field == QueryField::kDirective && shape > 4)
      query.text = query.text.substr(0, query.text.find('='));
    if (query.field == QueryField::kUser && shape == 7) query.text = job().row.uid.value_or("0");
    if (query.field == QueryField::kArray && shape > 5) query.text = shape == 6 ? "true" : "false";
    query.text = in_odd_case(query.text);
    return query;
  }

  Query range() {
    static const std::vector<QueryField> kFields{
        QueryField::kExit, QueryField::kElapsed,   QueryField::kMemory,    QueryField::kCpu,
        QueryField::kGpu,  QueryField::kSubmitted, QueryField::kSubmitted, QueryField::kEnded};
    Query query;
    query.kind = Query::Kind::kRange;
    query.field = make_.any(kFields);
    const JobRow& row = job().row;
    std::int64_t value = 0;
    switch (query.field) {
      case QueryField::kExit: value = row.exit_code.value_or(1); break;
      case QueryField::kElapsed:
        value = static_cast<std::int64_t>(row.elapsed_seconds.value_or(9));
        break;
      case QueryField::kMemory:
        value = static_cast<std::int64_t>(row.memory_peak_bytes.value_or(9));
        break;
      case QueryField::kCpu: value = static_cast<std::int64_t>(row.cpus.value_or(4)); break;
      case QueryField::kGpu: value = static_cast<std::int64_t>(row.gpus.value_or(1)); break;
      case QueryField::kEnded: value = row.ended_at.value_or(row.time).nanoseconds; break;
      default: value = row.time.nanoseconds;
    }
    constexpr std::int64_t kDayNs = 86'400 * kSecond;
    if (query.field == QueryField::kSubmitted && make_.one_in(2)) value -= value % kDayNs;
    if (query.field == QueryField::kMemory || query.field == QueryField::kCpu) {
      query.percent = make_.one_in(3);
      if (query.percent) value = static_cast<std::int64_t>(make_.below(100));
    }
    const std::size_t ends = make_.below(3);
    if (ends != 0) query.from = value;
    if (ends != 1) {
      query.to = value + (query.field == QueryField::kSubmitted && make_.one_in(2)
                              ? static_cast<std::int64_t>(make_.below(20)) * kDayNs - 1
                              : static_cast<std::int64_t>(make_.below(5)));
    }
    return query;
  }

  JobMaker& make_;
  const std::vector<SearchLab::Job>& jobs_;
};

}  // namespace scriptorium::test
