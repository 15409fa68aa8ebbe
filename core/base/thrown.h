#pragma once

#include <string>

namespace scriptorium {

// What the exception being handled says, on one line fit for a log and at most 200 bytes; only
// within a catch block. Plugins may throw anything (`throw 1`), so the handler around a call into
// one is `catch (...)`, which has no object to ask.
std::string thrown_text() noexcept;

}  // namespace scriptorium
