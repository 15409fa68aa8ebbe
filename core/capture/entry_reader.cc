#include "core/capture/entry_reader.h"

#include <algorithm>

#include "core/base/fault_point.h"
#include "core/base/path.h"

namespace scriptorium {
namespace {

std::string join(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return std::string(directory).append("/").append(name);
}

Result<std::vector<OpenedName>> unopened(Result<std::vector<SpoolName>> names) {
  if (!names) return names.error();
  std::vector<OpenedName> all;
  all.reserve(names->size());
  for (SpoolName& name : *names) all.push_back({std::move(name), {}});
  return all;
}

}  // namespace

// ---- held files

void HeldFiles::hold(const std::string& key, std::string name, UniqueFd fd, SteadyTime first_seen,
                     SteadyTime now) {
  if (now - first_seen > kLongest) return;
  const auto known = entries_.find(key);
  if (known != entries_.end()) {
    for (auto& [held, old] : known->second.files) {
      if (held != name) continue;
      old = std::move(fd);
      return;
    }
  }
  if (count_ >= kMost) return;
  ++count_;
  Held& held = entries_[key];
  held.first_seen = first_seen;
  held.files.emplace_back(std::move(name), std::move(fd));
}

HeldFiles::Files HeldFiles::take(const std::string& key) {
  const auto known = entries_.find(key);
  if (known == entries_.end()) return {};
  Files files = std::move(known->second.files);
  count_ -= files.size();
  entries_.erase(known);
  return files;
}

void HeldFiles::drop(const std::string& key) { take(key); }

void HeldFiles::drop_old(SteadyTime now) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    if (now - entry->second.first_seen <= kLongest) continue;
    count_ -= entry->second.files.size();
    entries_.erase(entry);
  }
}

void HeldFiles::drop_all() {
  entries_.clear();
  count_ = 0;
}

// ---- reading

EntryReader::Outcome EntryReader::read(const std::string& key) {
  Outcome all;
  const auto merge = [&](Outcome one) {
    all.found = all.found || one.found;
    all.unreadable = all.unreadable || one.unreadable;
  };
  if (const auto names = adapter_.file_names(); !names.empty()) {
    for (const std::string_view name : names) merge(read_file(key, adapter_.path_of(key, name)));
    return all;
  }
  // Without a directory of its own its files stand among those of others, which need not be opened.
  const bool alone = adapter_.classify(key).role == SpoolPath::Role::kEntryDirectory;
  const std::string directory = alone ? key : parent_of(key);
  auto names = alone ? access_.list_open(directory) : unopened(access_.list(directory));
  if (!names) {
    if (names.error().kind() == ErrorKind::kVanished) return {};
    log_unreadable(key, names.error());
    return {.found = true, .unreadable = true};
  }
  all.found = alone;
  for (auto& [name, fd] : *names) merge(read_file(key, join(directory, name.name), std::move(fd)));
  return all;
}

EntryReader::Outcome EntryReader::read_usual_files(const std::string& key) {
  Outcome all;
  for (const std::string& name : usual_files_) {
    const Outcome one = read_file(key, adapter_.path_of(key, name));
    all.found = all.found || one.found;
    all.unreadable = all.unreadable || one.unreadable;
  }
  return all;
}

EntryReader::Outcome EntryReader::read_file(const std::string& key, const std::string& path,
                                            UniqueFd opened) {
  const SpoolPath place = adapter_.classify(path);
  const Inspection* inspection = table_.inspection(key);
  if (!place.is_file() || place.entry != key || inspection == nullptr) return {};
  Result<UniqueFd> fd = opened ? Result<UniqueFd>(std::move(opened)) : access_.open(path);
  if (!fd) {
    if (fd.error().kind() == ErrorKind::kVanished) return {};
    if (fd.error().kind() == ErrorKind::kPermanent) {
      report_.ignored(fd.error().message());
      return {.found = true};
    }
    log_unreadable(path, fd.error());
    return {.found = true, .unreadable = true};
  }
  auto stat = stat_fd(fd->get());
  if (!stat || !belongs_to_spool(path, *stat)) return {.found = true};
  if (place.role == SpoolPath::Role::kEntryRecord && stat->size == 0) return {};
  const SpoolFile* known = inspection->content.file(place.file);
  if (known != nullptr && is_unchanged(*known, *stat)) return {.found = true};
  auto bytes = read_settled(fd->get(), *stat);
  if (!bytes) {
    report_.note_error(path + ": " + bytes.error().message());
    return {.found = true};
  }
  FAULT_POINT("capture.content_read");
  const SteadyTime first_seen = inspection->first_seen;
  add(key, std::string(place.file), *stat, *std::move(bytes));
  if (access_.fanotify_fd() < 0 && access_.inotify_fd() >= 0)
    held_.hold(key, std::string(place.file), *std::move(fd), first_seen, clock_.steady());
  return {.found = true};
}

bool EntryReader::belongs_to_spool(const std::string& path, const FileStat& stat) {
  if (stat.owner == presence_.owner()) return true;
  report_.ignored("another owner");
  report_.log().error(
      "SPOOL_OWNER",
      "a file in the spool does not belong to the owner of the spool directory and is left out; "
      "the spool directory must belong to the user that the scheduler runs as",
      {{"source", report_.source()},
       {"path", printable(path)},
       {"file_uid", stat.owner},
       {"spool_uid", presence_.owner()}});
  return false;
}

bool EntryReader::is_unchanged(const SpoolFile& known, const FileStat& stat) {
  return known.stat.inode == stat.inode && known.stat.mtime_ns == stat.mtime_ns &&
         known.stat.size == stat.size && (known.truncated || known.bytes->size() == stat.size);
}

void EntryReader::read_held(const std::string& key) {
  for (const auto& [name, fd] : held_.take(key)) {
    auto stat = stat_fd(fd.get());
    if (!stat) continue;
    if (auto bytes = read_settled(fd.get(), *stat)) add(key, name, *stat, *std::move(bytes));
  }
}

// The time is part of the event's id: a write between fstat and read would put the time of the
// file's beginning beside the bytes of its end, and the next inspection would make a second event
// of them. A file that never rests is incomplete, and is inspected again.
Result<std::string> EntryReader::read_settled(int fd, FileStat& stat) const {
  constexpr int kAttempts = 4;
  for (int attempt = 1;; ++attempt) {
    auto bytes = read_fd(fd, max_file_bytes_ + 1, stat.size);
    if (!bytes) return bytes;
    auto after = stat_fd(fd);
    if (!after) return after.error();
    const bool rested = after->mtime_ns == stat.mtime_ns && after->size == stat.size;
    stat = *after;
    if (rested || attempt == kAttempts) return bytes;
  }
}

void EntryReader::add(const std::string& key, std::string name, const FileStat& stat,
                      std::string bytes) {
  SpoolFile file;
  file.name = std::move(name);
  file.stat = stat;
  file.truncated = bytes.size() > max_file_bytes_;
  if (file.truncated) bytes.resize(max_file_bytes_);
  file.bytes = make_bytes(std::move(bytes));
  table_.add_file(key, std::move(file), clock_.steady());
}

void EntryReader::learn_usual_files(const SpoolEntry& entry) {
  constexpr std::size_t kMost = 4;
  for (const SpoolFile& file : entry.files) {
    if (usual_files_.size() < kMost &&
        std::find(usual_files_.begin(), usual_files_.end(), file.name) == usual_files_.end())
      usual_files_.push_back(file.name);
  }
}

void EntryReader::log_unreadable(const std::string& path, const Error& error) {
  report_.note_error(path + ": " + error.message());
  const Logger::Fields fields = {
      {"source", report_.source()}, {"path", printable(path)}, {"reason", error.message()}};
  if (error.kind() == ErrorKind::kExhausted) {
    report_.log().warning(
        "CAPTURE_DESCRIPTORS_USED_UP",
        "no descriptor was left to read an entry; it is tried again; raise LimitNOFILE of the "
        "unit, or fs.file-max",
        fields);
    return;
  }
  report_.log().error(
      "SPOOL_UNREADABLE",
      "an entry of the spool cannot be read; give the daemon's user the right to read it", fields);
}

}  // namespace scriptorium
