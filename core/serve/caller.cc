#include "core/serve/caller.h"

#include <algorithm>
#include <utility>

#include "core/base/accounts.h"
#include "core/base/text.h"

namespace scriptorium::serve {

namespace {

constexpr std::size_t kRecordedIds = 10;
constexpr std::int64_t kCoordinatorsValidFor = 86'400 * kSecond;

Result<Caller> caller_of(const UserRecord& user, const std::vector<std::string>& reader_groups) {
  Caller caller{.uid = user.uid, .login = user.name};
  const std::vector<gid_t> groups = groups_of(user);
  caller.visibility.all = user.uid == 0;
  for (const std::string& name : reader_groups) {
    const auto group = find_group(name);
    if (!group) return group.error().with_context("the group " + name);
    const bool is_member =
        *group && std::find(groups.begin(), groups.end(), (*group)->gid) != groups.end();
    caller.visibility.all = caller.visibility.all || is_member;
  }
  if (!caller.visibility.all)
    caller.visibility.users = {{.name = caller.login, .uid = std::to_string(user.uid)}};
  return caller;
}

}  // namespace

Result<Caller> find_caller(uid_t uid, const std::vector<std::string>& reader_groups) {
  const auto user = find_user(uid);
  if (!user) return user.error().with_context("the login of uid " + std::to_string(uid));
  if (!*user) {
    return Error{ErrorKind::kPermanent,
                 "uid " + std::to_string(uid) + " has no login on the query service's host"};
  }
  return caller_of(**user, reader_groups);
}

Result<Caller> find_caller(const std::string& login,
                           const std::vector<std::string>& reader_groups) {
  const auto user = find_user(login);
  if (!user) return user.error().with_context("the login " + printable(login));
  if (!*user || (*user)->name != login)
    return Error{ErrorKind::kPermanent, "nobody has the login " + printable(login)};
  return caller_of(**user, reader_groups);
}

Visibility visibility_of(const Caller& caller, Searchable& store) {
  Visibility visibility = caller.visibility;
  if (visibility.all) return visibility;
  const auto lists = store.coordinators();
  if (!lists) return visibility;
  const std::int64_t oldest = system_clock().now().nanoseconds - kCoordinatorsValidFor;
  for (const CoordinatorList& list : *lists) {
    if (list.asked_at.nanoseconds < oldest) continue;
    for (const AccountCoordinators& account : list.accounts) {
      if (std::find(account.users.begin(), account.users.end(), caller.login) !=
          account.users.end())
        visibility.accounts.push_back({list.cluster, account.account});
    }
  }
  return visibility;
}

Logger::Fields caller_fields(const Caller& caller, const Visibility& visibility) {
  return {{"user", caller.login},
          {"uid", caller.uid},
          {"sees", visibility.all                ? "all"
                   : visibility.accounts.empty() ? "own"
                                                 : "own and accounts"}};
}

void add_found(Logger::Fields& fields, const std::vector<std::string>& event_ids) {
  std::string ids;
  for (std::size_t i = 0; i < std::min(event_ids.size(), kRecordedIds); ++i)
    ids += (ids.empty() ? "" : ",") + event_ids[i];
  fields.emplace_back("hits", event_ids.size());
  fields.emplace_back("events", ids);
}

}  // namespace scriptorium::serve
