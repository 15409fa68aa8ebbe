#include "core/api/plugin.h"

#include <memory>

#include "schedulers/torque/config.h"
#include "schedulers/torque/source.h"

namespace scriptorium::torque {
namespace {

void check(const Table& table, Problems& problems) {
  static_cast<void>(read_config(table, problems));
}

Result<std::unique_ptr<SpoolAdapter>> create(const Table& table, const PluginContext& context) {
  Problems problems;
  TorqueConfig config = read_config(table, problems);
  if (!problems.empty()) return Error(ErrorKind::kInvalidConfig, problems.list().front().text());
  return std::make_unique<TorqueSource>(std::move(config), context);
}

}  // namespace
}  // namespace scriptorium::torque

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSpoolAdapter,
    .name = "torque",
    .summary = "job scripts and owners from Torque's server spool",
    .options = &scriptorium::torque::describe,
    .check = &scriptorium::torque::check,
    .create_spool_adapter = &scriptorium::torque::create};
