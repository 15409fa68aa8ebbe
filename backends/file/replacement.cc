#include "backends/file/replacement.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backends/file/outcome.h"
#include "backends/file/store.h"
#include "core/base/fault_point.h"

namespace scriptorium::file {
namespace {

bool same_place(const Item& one, const Item& other) {
  return one.place.directory() == other.place.directory() && one.place.stem == other.place.stem;
}

}  // namespace

Item Replacement::replaced_item(const Item& item) const {
  Event before = item.event();
  before.id = *before.replaces;
  before.user = {};
  Item result;
  result.delivery = item.delivery;
  result.id = before.id;
  result.place = layout_.place(before);
  for (std::size_t i = 0; i < item.files.size(); ++i) {
    if (item.files[i]) result.files[i].emplace().bytes = item.files[i]->bytes;
  }
  return result;
}

Result<bool> Replacement::find(const Batch& batch, Item& item) const {
  const bool has_record = item.file(FileKind::kMetadata).has_value();
  const auto files =
      std::ranges::count_if(item.files, [](const auto& file) { return file.has_value(); });
  unsigned free = 0;
  for (item.slot = 1; item.slot <= kMaxSlots && free < kFreeSlotsPassed; ++item.slot) {
    auto examined = placement_.examine(batch, item, item.slot);
    if (!examined) return examined.error();
    item.missing = std::move(examined->missing);
    const bool nothing =
        !examined->other && static_cast<std::ptrdiff_t>(item.missing.size()) == files;
    free = nothing ? free + 1 : 0;
    // Equal bytes beside no record may be another event that is being written.
    const bool no_record = has_record && item.lacks(FileKind::kMetadata);
    if (!examined->other && !nothing && !no_record) return true;
  }
  return false;
}

Result<bool> Replacement::replace_in_place(Batch& batch, Item& item) {
  Item before = replaced_item(item);
  if (!same_place(before, item)) return false;
  before.directory = item.directory;
  auto found = find(batch, before);
  if (!found || !*found) return found;
  if (auto granted = grant_contents(batch, item, before); !granted) return granted.error();
  if (auto replaced = replace_record(batch, item, before.slot); !replaced) return replaced.error();
  FAULT_POINT("file.replaced");
  item.directory->changed = true;
  item.slot = before.slot;
  return true;
}

Result<void> Replacement::grant_contents(const Batch& batch, const Item& item,
                                         const Item& before) const {
  for (const FileKind kind : {FileKind::kScript, FileKind::kEnvironment}) {
    if (!item.file(kind) || before.lacks(kind)) continue;
    const UniqueFd fd(::openat(item.directory->fd.get(), item.place.name(kind, before.slot).c_str(),
                               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd) return file_error(errno);
    if (auto granted = access_.grant(*batch.prepared, fd.get(), AclTarget::kFile, item.reader);
        !granted)
      return granted.error();
    if (auto synced = sync_descriptor(fd.get()); !synced) return synced.error();
  }
  return {};
}

Result<void> Replacement::replace_record(Batch& batch, Item& item, unsigned slot) {
  auto& record = item.file(FileKind::kMetadata);
  if (!record) return {};
  const int directory = item.directory->fd.get();
  if (auto written = placement_.write_temporary(batch, item, FileKind::kMetadata, true); !written)
    return written.error();
  if (auto synced = sync_descriptor(record->fd.get()); !synced) return synced.error();
  const std::string name = item.place.name(FileKind::kMetadata, slot);
  if (::renameat(directory, record->temporary.c_str(), directory, name.c_str()) != 0)
    return file_error(errno);
  record->temporary.clear();
  return {};
}

// The record goes last, and only once the other names are durably gone: as long as it is there, a
// later attempt finds what is left.
Result<void> Replacement::remove_replaced(const Batch& batch, const Item& item) const {
  Item before = replaced_item(item);
  if (same_place(before, item)) return {};
  auto fd = open_directory(batch.root, before.place.directory());
  if (!fd) return fd.error().kind() == ErrorKind::kVanished ? Result<void>{} : fd.error();
  before.directory = std::make_shared<Directory>();
  before.directory->fd = *std::move(fd);
  const int directory = before.directory->fd.get();
  const auto found = find(batch, before);
  if (!found) return found.error();
  // Perhaps removed by an attempt that did not come to its end.
  if (!*found) return sync_descriptor(directory);
  const auto remove = [&](FileKind kind) -> Result<void> {
    if (!item.file(kind) || before.lacks(kind)) return {};
    if (::unlinkat(directory, before.place.name(kind, before.slot).c_str(), 0) != 0 &&
        errno != ENOENT)
      return file_error(errno);
    return {};
  };
  for (const FileKind kind : {FileKind::kScript, FileKind::kEnvironment}) {
    if (auto removed = remove(kind); !removed) return removed;
  }
  if (auto synced = sync_descriptor(directory); !synced) return synced;
  FAULT_POINT("file.replaced_contents_removed");
  if (auto removed = remove(FileKind::kMetadata); !removed) return removed;
  return sync_descriptor(directory);
}

}  // namespace scriptorium::file
