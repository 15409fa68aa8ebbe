#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/api/logger.h"
#include "core/api/spool_adapter.h"
#include "core/base/command.h"
#include "core/base/time.h"
#include "schedulers/slurm/config.h"
#include "schedulers/slurm/squeue.h"

namespace scriptorium::slurm {

// Names of numbers, as the system's databases have them; nothing for a number that has none.
struct AccountNames {
  std::function<std::optional<std::string>(uid_t)> user;
  std::function<std::optional<std::string>(gid_t)> group;
};
AccountNames system_account_names();

// Asks slurmctld who owns jobs, through squeue: its text is the only interface that is tied to no release of Slurm.
// libslurm would be faster, but one binary fits one release only, and it ends the calling process when it does not
// find its slurm.conf.
//
// Owns:    the squeue processes; none outlives the call that started it.
// Threads: one at a time.
// Fails:   kTransient when slurmctld cannot be asked now, kInvalidConfig when there is no squeue.
class SqueueResolver final : public OwnerResolver {
 public:
  // `log` and `clock` must outlive this.
  SqueueResolver(SlurmConfig config, Logger& log, const Clock& clock, AccountNames names = system_account_names());

  // A job that slurmctld does not list in two answers, min_interval() apart, is kUnknown.
  Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries, std::stop_token stop,
                                           SteadyTime deadline) override;
  Result<void> check() override;

  // Every number that slurmctld knows now.
  Result<std::vector<NumberUse>> uses(const std::stop_token& stop, SteadyTime deadline);

 private:
  struct CachedName {
    std::optional<std::string> name;
    SteadyTime until;
  };
  struct Absence {
    SteadyTime first;
    SteadyTime last;
  };
  struct LatestEntry {
    std::int64_t script_mtime_ns = 0;
    SteadyTime asked;
  };
  // Tells two entries of one id apart.
  using EntryKey = std::pair<std::uint64_t, std::int64_t>;

  Result<std::string> find_squeue() const;
  std::vector<std::string> child_environment() const;
  // Standard output; empty if the one job that was asked for is unknown.
  Result<std::string> ask(std::vector<std::string> arguments, std::vector<std::string> environment, const std::stop_token& stop,
                          SteadyTime deadline);
  Result<std::vector<QueueRow>> ask_numbers(const std::optional<std::string>& job, const std::stop_token& stop,
                                            SteadyTime deadline);
  Result<std::vector<TextRow>> ask_texts(const std::optional<std::string>& job, const std::stop_token& stop, SteadyTime deadline);
  OwnerAnswer::State note_absence(const EntryKey& entry);
  std::optional<std::string> name_of(std::map<std::uint32_t, CachedName>& cache, const std::optional<std::string>& number,
                                     const std::function<std::optional<std::string>(std::uint32_t)>& ask_system);
  void add_names(User& user);  // to the numbers of a found answer
  void forget_old();

  SlurmConfig config_;
  Logger& log_;
  const Clock& clock_;
  AccountNames names_;
  CommandRunner runner_;
  std::map<EntryKey, Absence> absent_;
  std::map<std::uint64_t, LatestEntry> latest_;
  std::map<std::uint32_t, CachedName> users_;
  std::map<std::uint32_t, CachedName> groups_;
};

// Tells a job without a script, or an array's task, from a job whose entry was never seen.
class SqueueNumbers final : public NumberResolver {
 public:
  SqueueNumbers(SlurmConfig config, Logger& log, const Clock& clock) : squeue_(std::move(config), log, clock) {}
  Result<std::vector<NumberUse>> numbers(std::stop_token stop, SteadyTime deadline) override {
    return squeue_.uses(stop, deadline);
  }

 private:
  SqueueResolver squeue_;
};

}  // namespace scriptorium::slurm
