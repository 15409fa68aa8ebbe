// Its factory throws something that is not a std::exception.
#include "tests/broken_plugins/plain_sink.h"

namespace {

scriptorium::Result<std::unique_ptr<scriptorium::Sink>> create(const scriptorium::Table&,
                                                               const scriptorium::PluginContext&) {
  throw 42;  // NOLINT(hicpp-exception-baseclass)
}

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "odd_throwing_factory",
    .summary = "throws something odd",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &create,
};
