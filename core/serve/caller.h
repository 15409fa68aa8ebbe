#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/api/searchable.h"
#include "core/base/result.h"

namespace scriptorium::serve {

// The person at the other end of a connection, and which jobs exist for that person.
struct Caller {
  uid_t uid = 0;
  std::string login;
  Visibility visibility{.all = false, .users = {}, .accounts = {}};
};

// root and members of `reader_groups` see all jobs, others their own; visibility_of() adds the
// accounts that they coordinate. kPermanent: the uid has no login here, nobody has the login. May
// take seconds (core/base/accounts.h). Threads: any.
Result<Caller> find_caller(uid_t uid, const std::vector<std::string>& reader_groups);
Result<Caller> find_caller(const std::string& login, const std::vector<std::string>& reader_groups);

// What exists in this store for the caller: coordinators see the jobs of their accounts, too, if
// the scheduler said so within a day.
Visibility visibility_of(const Caller& caller, Searchable& store);

// The parts that all records of questions have.
Logger::Fields caller_fields(const Caller& caller, const Visibility& visibility);
void add_found(Logger::Fields& fields, const std::vector<std::string>& event_ids);

}  // namespace scriptorium::serve
