#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/engine.h"
#include "checkpoint/processes.h"

// What makes a program one that cannot be saved, or cannot be resumed. It is looked for before the
// dump: criu saves some such programs, whose resume then fails, and the program is gone by then.
namespace scriptorium::checkpoint {

// Reads /proc as the tree's owner. The value says why the image is for this node only, "" = it is
// not; `directory`, an open folder, gets the image.
Outcome<std::string> find_obstacles(const std::vector<Process>& tree, int directory);

// Pure, for tests.
// The inodes of connected TCP sockets, of /proc/PID/net/tcp or tcp6.
std::set<std::uint64_t> connected_tcp(std::string_view text);
// Whether a process holds a lock through a descriptor, of /proc/PID/fdinfo/N. /proc/locks has the
// process that took the lock, which may have ended, and its id may be another's now.
bool holds_lock(std::string_view text);
// A socket of the tree whose peer is not in the tree. `peers`: of Unix sockets, by inode.
std::optional<std::uint64_t> outside_peer(const std::set<std::uint64_t>& sockets,
                                          const std::map<std::uint64_t, std::uint64_t>& peers);
// A file system of this type (statfs) is the same on other nodes.
bool is_shared_file_system(std::uint64_t type) noexcept;

}  // namespace scriptorium::checkpoint
