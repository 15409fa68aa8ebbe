#include "core/capture/watch_list.h"

#include <sys/inotify.h>

namespace scriptorium {
namespace {

constexpr std::uint32_t kDirectoryMask = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE |
                                         IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr std::uint32_t kEntryMask =
    IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF;

}  // namespace

const WatchList::Watched* WatchList::find(int number) const {
  const auto watch = watches_.find(number);
  return watch == watches_.end() ? nullptr : &watch->second;
}

void WatchList::add_directory(const std::string& path) {
  if (context_.access.inotify_fd() < 0) return;
  auto number = context_.access.watch(path, kDirectoryMask);
  if (!number) {
    if (number.error().kind() != ErrorKind::kVanished) failed(number.error());
    return;
  }
  // The same number again means the same directory under a new name.
  if (const auto old = watches_.find(*number); old != watches_.end())
    directories_.erase(old->second.path);
  if (const auto old = directories_.find(path); old != directories_.end() && old->second != *number)
    drop(old->second);
  watches_[*number] = {path, false};
  directories_[path] = *number;
}

bool WatchList::add_entry(const std::string& key) {
  if (entries_.contains(key)) return true;
  auto number = context_.access.watch(key, kEntryMask);
  if (!number) {
    if (number.error().kind() == ErrorKind::kExhausted) failed(number.error());
    return false;
  }
  watches_[*number] = {key, true};
  entries_[key] = *number;
  return true;
}

void WatchList::release_entry(const std::string& key, bool keep) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return;
  const int number = entry->second;
  entries_.erase(entry);
  if (!keep) drop(number);
}

void WatchList::drop_directory(const std::string& path) {
  if (const auto directory = directories_.find(path); directory != directories_.end())
    drop(directory->second);
}

void WatchList::drop(int number) {
  context_.access.unwatch(number);
  forget(number);
}

void WatchList::forget(int number) {
  const auto watch = watches_.find(number);
  if (watch == watches_.end()) return;
  auto& of_path = watch->second.of_entry ? entries_ : directories_;
  if (const auto place = of_path.find(watch->second.path);
      place != of_path.end() && place->second == number)
    of_path.erase(place);
  watches_.erase(watch);
}

void WatchList::drop_all() {
  while (!watches_.empty()) drop(watches_.begin()->first);
}

void WatchList::failed(const Error& error) {
  failed_ = true;
  context_.report->note_error(error.message());
  context_.report->log().error(
      "CAPTURE_WATCH_FAILED",
      "a directory of the spool cannot be watched; its entries are found by the scan alone",
      {{"source", context_.report->source()}, {"reason", error.message()}});
}

}  // namespace scriptorium
