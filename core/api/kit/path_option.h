#pragma once

#include <string>
#include <string_view>

#include "core/api/options.h"

// Options that name files and directories.
namespace scriptorium {

// The text that the table has for an option. Null if the key is missing or has a value of another
// type, which the schema reports.
const std::string* given_text(const Table& table, std::string_view key);

// Reports an option of the table that is not an absolute path or contains a NUL byte.
enum class EmptyPath { kRefused, kAllowed };
void check_absolute_path(const Table& table, std::string_view key, Problems& problems,
                         EmptyPath empty = EmptyPath::kRefused);

// "/a/b" of "/a/b//"; "/" stays.
void drop_final_slashes(std::string& path);

}  // namespace scriptorium
