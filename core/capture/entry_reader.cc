#include "core/capture/entry_reader.h"

#include <algorithm>
#include <iterator>

#include "core/base/fault_point.h"
#include "core/base/path.h"

namespace scriptorium {
namespace {

Result<std::vector<OpenedName>> unopened(Result<std::vector<SpoolName>> names) {
  if (!names) return names.error();
  std::vector<OpenedName> all;
  all.reserve(names->size());
  for (SpoolName& name : *names) all.push_back({std::move(name), {}});
  return all;
}

bool is_unchanged(const SpoolFile& file, const FileStat& stat) {
  return file.stat.inode == stat.inode && file.stat.mtime_ns == stat.mtime_ns &&
         file.stat.size == stat.size && (file.truncated || file.bytes->size() == stat.size);
}

}  // namespace

// ---- held files

void HeldFiles::hold(File file, SteadyTime now) {
  if (now - file.first_seen > kLongest) return;
  const auto same = std::find_if(files_.begin(), files_.end(), [&](const File& other) {
    return other.key == file.key && other.name == file.name;
  });
  if (same != files_.end()) {
    *same = std::move(file);
  } else if (files_.size() < kMost) {
    files_.push_back(std::move(file));
  }
}

bool HeldFiles::has(const std::string& key) const {
  return std::any_of(files_.begin(), files_.end(),
                     [&](const File& file) { return file.key == key; });
}

std::vector<HeldFiles::File> HeldFiles::take(const std::string& key) {
  const auto mine = std::partition(files_.begin(), files_.end(),
                                   [&](const File& file) { return file.key != key; });
  std::vector<File> taken(std::make_move_iterator(mine), std::make_move_iterator(files_.end()));
  files_.erase(mine, files_.end());
  return taken;
}

void HeldFiles::drop(const std::string& key) {
  std::erase_if(files_, [&](const File& file) { return file.key == key; });
}

void HeldFiles::drop_old(SteadyTime now) {
  std::erase_if(files_, [&](const File& file) { return now - file.first_seen > kLongest; });
}

// ---- reading

EntryReader::Outcome EntryReader::read(const std::string& key) {
  Outcome all;
  if (const auto names = context_.adapter.file_names(); !names.empty()) {
    for (const std::string_view name : names)
      all.add(read_file(key, context_.adapter.path_of(key, name)));
    return all;
  }
  // Without a directory of its own, an entry's files lie among others, which need not be opened.
  const bool alone = context_.adapter.classify(key).role == SpoolPath::Role::kEntryDirectory;
  const std::string directory = alone ? key : parent_of(key);
  auto names =
      alone ? context_.access.list_open(directory) : unopened(context_.access.list(directory));
  if (!names) {
    if (names.error().kind() == ErrorKind::kVanished) return {};
    log_unreadable(key, names.error());
    return {.found = true, .unreadable = true};
  }
  all.found = alone;
  for (auto& [name, fd] : *names)
    all.add(read_file(key, join_path(directory, name.name), std::move(fd)));
  return all;
}

EntryReader::Outcome EntryReader::read_usual_files(const std::string& key) {
  Outcome all;
  for (const std::string& name : usual_files_)
    all.add(read_file(key, context_.adapter.path_of(key, name)));
  return all;
}

EntryReader::Outcome EntryReader::read_file(const std::string& key, const std::string& path,
                                            UniqueFd opened) {
  const SpoolPath place = context_.adapter.classify(path);
  const Inspection* inspection = table_.inspection(key);
  if (!place.is_file() || place.entry != key || inspection == nullptr) return {};
  Result<UniqueFd> fd = opened ? Result<UniqueFd>(std::move(opened)) : context_.access.open(path);
  if (!fd) {
    if (fd.error().kind() == ErrorKind::kVanished) return {};
    if (fd.error().kind() == ErrorKind::kPermanent) {
      context_.report->ignored(fd.error().message());
      return {.found = true};
    }
    log_unreadable(path, fd.error());
    return {.found = true, .unreadable = true};
  }
  auto stat = stat_fd(fd->get());
  if (!stat || !belongs_to_spool(path, *stat)) return {.found = true};
  if (place.role == SpoolPath::Role::kEntryRecord && stat->size == 0) return {};
  const SpoolFile* read = inspection->content.file(place.file);
  if (read != nullptr && is_unchanged(*read, *stat)) return {.found = true};
  auto bytes = read_settled(fd->get(), *stat);
  if (!bytes) {
    context_.report->note_error(path + ": " + bytes.error().message());
    return {.found = true};
  }
  FAULT_POINT("capture.content_read");
  const SteadyTime first_seen = inspection->first_seen;
  add(key, std::string(place.file), *stat, *std::move(bytes));
  if (context_.has_inotify_only())
    held_.hold({key, std::string(place.file), *std::move(fd), first_seen}, context_.clock.steady());
  return {.found = true};
}

bool EntryReader::belongs_to_spool(const std::string& path, const FileStat& stat) {
  if (stat.owner == presence_.owner()) return true;
  context_.report->ignored("another owner");
  context_.report->log().error(
      "SPOOL_OWNER",
      "a file in the spool does not belong to the owner of the spool directory and is left out; "
      "the spool directory must belong to the user that the scheduler runs as",
      {{"source", context_.report->source()},
       {"path", printable(path)},
       {"file_uid", stat.owner},
       {"spool_uid", presence_.owner()}});
  return false;
}

void EntryReader::read_held(const std::string& key) {
  for (HeldFiles::File& file : held_.take(key)) {
    auto stat = stat_fd(file.fd.get());
    if (!stat) continue;
    if (auto bytes = read_settled(file.fd.get(), *stat))
      add(key, std::move(file.name), *stat, *std::move(bytes));
  }
}

// The time is part of the event's id. After a write between fstat and read, the earlier time would
// go with the later bytes, and the next inspection would make a second event of them. A file that
// never rests is incomplete, and is inspected again.
Result<std::string> EntryReader::read_settled(int fd, FileStat& stat) const {
  constexpr int kAttempts = 4;
  for (int attempt = 1;; ++attempt) {
    auto bytes = read_fd(fd, max_file_bytes() + 1, stat.size);
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
  const bool truncated = bytes.size() > max_file_bytes();
  if (truncated) bytes.resize(max_file_bytes());
  table_.add_file(key, {std::move(name), stat, make_bytes(std::move(bytes)), truncated},
                  context_.clock.steady());
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
  context_.report->note_error(path + ": " + error.message());
  const Logger::Fields fields = {{"source", context_.report->source()},
                                 {"path", printable(path)},
                                 {"reason", error.message()}};
  if (error.kind() == ErrorKind::kExhausted) {
    context_.report->log().warning(
        "CAPTURE_DESCRIPTORS_USED_UP",
        "no descriptor was left to read an entry; it is tried again; raise LimitNOFILE of the "
        "unit, or fs.file-max",
        fields);
    return;
  }
  context_.report->log().error(
      "SPOOL_UNREADABLE",
      "an entry of the spool cannot be read; give the daemon's user the right to read it", fields);
}

}  // namespace scriptorium
