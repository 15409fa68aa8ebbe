#include "core/serve/caller.h"

#include <algorithm>
#include <utility>

#include "core/base/accounts.h"

namespace scriptorium::serve {

Result<Caller> find_caller(uid_t uid, const std::vector<std::string>& reader_groups) {
  const auto user = find_user(uid);
  if (!user) return user.error().with_context("the login of uid " + std::to_string(uid));
  if (!*user) {
    return Error{ErrorKind::kPermanent,
                 "uid " + std::to_string(uid) + " has no login on the query service's host"};
  }
  Caller caller{.uid = uid, .login = (*user)->name};
  const std::vector<gid_t> groups = groups_of(**user);
  caller.visibility.all = uid == 0;
  for (const std::string& name : reader_groups) {
    const auto group = find_group(name);
    if (!group) return group.error().with_context("the group " + name);
    const bool is_member =
        *group && std::find(groups.begin(), groups.end(), (*group)->gid) != groups.end();
    caller.visibility.all = caller.visibility.all || is_member;
  }
  if (!caller.visibility.all)
    caller.visibility.users = {{.name = caller.login, .uid = std::to_string(uid)}};
  return caller;
}

}  // namespace scriptorium::serve
