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

// The directory that a process has as its root file system, from the beginning of /proc/PID/
// mountinfo, which everybody may read. A container whose image is a directory (Charliecloud) has
// that one.
struct RootDirectory {
  std::string_view device;  // "254:0"
  std::string_view path;    // in the file system on that device; "/": all of it. "" = not known

  bool operator==(const RootDirectory&) const = default;
};
RootDirectory root_directory(std::string_view mounts) noexcept;

// The base name of the root directory of a process in a container. Nothing for the machine's own
// root, for a whole file system (of a container whose layers are stacked, of an image that is a
// file), and for a name with blanks.
std::string container_of(const RootDirectory& process, const RootDirectory& machine);

// The task of srun that a process belongs to, from /proc/PID/cgroup: the number of the step in the
// upper half, that of the task in the lower one. Nothing for the batch script and for processes
// that srun did not start.
std::optional<std::uint64_t> srun_task(std::string_view groups) noexcept;

}  // namespace scriptorium::usage
