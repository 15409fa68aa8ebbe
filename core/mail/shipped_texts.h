#pragma once

#include <span>

#include "core/config/shipped_text.h"

namespace scriptorium::mail {

// The files of core/mail/texts/, in name order. Generated (cmake/EmbedTexts.cmake).
std::span<const ShippedText> shipped_texts() noexcept;

}  // namespace scriptorium::mail
