#include "backends/file/replacement.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backends/file/job_files.h"
#include "backends/file/outcome.h"
#include "backends/file/store.h"
#include "core/base/fault_point.h"

namespace scriptorium::file {
namespace {

constexpr std::uint64_t kMostMovedBytes = std::uint64_t{1} << 30;

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
  result.needs_same_id = true;
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

Result<void> Replacement::take_contents(const Batch& batch, Item& item) const {
  Item before = replaced_item(item);
  auto fd = open_directory(batch.root, before.place.directory());
  bool found = false;
  if (fd) {
    before.directory = std::make_shared<Directory>();
    before.directory->fd = *std::move(fd);
    auto taken = item.file(FileKind::kMetadata) ? take_beside_record(batch, before, item)
                                                : take_equal(before, item);
    if (!taken) return taken.error();
    found = *taken;
  } else if (fd.error().kind() != ErrorKind::kVanished) {
    return fd.error();
  }
  if (!found) item.files = {};
  return {};
}

Result<bool> Replacement::take_beside_record(const Batch& batch, Item& before, Item& item) const {
  auto found = find(batch, before);
  if (!found || !*found) return found;
  const int directory = before.directory->fd.get();
  auto stored = read_metadata(directory, before.place.name(FileKind::kMetadata, before.slot));
  if (!stored) {
    // Trying again is of no use.
    if (stored.error().kind() != ErrorKind::kCorrupt) return stored.error();
    return Error{ErrorKind::kPermanent, stored.error().message()};
  }
  // What came may be without what was read from the script.
  stored->id = item.id;
  stored->user = item.event().user;
  stored->replaces = item.event().replaces;
  item.file(FileKind::kMetadata)->bytes = record_of(*stored);
  for (const FileKind kind : missing_contents(item)) {
    auto bytes = read_beneath(directory, before.place.name(kind, before.slot), kMostMovedBytes);
    if (bytes) {
      item.file(kind).emplace().bytes = make_bytes(*std::move(bytes));
    } else if (bytes.error().kind() != ErrorKind::kVanished) {
      return bytes.error();
    }
  }
  return true;
}

// Where no record says whose they are, the event's hashes do.
Result<bool> Replacement::take_equal(const Item& before, Item& item) const {
  const std::vector<FileKind> wanted = missing_contents(item);
  unsigned free = 0;
  for (unsigned slot = 1; slot <= kMaxSlots && free < kFreeSlotsPassed; ++slot) {
    std::size_t there = 0;
    std::vector<std::string> equal;
    for (const FileKind kind : wanted) {
      auto bytes =
          read_beneath(before.directory->fd.get(), before.place.name(kind, slot), kMostMovedBytes);
      if (!bytes && bytes.error().kind() != ErrorKind::kVanished) return bytes.error();
      if (!bytes) continue;
      ++there;
      if (is_content(*bytes, kind, *item.event().file(to_string(kind)),
                     item.event().environment_format))
        equal.push_back(*std::move(bytes));
    }
    free = there == 0 ? free + 1 : 0;
    if (there == 0 || equal.size() != wanted.size()) continue;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      item.file(wanted[i]).emplace().bytes = make_bytes(std::move(equal[i]));
    return true;
  }
  return false;
}

// Of those that this tree keeps.
std::vector<FileKind> Replacement::missing_contents(const Item& item) const {
  std::vector<FileKind> kinds;
  for (const FileKind kind : kinds_of(item.event(), access_.config())) {
    if (kind != FileKind::kMetadata && !item.file(kind) &&
        item.event().file(to_string(kind)) != nullptr)
      kinds.push_back(kind);
  }
  return kinds;
}

Result<bool> Replacement::replace_in_place(Batch& batch, Item& item) {
  Item before = replaced_item(item);
  if (!same_place(before, item)) {
    if (!item.file(FileKind::kMetadata)) return false;
    before.place = item.place;
  }
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
