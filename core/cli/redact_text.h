#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cli/console.h"
#include "core/redact/rule_set.h"

// Texts with secrets, made fit for a screen. Pure.
namespace scriptorium::cli {

// What is shown in the place of a secret: four stars, after its first two characters if it has at
// least 12. Its length does not show.
std::string masked_secret(std::string_view secret);

// The line in which `found` begins, without any secret of `all` (findings in `text`) and without
// copies of them; long lines only near `found`. `whole`: the text is one value, and is not split
// into lines.
std::string masked_line(std::string_view text, const std::vector<redact::Finding>& all,
                        const redact::Finding& found, const Console& console, bool whole = false);

// A short text, such as a path, without what the rules find in it.
std::string masked_text(std::string_view text, const redact::RuleSet& rules);

}  // namespace scriptorium::cli
