#include "core/capture/entry_check.h"

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
  const auto stat = context.access.stat(context.adapter.path_of(key, identity.file));
  if (!stat || !identity.matches(*stat)) return std::nullopt;
  return identity_of(identity.file, *stat);
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
