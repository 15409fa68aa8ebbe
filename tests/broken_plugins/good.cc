// Nothing is wrong with this one: the tests cut, rename and open copies of it.
#include "tests/broken_plugins/plain_sink.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "good",
    .summary = "acknowledges everything",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &scriptorium::broken::create_plain,
};
