// A descriptor that leaves out what `scriptorium plugins` shows.
#include "tests/broken_plugins/plain_sink.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "no_options",
    .summary = "options are missing",
    .check = &scriptorium::broken::no_check,
    .create_sink = &scriptorium::broken::create_plain,
};
