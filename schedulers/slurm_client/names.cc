#include "schedulers/slurm_client/names.h"

#include <chrono>
#include <utility>

#include "core/base/accounts.h"
#include "core/base/number.h"
#include "schedulers/slurm_client/text.h"

namespace scriptorium::slurm_client {
namespace {

using namespace std::literals;

constexpr auto kNamesFor = 5min;  // how long a name from passwd or group is believed
constexpr auto kNoNameFor = 10s;  // and that there is none: the name service may only be down

// A name service that cannot be asked now has no name for it: the number is what counts.
template <typename Record>
std::optional<std::string> name_in(const Result<std::optional<Record>>& found) {
  return found && *found ? optional_text((*found)->name) : std::nullopt;
}

}  // namespace

AccountNames system_account_names() {
  return {
      [](uid_t id) { return name_in(find_user(id)); },
      [](gid_t id) { return name_in(find_group(id)); },
  };
}

void add_names(User& user, const AccountNames& names) {
  if (const auto id = parse_number<uid_t>(user.id.value_or("")); id && !user.name)
    user.name = names.user(*id);
  if (const auto id = parse_number<gid_t>(user.group_id.value_or("")); id && !user.group_name)
    user.group_name = names.group(*id);
}

std::optional<std::string> CachedNames::name_of(
    std::map<std::uint32_t, Name>& cache, std::uint32_t id,
    const std::function<std::optional<std::string>(std::uint32_t)>& ask_system) {
  const SteadyTime now = clock_.steady();
  const auto [found, is_new] = cache.try_emplace(id);
  if (is_new || found->second.until <= now) {
    auto name = ask_system(id);
    const auto until =
        now + (name ? SteadyTime::duration(kNamesFor) : SteadyTime::duration(kNoNameFor));
    found->second = {std::move(name), until};
  }
  return found->second.name;
}

void CachedNames::add_to(User& user) {
  add_names(user, {[this](uid_t id) { return name_of(users_, id, names_.user); },
                   [this](gid_t id) { return name_of(groups_, id, names_.group); }});
}

}  // namespace scriptorium::slurm_client
