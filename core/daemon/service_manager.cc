#include "core/daemon/service_manager.h"

#include <cstdint>

#ifdef SCRIPTORIUM_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

namespace scriptorium::service_manager {

void notify([[maybe_unused]] const char* state) noexcept {
#ifdef SCRIPTORIUM_HAVE_SYSTEMD
  ::sd_notify(0, state);
#endif
}

std::chrono::microseconds watchdog_period() noexcept {
#ifdef SCRIPTORIUM_HAVE_SYSTEMD
  std::uint64_t period = 0;
  if (::sd_watchdog_enabled(0, &period) > 0)
    return std::chrono::microseconds(static_cast<std::int64_t>(period));
#endif
  return {};
}

}  // namespace scriptorium::service_manager
