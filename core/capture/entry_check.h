#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/capture/capture_context.h"
#include "core/capture/capture_record.h"

// Comparisons of what is known about an entry with the spool. They open no file. Threads: any.
namespace scriptorium {

// True if nothing is there. False after any other error, which says nothing about the path.
bool is_gone(const CaptureContext& context, const std::string& path);
// True if the entry of a record and the file that identifies it are gone.
bool is_gone(const CaptureContext& context, std::string_view key, const CaptureRecord& record);
// The file as it is now, if that is the state in which it was captured. The answer completes the
// identity: the device has another number after a mount.
std::optional<FileIdentity> as_captured(const CaptureContext& context, std::string_view key,
                                        const FileIdentity& identity);
std::optional<FileIdentity> as_recorded(const CaptureContext& context, std::string_view key,
                                        const CaptureRecord& record);

}  // namespace scriptorium
