// Runs code while it is loaded, so that a test can see whether it was.
#include <cstdlib>

#include "tests/broken_plugins/plain_sink.h"

namespace {

struct Noise {
  Noise() noexcept { ::setenv("SCRIPTORIUM_TEST_NOISY_WAS_LOADED", "yes", 1); }
};
const Noise kNoise;

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "noisy",
    .summary = "runs code while it is loaded",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &scriptorium::broken::create_plain,
};
