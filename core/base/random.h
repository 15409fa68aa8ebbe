#pragma once

#include <cstddef>
#include <string>

#include "core/base/result.h"

namespace scriptorium {

// So many random bytes of the kernel's, at most 256, as lower-case hexadecimal digits. Nobody can
// guess them, so they can separate fields that users write, or be in names that must not meet
// another's.
Result<std::string> random_hex(std::size_t bytes);

}  // namespace scriptorium
