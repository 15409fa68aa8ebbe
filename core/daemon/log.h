#pragma once

#include <memory>
#include <string>

#include "core/api/logger.h"

namespace scriptorium {

// The daemon's logger, on spdlog: one line for each message to standard error. Under systemd
// (JOURNAL_STREAM) each line starts with the syslog priority and has no time of its own. Warnings
// and errors of one id are written at most 10 times a minute for each source or sink; the next line
// after that minute says how many were held back.
std::unique_ptr<Logger> make_stderr_logger(LogLevel least);

// For commands: warnings and errors only, as plain sentences.
std::unique_ptr<Logger> make_command_logger();

LogLevel parse_log_level(const std::string& text);  // of "debug", "info", "warning", "error"

}  // namespace scriptorium
