#include "core/capture/content_locator.h"

#include <unistd.h>

#include <cstdio>

namespace scriptorium {

std::optional<std::string_view> ContentLocator::path_of(int fd) {
  std::array<char, 32> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link.data(), path_buffer_.data(), path_buffer_.size());
  if (n <= 0) return std::nullopt;
  return std::string_view(path_buffer_.data(), static_cast<std::size_t>(n));
}

std::optional<ContentLocator::Place> ContentLocator::locate(int fd) {
  const auto named = path_of(fd);
  if (!named) return std::nullopt;
  Place place;
  place.path = *named;
  if (place.path.ends_with(kDeleted)) {
    place.deleted = true;
    place.path.remove_suffix(kDeleted.size());
  }
  const std::string& root = access_.root();
  place.below_root = place.path.size() > root.size() + 1 && place.path.starts_with(root) &&
                     place.path[root.size()] == '/';
  place.relative = place.below_root ? place.path.substr(root.size() + 1) : tail_of(place.path);
  place.in_spool = adapter_.classify(place.relative);
  return place;
}

// The longest end of at most three names that is an entry's file.
std::string_view ContentLocator::tail_of(std::string_view path) const {
  std::string_view tail;
  std::size_t at = path.size();
  for (int parts = 0; parts < 3 && at != std::string_view::npos && at > 0; ++parts) {
    at = path.rfind('/', at - 1);
    if (at == std::string_view::npos) break;
    const std::string_view candidate = path.substr(at + 1);
    if (adapter_.classify(candidate).is_file()) tail = candidate;
  }
  return tail;
}

bool ContentLocator::is_of_spool(const Place& place, const FileStat& stat) {
  if (shows_root(place.path.substr(0, place.path.size() - place.relative.size()))) return true;
  const auto same = access_.stat(std::string(place.relative));
  return same && same->inode == stat.inode && same->device == stat.device;
}

bool ContentLocator::shows_root(std::string_view directory) {
  constexpr std::size_t kKept = 64;
  const auto [place, is_new] = shows_root_.try_emplace(std::string(directory), false);
  if (!is_new) return place->second;
  const auto stat = stat_path(place->first);
  const bool is_root = stat && presence_.is_root(*stat);
  place->second = is_root;
  if (shows_root_.size() > kKept) shows_root_.clear();
  return is_root;
}

}  // namespace scriptorium
