#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::cli {

inline constexpr const char* kUsage =
    "usage";  // the event's member and a part of file names; not a plugin's name

// Reads the usage records in a file tree: every file whose name contains "usage" and ".json", as
// the tree's documentation promises; with `scripts` also the others whose name contains ".json",
// the records of scripts among them. Follows no symbolic link below the root and opens only regular
// files.
struct RecordWalk {
  std::string root;
  bool scripts = false;
  std::function<bool(std::string_view path)> wanted;  // selects by path below the root; empty: all
  Timestamp since;             // files last written before this are not opened
  std::string only_directory;  // below the root; read if the root itself cannot be listed
};
struct WalkCounts {
  std::uint64_t looked_at = 0;  // names
  std::uint64_t read = 0;       // files
  std::uint64_t closed = 0;     // directories and files that we may not open
};

// Calls use(path, bytes) for each such file. The only error is a root that cannot be entered.
Result<WalkCounts> walk_records(
    const RecordWalk& walk,
    const std::function<void(const std::string& path, std::string bytes)>& use);

}  // namespace scriptorium::cli
