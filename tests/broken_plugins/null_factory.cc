// Its factory says that all went well and gives nothing.
#include "tests/broken_plugins/plain_sink.h"

namespace {

scriptorium::Result<std::unique_ptr<scriptorium::Sink>> create(const scriptorium::Table&,
                                                               const scriptorium::PluginContext&) {
  return std::unique_ptr<scriptorium::Sink>{};
}

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "null_factory",
    .summary = "makes nothing",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &create,
};
