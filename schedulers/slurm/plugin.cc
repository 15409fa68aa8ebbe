#include "core/api/plugin.h"

#include <memory>

#include "schedulers/slurm/config.h"
#include "schedulers/slurm/source.h"

namespace scriptorium::slurm {
namespace {

void check(const Table& table, Problems& problems) {
  static_cast<void>(read_config(table, problems));
}

Result<std::unique_ptr<SpoolAdapter>> create(const Table& table, const PluginContext& context) {
  Problems problems;
  SlurmConfig config = read_config(table, problems);
  if (!problems.empty()) return Error(ErrorKind::kInvalidConfig, problems.list().front().text());
  return std::make_unique<SlurmSource>(std::move(config), context);
}

}  // namespace
}  // namespace scriptorium::slurm

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSpoolAdapter,
    .name = "slurm",
    .summary = "job scripts from slurmctld's spool, owners from squeue",
    .options = &scriptorium::slurm::describe,
    .check = &scriptorium::slurm::check,
    .create_spool_adapter = &scriptorium::slurm::create};
