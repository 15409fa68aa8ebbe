#pragma once

#include <pwd.h>
#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"

// Names and numbers of users and groups, as the machine's name services (files, LDAP, SSSD) have
// them. An answer may come from a directory server, so it may take its time.
//
// Each gives nothing for what is in no database, and an error, with its kind by errno, if that
// cannot be told now. Threads: any.
namespace scriptorium {

struct UserRecord {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;  // of the user's own group
};
struct GroupRecord {
  std::string name;
  gid_t gid = 0;
  std::vector<std::string>
      members;  // those that the group names; users whose own group it is are not among them
};

// A test may give another function than getpwnam_r.
using GetUserByName = int (*)(const char*, passwd*, char*, std::size_t, passwd**);
Result<std::optional<UserRecord>> find_user(const std::string& name,
                                            GetUserByName get = &::getpwnam_r);
Result<std::optional<UserRecord>> find_user(uid_t uid);
Result<std::optional<GroupRecord>> find_group(const std::string& name);
Result<std::optional<GroupRecord>> find_group(gid_t gid);

}  // namespace scriptorium
