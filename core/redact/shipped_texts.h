#pragma once

#include <span>
#include <string_view>

namespace scriptorium::redact {

// A file of core/redact/rules/, as the build found it.
struct ShippedText {
  std::string_view name;  // "tokens.toml"
  std::string_view text;
};

// In name order. Their definition is generated (cmake/EmbedTexts.cmake).
std::span<const ShippedText> shipped_texts() noexcept;

}  // namespace scriptorium::redact
