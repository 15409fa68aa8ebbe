// Names itself otherwise than its file.
#include "tests/broken_plugins/plain_sink.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "somebody_else",
    .summary = "the file says misnamed",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &scriptorium::broken::create_plain,
};
