#include "checkpoint/spool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "checkpoint/folder.h"

namespace scriptorium::checkpoint {
namespace {

constexpr std::chrono::seconds kUnchangedFor{1};
// Incomplete requests. A node has fewer jobs.
constexpr std::ptrdiff_t kMostPendingOfOneUser = 1000;
constexpr const char* kAccepted = ".accepted";
constexpr std::string_view kBegun = "begun.";
// A file's mode can be changed by its owner, with whichever descriptor. No request has this bit.
constexpr mode_t kDoneMode = S_ISVTX;

std::string begun_name(const std::string& kept) {
  return kept.starts_with(kBegun) ? kept : std::string(kBegun) + kept;
}

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

// Nothing where another try may succeed: it is gone, or the process has too many files open.
std::optional<SpoolRequest> read_request(int directory, const std::string& file,
                                         const RequestName& name) {
  SpoolRequest request{.file = file,
                       .kept = {},
                       .name = name,
                       .stat = {},
                       .text = {},
                       .problem = {},
                       .is_begun = {}};
  const UniqueFd fd(
      ::openat(directory, file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT || errno == EMFILE || errno == ENFILE || errno == ENOMEM)
      return std::nullopt;
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
    request.stat = *stat;
    auto text = read_fd(fd.get(), kMostRequestBytes);
    if (text) request.text = *std::move(text);
  }
  if (request.problem.empty() && name.job.empty()) request.problem = "its name is not a job's id";
  return request;
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
  const std::string accepted_path = path + "/" + kAccepted;
  if (::mkdirat(directory.get(), kAccepted, 0700) != 0 && errno != EEXIST)
    return system_error("mkdir " + accepted_path, errno);
  UniqueFd accepted(
      ::openat(directory.get(), kAccepted, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const auto accepted_stat = stat_fd(accepted.get());
  if (!accepted_stat || accepted_stat->owner != ::geteuid() || (accepted_stat->mode & 0077U) != 0)
    return unsafe(accepted_path, "is not a folder of root's alone; remove it");
  if (::fchmod(directory.get(), 01777) != 0) return system_error("chmod " + path, errno);
  UniqueFd notify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  constexpr std::uint32_t kEvents =
      IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_ONLYDIR;
  // By the descriptor: the path could name another folder by now.
  const std::string opened = "/proc/self/fd/" + std::to_string(directory.get()) + "/.";
  if (!notify || ::inotify_add_watch(notify.get(), opened.c_str(), kEvents) < 0)
    return system_error("watching " + path, errno);
  return Spool(std::move(directory), std::move(accepted), std::move(notify));
}

void Spool::add(const std::string& file, SteadyTime now, bool closed) {
  if (!parse_request_name(file)) return;
  Pending& entry = pending_[file];
  entry.since = now;
  entry.closed = entry.closed || closed;
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
      if ((event->mask & IN_Q_OVERFLOW) != 0) must_scan_ = true;
      if (event->len != 0) add(event->name, now, closed);
    }
  }
}

std::optional<SpoolRequest> Spool::take_complete(const std::string& file, const FileStat& stat,
                                                 SteadyTime now, bool is_too_many) {
  Pending& pending = pending_[file];
  if (!is_unchanged(stat, pending.seen)) {
    pending.seen = stat;
    pending.since = now;
  }
  const bool is_due = now - pending.since >= kUnchangedFor;
  if (!is_due && !pending.closed && !is_too_many) return std::nullopt;
  pending.closed = false;
  if (is_due) pending.since = now;  // what cannot be read or moved now is tried again
  const RequestName name = *parse_request_name(file);
  auto request = read_request(directory_.get(), file, name);
  if (!request) return std::nullopt;
  if (request->problem.empty() && is_too_many) request->problem = "too many requests of this user";
  if (!request->problem.empty()) {
    if (!is_due && !is_too_many) return std::nullopt;
    ::unlinkat(directory_.get(), file.c_str(), 0);
    return request;
  }
  if (!is_due && !looks_complete(name.action, request->text)) return std::nullopt;
  // By its inode: a later request of the same job does not replace it while its work begins.
  request->kept = std::to_string(request->stat.inode) + "." + file;
  if (::renameat(directory_.get(), file.c_str(), accepted_.get(), request->kept.c_str()) == 0)
    return request;
  request->kept.clear();
  if (::unlinkat(directory_.get(), file.c_str(), 0) != 0) return std::nullopt;
  return request;
}

std::vector<SpoolRequest> Spool::take_accepted() {
  std::vector<SpoolRequest> taken;
  std::vector<std::string> files = std::exchange(served_elsewhere_, {});
  if (std::exchange(is_first_take_, false)) {
    if (auto names = names_in(accepted_.get())) files = *std::move(names);
  }
  for (const std::string& file : files) {
    const bool is_begun = file.starts_with(kBegun);
    const auto name =
        parse_request_name(file.substr(file.find('.', is_begun ? kBegun.size() : 0) + 1));
    if (!name) continue;
    // Before the mark is read, as its process can end in between.
    const bool is_served = is_begun && !begin(file);
    auto request = read_request(accepted_.get(), file, *name);
    if (!request) continue;
    if (is_begun && (request->stat.mode & kDoneMode) != 0) {
      remove(file);
    } else if (is_served) {
      served_elsewhere_.push_back(file);
    } else {
      request->kept = file;
      request->is_begun = is_begun;
      taken.push_back(*std::move(request));
    }
  }
  std::ranges::sort(taken, {}, [](const SpoolRequest& request) { return request.stat.mtime_ns; });
  return taken;
}

std::vector<SpoolRequest> Spool::take(SteadyTime now) {
  std::vector<SpoolRequest> taken;
  if (is_first_take_ || !served_elsewhere_.empty()) taken = take_accepted();
  read_notifications(now);
  if (must_scan_) {
    const auto names = names_in(directory_.get());
    must_scan_ = !names;
    if (names) {
      for (const std::string& name : *names) {
        if (!pending_.contains(name)) add(name, now, false);
      }
    }
  }
  next_ = must_scan_ || !served_elsewhere_.empty() ? now + kUnchangedFor : SteadyTime::max();
  std::map<std::uint32_t, std::ptrdiff_t> incomplete;  // by owner
  for (const auto& [file, pending] : pending_) {
    if (pending.seen.inode != 0) ++incomplete[pending.seen.owner];
  }
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    const auto& [file, pending] = *entry;
    const auto stat = stat_at(directory_.get(), file);
    // A folder could not be removed, so it is not taken for a request at all.
    const bool is_gone = !stat || stat->is_directory();
    const bool is_too_many =
        !is_gone && pending.seen.inode == 0 && ++incomplete[stat->owner] > kMostPendingOfOneUser;
    auto request = is_gone ? std::nullopt : take_complete(file, *stat, now, is_too_many);
    if (is_gone || request) {
      if (stat) --incomplete[stat->owner];
      if (request) taken.push_back(*std::move(request));
      entry = pending_.erase(entry);
    } else {
      next_ = std::min(next_, pending.since + kUnchangedFor);
      ++entry;
    }
  }
  return taken;
}

UniqueFd Spool::begin(const std::string& kept) const {
  UniqueFd file(::openat(accepted_.get(), kept.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  // The lock first: who finds a begun request without one would take it for interrupted.
  if (!file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 ||
      ::renameat(accepted_.get(), kept.c_str(), accepted_.get(), begun_name(kept).c_str()) != 0)
    return {};
  return file;
}

void Spool::mark_done(int begun) noexcept { ::fchmod(begun, kDoneMode | S_IRUSR); }

void Spool::remove(const std::string& kept) const {
  for (const std::string& name : {kept, begun_name(kept)})
    ::unlinkat(accepted_.get(), name.c_str(), 0);
}

}  // namespace scriptorium::checkpoint
