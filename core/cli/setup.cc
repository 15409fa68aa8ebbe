#include <algorithm>
#include <exception>

#include "core/base/text.h"
#include "core/base/thrown.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/daemon/log.h"

namespace scriptorium::cli {

int setup_command(const Arguments& arguments, Console& console) try {
  const auto setup = load_or_say(arguments, console);
  if (!setup) return kExitConfig;
  const auto found =
      std::find_if(setup->sinks.begin(), setup->sinks.end(),
                   [&](const LoadedSink& s) { return s.instance.name == arguments.name; });
  if (found == setup->sinks.end()) {
    std::string names;
    for (const LoadedSink& sink : setup->sinks)
      names += (names.empty() ? "" : ", ") + sink.instance.name;
    return fail(console,
                "there is no [sink." + printable(arguments.name) +
                    "] in the configuration; there are: " + names,
                kExitUsage);
  }
  const auto log = make_command_logger();
  const PluginContext context{.name = found->instance.name,
                              .cluster = setup->config.core.cluster,
                              .log = *log,
                              .clock = system_clock()};
  auto sink = create_sink(found->plugin, found->instance.table, context);
  if (!sink) return fail(console, sink.error());
  auto text = (*sink)->setup(arguments.print);
  if (!text) return fail(console, text.error());
  console.out << *text;
  return kExitGood;
} catch (...) {
  return fail(console, "the plugin throws: " + thrown_text(), kExitSoftware);
}

}  // namespace scriptorium::cli
