#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/file.h"

namespace scriptorium {

// The mounts that this process sees. The kernel reports a change at once, long before a scan would
// find that a spool was unmounted, or mounted again. Threads: one.
class MountTable {
 public:
  MountTable();

  // For poll() with POLLPRI: something was mounted or unmounted since the last poll of this
  // descriptor. -1: there is no /proc, so changes are not reported.
  int fd() const { return changes_.get(); }
  // Polls without waiting.
  bool changed() const;

  // The number of the mount that `path` (absolute, without symbolic links) is reached through;
  // nothing without /proc. It is another one after an unmount and a mount, also of the same file
  // system.
  static std::optional<std::uint64_t> mount_of(std::string_view path);

 private:
  UniqueFd changes_;
};

// The same from the text of /proc/self/mountinfo.
std::optional<std::uint64_t> mount_of(std::string_view mountinfo, std::string_view path);

}  // namespace scriptorium
