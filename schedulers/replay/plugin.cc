#include "core/api/plugin.h"
#include "schedulers/replay/source.h"

namespace scriptorium::replay {
namespace {

void check(const Table& table, Problems& problems) { read_config(table, problems); }

Result<std::unique_ptr<SpoolAdapter>> create(const Table& table, const PluginContext& /*context*/) {
  Problems none;  // check() found none
  return std::make_unique<ReplaySource>(read_config(table, none));
}

}  // namespace
}  // namespace scriptorium::replay

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSpoolAdapter,
    .name = "replay",
    .summary = "job scripts from a folder of recorded entries",
    .options = &scriptorium::replay::describe,
    .check = &scriptorium::replay::check,
    .create_spool_adapter = &scriptorium::replay::create};
