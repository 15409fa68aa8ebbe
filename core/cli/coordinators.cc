#include "core/cli/coordinators.h"

#include <chrono>

#include "core/base/time.h"
#include "core/daemon/log.h"
#include "core/daemon/setup.h"
#include "core/plugin/call_plugin.h"
#include "core/plugin/loader.h"

namespace scriptorium::cli {
namespace {

constexpr std::chrono::seconds kPatience{60};

}  // namespace

Result<Coordinators> find_coordinators(const std::string& config_file,
                                       const std::stop_token& stop) {
  Problems problems;
  const Setup setup = load_setup(config_file, problems);
  if (!problems.empty()) return Error{ErrorKind::kInvalidConfig, problems.list().front().text()};
  const auto log = make_command_logger();
  const SteadyTime deadline = std::chrono::steady_clock::now() + kPatience;
  Coordinators coordinators;
  for (const LoadedSource& source : setup.sources) {
    if (source.plugin.descriptor->kind != PluginKind::kSpoolAdapter) continue;
    const PluginContext context{.name = source.instance.name,
                                .cluster = setup.config.core.cluster,
                                .log = *log,
                                .clock = system_clock()};
    const auto adapter = create_spool_adapter(source.plugin, source.instance.table, context);
    if (!adapter) return adapter.error();
    const auto accounts = call_plugin("its plugin", ErrorKind::kPermanent,
                                      [&] { return (*adapter)->coordinators(stop, deadline); });
    if (!accounts) return accounts.error().with_context(source.instance.name);
    if (!*accounts) continue;
    for (const AccountCoordinators& account : **accounts) {
      for (const std::string& user : account.users)
        coordinators[{context.cluster, user}].insert(account.account);
    }
  }
  return coordinators;
}

}  // namespace scriptorium::cli
