#include <memory>
#include <vector>

#include "backends/null/sink.h"
#include "core/api/plugin.h"

namespace scriptorium::null {
namespace {

// It has no options of its own; those that every sink takes are core's.
std::vector<OptionInfo> options() { return {}; }
void check(const Table&, Problems&) {}

Result<std::unique_ptr<Sink>> create(const Table&, const PluginContext&) {
  return std::unique_ptr<Sink>(std::make_unique<NullSink>());
}

}  // namespace
}  // namespace scriptorium::null

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "null",
    .summary = "acknowledges every event and keeps none",
    .options = &scriptorium::null::options,
    .check = &scriptorium::null::check,
    .create_sink = &scriptorium::null::create,
};
