#include <memory>

#include "backends/stdout/config.h"
#include "backends/stdout/sink.h"
#include "core/api/plugin.h"

namespace scriptorium::stdout_sink {
namespace {

void check(const Table& table, Problems& problems) {
  static_cast<void>(parse_config(table, problems));
}

Result<std::unique_ptr<Sink>> create(const Table& table, const PluginContext&) {
  Problems problems;
  const StdoutConfig config = parse_config(table, problems);
  if (!problems.empty()) return Error{ErrorKind::kInvalidConfig, problems.list().front().text()};
  return std::unique_ptr<Sink>(std::make_unique<StdoutSink>(config));
}

}  // namespace
}  // namespace scriptorium::stdout_sink

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "stdout",
    .summary = "one JSON event a line on standard output",
    .options = &scriptorium::stdout_sink::options,
    .check = &scriptorium::stdout_sink::check,
    .create_sink = &scriptorium::stdout_sink::create,
};
