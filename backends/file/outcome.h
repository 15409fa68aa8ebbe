#pragma once

#include <string>

#include "core/base/error.h"

// What a file system's answer means for a delivery. Pure.
namespace scriptorium::file {

// kPermanent: this path will never be possible, the delivery is rejected. Anything else is a retry,
// with the message as its reason: short, without a path, and the same each time, because retries
// are counted by it. ENOENT and ENOTDIR keep kVanished, so that a caller can make what is missing.
Error file_error(int code);

// For `root` at start and in `scriptorium check`: what a person must change is kInvalidConfig, what
// may go away by itself (disk full, read-only, a stale mount) is not, and then the daemon starts.
Error root_error(const std::string& what, int code);

}  // namespace scriptorium::file
