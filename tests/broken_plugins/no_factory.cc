// A sink without a factory.
#include "tests/broken_plugins/plain_sink.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "no_factory",
    .summary = "nothing makes its sink",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
};
