#pragma once

#include <pwd.h>
#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"

// Names and ids of users and groups, from the machine's name services (files, LDAP, SSSD). A
// directory server may have to answer, so a call may take seconds.
//
// Each function returns nothing for an unknown name or id, and an error, with its kind by errno, if
// the lookup fails. Threads: any.
namespace scriptorium {

struct UserRecord {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;     // the user's primary group
  std::string home;  // "" = none
};
struct GroupRecord {
  std::string name;
  gid_t gid = 0;
  std::vector<std::string>
      members;  // listed in the group's record; users whose primary group it is are not included
};

// A test may replace getpwnam_r.
using GetUserByName = int (*)(const char*, passwd*, char*, std::size_t, passwd**);
Result<std::optional<UserRecord>> find_user(const std::string& name,
                                            GetUserByName get = &::getpwnam_r);
Result<std::optional<UserRecord>> find_user(uid_t uid);
Result<std::optional<GroupRecord>> find_group(const std::string& name);
Result<std::optional<GroupRecord>> find_group(gid_t gid);

// All groups that the user is in, the primary one first.
std::vector<gid_t> groups_of(const UserRecord& user);

}  // namespace scriptorium
