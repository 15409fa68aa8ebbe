// Its factory refuses, as a good one may.
#include "tests/broken_plugins/plain_sink.h"

namespace {

scriptorium::Result<std::unique_ptr<scriptorium::Sink>> create(const scriptorium::Table&,
                                                               const scriptorium::PluginContext&) {
  return scriptorium::Error{scriptorium::ErrorKind::kInvalidConfig,
                            "the moon is in the wrong house"};
}

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "refusing_factory",
    .summary = "refuses with words",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &create,
};
