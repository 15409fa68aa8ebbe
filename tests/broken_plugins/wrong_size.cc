// The right ABI version, but the descriptor has another size: somebody forgot to raise the version.
#include "tests/broken_plugins/plain_sink.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .descriptor_size = sizeof(scriptorium::PluginDescriptor) + 8,
    .kind = scriptorium::PluginKind::kSink,
    .name = "wrong_size",
    .summary = "another descriptor",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &scriptorium::broken::create_plain,
};
