// A name below server_priv/jobs: what is taken for a file of an entry leads back to itself, and
// never out of the folder.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "schedulers/torque/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  const std::string path(reinterpret_cast<const char*>(data), size);
  const SpoolPath place = torque::classify_path(path);
  if (!place.is_file()) return 0;
  if (torque::path_of_file(place.entry, place.file) != path) std::abort();
  if (place.entry.empty() || place.entry.front() == '/' || path.find("..") == 0) std::abort();
  if (place.entry.find('/') != std::string_view::npos && place.entry.find('/') != 1) std::abort();
  return 0;
}
