#pragma once

#include <cstddef>
#include <functional>
#include <optional>
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
inline constexpr std::size_t kMaxJobName = 1024;  // Slurm's own limit

// isspace() in the C locale, which sbatch uses.
inline constexpr std::string_view kScriptBlanks = " \t\n\v\f\r";
inline bool is_script_blank(char c) noexcept {
  return kScriptBlanks.find(c) != std::string_view::npos;
}

// How a scheduler's submit command finds its options in a script. All schedulers stop at the first
// line that is neither blank nor a comment.
struct DirectiveSyntax {
  std::string_view prefix;   // "#SBATCH"; "" = no directives
  bool indented = false;     // blanks may precede the prefix
  bool colon_lines = false;  // a line that begins with ':' counts as a comment
  bool translated = false;   // it also takes options written for LSF or PBS, see kSbatchSyntax
};

// sbatch takes the options of #BSUB lines too or, if there is none, those of #PBS lines, and they
// win over its own (Slurm 22.05, src/sbatch/xlate.c). Such a line counts wherever it begins with
// the prefix, also after the first command and in a here-document, up to the 101st line that does
// not begin with '#'. --ignore-pbs among the #SBATCH lines of the first component, in
// SBATCH_IGNORE_PBS or on the command line switches that off; the latter two are for the caller to
// know.
inline constexpr DirectiveSyntax kSbatchSyntax{.prefix = "#SBATCH", .translated = true};
// qsub of Torque and PBS.
inline constexpr DirectiveSyntax kQsubSyntax{
    .prefix = "#PBS", .indented = true, .colon_lines = true};

// Calls use(text) for each directive line with the prefix, with the trimmed text after it, until it
// returns false.
void for_each_directive(std::string_view script, const DirectiveSyntax& syntax,
                        const std::function<bool(std::string_view)>& use);

// Whether a word of a command is NAME=value.
bool is_assignment(std::string_view word) noexcept;

// Splits a directive's text into words at blanks. Quotes and backslashes protect; '#' begins a
// comment.
std::vector<std::string> split_directive(std::string_view text);

// interpreter  the path on the `#!` line; for env(1) also its command: "/usr/bin/env python3" of
//              "#!/usr/bin/env -S python3 -u".
// directives   the texts of for_each_directive() that are not empty, then the lines that are
//              translated, with their prefix: "#PBS -N name". In the order in which they apply: the
//              last one wins.
// modules, software  see script_software.h
ScriptInfo read_script_info(std::string_view script, const DirectiveSyntax& syntax);

// The job's name by the directives of kSbatchSyntax or kQsubSyntax (of the first component of a
// heterogeneous job), where they have one.
std::optional<std::string> job_name_directive(std::string_view script,
                                              const DirectiveSyntax& syntax);

}  // namespace scriptorium
