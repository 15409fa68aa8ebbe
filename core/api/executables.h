#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace scriptorium {

// The file that a process was started from, as one who may see it found it.
struct Executable {
  std::string command;   // the process's name in /proc/PID/stat right after its file was opened
  std::string path;      // as the process itself would see it; at most 1024 bytes; "" = not known
  std::string build_id;  // that the linker wrote into it, lower-case hexadecimal; "" = not known
};

// Finds what files the processes of any user were started from. A process of its own does the work,
// because that needs a right, and because a file server that is down would hold up the caller.
//
// Threads: any. Never blocks.
class Executables {
 public:
  Executables() = default;
  Executables(const Executables&) = delete;
  Executables& operator=(const Executables&) = delete;
  virtual ~Executables() = default;

  // The first call for a process asks; a later one has the answer, once, when it has arrived. A
  // path that is not known is an answer, too: the process has ended, or its file server is down.
  // Nothing: not answered yet, or not asked because too many wait, so call it again later.
  // `start_ticks`: field 22 of /proc/PID/stat, so that a number that is used again is not confused.
  virtual std::optional<Executable> find(std::uint32_t pid, std::uint64_t start_ticks) = 0;
};

}  // namespace scriptorium
