#include "core/base/random.h"

#include <sys/random.h>

#include <cerrno>

#include "core/base/text.h"

namespace scriptorium {

Result<std::string> random_hex(std::size_t bytes) {
  std::string raw(bytes, '\0');
  // getrandom(2): requests of up to 256 bytes are never short and never interrupted by a signal.
  const ssize_t got = ::getrandom(raw.data(), raw.size(), 0);
  if (got != static_cast<ssize_t>(raw.size()))
    return system_error("getrandom", got < 0 ? errno : EIO);
  return hex_encode(raw);
}

}  // namespace scriptorium
