#include "core/api/searchable.h"

#include <algorithm>

namespace scriptorium {
namespace {

template <typename Job>
bool may_be_seen(const Job& job, const Visibility& visibility) {
  if (visibility.all) return true;
  if (!job.verified) return false;
  const auto contains = [](const std::vector<std::string>& list,
                           const std::optional<std::string>& value) {
    return value && std::find(list.begin(), list.end(), *value) != list.end();
  };
  return contains(visibility.users, job.user) || contains(visibility.accounts, job.account);
}

}  // namespace

bool is_visible(const JobRow& job, const Visibility& visibility) {
  return may_be_seen(job, visibility);
}
bool is_visible(const JobRun& run, const Visibility& visibility) {
  return may_be_seen(run, visibility);
}

Result<std::vector<std::string>> Searchable::runs(
    const RunRequest& /*request*/, const std::function<void(const JobRun&)>& /*use*/) {
  return Error{ErrorKind::kInvalidConfig, "this sink has no sums of jobs"};
}

Result<std::vector<CoordinatorList>> Searchable::coordinators() {
  return Error{ErrorKind::kInvalidConfig, "this sink keeps no coordinators of accounts"};
}

Result<void> Searchable::keep_coordinators(const CoordinatorList& /*list*/) {
  return Error{ErrorKind::kInvalidConfig, "this sink keeps no coordinators of accounts"};
}

}  // namespace scriptorium
