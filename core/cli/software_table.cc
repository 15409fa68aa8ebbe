#include "core/cli/software_table.h"

#include <algorithm>
#include <utility>

#include "core/api/kit/search/job_facts.h"

namespace scriptorium::cli {

void SoftwareTable::count(Key key, const JobRow& job) {
  Sum& sum = sums_[key];
  sum.use.kind = std::move(key.kind);
  sum.use.name = std::move(key.name);
  sum.use.by = std::move(key.by);
  ++sum.use.jobs;
  if (job.user || job.uid) sum.users.insert(job.user ? *job.user : *job.uid);
  if (job.cpu_seconds) {
    ++sum.use.measured_jobs;
    sum.use.cpu_hours += *job.cpu_seconds / 3600;
  }
  if (!sum.use.last || *sum.use.last < job.time) sum.use.last = job.time;
}

void SoftwareTable::add(const JobRow& job) {
  ++jobs_;
  measured_ += job.cpu_seconds ? 1 : 0;
  const std::string by = by_ == SoftwareBy::kUser      ? job.user.value_or("")
                         : by_ == SoftwareBy::kAccount ? job.account.value_or("")
                                                       : "";
  for (const std::string& module : std::set<std::string>(job.modules.begin(), job.modules.end()))
    count({"module", module, by}, job);
  for (const std::string& used : job.software) {
    const auto [kind, name] = software_parts(used);
    count({std::string(kind), std::string(name), by}, job);
  }
  if (job.interpreter) count({"interpreter", *job.interpreter, by}, job);
}

namespace {
// Modules first, interpreters last.
int rank(const SoftwareUse& use) {
  return use.kind == "module" ? 0 : use.kind == "interpreter" ? 2 : 1;
}
}  // namespace

std::vector<SoftwareUse> SoftwareTable::rows() const {
  std::vector<SoftwareUse> rows;
  for (const auto& [key, sum] : sums_) {
    rows.push_back(sum.use);
    rows.back().users = sum.users.size();
  }
  std::sort(rows.begin(), rows.end(), [](const SoftwareUse& a, const SoftwareUse& b) {
    if (a.kind != b.kind) return rank(a) != rank(b) ? rank(a) < rank(b) : a.kind < b.kind;
    if (a.jobs != b.jobs) return a.jobs > b.jobs;
    return a.name != b.name ? a.name < b.name : a.by < b.by;
  });
  return rows;
}

}  // namespace scriptorium::cli
