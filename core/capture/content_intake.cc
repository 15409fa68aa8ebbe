#include "core/capture/content_intake.h"

#include <string>
#include <utility>

#include "core/base/fault_point.h"

namespace scriptorium {

void ContentIntake::take(const ContentEvent& event, const std::stop_token& stop) {
  if (event.writer != own_pid_ || !parts_.options.skip_own_writes)
    return take_file(event.fd.get(), stop);
  // Our own archive. One of eight is enough to learn where it stands.
  if (++own_writes_ % 8 != 0) return;
  if (const auto path = locator_.path_of(event.fd.get())) foreign_.saw(*path);
}

void ContentIntake::take_file(int fd, const std::stop_token& stop) {
  const auto place = locator_.locate(fd);
  if (!place) return;
  if (!place->in_spool.is_file()) {
    if (!place->below_root) foreign_.saw(place->path);
    return;
  }
  // The scheduler writes a record file again throughout the job's life, and nobody waits for it.
  const bool tells_only = place->in_spool.role == SpoolPath::Role::kEntryRecord;
  if (tells_only && parts_.table.is_settled(place->in_spool.entry)) return;
  const auto stat = stat_fd(fd);
  if (!stat || !stat->is_regular() || (tells_only && stat->size == 0)) return;
  // A file that lives on under another name (links left) may have lost this one; or its name really
  // ends so.
  if (place->deleted && stat->links > 0 &&
      parts_.access.stat(std::string(place->relative) + std::string(ContentLocator::kDeleted)))
    return;
  // Whoever may write anywhere on this file system can mount a directory of his own over the
  // spool's path in a namespace of his own; the event then bears the genuine path. The owner cannot
  // be forged.
  if (stat->owner != parts_.presence.owner()) return parts_.report->ignored("another owner");
  // A scan was quicker than the notification of its close, or it was closed several times, and this
  // is the notification of a later close.
  if (parts_.table.was_captured(place->in_spool.entry,
                                identity_of(std::string(place->in_spool.file), *stat)))
    return runner_.tell(EntryTable::CapturedBefore{place->in_spool.entry}, stop);
  if (!place->below_root && !locator_.is_of_spool(*place, *stat))
    return parts_.report->ignored("another path");
  read(fd, *place, *stat, stop);
}

void ContentIntake::read(int fd, const ContentLocator::Place& place, FileStat stat,
                         const std::stop_token& stop) {
  const std::string key(place.in_spool.entry);
  const SteadyTime now = parts_.clock.steady();
  auto bytes = runner_.reader().read_settled(fd, stat);
  if (!bytes) {
    parts_.report->note_error("read " + std::string(place.relative) + ": " +
                              bytes.error().message());
    return runner_.tell(EntryTable::ReadFailed{key, "fanotify", now}, stop);
  }
  FAULT_POINT("capture.content_read");
  const bool tells_only = place.in_spool.role == SpoolPath::Role::kEntryRecord;
  runner_.tell(EntryTable::ContentArrived{key, tells_only, now}, stop);
  runner_.reader().add(key, std::string(place.in_spool.file), stat, *std::move(bytes));
  runner_.judge(key, stop);
}

}  // namespace scriptorium
