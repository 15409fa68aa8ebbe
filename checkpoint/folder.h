#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"

namespace scriptorium::checkpoint {

// The names in an open folder, in no order, without "." and "..".
Result<std::vector<std::string>> names_in(int directory);

}  // namespace scriptorium::checkpoint
