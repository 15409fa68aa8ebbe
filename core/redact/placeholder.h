#pragma once

#include <string_view>

namespace scriptorium::redact {

// Whether a text in a secret's place only refers to a secret, or says that there is none: a
// reference ($X, ${X}, $(command), `command`, %s, {name}, <name>, @NAME@), a mask (xxxx, ****,
// ...), a word for nothing (none, null, false, EMPTY), an invitation (your_token_here), or a
// replacement of ours. Applies to every rule. Weak but real passwords (changeme, password) are no
// placeholders. Pure; any thread. Takes time linear in the text.
bool is_placeholder(std::string_view secret) noexcept;

}  // namespace scriptorium::redact
