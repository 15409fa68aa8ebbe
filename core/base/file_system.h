#pragma once

#include <optional>
#include <string>

namespace scriptorium {

// A file system that other hosts may use, too, by statfs(2)'s f_type.
struct SharedFileSystem {
  std::string name;         // "NFS", "Lustre"
  bool locks_work = false;  // SQLite's locks and shared memory do, on one host
};
// Nothing for a local one, or if it cannot be asked.
std::optional<SharedFileSystem> shared_file_system(const std::string& directory);

}  // namespace scriptorium
