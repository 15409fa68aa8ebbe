#include "core/base/file_system.h"

#include <sys/vfs.h>

#include <cstdint>

namespace scriptorium {

std::optional<SharedFileSystem> shared_file_system(const std::string& directory) {
  struct statfs state{};
  if (::statfs(directory.c_str(), &state) != 0) return std::nullopt;
  // statfs(2), linux/magic.h, and the file systems' own sources.
  switch (static_cast<std::uint32_t>(state.f_type)) {
    case 0x6969U: return SharedFileSystem{"NFS"};
    case 0xFF534D42U:
    case 0xFE534D42U:
    case 0x517BU: return SharedFileSystem{"SMB"};
    case 0x5346414FU: return SharedFileSystem{"AFS"};
    case 0x0BD00BD0U: return SharedFileSystem{"Lustre", true};
    case 0x19830326U: return SharedFileSystem{"BeeGFS", true};
    case 0x00C36400U: return SharedFileSystem{"CephFS", true};
    case 0x47504653U: return SharedFileSystem{"GPFS", true};
    case 0x01161970U: return SharedFileSystem{"GFS2", true};
    default: return std::nullopt;
  }
}

}  // namespace scriptorium
