#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace scriptorium::test {

// The build id of a file, as binutils say; "" without either.
inline std::string readelf_build_id(const std::string& file) {
  const std::string command = "readelf -n '" + file + "' 2>/dev/null";
  std::string said;
  if (FILE* const pipe = ::popen(command.c_str(), "r")) {
    char buffer[4096];
    while (const std::size_t bytes = std::fread(buffer, 1, sizeof buffer, pipe))
      said.append(buffer, bytes);
    ::pclose(pipe);
  }
  constexpr std::string_view kLabel = "Build ID: ";
  const std::size_t at = said.find(kLabel);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + kLabel.size();
  return said.substr(begin, said.find_first_not_of("0123456789abcdef", begin) - begin);
}

}  // namespace scriptorium::test
