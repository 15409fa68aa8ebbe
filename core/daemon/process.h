#pragma once

#include <chrono>
#include <string>

#include "core/base/file.h"

// The daemon's process: its signals and its memory, its host, and systemd.
namespace scriptorium::process {

// Sets umask and limits of memory and core dumps, ignores SIGPIPE, and blocks SIGTERM, SIGINT and
// SIGHUP. Call it before any other thread exists.
void prepare();
// A descriptor from which those three can be read (signalfd(2)).
UniqueFd open_signals();

// This host's name, "unknown" if it has none.
std::string host_name();

// The two functions do nothing unless the daemon was built with systemd and runs under it.
void notify(const char* state) noexcept;  // sd_notify(3): "READY=1"
// The longest time that systemd waits for WATCHDOG=1 (sd_watchdog_enabled(3)); 0 = no watchdog.
std::chrono::microseconds watchdog_period() noexcept;

}  // namespace scriptorium::process
