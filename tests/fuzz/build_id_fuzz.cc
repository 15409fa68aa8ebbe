// An executable that a user wrote: whatever is in it, little is read of it, and a build id is a
// part of it.
#include "core/capture/build_id.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  std::size_t reads = 0;
  std::size_t asked = 0;
  const auto id = find_build_id([&](std::uint64_t offset, std::size_t bytes) {
    ++reads;
    asked += bytes;
    return offset < size ? std::string(file.substr(offset, bytes)) : std::string{};
  });
  if (reads > 18 || asked > std::size_t{256} << 10) std::abort();
  if (!id) return 0;
  if (id->empty() || id->size() > 64 || file.find(*id) == std::string_view::npos) std::abort();
  return 0;
}
