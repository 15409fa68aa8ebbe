#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/base/time.h"

namespace scriptorium::torque {

// The numbers of names. Nothing for a name that has none; an error if the name service cannot tell
// now.
using AskNumber = std::function<Result<std::optional<std::uint32_t>>(const std::string& name)>;
struct Accounts {
  AskNumber user;
  AskNumber group;
};
Accounts system_accounts();

// Adds numbers to the names that the record gave: sinks give access by number. The owner himself is
// known already, so an event whose name no database has goes out verified and without one.
//
// Threads: one at a time.
// Fails:   kTransient when the name service cannot be asked; events wait for it until
// resolve_timeout_seconds.
class AccountResolver final : public OwnerResolver {
 public:
  explicit AccountResolver(const Clock& clock, Accounts accounts = system_accounts());

  // A name's answer is kept for some minutes, so asking often costs nothing.
  std::chrono::milliseconds min_interval() const override { return std::chrono::milliseconds{50}; }
  Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries,
                                           std::stop_token stop, SteadyTime deadline) override;

 private:
  struct Kept {
    std::optional<std::uint32_t> number;
    SteadyTime until;
  };
  using Cache = std::map<std::string, Kept>;

  Result<void> add_numbers(User& user);
  Result<std::optional<std::string>> number_of(Cache& cache, const std::string& name,
                                               const AskNumber& ask);

  const Clock& clock_;
  Accounts accounts_;
  Cache users_;
  Cache groups_;
};

}  // namespace scriptorium::torque
