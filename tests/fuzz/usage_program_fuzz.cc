// A process's own words, which its user writes: whatever is in them, names are bounded text without
// a directory, and a script is a part of one argument.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/base/text.h"
#include "schedulers/usage/counters.h"
#include "schedulers/usage/program_name.h"
#include "schedulers/usage/program_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  using namespace scriptorium::usage;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string_view command = bytes.substr(0, std::min<std::size_t>(size, 15));
  const std::string arguments(bytes.substr(command.size()));

  for (const char* interpreter : {"", "python3", "R", "Rscript", "julia", "perl", "bash"}) {
    std::string line = interpreter;
    if (!line.empty()) line += '\0';
    line += arguments;
    const ProgramName made = name_program(command, line);
    if (made.name.empty() || made.name.find('/') != std::string::npos) {
      // The kernel's name of a process is not a path, and may hold a slash.
      if (made.name.empty() || command.find('/') == std::string_view::npos) std::abort();
    }
    for (const std::string& text : {made.name, made.script}) {
      if (text.size() > kLongestProgramName || !is_utf8(text)) std::abort();
    }
    if (made.script.find_first_of("/ \n\t") != std::string::npos) std::abort();
    if (is_utf8(line) && line.find(made.script) == std::string::npos) std::abort();
  }

  static_cast<void>(srun_task(bytes));
  const std::string container = container_of(root_directory(bytes), {.device = "8:1", .path = "/"});
  if (container.size() > kLongestProgramName || !is_utf8(container)) std::abort();
  if (container.find_first_of("/ \n") != std::string::npos) std::abort();
  if (const auto stat = parse_process_stat(bytes); stat && bytes.find('(') == bytes.npos)
    std::abort();
  const ProgramTable table = ProgramTable::from({.processes = std::string(bytes)});
  const std::string again = ProgramTable::from(table.state()).state().processes;
  if (again != table.state().processes) std::abort();
  return 0;
}
