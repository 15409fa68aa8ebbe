#include "checkpoint/spool.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "checkpoint/folder.h"

namespace scriptorium::checkpoint {
namespace {

constexpr std::chrono::seconds kUnchangedFor{1};
constexpr std::size_t kMostPending = 10'000;

std::optional<FileStat> stat_at(int directory, const std::string& file) {
  struct stat found{};
  if (::fstatat(directory, file.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return FileStat{.device = found.st_dev,
                  .inode = found.st_ino,
                  .size = static_cast<std::uint64_t>(found.st_size),
                  .links = found.st_nlink,
                  .mtime_ns = found.st_mtim.tv_sec * kSecond + found.st_mtim.tv_nsec,
                  .owner = found.st_uid,
                  .mode = found.st_mode};
}

bool is_unchanged(const FileStat& a, const FileStat& b) {
  return a.inode == b.inode && a.size == b.size && a.mtime_ns == b.mtime_ns;
}

Error unsafe(const std::string& path, const char* why) {
  return {ErrorKind::kInvalidConfig, path + " " + why};
}

}  // namespace

Result<Spool> Spool::open(const std::string& path) {
  if (auto made = make_directories(path, 0755); !made) return made.error();
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return system_error("open " + path, errno);
  const auto stat = stat_fd(directory.get());
  if (!stat) return stat.error();
  if (stat->owner != ::geteuid()) return unsafe(path, "belongs to another user; it must be root's");
  if ((stat->mode & 0022U) != 0 && (stat->mode & S_ISVTX) == 0)
    return unsafe(path, "lets users remove each other's requests; chmod 1777 helps");
  if (::fchmod(directory.get(), 01777) != 0) return system_error("chmod " + path, errno);
  UniqueFd notify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  constexpr std::uint32_t kEvents =
      IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_ONLYDIR;
  // By the descriptor: the path could name another folder by now.
  const std::string opened = "/proc/self/fd/" + std::to_string(directory.get()) + "/.";
  if (!notify || ::inotify_add_watch(notify.get(), opened.c_str(), kEvents) < 0)
    return system_error("watching " + path, errno);
  return Spool(std::move(directory), std::move(notify));
}

bool Spool::add(const std::string& file, SteadyTime now, bool closed) {
  if (!parse_request_name(file)) return true;
  if (pending_.size() >= kMostPending && !pending_.contains(file)) return false;
  Pending& entry = pending_[file];
  entry.since = now;
  entry.closed = entry.closed || closed;
  return true;
}

void Spool::read_notifications(SteadyTime now) {
  alignas(inotify_event) std::array<char, 16U << 10> buffer;  // NOLINT: filled by read()
  while (true) {
    const ssize_t got = ::read(notify_.get(), buffer.data(), buffer.size());
    if (got <= 0) return;
    for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += sizeof(inotify_event) + event->len;
      const bool closed = (event->mask & (IN_CLOSE_WRITE | IN_MOVED_TO)) != 0;
      const bool overflow = (event->mask & IN_Q_OVERFLOW) != 0;
      if (overflow || (event->len != 0 && !add(event->name, now, closed))) must_scan_ = true;
    }
  }
}

void Spool::scan(SteadyTime now) {
  const auto names = names_in(directory_.get());
  if (!names) return;
  must_scan_ = false;
  for (const std::string& name : *names) {
    // What does not fit now is found by the next scan, when others have been taken.
    if (!pending_.contains(name) && !add(name, now, false)) {
      must_scan_ = true;
      return;
    }
  }
}

SpoolRequest Spool::read(const std::string& file, const RequestName& name) const {
  SpoolRequest request{.file = file, .name = name, .uid = 0, .text = {}, .problem = {}};
  const UniqueFd fd(::openat(directory_.get(), file.c_str(),
                             O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd) {
    request.problem = errno == ELOOP ? "it is a link" : "it cannot be opened";
    return request;
  }
  const auto stat = stat_fd(fd.get());
  if (!stat || !stat->is_regular()) {
    request.problem = "it is not a regular file";
  } else if (stat->links != 1) {
    // A hard link's owner need not be who made the link.
    request.problem = "it has several names";
  } else if (stat->size > kMostRequestBytes) {
    request.problem = "it is larger than 4 KiB";
  } else {
    request.uid = stat->owner;
    auto text = read_fd(fd.get(), kMostRequestBytes);
    if (text) request.text = *std::move(text);
  }
  if (request.problem.empty() && name.job.empty()) request.problem = "its name is not a job's id";
  return request;
}

std::vector<SpoolRequest> Spool::take(SteadyTime now) {
  read_notifications(now);
  if (must_scan_) scan(now);
  std::vector<SpoolRequest> taken;
  next_ = must_scan_ ? now + kUnchangedFor : SteadyTime::max();
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    const auto& file = entry->first;
    Pending& pending = entry->second;
    const auto stat = stat_at(directory_.get(), file);
    if (!stat) {
      entry = pending_.erase(entry);
      continue;
    }
    if (!is_unchanged(*stat, pending.seen)) {
      pending.seen = *stat;
      pending.since = now;
    }
    const RequestName name = *parse_request_name(file);
    const bool due = now - pending.since >= kUnchangedFor;
    if (due || pending.closed) {
      SpoolRequest request = read(file, name);
      if (due || (request.problem.empty() && looks_complete(name.action, request.text))) {
        ::unlinkat(directory_.get(), file.c_str(), 0);  // a folder remains, and is not seen again
        taken.push_back(std::move(request));
        entry = pending_.erase(entry);
        continue;
      }
      pending.closed = false;
    }
    next_ = std::min(next_, pending.since + kUnchangedFor);
    ++entry;
  }
  return taken;
}

}  // namespace scriptorium::checkpoint
