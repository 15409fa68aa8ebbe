#include "core/api/plugin.h"
#include "schedulers/usage/source.h"

namespace scriptorium::usage {
namespace {

void check(const Table& table, Problems& problems) { read_config(table, problems); }

Result<std::unique_ptr<FreeSource>> create(const Table& table, const PluginContext& context) {
  Problems none;  // check() found none
  return std::make_unique<UsageSource>(read_config(table, none), context);
}

}  // namespace
}  // namespace scriptorium::usage

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kFreeSource,
    .name = "usage",
    .summary =
        "what each job really uses: CPU, memory, I/O and GPUs, from control groups on its nodes or "
        "from sacct",
    .options = &scriptorium::usage::describe,
    .check = &scriptorium::usage::check,
    .create_free_source = &scriptorium::usage::create};
