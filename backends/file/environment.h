#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/api/event.h"

// The formats of the environment in its file. Pure.
namespace scriptorium::file {

enum class EnvironmentStyle {
  kNul,    // the bytes as they are: NAME=value, each ended by NUL
  kLines,  // NAME=value, one a line; in it "\\" is a backslash, "\n" a newline, "\0" a NUL
  kShell,  // `. FILE` in bash sets the same variables, byte for byte
};

// `format` says what the bytes are; kRaw ones could not be parsed and are never split into
// variables: kLines writes them as one escaped line, kShell as a comment in base64.
std::string render_environment(std::string_view bytes, EnvironmentFormat format,
                               EnvironmentStyle style);

// The way back: the bytes from which render_environment() made `text`; nothing if it did not make
// it.
std::optional<std::string> parse_environment(std::string_view text, EnvironmentFormat format,
                                             EnvironmentStyle style);

}  // namespace scriptorium::file
