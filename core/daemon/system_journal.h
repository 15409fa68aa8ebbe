#pragma once

#include <string>
#include <string_view>

#include "core/api/logger.h"
#include "core/base/result.h"

// The system's journal, systemd-journald, by its native protocol
// (https://systemd.io/JOURNAL_NATIVE_PROTOCOL): an entry has fields by which it can be found.
namespace scriptorium::system_journal {

inline constexpr const char* kSocket = "/run/systemd/journal/socket";

// Whether what is written to `fd` becomes lines of the system's journal: `journal_stream`, the
// variable JOURNAL_STREAM (systemd.exec(5)), names its device and inode. Null: the variable is not
// set.
bool has_stream(int fd, const char* journal_stream);

// Sends an info entry: MESSAGE, MESSAGE_ID, PRIORITY, SYSLOG_IDENTIFIER, and each of the fields
// under SCRIPTORIUM_ and its key in capitals. No value can become another field, whatever bytes it
// has. Returns once the journal's socket has it; waits while that is full.
// Fails as socket(2) and sendto(2) do, also where no journal runs. Threads: any.
Result<void> send(std::string_view message, std::string_view message_id,
                  const Logger::Fields& fields, const std::string& socket = kSocket);

}  // namespace scriptorium::system_journal
