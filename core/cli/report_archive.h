#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::cli {

inline constexpr const char* kUsage =
    "usage";  // the event's member, and part of a file's name; no plugin is meant

// What stands in a tree of files about the use of jobs: every file of the tree whose name says
// "usage" and ".json", as the tree's own documentation promises. Follows no symbolic link below the
// root, and opens nothing but regular files.
struct RecordWalk {
  std::string root;
  std::function<bool(std::string_view path)> wanted;  // by the path below the root; none: all
  Timestamp since;             // files that were written before are not opened
  std::string only_directory;  // beneath the root, tried where the root itself may not be listed
};
struct WalkCounts {
  std::uint64_t looked_at = 0;  // names
  std::uint64_t read = 0;       // files
  std::uint64_t closed = 0;     // directories and files that we may not open
};

// Calls use(path, bytes) for each such file. Only a root that cannot be entered is an error.
Result<WalkCounts> walk_records(
    const RecordWalk& walk,
    const std::function<void(const std::string& path, std::string bytes)>& use);

}  // namespace scriptorium::cli
