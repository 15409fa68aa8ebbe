#include "core/capture/content_intake.h"

#include <cstdio>
#include <utility>

#include "core/base/fault_point.h"

namespace scriptorium {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

}  // namespace

void ContentIntake::take(const ContentEvent& event) {
  if (event.writer != own_pid_ || !context_.options.skip_own_writes)
    return take_file(event.fd.get());
  // Our own archive. One of eight is enough to learn its directory.
  if (++own_writes_ % 8 != 0) return;
  if (const auto path = path_of(event.fd.get())) foreign_.saw(*path);
}

void ContentIntake::take_file(int fd) {
  const auto place = locate(fd);
  if (!place) return;
  if (!place->in_spool.is_file()) {
    if (!place->below_root) foreign_.saw(place->path);
    return;
  }
  // The scheduler rewrites a record file throughout the job's life, and nothing waits for it.
  const bool is_record = place->in_spool.role == SpoolPath::Role::kEntryRecord;
  if (is_record && table_.is_settled(place->in_spool.entry)) return;
  const auto stat = stat_fd(fd);
  if (!stat || !stat->is_regular() || (is_record && stat->size == 0)) return;
  // A file that still has another name (links left) may have lost this one, or its name really ends
  // with " (deleted)".
  if (place->deleted && stat->links > 0 &&
      context_.access.stat(std::string(place->relative) + std::string(kDeleted)))
    return;
  // Any user who may write somewhere on this file system can mount a directory of his own over the
  // spool's path in his own namespace; the event then has the genuine path. The owner cannot be
  // forged.
  if (stat->owner != presence_.owner()) return context_.report->ignored("another owner");
  // Either a scan was quicker than the notification, or the file was closed several times.
  if (table_.was_captured(place->in_spool.entry,
                          identity_of(std::string(place->in_spool.file), *stat)))
    return runner_.report(EntryTable::CapturedBefore{place->in_spool.entry});
  if (!place->below_root && !is_of_spool(*place, *stat))
    return context_.report->ignored("another path");
  read(fd, *place, *stat);
}

void ContentIntake::read(int fd, const Place& place, FileStat stat) {
  const std::string key(place.in_spool.entry);
  const SteadyTime now = context_.clock.steady();
  auto bytes = runner_.reader().read_settled(fd, stat);
  if (!bytes) {
    context_.report->note_error("read " + std::string(place.relative) + ": " +
                                bytes.error().message());
    return runner_.report(EntryTable::ReadFailed{key, now});
  }
  FAULT_POINT("capture.content_read");
  const bool is_record = place.in_spool.role == SpoolPath::Role::kEntryRecord;
  runner_.report(EntryTable::ContentArrived{key, is_record, now});
  runner_.reader().add(key, std::string(place.in_spool.file), stat, *std::move(bytes));
  runner_.assess(key);
}

// ---- where a file is

std::optional<std::string_view> ContentIntake::path_of(int fd) {
  std::array<char, 32> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link.data(), path_buffer_.data(), path_buffer_.size());
  if (n <= 0) return std::nullopt;
  return std::string_view(path_buffer_.data(), static_cast<std::size_t>(n));
}

std::optional<ContentIntake::Place> ContentIntake::locate(int fd) {
  const auto path = path_of(fd);
  if (!path) return std::nullopt;
  Place place;
  place.path = *path;
  place.deleted = path->ends_with(kDeleted);
  if (place.deleted) place.path.remove_suffix(kDeleted.size());
  const std::string& root = context_.access.root();
  place.below_root = place.path.size() > root.size() + 1 && place.path.starts_with(root) &&
                     place.path[root.size()] == '/';
  place.relative = place.below_root ? place.path.substr(root.size() + 1) : tail_of(place.path);
  place.in_spool = context_.adapter.classify(place.relative);
  return place;
}

// The longest tail of at most three names that is an entry's file.
std::string_view ContentIntake::tail_of(std::string_view path) const {
  std::string_view tail;
  std::size_t at = path.size();
  for (int parts = 0; parts < 3 && at != std::string_view::npos && at > 0; ++parts) {
    at = path.rfind('/', at - 1);
    if (at == std::string_view::npos) break;
    const std::string_view candidate = path.substr(at + 1);
    if (context_.adapter.classify(candidate).is_file()) tail = candidate;
  }
  return tail;
}

// For a place that is not below the root: true if the directory before its tail is the spool's root
// under another name, or the very file also lies in the spool. The first is as good as the root's
// own name: both paths come from the writer's mounts, and neither says who the writer is.
bool ContentIntake::is_of_spool(const Place& place, const FileStat& stat) {
  if (is_root(place.path.substr(0, place.path.size() - place.relative.size()))) return true;
  const auto same = context_.access.stat(std::string(place.relative));
  return same && same->inode == stat.inode && same->device == stat.device;
}

bool ContentIntake::is_root(std::string_view directory) {
  constexpr std::size_t kMostKept = 64;
  if (is_root_.size() > kMostKept) is_root_.clear();
  const auto [answer, is_new] = is_root_.try_emplace(std::string(directory), false);
  if (is_new) {
    const auto stat = stat_path(answer->first);
    answer->second = stat && presence_.is_root(*stat);
  }
  return answer->second;
}

}  // namespace scriptorium
