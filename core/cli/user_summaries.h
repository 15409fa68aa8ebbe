#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/api/query.h"
#include "core/mail/period.h"
#include "core/mail/summary.h"

namespace scriptorium::cli {

// A cluster and a user.
using Person = std::pair<std::string, std::string>;

// What the jobs of each user on each cluster had and wasted in a period, those of each account, and
// those of each cluster, from their runs. For a user and an account count only jobs whose owner the
// scheduler confirmed, for a cluster all of them. Memory: grows with the users, not with the runs.
// Pure.
class UserSummaries {
 public:
  explicit UserSummaries(mail::CalendarPeriod period) : period_(period) {}

  // A run with its origin.
  void add(const JobRun& run);
  bool empty() const { return clusters().empty(); }
  // Those with jobs in the period.
  std::vector<Person> people() const;
  const mail::Sum& sum(const Person& person) const;  // of the period
  // Without examples: findings have only ids and sums.
  mail::Summary summary(const Person& person) const;
  // Those with jobs in the period.
  std::vector<std::string> clusters() const;
  mail::Summary of_cluster(const std::string& cluster) const;
  // Of the accounts that the person coordinates; without examples.
  mail::Summary of_accounts(const Person& coordinator, const std::set<std::string>& accounts,
                            bool with_users) const;
  // JobRun::key of the most wasteful run of each finding of the person's summary.
  std::vector<std::string> examples(const Person& person) const;

 private:
  struct Finding {
    mail::Sum sum;
    double most = -1;  // core hours that the example wasted
    std::string example;
  };
  struct Figures {
    mail::Sum now;
    mail::Sum before;
    std::uint64_t unmeasured = 0;
    std::map<std::string, Finding> findings;
  };
  struct ClusterFigures : Figures {
    std::map<std::string, mail::Sum> accounts;
  };
  struct AccountFigures : Figures {
    std::map<std::string, mail::Sum> users;
  };
  void add_to(Figures& figures, const JobRun& run) const;
  mail::Summary summary_of(const std::string& cluster, const std::string& user,
                           const Figures& figures) const;
  using Costly = std::pair<std::string, const Finding*>;
  std::vector<Costly> most_costly(const Figures& figures) const;

  mail::CalendarPeriod period_;
  std::map<Person, Figures> people_;
  std::map<std::pair<std::string, std::string>, AccountFigures> accounts_;  // cluster, account
  std::map<std::string, ClusterFigures> clusters_;
};

}  // namespace scriptorium::cli
