// From a later version of Scriptorium than the daemon's.
#include "tests/broken_plugins/plain_sink.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .abi_version = scriptorium::kPluginAbiVersion + 1,
    .kind = scriptorium::PluginKind::kSink,
    .name = "new_abi",
    .summary = "made for a later daemon",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &scriptorium::broken::create_plain,
};
