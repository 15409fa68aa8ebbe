#include "schedulers/torque/owner.h"

#include <utility>

#include "core/base/accounts.h"

namespace scriptorium::torque {
namespace {

using namespace std::literals;

constexpr auto kKeptFor = 5min;
constexpr std::size_t kMaxKept = 10'000;

template <typename Record>
Result<std::optional<std::uint32_t>> number_in(const Result<std::optional<Record>>& found,
                                               std::uint32_t Record::* number) {
  if (!found) return found.error().with_context("the name service cannot be asked for an account");
  return *found ? std::optional((**found).*number) : std::nullopt;
}

}  // namespace

Accounts system_accounts() {
  return {[](const std::string& name) { return number_in(find_user(name), &UserRecord::uid); },
          [](const std::string& name) { return number_in(find_group(name), &GroupRecord::gid); }};
}

AccountResolver::AccountResolver(const Clock& clock, Accounts accounts)
    : clock_(clock), accounts_(std::move(accounts)) {}

Result<std::vector<OwnerAnswer>> AccountResolver::resolve(std::span<const OwnerQuery> queries,
                                                          std::stop_token stop,
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

Result<std::optional<std::string>> AccountResolver::number_of(Cache& cache, const std::string& name,
                                                              const AskNumber& ask) {
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
