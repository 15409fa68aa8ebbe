#pragma once

#include <string>

namespace scriptorium {

// The message of the exception being handled, as one printable line of at most 200 bytes. Call it
// only within a catch block. Plugins may throw anything (`throw 1`), so the handler around a call
// into one is `catch (...)`, which has no exception object.
std::string thrown_text() noexcept;

}  // namespace scriptorium
