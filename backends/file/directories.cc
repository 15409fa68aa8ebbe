#include "backends/file/directories.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "backends/file/outcome.h"
#include "backends/file/store.h"
#include "core/base/path.h"

namespace scriptorium::file {
namespace {

constexpr std::size_t kMaxDurable = 65'536;

}  // namespace

bool Directories::is_durable(const std::string& path) const {
  return durable_.with([&](const auto& durable) { return durable.contains(path); });
}

void Directories::note_durable(const std::vector<std::string>& paths) {
  durable_.with([&](auto& durable) {
    if (durable.size() + paths.size() > kMaxDurable) durable.clear();
    durable.insert(paths.begin(), paths.end());
  });
}

Result<std::shared_ptr<Directory>> Directories::open(Batch& batch, const Item& item) {
  const std::string path = item.place.directory();
  if (const auto found = batch.directories.find(path); found != batch.directories.end())
    return found->second;
  auto directory = std::make_shared<Directory>();
  directory->path = path;
  if (is_durable(path)) {
    auto fd = open_directory(batch.root, path);
    if (fd) {
      directory->fd = *std::move(fd);
    } else if (fd.error().kind() != ErrorKind::kVanished) {
      return fd.error();
    } else {
      // Somebody removed it meanwhile: make it again below, and trust nothing above it.
      durable_.with([](auto& durable) { durable.clear(); });
    }
  }
  if (!directory->fd) {
    auto fd = walk(batch, item);
    if (!fd) return fd.error();
    directory->fd = *std::move(fd);
    // The process before us may have died between making a name and syncing it.
    directory->changed = true;
    // A directory's own name is an entry of the one above it.
    for (std::string p = path; !p.empty() && !is_durable(p);) {
      p = parent_of(p);
      batch.to_sync.insert(p);
    }
    stale_removed_ += remove_stale(directory->fd.get(), access_.names());
  }
  struct stat st{};
  if (::fstat(directory->fd.get(), &st) != 0) return file_error(errno);
  directory->device = st.st_dev;
  batch.directories.emplace(path, directory);
  return directory;
}

Result<UniqueFd> Directories::walk(Batch& batch, const Item& item) {
  auto fd = open_directory(batch.root, "");
  std::string walked;
  for (std::size_t i = 0; fd && i < item.place.directories.size(); ++i) {
    const std::string& name = item.place.directories[i];
    walked += (walked.empty() ? "" : "/") + name;
    fd = open_or_make(batch, fd->get(), name, walked,
                      i >= item.place.owned_from ? item.reader : std::nullopt);
  }
  return fd;
}

Result<UniqueFd> Directories::open_or_make(const Batch& batch, int parent, const std::string& name,
                                           const std::string& path, std::optional<uid_t> reader) {
  auto fd = open_directory(parent, name);
  if (!fd && fd.error().kind() == ErrorKind::kVanished) {
    struct stat st{};
    // Something else has that name: report it, do not try to make it.
    if (::fstatat(parent, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0)
      return file_error(S_ISLNK(st.st_mode) ? ELOOP : ENOTDIR);
    fd = access_.make_directory(*batch.prepared, parent, name, reader);
  }
  if (!fd) {
    if (fd.error().kind() == ErrorKind::kTransient || fd.error().kind() == ErrorKind::kVanished) {
      access_.log().warning("FILE_DIRECTORY_BLOCKED",
                            "A directory of the archive cannot be opened or made; its events wait",
                            {{"sink", access_.instance()},
                             {"directory", access_.config().root + '/' + path},
                             {"reason", fd.error().message()}});
    }
    return fd;
  }
  if (reader && batch.prepared->access_lists)
    access_.admit_owner(*batch.prepared, fd->get(), path, *reader);
  return fd;
}

}  // namespace scriptorium::file
