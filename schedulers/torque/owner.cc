#include "schedulers/torque/owner.h"

#include <grp.h>
#include <pwd.h>

#include <cerrno>
#include <utility>

namespace scriptorium::torque {
namespace {

using namespace std::literals;

constexpr auto kKeptFor = 5min;
constexpr std::size_t kMaxKept = 10'000;
constexpr std::size_t kMaxBuffer = 1U << 20;

// getpwnam_r and getgrnam_r are alike: the buffer has to grow until the record fits.
template <typename Entry, typename Get>
Result<std::optional<std::uint32_t>> look_up(const std::string& name, Get get, std::uint32_t Entry::* number) {
  std::vector<char> buffer(1024);
  while (true) {
    Entry entry{};
    Entry* found = nullptr;
    const int failed = get(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (failed == ERANGE && buffer.size() < kMaxBuffer) {
      buffer.resize(buffer.size() * 4);
    } else if (failed == 0 || failed == ENOENT || failed == ESRCH || failed == EBADF || failed == EPERM) {
      // getpwnam(3): these all mean that there is no such name, in one system or another.
      return found != nullptr ? std::optional(entry.*number) : std::nullopt;
    } else if (failed != EINTR) {
      return system_error("the name service cannot be asked for an account", failed);
    }
  }
}

}  // namespace

Accounts system_accounts() {
  return {[](const std::string& name) { return look_up<passwd>(name, getpwnam_r, &passwd::pw_uid); },
          [](const std::string& name) { return look_up<group>(name, getgrnam_r, &group::gr_gid); }};
}

AccountResolver::AccountResolver(const Clock& clock, Accounts accounts) : clock_(clock), accounts_(std::move(accounts)) {}

Result<std::vector<OwnerAnswer>> AccountResolver::resolve(std::span<const OwnerQuery> queries, std::stop_token stop,
                                                          SteadyTime deadline) {
  std::vector<OwnerAnswer> answers;
  answers.reserve(queries.size());
  for (const OwnerQuery& query : queries) {
    OwnerAnswer& answer = answers.emplace_back();
    if (stop.stop_requested() || clock_.steady() >= deadline) continue;  // asked again
    answer.user = query.event->user;
    if (answer.user.verified && answer.user.name) {
      if (auto added = add_numbers(answer.user); !added) return added.error();
    }
    answer.state = OwnerAnswer::State::kFound;
  }
  return answers;
}

Result<void> AccountResolver::add_numbers(User& user) {
  auto id = number_of(users_, *user.name, accounts_.user);
  if (!id) return id.error();
  user.id = *std::move(id);
  if (!user.group_name) return {};
  id = number_of(groups_, *user.group_name, accounts_.group);
  if (!id) return id.error();
  user.group_id = *std::move(id);
  return {};
}

Result<std::optional<std::string>> AccountResolver::number_of(Cache& cache, const std::string& name, const AskNumber& ask) {
  const SteadyTime now = clock_.steady();
  auto known = cache.find(name);
  if (known == cache.end() || now >= known->second.until) {
    auto number = ask(name);
    if (!number) return number.error();
    if (cache.size() >= kMaxKept) cache.clear();
    known = cache.insert_or_assign(name, Kept{*number, now + kKeptFor}).first;
  }
  const auto& number = known->second.number;
  return number ? std::optional(std::to_string(*number)) : std::nullopt;
}

}  // namespace scriptorium::torque
