#pragma once

#include <memory>
#include <string>

#include "core/api/logger.h"

namespace scriptorium {

// The daemon's logger, on spdlog: one line a message to standard error. Under systemd
// (JOURNAL_STREAM) each line starts with the syslog priority and has no time of its own. The same
// id is written at most 10 times a minute and instance; what was held back is counted and said once
// the minute is over.
std::unique_ptr<Logger> make_stderr_logger(LogLevel least);

// For commands: warnings and errors only, as plain sentences.
std::unique_ptr<Logger> make_command_logger();

LogLevel parse_log_level(const std::string& text);  // of "debug", "info", "warning", "error"

}  // namespace scriptorium
