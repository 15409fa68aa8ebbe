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

bool applies_to(const Rule& rule, Place place) noexcept {
  switch (place) {
    case Place::kScript: return rule.script;
    case Place::kValue: return rule.value;
    case Place::kText: break;
  }
  return rule.text;
}

}  // namespace scriptorium::redact
