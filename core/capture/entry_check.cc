#include "core/capture/entry_check.h"

#include "core/base/path.h"

namespace scriptorium {

bool is_gone(const CaptureContext& context, const std::string& path) {
  const auto stat = context.access.stat(path);
  return !stat && stat.error().kind() == ErrorKind::kVanished;
}

bool is_gone(const CaptureContext& context, std::string_view key, const CaptureRecord& record) {
  const std::string& file = record.identity.file;
  return is_gone(context, std::string(key)) &&
         (file.empty() || is_gone(context, context.adapter.path_of(key, file)));
}

std::optional<FileIdentity> as_captured(const CaptureContext& context, std::string_view key,
                                        const FileIdentity& identity) {
  const auto compare = [&](std::string_view file) -> std::optional<FileIdentity> {
    const auto stat = context.access.stat(context.adapter.path_of(key, file));
    if (!stat || !identity.matches(*stat)) return std::nullopt;
    return identity_of(std::string(file), *stat);
  };
  if (!identity.file.empty()) return compare(identity.file);
  // A mark of an older journal: the inode tells which of the entry's files it was.
  if (const auto names = context.adapter.file_names(); !names.empty()) {
    for (const std::string_view name : names) {
      if (auto found = compare(name)) return found;
    }
    return std::nullopt;
  }
  const auto names = context.access.list(std::string(key));
  if (!names) return std::nullopt;
  for (const SpoolName& name : *names) {
    if (name.inode != identity.inode) continue;
    if (!context.adapter.classify(join_path(key, name.name)).is_file()) continue;
    if (auto found = compare(name.name)) return found;
  }
  return std::nullopt;
}

std::optional<FileIdentity> as_recorded(const CaptureContext& context, std::string_view key,
                                        const CaptureRecord& record) {
  if (record.kind != CaptureRecord::Kind::kIgnored || !record.identity.file.empty())
    return as_captured(context, key, record.identity);
  // An entry without any file was ignored, so its record identifies the directory.
  const auto stat = context.access.stat(std::string(key));
  if (!stat || !record.identity.matches(*stat)) return std::nullopt;
  return record.identity;
}

}  // namespace scriptorium
