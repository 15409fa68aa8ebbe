#pragma once

#include <string>

#include "core/base/result.h"

namespace scriptorium {

// Checks that the file is a complete shared library for this machine. dlopen() maps what the
// headers describe, and touching a page beyond the end of a truncated file raises SIGBUS, so we
// compare the headers with the file's size first. Reads the file, loads nothing. Fails:
// kInvalidConfig with "found ...; needed ...; remedy" (without the file's name). Threads: any.
Result<void> check_elf(const std::string& file);

}  // namespace scriptorium
