#include "core/capture/entry_check.h"

namespace scriptorium {

bool EntryCheck::is_gone(const std::string& path) const {
  const auto stat = access_.stat(path);
  return !stat && stat.error().kind() == ErrorKind::kVanished;
}

std::optional<FileIdentity> EntryCheck::as_captured(std::string_view key,
                                                    const FileIdentity& identity) const {
  const auto compare = [&](std::string_view file) -> std::optional<FileIdentity> {
    const auto stat = access_.stat(adapter_.path_of(key, file));
    if (!stat || !identity.matches(*stat)) return std::nullopt;
    return identity_of(std::string(file), *stat);
  };
  if (!identity.file.empty()) return compare(identity.file);
  // A mark of an older journal: the inode tells which of the entry's files it was.
  if (const auto names = adapter_.file_names(); !names.empty()) {
    for (const std::string_view name : names) {
      if (auto found = compare(name)) return found;
    }
    return std::nullopt;
  }
  const auto names = access_.list(std::string(key));
  if (!names) return std::nullopt;
  for (const SpoolName& name : *names) {
    if (name.inode != identity.inode) continue;
    if (!adapter_.classify(std::string(key) + '/' + name.name).is_file()) continue;
    if (auto found = compare(name.name)) return found;
  }
  return std::nullopt;
}

std::optional<FileIdentity> EntryCheck::as_recorded(std::string_view key,
                                                    const CaptureRecord& record) const {
  if (record.kind != CaptureRecord::Kind::kIgnored || !record.identity.file.empty())
    return as_captured(key, record.identity);
  // It was ignored without any file.
  const auto stat = access_.stat(std::string(key));
  if (!stat || !record.identity.matches(*stat)) return std::nullopt;
  return record.identity;
}

bool EntryCheck::is_gone(std::string_view key, const CaptureRecord& record) const {
  if (!is_gone(std::string(key))) return false;
  const std::string& file = record.identity.file;
  return file.empty() || is_gone(adapter_.path_of(key, file));
}

}  // namespace scriptorium
