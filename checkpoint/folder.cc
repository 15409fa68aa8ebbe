#include "checkpoint/folder.h"

#include <dirent.h>
#include <fcntl.h>

#include <cerrno>
#include <memory>
#include <string_view>

#include "core/base/file.h"

namespace scriptorium::checkpoint {
namespace {

struct CloseDirectory {
  void operator()(DIR* d) const noexcept { ::closedir(d); }
};

}  // namespace

Result<std::vector<std::string>> names_in(int directory) {
  // A descriptor of its own: the offset of a copy would be shared.
  UniqueFd own(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own) return system_error("open a folder", errno);
  const std::unique_ptr<DIR, CloseDirectory> list(::fdopendir(own.get()));
  if (!list) return system_error("list a folder", errno);
  own.release();
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(list.get())) {  // NOLINT(concurrency-mt-unsafe)
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

}  // namespace scriptorium::checkpoint
