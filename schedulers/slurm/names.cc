#include "schedulers/slurm/names.h"

#include <chrono>
#include <utility>

#include "core/base/accounts.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;

constexpr auto kNamesFor = 5min;  // how long a name from passwd or group is believed
constexpr auto kNoNameFor = 10s;  // and that there is none: the name service may only be down

// A name service that cannot be asked now has no name for it: the number is what counts.
template <typename Record>
std::optional<std::string> name_in(Result<std::optional<Record>> found) {
  if (!found || !*found || (*found)->name.empty()) return std::nullopt;
  return std::move((*found)->name);
}

}  // namespace

AccountNames system_account_names() {
  return {
      [](uid_t id) { return name_in(find_user(id)); },
      [](gid_t id) { return name_in(find_group(id)); },
  };
}

std::optional<std::string> CachedNames::name_of(
    std::map<std::uint32_t, Name>& cache, const std::optional<std::string>& number,
    const std::function<std::optional<std::string>(std::uint32_t)>& ask_system) {
  const std::uint32_t id = static_cast<std::uint32_t>(std::stoul(number.value()));
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
  user.name = name_of(users_, user.id, names_.user);
  user.group_name = name_of(groups_, user.group_id, names_.group);
}

}  // namespace scriptorium::slurm
