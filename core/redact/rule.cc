#include "core/redact/rule.h"

namespace scriptorium::redact {

std::optional<Mode> parse_mode(std::string_view name) noexcept {
  for (const Mode mode : {Mode::kOff, Mode::kFlag, Mode::kDefault, Mode::kStrict}) {
    if (name == to_string(mode)) return mode;
  }
  return std::nullopt;
}

const char* to_string(Mode mode) noexcept {
  switch (mode) {
    case Mode::kOff: return "off";
    case Mode::kFlag: return "flag";
    case Mode::kDefault: return "default";
    case Mode::kStrict: break;
  }
  return "strict";
}

}  // namespace scriptorium::redact
