#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/base/result.h"

namespace scriptorium::serve {

// The person at the other end of a connection, and which jobs exist for that person.
struct Caller {
  uid_t uid = 0;
  std::string login;
  Visibility visibility{.all = false, .users = {}, .accounts = {}};
};

// root and members of `reader_groups` see all jobs, others their own; answer() adds the accounts
// that they coordinate. kPermanent: the uid has no
// login here. May take seconds (core/base/accounts.h). Threads: any.
Result<Caller> find_caller(uid_t uid, const std::vector<std::string>& reader_groups);

}  // namespace scriptorium::serve
