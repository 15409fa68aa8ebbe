#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/time.h"

namespace scriptorium::kafka {

// What a bearer token says of itself. Pure.
struct Token {
  std::int64_t expires_at_ms = 0;
  std::string principal;  // never empty
};

// Reads `exp` and `sub` of a JSON Web Token without checking its signature, which is the broker's
// to do. Of any other token nothing is known: it is read again after five minutes.
Token read_token(std::string_view text, Timestamp now);

}  // namespace scriptorium::kafka
