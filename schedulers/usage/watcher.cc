#include "schedulers/usage/watcher.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace scriptorium::usage {
namespace {

bool is_above_jobs(WatchKind kind) noexcept {
  return kind == WatchKind::kAbove || kind == WatchKind::kParent;
}

}  // namespace

Result<Watcher> Watcher::open() {
  Watcher watcher;
  watcher.fd_.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!watcher.fd_) return system_error("inotify_init1", errno);
  return watcher;
}

Watcher::Added Watcher::add(Watched what) {
  if (!fd_) return Added::kNot;
  const std::uint32_t mask =
      what.kind == WatchKind::kEvents ? IN_MODIFY : IN_CREATE | IN_DELETE | IN_ONLYDIR;
  const int wd = ::inotify_add_watch(fd_.get(), what.path.c_str(), mask);
  if (wd < 0) {
    if (errno == ENOSPC || errno == ENOMEM) exhausted_ = true;
    return Added::kNot;
  }
  // The kernel gives the same number for what is watched already, and another one for a new
  // directory of the same name.
  const bool known = watched_.contains(wd);
  if (const auto old = by_path_.find(what.path); old != by_path_.end() && old->second != wd)
    end_watch(old->second);
  by_path_[what.path] = wd;
  watched_[wd] = std::move(what);
  return known ? Added::kAlready : Added::kNew;
}

bool Watcher::end_watch(int wd) {
  // IN_IGNORED follows what is queued. Where the kernel has ended the watch by itself (EINVAL), it
  // is in the queue already.
  static_cast<void>(::inotify_rm_watch(fd_.get(), wd));
  const auto found = watched_.find(wd);
  if (found == watched_.end()) return false;
  if (is_above_jobs(found->second.kind)) return true;
  watched_.erase(found);
  return false;
}

bool Watcher::forget(const std::string& path) {
  const auto found = by_path_.find(path);
  if (found == by_path_.end()) return false;
  const bool follows = end_watch(found->second);
  by_path_.erase(found);
  return follows;
}

Watcher::Changes Watcher::read() {
  Changes changes;
  alignas(inotify_event) std::array<char, 64 << 10> buffer;
  while (true) {
    const ssize_t got = ::read(fd_.get(), buffer.data(), buffer.size());
    if (got <= 0) return changes;
    for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof(event));
      const char* name = buffer.data() + at + sizeof(event);
      at += sizeof(event) + event.len;
      if ((event.mask & IN_Q_OVERFLOW) != 0) changes.overflow = true;
      const auto found = watched_.find(event.wd);
      if (found == watched_.end()) continue;
      if ((event.mask & IN_IGNORED) != 0) {
        if (const auto path = by_path_.find(found->second.path);
            path != by_path_.end() && path->second == event.wd) {
          by_path_.erase(path);
        }
        if (is_above_jobs(found->second.kind))
          changes.list.push_back({std::move(found->second), Change::What::kEnded, {}});
        watched_.erase(found);
        continue;
      }
      Change change{found->second, Change::What::kModified, {}};
      if ((event.mask & IN_CREATE) != 0) change.what = Change::What::kCreated;
      if ((event.mask & IN_DELETE) != 0) change.what = Change::What::kRemoved;
      if (event.len > 0) change.name.assign(name, ::strnlen(name, event.len));
      changes.list.push_back(std::move(change));
    }
    // What came meanwhile is for the next call: a storm of jobs must not keep the reader here.
    if (static_cast<std::size_t>(got) + 512 < buffer.size() || changes.list.size() > 4096)
      return changes;
  }
}

}  // namespace scriptorium::usage
