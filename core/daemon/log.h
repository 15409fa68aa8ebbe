#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/api/logger.h"
#include "core/base/result.h"

namespace scriptorium {

// The daemon's logger, on spdlog: writes each message as one line to standard error. Where that is
// the system's journal, a line starts with the syslog priority and has no timestamp. Warnings and
// errors with the same id are written at most 10 times a minute for each source or sink; the next
// line after that minute gives the number that was held back.
std::unique_ptr<Logger> make_stderr_logger(LogLevel least);

// The logger of the commands: warnings and errors only, as plain sentences.
std::unique_ptr<Logger> make_command_logger();

// Writes an info message as the daemon's logger does, and returns only when it is written: for what
// must be in the log before what follows it. Where standard error is the system's journal, it gets
// an entry with fields instead of a line (system_journal.h). Fails as write(2) and sendto(2) do.
// Threads: any.
Result<void> write_log_line(std::string_view id, std::string_view sentence,
                            const Logger::Fields& fields);

// "debug", "info", "warning" or "error"; anything else is kInfo.
LogLevel parse_log_level(const std::string& text);

}  // namespace scriptorium
