#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/cli/console.h"
#include "core/redact/secret_notice.h"

namespace scriptorium::cli {

// What `event`, JSON of schema 1, says about secrets (core/redact/secret_notice.h), for a terminal:
// one indented line each; "" if there is nothing to tell. The event is unchecked. Reads the rules
// beside the configuration, only to say what they look for: without them it names the rules.
std::string secret_text(const nlohmann::ordered_json& event, const std::string& config_file,
                        redact::Reader reader, const Console& console);

}  // namespace scriptorium::cli
