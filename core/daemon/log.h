#pragma once

#include <memory>
#include <string>

#include "core/api/logger.h"

namespace scriptorium {

// The daemon's logger, on spdlog: writes each message as one line to standard error. Under systemd
// (JOURNAL_STREAM is set) a line starts with the syslog priority and has no timestamp. Warnings and
// errors with the same id are written at most 10 times a minute for each source or sink; the next
// line after that minute gives the number that was held back.
std::unique_ptr<Logger> make_stderr_logger(LogLevel least);

// The logger of the commands: warnings and errors only, as plain sentences.
std::unique_ptr<Logger> make_command_logger();

// "debug", "info", "warning" or "error"; anything else is kInfo.
LogLevel parse_log_level(const std::string& text);

}  // namespace scriptorium
