#include "core/cli/user_summaries.h"

#include <algorithm>

#include "core/query/sum.h"

namespace scriptorium::cli {
namespace {

constexpr std::size_t kMostFindings = 3;
constexpr std::size_t kMostParts = 10;

std::vector<mail::Part> most_wasteful(const std::map<std::string, mail::Sum>& sums) {
  std::vector<mail::Part> parts;
  for (const auto& [name, sum] : sums) parts.push_back({name, sum});
  std::stable_sort(parts.begin(), parts.end(), [](const mail::Part& a, const mail::Part& b) {
    return a.sum.wasted_core_hours() > b.sum.wasted_core_hours();
  });
  parts.resize(std::min(parts.size(), kMostParts));
  return parts;
}

}  // namespace

void UserSummaries::add(const JobRun& run) {
  if (run.ended_at < period_.before || run.ended_at >= period_.until) return;
  ClusterFigures& cluster = clusters_[run.cluster];
  add_to(cluster, run);
  if (run.ended_at >= period_.from) cluster.accounts[run.account.value_or("")].add(run);
  if (!run.verified || run.user.value_or("").empty()) return;
  add_to(people_[{run.cluster, *run.user}], run);
  if (run.account.value_or("").empty()) return;
  AccountFigures& account = accounts_[{run.cluster, *run.account}];
  add_to(account, run);
  if (run.ended_at >= period_.from) account.users[*run.user].add(run);
}

void UserSummaries::add_to(Figures& figures, const JobRun& run) const {
  if (run.ended_at < period_.from) return figures.before.add(run);
  figures.now.add(run);
  if (!run.unused_core_seconds && !run.unused_gpu_seconds) ++figures.unmeasured;
  mail::Sum alone;
  alone.add(run);
  for (const std::string& id : run.findings) {
    Finding& finding = figures.findings[id];
    finding.sum.add(run);
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
  mail::Summary summary{.audience = mail::Audience::kUser,
                        .cluster = cluster,
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
  summary.audience = mail::Audience::kStaff;
  summary.accounts = most_wasteful(figures.accounts);
  return summary;
}

mail::Summary UserSummaries::of_accounts(const Person& coordinator,
                                         const std::set<std::string>& accounts,
                                         bool with_users) const {
  Figures all;
  std::map<std::string, mail::Sum> of_accounts;
  std::map<std::string, mail::Sum> of_users;
  for (const std::string& name : accounts) {
    const auto found = accounts_.find({coordinator.first, name});
    if (found == accounts_.end()) continue;
    const AccountFigures& account = found->second;
    all.now += account.now;
    all.before += account.before;
    all.unmeasured += account.unmeasured;
    for (const auto& [id, finding] : account.findings) all.findings[id].sum += finding.sum;
    if (account.now.jobs > 0) of_accounts[name] = account.now;
    for (const auto& [user, sum] : account.users) of_users[user] += sum;
  }
  mail::Summary summary = summary_of(coordinator.first, coordinator.second, all);
  summary.audience = mail::Audience::kCoordinator;
  summary.accounts = most_wasteful(of_accounts);
  if (with_users) summary.users = most_wasteful(of_users);
  return summary;
}

std::vector<std::string> UserSummaries::examples(const Person& person) const {
  std::vector<std::string> keys;
  for (const auto& [id, finding] : most_costly(people_.at(person)))
    keys.push_back(finding->example);
  return keys;
}

}  // namespace scriptorium::cli
