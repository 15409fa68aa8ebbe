#include "core/api/searchable.h"

#include <algorithm>

namespace scriptorium {

bool is_visible(const JobRow& job, const Visibility& visibility) {
  if (visibility.all) return true;
  if (!job.verified) return false;
  const auto contains = [](const std::vector<std::string>& list,
                           const std::optional<std::string>& value) {
    return value && std::find(list.begin(), list.end(), *value) != list.end();
  };
  return contains(visibility.users, job.user) || contains(visibility.accounts, job.account);
}

}  // namespace scriptorium
