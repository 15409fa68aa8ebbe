#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

// The file ".scriptorium-tree" in the root of a tree. Where it lies, the file system of the archive
// is mounted, so what is not there has vanished; and it has a line for each layout that the tree
// has had. An empty one, such as an administrator makes with `touch`, is one too.
//
// Only this sink writes it, and only in Root::prepare(), which runs once at a time; any thread
// reads it. Fails: as file_error() unless said otherwise.
namespace scriptorium::file {

inline constexpr std::string_view kMarkerName = ".scriptorium-tree";

// The layouts, the oldest first. kTransient: there is no marker. `path` of the root, for the words.
Result<std::vector<std::string>> read_marker(int root, const std::string& path);

// Without reading it.
Result<void> require_marker(int root, const std::string& path);

// Makes the marker, or adds a layout that it lacks: atomically, and durable on return. `temporary`
// is a name for the new file until it is whole.
Result<void> add_to_marker(int root, const std::string& path, const std::string& layout,
                           const std::string& temporary);

// Whether nothing lies in the root but what a new file system has.
Result<bool> is_empty_root(int root);

}  // namespace scriptorium::file
