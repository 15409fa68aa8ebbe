#include "core/cli/user_summaries.h"

#include <algorithm>

#include "core/cli/report_sums.h"

namespace scriptorium::cli {
namespace {

constexpr std::size_t kMostFindings = 3;
constexpr std::size_t kMostAccounts = 10;

}  // namespace

void UserSummaries::add(const JobRun& run) {
  if (run.ended_at < period_.before || run.ended_at >= period_.until) return;
  ClusterFigures& cluster = clusters_[run.cluster];
  add_to(cluster, run);
  if (run.ended_at >= period_.from) add_run(cluster.accounts[run.account.value_or("")], run);
  if (run.verified && !run.user.value_or("").empty())
    add_to(people_[{run.cluster, *run.user}], run);
}

void UserSummaries::add_to(Figures& figures, const JobRun& run) const {
  if (run.ended_at < period_.from) return add_run(figures.before, run);
  add_run(figures.now, run);
  if (!run.unused_core_seconds && !run.unused_gpu_seconds) ++figures.unmeasured;
  mail::Sum alone;
  add_run(alone, run);
  for (const std::string& id : run.findings) {
    Finding& finding = figures.findings[id];
    add_run(finding.sum, run);
    if (alone.wasted_core_hours() <= finding.most) continue;
    finding.most = alone.wasted_core_hours();
    finding.example = run.key;
  }
}

std::vector<Person> UserSummaries::people() const {
  std::vector<Person> list;
  for (const auto& [person, figures] : people_) {
    if (figures.now.jobs > 0) list.push_back(person);
  }
  return list;
}

std::vector<UserSummaries::Costly> UserSummaries::most_costly(const Figures& figures) const {
  std::vector<Costly> list;
  for (const auto& [id, finding] : figures.findings) list.emplace_back(id, &finding);
  std::stable_sort(list.begin(), list.end(), [](const Costly& a, const Costly& b) {
    const auto cost = [](const Costly& c) {
      return std::pair(c.second->sum.wasted_core_hours(), c.second->sum.jobs);
    };
    return cost(a) > cost(b);
  });
  list.resize(std::min(list.size(), kMostFindings));
  return list;
}

mail::Summary UserSummaries::summary_of(const std::string& cluster, const std::string& user,
                                        const Figures& figures) const {
  mail::Summary summary{.cluster = cluster,
                        .user = user,
                        .period = period_,
                        .now = figures.now,
                        .before = figures.before,
                        .unmeasured_jobs = figures.unmeasured};
  for (const auto& [id, finding] : most_costly(figures))
    summary.findings.push_back({.id = id, .sum = finding->sum});
  return summary;
}

const mail::Sum& UserSummaries::sum(const Person& person) const { return people_.at(person).now; }

mail::Summary UserSummaries::summary(const Person& person) const {
  return summary_of(person.first, person.second, people_.at(person));
}

std::vector<std::string> UserSummaries::clusters() const {
  std::vector<std::string> list;
  for (const auto& [cluster, figures] : clusters_) {
    if (figures.now.jobs > 0) list.push_back(cluster);
  }
  return list;
}

mail::Summary UserSummaries::of_cluster(const std::string& cluster) const {
  const ClusterFigures& figures = clusters_.at(cluster);
  mail::Summary summary = summary_of(cluster, "", figures);
  for (const auto& [account, sum] : figures.accounts) summary.accounts.push_back({account, sum});
  std::stable_sort(summary.accounts.begin(), summary.accounts.end(),
                   [](const mail::Part& a, const mail::Part& b) {
                     return a.sum.wasted_core_hours() > b.sum.wasted_core_hours();
                   });
  summary.accounts.resize(std::min(summary.accounts.size(), kMostAccounts));
  return summary;
}

std::vector<std::string> UserSummaries::examples(const Person& person) const {
  std::vector<std::string> keys;
  for (const auto& [id, finding] : most_costly(people_.at(person)))
    keys.push_back(finding->example);
  return keys;
}

}  // namespace scriptorium::cli
