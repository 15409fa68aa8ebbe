#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// What a process runs, by what everybody may read of it in /proc. Pure functions on a file's bytes,
// all of which its user can write.
namespace scriptorium::usage {

// Both are UTF-8 of at most kLongestProgramName bytes, and may hold any character.
struct ProgramName {
  std::string name;
  std::string script;  // of Python, R, Julia, Perl and shells: a file's name, or Python's module

  bool operator==(const ProgramName&) const = default;
};
inline constexpr std::size_t kLongestProgramName = 64;

// Valid UTF-8 of at most `most` bytes, cut between two characters.
std::string bounded_text(std::string_view bytes, std::size_t most);

// `command` is the name in /proc/PID/stat, at most 15 bytes; `arguments` is /proc/PID/cmdline,
// empty for a process that is ending. The name is the base name of argv[0], unless that has blanks:
// then it is a title that the program writes itself, and the command is taken. "?" without either.
//
// Of the arguments nothing is kept but the script's base name. Where it is not certain which
// argument is the script, there is none.
ProgramName name_program(std::string_view command, std::string_view arguments);

// The task of srun that a process belongs to, from /proc/PID/cgroup: the number of the step in the
// upper half, that of the task in the lower one. Nothing for the batch script and for processes
// that srun did not start.
std::optional<std::uint64_t> srun_task(std::string_view groups) noexcept;

}  // namespace scriptorium::usage
