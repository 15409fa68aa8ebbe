#pragma once

#include <string>
#include <string_view>

#include "core/api/options.h"
#include "core/redact/rule.h"

namespace scriptorium::redact {

// Parses a file of rules (TOML):
//
//   off   = ["jwt"]                       # rules that are switched off
//   words = ["hunter2"]                   # never kept, wherever they are; at least 6 bytes
//   [actions]
//   url-userinfo = "flag"                 # "replace" | "drop" | "flag"
//   [names]
//   deny  = ["LAB_*_PIN"]                 # variables whose values are never kept
//   allow = ["PUBLIC_KEY"]                # harmless all the same
//   [parts]                               # {{lab}} in a regex of this file is (?:gateway|portal)
//   lab = "gateway|portal"
//   [[rule]]
//   name     = "lab-token"
//   about    = "a token of the lab's gateway"
//   keywords = ["labtok_"]
//   regex    = '\b(labtok_[0-9a-f]{32})\b'
//   entropy  = 3.0                        # optional, as all below
//   applies  = ["script", "value", "text"]
//   allow    = ['^labtok_0+$']
//   action   = "replace"
//   strict   = false
//   multi_line = false
//   hits     = [{ text = "export T=labtok_93f0...", secret = "labtok_93f0..." }]
//   misses   = ["labtok_ is what our tokens begin with"]
//
// Reports unknown keys, wrong types and values with their positions. Pure; does not compile any
// expression.
RuleFile parse_rule_file(std::string_view text, const std::string& name, Problems& problems);

}  // namespace scriptorium::redact
