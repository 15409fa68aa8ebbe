// Its factory never returns.
#include "tests/broken_plugins/plain_sink.h"

#include <unistd.h>

namespace {

scriptorium::Result<std::unique_ptr<scriptorium::Sink>> create(const scriptorium::Table&,
                                                               const scriptorium::PluginContext&) {
  for (;;) ::pause();
}

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "hanging_factory",
    .summary = "never comes back",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &create,
};
