#pragma once

#include <string_view>

namespace scriptorium {

// A file of the source tree that is a part of the program, as the build found it
// (cmake/EmbedTexts.cmake): it can be neither missing nor changed.
struct ShippedText {
  std::string_view name;  // "tokens.toml"
  std::string_view text;
};

}  // namespace scriptorium
