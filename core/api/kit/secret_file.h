#pragma once

#include <span>
#include <string>

#include "core/api/options.h"
#include "core/base/result.h"

// Files that hold passwords, tokens, keys and certificates. An option whose name ends in "_file"
// names one: by an absolute path, or by a name without '/', which stands for
// $CREDENTIALS_DIRECTORY/NAME (systemd's LoadCredential=).
namespace scriptorium {

// The contents of a secret's file without the final newline (LF or CRLF). kInvalidConfig, with the
// remedy, if `file` is neither an absolute path nor such a name, cannot be read, is not a regular
// file, may be read or written by others, is empty, holds a NUL byte or is larger than 64 KiB.
Result<Secret> read_secret(const std::string& file);

// A text that changes whenever one of the files is written, replaced, created or removed; it
// contains inode, modification time and size. Empty names are skipped. Call it before reading the
// files, so that the next comparison detects a change made meanwhile.
std::string version_of_files(std::span<const std::string> files);

}  // namespace scriptorium
