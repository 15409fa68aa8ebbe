#include "core/api/kit/path_option.h"

#include <variant>

namespace scriptorium {

const std::string* given_text(const Table& table, std::string_view key) {
  const Value* value = table.find(key);
  return value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
}

void check_absolute_path(const Table& table, std::string_view key, Problems& problems,
                         EmptyPath empty) {
  const std::string* path = given_text(table, key);
  if (path == nullptr || (path->empty() && empty == EmptyPath::kAllowed)) return;
  if (!path->starts_with('/')) {
    problems.add(table, key, "not an absolute path", "a path that begins with '/'");
  } else if (path->find('\0') != std::string::npos) {
    problems.add(table, key, "a path cannot hold a NUL byte");
  }
}

void drop_final_slashes(std::string& path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
}

}  // namespace scriptorium
