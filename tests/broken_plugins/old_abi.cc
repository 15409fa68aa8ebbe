// From a time before the descriptor had its present shape: only the first member stands where it
// does today.
#include <cstdint>

namespace {
struct OldDescriptor {
  std::uint32_t abi_version;
  const char* name;
};
}  // namespace

extern "C" __attribute__((visibility("default")))
const OldDescriptor scriptorium_plugin = {0, "old_abi"};
