#include "backends/file/job_rewrite.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "backends/file/acl.h"
#include "backends/file/outcome.h"
#include "backends/file/store.h"
#include "core/base/fault_point.h"

namespace scriptorium::file {
namespace {

constexpr std::uint64_t kMostNoteBytes = 4096;

Result<void> remove_if_there(int directory, const std::string& name) {
  if (::unlinkat(directory, name.c_str(), 0) != 0 && errno != ENOENT) return file_error(errno);
  return {};
}

Result<bool> is_there(int directory, const std::string& name) {
  struct stat st{};
  if (::fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) return true;
  if (errno == ENOENT) return false;
  return file_error(errno);
}

Result<void> copy_attributes(int from, int to) {
  struct stat old{};
  struct stat made{};
  if (::fstat(from, &old) != 0 || ::fstat(to, &made) != 0) return file_error(errno);
  if ((old.st_uid != made.st_uid || old.st_gid != made.st_gid) &&
      ::fchown(to, old.st_uid, old.st_gid) != 0)
    return file_error(errno);
  if (::fchmod(to, old.st_mode & 07777U) != 0) return file_error(errno);
  if (const int code = copy_access(from, to); code != 0) return file_error(code);
  return {};
}

// A whole, durable file with the access of `like`, under a name of ours.
Result<void> write_like(int directory, const std::string& name, const std::string& like,
                        std::string_view bytes) {
  if (auto removed = remove_if_there(directory, name); !removed) return removed;
  const UniqueFd old(
      ::openat(directory, like.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!old) return file_error(errno);
  auto made = create_file(directory, name);
  if (!made) return made.error();
  if (auto written = write_fd(made->get(), bytes); !written) return written;
  if (auto copied = copy_attributes(old.get(), made->get()); !copied) return copied;
  return sync_descriptor(made->get());
}

Result<void> replace_name(int directory, const std::string& from, const std::string& to) {
  if (::renameat(directory, from.c_str(), directory, to.c_str()) != 0) return file_error(errno);
  return {};
}

const EventFile* file_of(const Event& event, FileKind kind) { return event.file(to_string(kind)); }

// The first of the names that is free; an interrupted move may have left contents at one of them.
Result<std::string> free_name(int directory, const std::string& metadata, const Event& before,
                              const Event& after) {
  for (unsigned slot = 1; slot <= kMaxSlots; ++slot) {
    std::string name =
        renamed_metadata(metadata, before.job.name.value_or(""), after.job.name.value_or(""), slot);
    if (name == metadata) return name;
    bool taken = false;
    std::vector<std::string> names = content_names(name, FileKind::kScript);
    std::ranges::copy(content_names(name, FileKind::kEnvironment), std::back_inserter(names));
    names.push_back(name);
    for (const std::string& one : names) {
      const auto there = is_there(directory, one);
      if (!there) return there.error();
      taken = taken || *there;
    }
    if (!taken) return name;
  }
  return Error{ErrorKind::kTransient, "too many files of one name"};
}

Result<void> note_move(int directory, const StoredEvent& stored, const Event& after) {
  auto name = free_name(directory, stored.metadata, stored.event, after);
  if (!name) return name.error();
  const std::string note = move_note_name(stored.metadata);
  if (*name == stored.metadata) return remove_if_there(directory, note);
  return write_like(directory, note, stored.metadata, *name);
}

// Contents that the event no longer has.
Result<void> remove_dropped(int directory, const std::string& metadata, Event before,
                            const Event& after) {
  std::erase_if(before.files, [&](const EventFile& f) { return after.file(f.name) != nullptr; });
  if (before.files.empty()) return {};
  const auto dropped = read_contents(directory, metadata, std::move(before), false);
  if (!dropped) return dropped.error();
  for (const StoredContent& content : dropped->contents) {
    if (auto removed = remove_if_there(directory, content.name); !removed) return removed;
  }
  return {};
}

}  // namespace

Result<std::optional<std::string>> obstacle(int directory, const StoredEvent& stored) {
  std::vector<std::string> names{stored.metadata};
  for (const StoredContent& content : stored.contents) names.push_back(content.name);
  std::optional<uid_t> owner;
  for (const std::string& name : names) {
    struct stat st{};
    if (::fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return file_error(errno);
    // Its other name would keep the old bytes.
    if (st.st_nlink > 1) return std::optional<std::string>("hard link");
    if (owner && *owner != st.st_uid) return std::optional<std::string>("files of two owners");
    owner = st.st_uid;
  }
  if (::geteuid() != 0 && owner != ::geteuid())
    return std::optional<std::string>("owned by another user");
  return std::optional<std::string>{};
}

Result<void> prepare_change(int directory, const StoredEvent& stored, const Event& after) {
  for (const StoredContent& content : stored.contents) {
    const EventFile* file = file_of(after, content.kind);
    if (file == nullptr || *file->bytes == *content.bytes) continue;
    const std::string text =
        content.kind == FileKind::kEnvironment
            ? render_environment(*file->bytes, after.environment_format, content.style)
            : *file->bytes;
    if (auto made = write_like(directory, pending_name(content.name), content.name, text); !made)
      return made;
  }
  if (auto noted = note_move(directory, stored, after); !noted) return noted;
  FAULT_POINT("redact.contents_written");
  if (auto made =
          write_like(directory, pending_name(stored.metadata), stored.metadata, *record_of(after));
      !made)
    return made;
  if (auto synced = sync_descriptor(directory); !synced) return synced;
  FAULT_POINT("redact.prepared");
  return {};
}

Result<std::optional<Event>> prepared_change(int directory, const std::string& metadata) {
  auto event = read_metadata(directory, pending_name(metadata));
  if (!event) {
    const ErrorKind kind = event.error().kind();
    if (kind == ErrorKind::kVanished || kind == ErrorKind::kCorrupt) return std::optional<Event>{};
    return event.error();
  }
  const auto contents = read_contents(directory, metadata, *event, true);
  if (contents) return std::optional<Event>(*std::move(event));
  if (contents.error().kind() == ErrorKind::kCorrupt) return std::optional<Event>{};
  return contents.error();
}

Result<void> finish_change(int directory, const std::string& metadata, const Event& before,
                           const Event& after) {
  for (const FileKind kind : {FileKind::kScript, FileKind::kEnvironment}) {
    for (const std::string& name : content_names(metadata, kind)) {
      const auto there = is_there(directory, pending_name(name));
      if (!there) return there.error();
      if (!*there) continue;
      if (auto done = replace_name(directory, pending_name(name), name); !done) return done;
      FAULT_POINT("redact.content_replaced");
    }
  }
  if (auto removed = remove_dropped(directory, metadata, before, after); !removed) return removed;
  if (auto synced = sync_descriptor(directory); !synced) return synced;
  FAULT_POINT("redact.before_metadata");
  if (auto replaced = replace_name(directory, pending_name(metadata), metadata); !replaced)
    return replaced;
  if (auto synced = sync_descriptor(directory); !synced) return synced;
  FAULT_POINT("redact.metadata_replaced");
  return {};
}

Result<std::string> finish_move(int directory, const std::string& metadata) {
  const std::string note = move_note_name(metadata);
  const auto target = read_beneath(directory, note, kMostNoteBytes);
  if (!target) {
    if (target.error().kind() == ErrorKind::kVanished) return metadata;
    return target.error();
  }
  // A note of ours is synced before the change takes effect, so only one without effect can be cut.
  const bool sane = may_be_metadata(*target) && target->find('/') == std::string::npos &&
                    target->find('\0') == std::string::npos;
  const auto there = is_there(directory, metadata);
  if (!there) return there.error();
  if (*there && sane) {
    for (const FileKind kind : {FileKind::kScript, FileKind::kEnvironment}) {
      const auto from = content_names(metadata, kind);
      const auto to = content_names(*target, kind);
      for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
        auto moved = rename_into_place(directory, from[i], to[i]);
        if (!moved && moved.error().kind() != ErrorKind::kVanished) return moved.error();
      }
    }
    if (auto synced = sync_descriptor(directory); !synced) return synced.error();
    FAULT_POINT("redact.contents_moved");
    auto moved = rename_into_place(directory, metadata, *target);
    if (!moved) return moved.error();
    if (auto synced = sync_descriptor(directory); !synced) return synced.error();
  }
  FAULT_POINT("redact.metadata_moved");
  if (auto removed = remove_if_there(directory, note); !removed) return removed.error();
  if (auto synced = sync_descriptor(directory); !synced) return synced.error();
  return *there && sane ? *target : metadata;
}

}  // namespace scriptorium::file
