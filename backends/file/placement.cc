#include "backends/file/placement.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "backends/file/metadata_id.h"
#include "backends/file/outcome.h"
#include "backends/file/store.h"
#include "core/base/fault_point.h"

namespace scriptorium::file {
namespace {

constexpr std::uint64_t kMaxMetadataBytes = 16U << 20;

Result<bool> same_bytes(int directory, const std::string& name, const std::string& wanted) {
  auto bytes = read_beneath(directory, name, wanted.size() + 1);
  if (!bytes)
    return bytes.error().kind() == ErrorKind::kVanished ? Result<bool>(false) : bytes.error();
  return *bytes == wanted;
}

}  // namespace

const std::vector<FileKind>& kinds_of(const Event& event, const FileConfig& config) {
  static const std::vector<FileKind> kRecord{FileKind::kMetadata};
  return event.kind == "job.script" ? config.kinds : kRecord;
}

Result<Placement::Slot> Placement::examine(const Batch& batch, const Item& item,
                                           unsigned slot) const {
  Slot result;
  FoundFiles found;
  bool anything = false;
  for (const FileKind kind : kinds_of(item.event(), access_.config())) {
    auto one =
        inspect(item.directory->fd.get(), item.place.name(kind, slot), batch.prepared->owner);
    if (!one) return one.error();
    found[index_of(kind)] = *one;
    if (one->kind == Found::Kind::kOther) {
      result.other = true;
      return result;
    }
    anything = anything || one->kind == Found::Kind::kFile;
    if (one->kind == Found::Kind::kNothing && item.file(kind)) result.missing.push_back(kind);
  }
  if (!anything) return result;
  const auto own = is_own(item, slot, found);
  if (!own) return own.error();
  result.other = !*own;
  return result;
}

Result<bool> Placement::is_own(const Item& item, unsigned slot, const FoundFiles& found) const {
  const int directory = item.directory->fd.get();
  const auto is_there = [&](FileKind kind) {
    return found[index_of(kind)].kind == Found::Kind::kFile;
  };
  if (item.file(FileKind::kMetadata) && is_there(FileKind::kMetadata)) {
    auto json =
        read_beneath(directory, item.place.name(FileKind::kMetadata, slot), kMaxMetadataBytes);
    if (!json && json.error().kind() != ErrorKind::kVanished) return json.error();
    // If it is, the files beside it are left as they are, whatever a person did to them since.
    return json && (has_id(*json, item.id) || (!item.needs_same_id && replaces_id(*json, item.id)));
  }
  for (const FileKind kind : kinds_of(item.event(), access_.config())) {
    if (!is_there(kind)) continue;
    const auto& file = item.file(kind);
    if (!file || found[index_of(kind)].size != file->bytes->size()) return false;
    auto same = same_bytes(directory, item.place.name(kind, slot), *file->bytes);
    if (!same || !*same) return same;
  }
  return true;
}

Result<void> Placement::find_slot(const Batch& batch, Item& item) const {
  for (; item.slot <= kMaxSlots; ++item.slot) {
    auto examined = examine(batch, item, item.slot);
    if (!examined) return examined.error();
    if (examined->other) continue;
    item.missing = std::move(examined->missing);
    return {};
  }
  return Error{ErrorKind::kTransient, "too many files of one name"};
}

Result<void> Placement::write_temporary(Batch& batch, Item& item, FileKind kind, bool keep_open) {
  Item::File& file = *item.file(kind);
  const std::string name = access_.names().make(item.place.name(kind, 1), item.id);
  auto fd = create_file(item.directory->fd.get(), name);
  if (!fd) return fd.error();
  file.temporary = name;
  FAULT_POINT("file.temp_created");
  if (auto granted = access_.grant(*batch.prepared, fd->get(), AclTarget::kFile, item.reader);
      !granted)
    return granted.error();
  if (const int code = FAULT_ERROR("file.write")) return file_error(code);
  std::string_view rest = *file.bytes;
  while (!rest.empty()) {
    const ssize_t n = ::write(fd->get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(errno);
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  FAULT_POINT("file.written");
  if (keep_open) {
    file.fd = *std::move(fd);
    ++batch.open_files;
  }
  return {};
}

Result<void> Placement::write_again(Batch& batch, Item& item, FileKind kind) {
  if (auto written = write_temporary(batch, item, kind, true); !written) return written.error();
  Item::File& file = *item.file(kind);
  if (auto synced = sync_descriptor(file.fd.get()); !synced) return synced.error();
  file.fd.reset();
  return {};
}

Result<void> Placement::put_in_place(Batch& batch, Item& item, Names names) {
  // In the second step only what gets its name then; else all, for what is found again may not be
  // safe yet.
  if (names != Names::kMetadata || !item.missing.empty()) item.directory->changed = true;
  // Each round after the first found a name taken since the slot was examined, by another event of
  // this batch for instance.
  for (unsigned round = 0; round < kMaxSlots; ++round) {
    if (round > 0) {
      if (auto found = find_slot(batch, item); !found) return found.error();
    }
    const auto named = name_files(batch, item, names, round > 0);
    if (!named) return named.error();
    if (*named) return {};
  }
  return Error{ErrorKind::kTransient, "names were taken by others again and again"};
}

Result<bool> Placement::name_files(Batch& batch, Item& item, Names names, bool again) {
  const int directory = item.directory->fd.get();
  for (const FileKind kind : item.missing) {
    const bool metadata = kind == FileKind::kMetadata;
    if (metadata ? names == Names::kContents : names == Names::kMetadata && !again) continue;
    if (metadata && again) {
      if (auto synced = sync_descriptor(directory); !synced) return synced.error();
    }
    Item::File& file = *item.file(kind);
    if (file.temporary.empty()) {
      if (auto written = write_again(batch, item, kind); !written) return written.error();
    }
    auto renamed = rename_into_place(directory, file.temporary, item.place.name(kind, item.slot));
    if (!renamed) return renamed.error();
    if (*renamed == Renamed::kTaken) return false;
    file.temporary.clear();
    FAULT_POINT("file.renamed");
  }
  return true;
}

void Placement::drop_temporaries(Item& item) {
  for (auto& file : item.files) {
    if (!file) continue;
    file->fd.reset();
    if (file->temporary.empty()) continue;
    ::unlinkat(item.directory->fd.get(), file->temporary.c_str(), 0);
    file->temporary.clear();
  }
}

}  // namespace scriptorium::file
