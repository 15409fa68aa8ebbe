#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"

// Facts that a job script's text states, for any scheduler. Pure functions that do not evaluate the
// script: they expand no variable, substitute no command and decide no `if`. They accept any bytes
// and take time linear in the script's size.
namespace scriptorium {

// Items beyond these limits are dropped, so that a hostile script cannot double the size of its
// event.
inline constexpr std::size_t kMaxScriptItems = 1000;
inline constexpr std::size_t kMaxScriptItemBytes = 4096;

// How a scheduler's submit command finds its options in a script. All schedulers stop at the first
// line that is neither blank nor a comment.
struct DirectiveSyntax {
  std::string_view prefix;   // "#SBATCH"; "" = no directives
  bool indented = false;     // blanks may precede the prefix
  bool colon_lines = false;  // a line that begins with ':' counts as a comment
};

// Calls use(text) for each directive line, with the trimmed text after the prefix, until it returns
// false.
void for_each_directive(std::string_view script, const DirectiveSyntax& syntax,
                        const std::function<bool(std::string_view)>& use);

// Splits a directive's text into words at blanks. Quotes and backslashes protect; '#' begins a
// comment.
std::vector<std::string> split_directive(std::string_view text);

// interpreter  the path on the `#!` line; for env(1) also its command: "/usr/bin/env python3" of
//              "#!/usr/bin/env -S python3 -u".
// directives   the texts of for_each_directive() that are not empty.
// modules      the arguments of `module load`, `module add` and `ml NAME` and the new module of
//              `swap`, in order, wherever they are in the script; as written, so "GCC/$VERSION" is
//              not expanded.
ScriptInfo read_script_info(std::string_view script, const DirectiveSyntax& syntax);

}  // namespace scriptorium
