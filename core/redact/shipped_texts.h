#pragma once

#include <span>

#include "core/config/shipped_text.h"

namespace scriptorium::redact {

// The files of core/redact/rules/, in name order. Generated (cmake/EmbedTexts.cmake).
std::span<const ShippedText> shipped_texts() noexcept;

}  // namespace scriptorium::redact
