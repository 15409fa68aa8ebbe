#include "backends/file/batch.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "backends/file/store.h"
#include "core/base/fault_point.h"

namespace scriptorium::file {

bool Item::lacks(FileKind kind) const { return std::ranges::count(missing, kind) > 0; }

bool Item::has_files() const {
  return std::ranges::any_of(files, [](const auto& f) { return f.has_value(); });
}

bool Item::has_temporaries() const {
  return std::ranges::any_of(files, [](const auto& f) { return f && !f->temporary.empty(); });
}

void Batch::sync_data() {
  const auto waits = [](const Item& item) { return !item.error && item.has_temporaries(); };
  if (std::ranges::none_of(items, waits)) return;
  if (one_sync) {
    const auto synced = sync_file_systems();
    for (Item& item : items) {
      if (!synced && waits(item)) item.error = synced.error();
    }
    return;
  }
  // All of it is on its way before we wait for the first: an fsync then finds its data written, and
  // on a journalling file system the first one commits for all.
  for (const Item& item : items) {
    for (const auto& file : item.files) {
      if (file && file->fd)
        static_cast<void>(::sync_file_range(file->fd.get(), 0, 0, SYNC_FILE_RANGE_WRITE));
    }
  }
  for (Item& item : items) {
    for (auto& file : item.files) {
      if (!file || !file->fd || item.error) continue;
      if (auto synced = sync_descriptor(file->fd.get()); !synced) item.error = synced.error();
      file->fd.reset();
    }
  }
}

// The one of the root, and any that is mounted below it and was written to.
Result<void> Batch::sync_file_systems() const {
  std::map<dev_t, int> devices;
  for (const auto& [path, directory] : directories)
    devices.emplace(directory->device, directory->fd.get());
  for (const auto& [device, fd] : devices) {
    if (auto synced = sync_file_system(fd); !synced) return synced.error();
  }
  return {};
}

void Batch::sync_changed_directories() {
  for (const auto& [path, directory] : directories) {
    if (!std::exchange(directory->changed, false)) continue;
    const auto synced = sync_descriptor(directory->fd.get());
    for (Item& item : items) {
      if (!synced && !item.error && item.directory == directory) item.error = synced.error();
    }
  }
}

std::vector<std::string> Batch::sync_names() {
  if (std::ranges::none_of(items, &Item::in_progress)) return {};
  std::optional<Error> above;
  std::map<std::string, Error> failed;
  if (one_sync) {
    if (auto synced = sync_file_systems(); !synced) above = synced.error();
  } else {
    for (const auto& [path, directory] : directories) {
      if (!directory->changed) continue;
      if (auto synced = sync_descriptor(directory->fd.get()); !synced)
        failed.emplace(path, synced.error());
    }
    for (const std::string& path : to_sync) {
      auto fd = open_directory(root, path);
      const Result<void> synced = fd ? sync_descriptor(fd->get()) : Result<void>(fd.error());
      if (!synced) above = synced.error();
    }
  }
  FAULT_POINT("file.dir_synced");
  for (Item& item : items) {
    if (!item.in_progress()) continue;
    if (above) item.error = *above;
    if (const auto found = failed.find(item.directory->path); found != failed.end())
      item.error = found->second;
  }
  if (above) return {};
  std::vector<std::string> durable(to_sync.begin(), to_sync.end());
  for (const auto& [path, directory] : directories) {
    if (!failed.contains(path)) durable.push_back(path);
  }
  return durable;
}

}  // namespace scriptorium::file
