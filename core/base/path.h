#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace scriptorium {

// "a/b" of "a/b/c"; "" of a path without a slash, and of a name directly below "/". `path` must not
// end in a slash.
inline std::string parent_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string{} : std::string(path.substr(0, slash));
}

// The names between the slashes, without empty ones and ".".
inline std::vector<std::string> names_of(std::string_view path) {
  std::vector<std::string> names;
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('/'));
    if (!name.empty() && name != ".") names.emplace_back(name);
    path.remove_prefix(std::min(name.size() + 1, path.size()));
  }
  return names;
}

// "directory/name", or "name" if the directory is "".
inline std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return std::string(directory).append("/").append(name);
}

}  // namespace scriptorium
