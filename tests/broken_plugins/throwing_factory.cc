// Its factory throws, as one does that has no idea of Result.
#include "tests/broken_plugins/plain_sink.h"

#include <stdexcept>

namespace {

scriptorium::Result<std::unique_ptr<scriptorium::Sink>> create(const scriptorium::Table&,
                                                               const scriptorium::PluginContext&) {
  throw std::runtime_error("no such luck");
}

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "throwing_factory",
    .summary = "throws while it is made",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &create,
};
