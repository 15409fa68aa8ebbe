#pragma once

#include <string>

#include "core/api/logger.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "core/journal/journal_types.h"

// How a damaged journal is put aside: its files move to bad.<time>/, and what can be read of them
// becomes the new journal. Interrupted at any moment, the next start finishes it.
namespace scriptorium::journal {

// A quarantine that was not finished because the process ended; "" = there is none.
std::string unfinished_quarantine(const std::string& directory);
Result<std::string> new_quarantine(const std::string& directory, const Clock& clock);
// Moves the damaged files to `bad` and salvages them, as far as that was not done before.
Result<void> quarantine(const std::string& directory, const std::string& bad,
                        const std::string& damage, Logger& log, OpenReport& report);

// A mark beside the journal that makes the next start put it aside even if its check finds nothing.
Result<void> ask_for_salvage(const std::string& directory, const std::string& why);
Result<std::string> asked_for_salvage(const std::string& directory);  // why; else an error
Result<void> withdraw_salvage(const std::string& directory);

}  // namespace scriptorium::journal
