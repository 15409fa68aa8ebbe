#pragma once

#include <chrono>

// systemd, if the daemon was built with it and runs under it; nothing otherwise.
namespace scriptorium::service_manager {

void notify(const char* state) noexcept;  // sd_notify(3): "READY=1"
// How often at most systemd must hear WATCHDOG=1 (sd_watchdog_enabled(3)); 0 = never.
std::chrono::microseconds watchdog_period() noexcept;

}  // namespace scriptorium::service_manager
