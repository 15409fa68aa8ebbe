#pragma once

#include <string>
#include <string_view>

namespace scriptorium {

// RFC 1952, level 1: on scripts and environments, higher levels take twice the time and save a
// tenth of the size. At most 4 GiB; throws std::length_error for more, and std::bad_alloc.
std::string gzip(std::string_view bytes);

}  // namespace scriptorium
