#pragma once

#include <string>

#include "core/base/result.h"

namespace scriptorium {

// Is this a whole shared library for this machine? dlopen() maps what the headers promise, and
// touching a page that a cut file does not have is a SIGBUS, so the promise is compared with the
// file's size first. Fails: kInvalidConfig with "found ...; needed ...; remedy" (without the file's
// name). Threads: any. Reads the file, loads nothing.
Result<void> check_elf(const std::string& file);

}  // namespace scriptorium
