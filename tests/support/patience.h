#pragma once

#include <chrono>

namespace scriptorium::test {

// How long a test waits for an event on a busy machine before it fails. A test that passes never
// waits so long.
inline constexpr std::chrono::seconds kPatience{60};

}  // namespace scriptorium::test
