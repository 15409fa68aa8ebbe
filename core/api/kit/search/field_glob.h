#pragma once

#include <string_view>

namespace scriptorium {

// Whether a whole value is `pattern`, in which `*` matches any bytes and nothing else is
// special. Cost: the product of the lengths at most.
bool glob_in_any_case(std::string_view pattern, std::string_view value) noexcept;  // ASCII
bool glob_in_case(std::string_view pattern, std::string_view value) noexcept;

}  // namespace scriptorium
