#include "core/capture/notification_reader.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace scriptorium {
namespace {

// With no more than this many descriptors left, they count as used up.
constexpr std::uint64_t kSpareDescriptors = 64;

// The limit on descriptors, raised as far as it goes.
std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur < limit.rlim_max) {
    const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  }
  return limit.rlim_cur;
}

std::size_t bytes_queued(int fd) {
  int queued = 0;
  return ::ioctl(fd, FIONREAD, &queued) == 0 && queued > 0 ? static_cast<std::size_t>(queued) : 0;
}

std::optional<StructureEvent::Kind> kind_of(std::uint32_t mask) {
  using Kind = StructureEvent::Kind;
  if ((mask & IN_Q_OVERFLOW) != 0) return Kind::kOverflow;
  if ((mask & IN_IGNORED) != 0) return Kind::kWatchEnded;
  if ((mask & IN_UNMOUNT) != 0) return Kind::kUnmounted;
  if ((mask & (IN_DELETE_SELF | IN_MOVE_SELF)) != 0) return Kind::kSelfGone;
  if ((mask & (IN_CREATE | IN_MOVED_TO)) != 0) return Kind::kAppeared;
  if ((mask & (IN_DELETE | IN_MOVED_FROM)) != 0) return Kind::kGone;
  if ((mask & IN_CLOSE_WRITE) != 0) return Kind::kWritten;
  return std::nullopt;
}

}  // namespace

std::vector<StructureEvent> parse_structure(std::string_view bytes, std::uint64_t before) {
  std::vector<StructureEvent> events;
  for (std::size_t at = 0; at + sizeof(inotify_event) <= bytes.size();) {
    inotify_event head{};
    std::memcpy(&head, bytes.data() + at, sizeof head);
    const std::size_t length = sizeof head + head.len;
    if (length > bytes.size() - at) break;
    std::string_view name = bytes.substr(at + sizeof head, head.len);
    name = name.substr(0, name.find('\0'));  // the kernel fills it up with NUL
    at += length;
    const auto kind = kind_of(head.mask);
    if (!kind) continue;
    events.push_back({.kind = *kind,
                      .watch = head.wd,
                      .is_directory = (head.mask & IN_ISDIR) != 0,
                      .moved = (head.mask & (IN_MOVED_TO | IN_MOVED_FROM)) != 0,
                      .name = std::string(name),
                      .end = before + at});
  }
  return events;
}

std::vector<ContentEvent> parse_content(std::string_view bytes) {
  std::vector<ContentEvent> events;
  for (std::size_t at = 0; at + FAN_EVENT_METADATA_LEN <= bytes.size();) {
    fanotify_event_metadata event{};
    std::memcpy(&event, bytes.data() + at, sizeof event);
    if (event.event_len < FAN_EVENT_METADATA_LEN || event.event_len > bytes.size() - at) break;
    at += event.event_len;
    UniqueFd fd(event.fd >= 0 ? event.fd : -1);
    if (event.vers != FANOTIFY_METADATA_VERSION) continue;
    const bool overflow = (event.mask & FAN_Q_OVERFLOW) != 0;
    if (fd || overflow) events.push_back({std::move(fd), event.pid, overflow});
  }
  return events;
}

NotificationReader::NotificationReader(SpoolAccess& access)
    : access_(access),
      descriptor_limit_(raise_descriptor_limit()),
      events_a_read_(
          std::clamp<std::size_t>(descriptor_limit_ / 4, kEventsAReadLeast, kEventsARead)) {}

void NotificationReader::read_structure(const std::function<void(const StructureEvent&)>& at_once) {
  if (access_.inotify_fd() < 0) return;
  while (structure_.size() < kStructureMost) {
    const ssize_t n =
        ::read(access_.inotify_fd(), structure_buffer_.data(), structure_buffer_.size());
    if (n <= 0) return;
    const auto length = static_cast<std::size_t>(n);
    for (StructureEvent& event : parse_structure({structure_buffer_.data(), length}, read_)) {
      if (at_once) at_once(event);
      structure_.push_back(std::move(event));
    }
    read_ += length;
  }
}

StructureEvent NotificationReader::take_structure() {
  StructureEvent event = std::move(structure_.front());
  structure_.pop_front();
  taken_ = event.end;
  return event;
}

std::uint64_t NotificationReader::structure_end() const {
  return read_ + bytes_queued(access_.inotify_fd());
}

std::size_t NotificationReader::queued_content() const {
  return bytes_queued(access_.fanotify_fd());
}

// The kernel opens the events' descriptors inside read(). Where that fails it drops the event
// without an error if others came before it, but then it gives fewer than there were. Descriptors
// are not the only reason: any user who holds a lease on a file of his own can make it fail at
// will.
NotificationReader::ContentBatch NotificationReader::read_content(std::size_t queued) {
  ContentBatch batch;
  const std::size_t room = events_a_read_ * sizeof(fanotify_event_metadata);
  const ssize_t n = ::read(access_.fanotify_fd(), content_buffer_.data(), room);
  if (n < 0) {
    if (errno == EMFILE || errno == ENFILE) {
      batch.trouble = ContentBatch::Trouble::kNoDescriptors;
    } else if (errno != EAGAIN && errno != EINTR) {
      batch.trouble = ContentBatch::Trouble::kFailed;
    }
    return batch;
  }
  batch.bytes = static_cast<std::size_t>(n);
  if (batch.bytes < std::min(queued, room) && is_short_of_descriptors())
    batch.trouble = ContentBatch::Trouble::kNoDescriptors;
  batch.events = parse_content({content_buffer_.data(), batch.bytes});
  return batch;
}

// Other threads may have closed some since the kernel wanted one, so nearly none left counts as
// well. open() gives the lowest number that is free.
bool NotificationReader::is_short_of_descriptors() const {
  const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!next) return errno == EMFILE || errno == ENFILE;
  return static_cast<std::uint64_t>(next.get()) >=
         descriptor_limit_ - std::min(kSpareDescriptors, descriptor_limit_ / 8);
}

}  // namespace scriptorium
