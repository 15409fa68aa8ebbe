#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"

// What a job script's text says of itself, whatever the scheduler. Pure functions that read and
// never evaluate: no variable is expanded, no command substituted, no `if` decided. Linear in the
// script's size; any bytes are taken.
namespace scriptorium {

// More or longer than this is left out, so that a hostile script cannot make an event of any size
// twice as large.
inline constexpr std::size_t kMaxScriptItems = 1000;
inline constexpr std::size_t kMaxScriptItemBytes = 4096;

// How a scheduler's submit command finds its options in a script. All of them stop at the first
// line that is neither blank nor a comment.
struct DirectiveSyntax {
  std::string_view prefix;   // "#SBATCH"; "" = there are none
  bool indented = false;     // blanks may precede the prefix
  bool colon_lines = false;  // a line that begins with ':' counts as a comment
};

// Calls use(text) with the text after the prefix of each such line, without the blanks around
// it, until it returns false.
void for_each_directive(std::string_view script, const DirectiveSyntax& syntax,
                        const std::function<bool(std::string_view)>& use);

// A directive's text as words: blanks separate, quotes and backslashes protect, '#' begins a
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
