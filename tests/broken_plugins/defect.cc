// The smallest sink, as the libraries of CMakeLists.txt's list `defects`: the one named `good` has
// nothing wrong with it (tests cut, rename and open copies of it), the others the defect that their
// name says.
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "tests/broken_plugins/plain_sink.h"

using namespace scriptorium;  // NOLINT(google-build-using-namespace)

extern "C" void missing_everywhere(const Table& table, Problems& problems);

namespace {

constexpr bool is(std::string_view defect) { return defect == SCRIPTORIUM_DEFECT; }

// Runs code while it is loaded, so that a test can see whether it was.
struct Noise {
  Noise() noexcept {
    if (is("noisy")) ::setenv("SCRIPTORIUM_TEST_NOISY_WAS_LOADED", "yes", 1);
  }
};
const Noise kNoise;

Result<std::unique_ptr<Sink>> create(const Table& table, const PluginContext& context) {
  while (is("hanging_factory")) ::pause();
  if (is("null_factory")) return std::unique_ptr<Sink>{};
  if (is("throwing_factory")) throw std::runtime_error("no such luck");
  if (is("odd_throwing_factory")) throw 42;  // NOLINT(hicpp-exception-baseclass): it has none
  if (is("refusing_factory"))
    return Error{ErrorKind::kInvalidConfig, "the moon is in the wrong house"};
  return broken::create_plain(table, context);
}

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const PluginDescriptor scriptorium_plugin = {
    .abi_version = kPluginAbiVersion + (is("new_abi") ? 1 : 0),  // of a later Scriptorium
    // The right version, but somebody forgot to raise it.
    .descriptor_size = sizeof(PluginDescriptor) + (is("wrong_size") ? 8 : 0),
    .build_stamp = is("wrong_stamp") ? "gcc-1.2.3/cxx98/0123456789abcdef" : SCRIPTORIUM_BUILD_STAMP,
    .kind = is("wrong_kind")     ? PluginKind::kSpoolAdapter
            : is("unknown_kind") ? static_cast<PluginKind>(9)
                                 : PluginKind::kSink,
    .name = is("misnamed") ? "somebody_else" : SCRIPTORIUM_DEFECT,
    .summary = "acknowledges everything",
    .options = is("no_options") ? nullptr : &broken::no_options,
    .check = is("undefined_symbol") ? &missing_everywhere : &broken::no_check,
    .create_sink = is("no_factory") ? nullptr : &create,
};
