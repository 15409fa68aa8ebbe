#include "core/api/searchable.h"

#include <algorithm>

namespace scriptorium {
namespace {

template <typename Job>
bool may_be_seen(const Job& job, const Visibility& visibility) {
  if (visibility.all) return true;
  if (!job.verified) return false;
  const auto is_owner = [&](const Visibility::User& user) {
    return job.user == user.name && (!user.uid || !job.uid || job.uid == user.uid);
  };
  if (std::any_of(visibility.users.begin(), visibility.users.end(), is_owner)) return true;
  return std::any_of(visibility.accounts.begin(), visibility.accounts.end(),
                     [&](const Visibility::Account& account) {
                       return job.account == account.name && job.cluster == account.cluster;
                     });
}

}  // namespace

bool is_visible(const JobRow& job, const Visibility& visibility) {
  return may_be_seen(job, visibility);
}
bool is_visible(const JobRun& run, const Visibility& visibility) {
  return may_be_seen(run, visibility);
}

Result<Searchable::RunAnswer> Searchable::runs(const RunRequest& /*request*/,
                                               const std::function<void(const JobRun&)>& /*use*/) {
  return Error{ErrorKind::kInvalidConfig, "this sink has no sums of jobs"};
}

Result<Searchable::RunAnswer> Searchable::sums(const SumRequest& request,
                                               const std::function<void(const RunSumRow&)>& use) {
  return runs({.from = request.bounds.front(),
               .until = request.bounds.back(),
               .modules = request.by == RunsBy::kModule,
               .origin = !request.visibility.all,
               .deadline = request.deadline,
               .stop = request.stop,
               .visibility = request.visibility},
              [&](const JobRun& run) {
                // A store behind the query service gives all that its caller may see.
                if (is_visible(run, request.visibility)) for_each_row(request.by, run, use);
              });
}

Result<std::uint64_t> Searchable::unfinished(Timestamp /*from*/, Timestamp /*until*/,
                                             const Visibility& /*visibility*/) {
  return Error{ErrorKind::kInvalidConfig, "this sink does not count jobs without an end"};
}

Result<std::vector<CoordinatorList>> Searchable::coordinators() {
  return Error{ErrorKind::kInvalidConfig, "this sink keeps no coordinators of accounts"};
}

Result<void> Searchable::keep_coordinators(const CoordinatorList& /*list*/) {
  return Error{ErrorKind::kInvalidConfig, "this sink keeps no coordinators of accounts"};
}

}  // namespace scriptorium
