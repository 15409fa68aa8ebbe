#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/api/spool_adapter.h"
#include "schedulers/slurm/config.h"
#include "schedulers/slurm/queue.h"

namespace scriptorium::slurm {

// slurmctld's spool (StateSaveLocation) as a source of job scripts. The functions are those of
// parse.h.
class SlurmSource final : public SpoolAdapter {
 public:
  SlurmSource(SlurmConfig config, const PluginContext& context)
      : config_(std::move(config)),
        context_(context),
        queue_(std::make_shared<Queue>(config_, context_.log, context_.clock)) {}

  std::string scheduler() const override { return "slurm"; }
  std::string spool_root() const override { return config_.spool; }
  SpoolPath classify(std::string_view path) const override;
  Assessment assess(const SpoolEntry& entry) const override;
  Result<ParsedJob> parse(const SpoolEntry& entry) const override;
  std::unique_ptr<OwnerResolver> make_resolver() override;
  std::unique_ptr<LateOwnerResolver> make_late_owner_resolver() override;
  // Takes an empty folder, and one that holds anything slurmctld leaves there.
  Result<void> check_root(std::span<const std::string> names) const override;
  std::optional<std::uint64_t> number_of(std::string_view entry) const override;
  std::unique_ptr<NumberResolver> make_number_resolver() const override;
  std::vector<Mismatch> compare_with_scheduler(const std::stop_token& stop,
                                               SteadyTime deadline) const override;
  std::vector<std::string> kept_under(std::string_view job_id, const std::stop_token& stop,
                                      SteadyTime deadline) const override;
  Result<KnownCoordinators> coordinators(const std::stop_token& stop,
                                         SteadyTime deadline) const override;

 private:
  SlurmConfig config_;
  PluginContext context_;
  const std::shared_ptr<Queue> queue_;  // shared by the resolvers, so that one answer serves both
};

}  // namespace scriptorium::slurm
