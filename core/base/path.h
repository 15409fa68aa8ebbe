#pragma once

#include <string>
#include <string_view>

namespace scriptorium {

// "a/b" of "a/b/c"; "" of a path without a slash, and of a name directly below "/". `path` must not
// end in a slash.
inline std::string parent_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string{} : std::string(path.substr(0, slash));
}

// "directory/name", or "name" if the directory is "".
inline std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return std::string(directory).append("/").append(name);
}

}  // namespace scriptorium
