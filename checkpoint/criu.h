#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/engine.h"

namespace scriptorium::checkpoint {

inline constexpr const char* kCriuEngine = "criu";  // Engine::name()

// CRIU as a program, with the rights of owner.h. `program`: "" = looked for in the system's
// folders.
std::unique_ptr<Engine> make_criu(const std::string& program);

// Pure: why criu failed, from its log's last error.
Refusal refusal_of_log(std::string_view log);

}  // namespace scriptorium::checkpoint
