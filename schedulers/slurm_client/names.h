#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/api/event.h"
#include "core/base/time.h"

namespace scriptorium::slurm_client {

// Names of numbers, as the system's databases have them; nothing for a number that has none.
struct AccountNames {
  std::function<std::optional<std::string>(uid_t)> user;
  std::function<std::optional<std::string>(gid_t)> group;
};
AccountNames system_account_names();

// To the numbers of a user who has no names yet. A number without a name stays one.
void add_names(User& user, const AccountNames& names = system_account_names());

// The same, believed for some minutes: a lookup may go to a directory server, so not for every job.
// Threads: one at a time.
class CachedNames {
 public:
  // `clock` must outlive this.
  CachedNames(const Clock& clock, AccountNames names) : clock_(clock), names_(std::move(names)) {}

  void add_to(User& user);

 private:
  struct Name {
    std::optional<std::string> name;
    SteadyTime until;
  };
  std::optional<std::string> name_of(
      std::map<std::uint32_t, Name>& cache, std::uint32_t id,
      const std::function<std::optional<std::string>(std::uint32_t)>& ask_system);

  const Clock& clock_;
  AccountNames names_;
  std::map<std::uint32_t, Name> users_;
  std::map<std::uint32_t, Name> groups_;
};

}  // namespace scriptorium::slurm_client
