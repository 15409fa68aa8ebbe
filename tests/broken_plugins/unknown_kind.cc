// A kind that does not exist.
#include "tests/broken_plugins/plain_sink.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = static_cast<scriptorium::PluginKind>(9),
    .name = "unknown_kind",
    .summary = "no such kind",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &scriptorium::broken::create_plain,
};
