#pragma once

#include <cstddef>
#include <string>

#include "core/base/result.h"

namespace scriptorium {

// `bytes` random bytes from the kernel, at most 256, as lower-case hexadecimal digits. They cannot
// be guessed, so they can separate fields that users write, or make a name unique.
Result<std::string> random_hex(std::size_t bytes);

}  // namespace scriptorium
