// Calls a function that no library has.
#include "tests/broken_plugins/plain_sink.h"

extern "C" void missing_everywhere(const scriptorium::Table& table,
                                   scriptorium::Problems& problems);

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "undefined_symbol",
    .summary = "a function is missing",
    .options = &scriptorium::broken::no_options,
    .check = &missing_everywhere,
    .create_sink = &scriptorium::broken::create_plain,
};
