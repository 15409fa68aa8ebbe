#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/capture/capture_record.h"
#include "core/capture/guarded_adapter.h"
#include "core/capture/spool_access.h"

namespace scriptorium {

// Compares what is known of an entry with the spool, without opening anything.
// Threads: any. Borrows access and adapter for its life.
class EntryCheck {
 public:
  EntryCheck(SpoolAccess& access, const GuardedAdapter& adapter)
      : access_(access), adapter_(adapter) {}

  // Nothing there; an error of another kind says nothing of it.
  bool is_gone(const std::string& path) const;
  // The file as it is now, if that is the state in which it was captured. The answer completes the
  // identity: the device has another number after a mount, and an older journal's mark has no name.
  std::optional<FileIdentity> as_captured(std::string_view key, const FileIdentity& identity) const;
  std::optional<FileIdentity> as_recorded(std::string_view key, const CaptureRecord& record) const;
  // The entry of a record, and the file that it is known by, are gone.
  bool is_gone(std::string_view key, const CaptureRecord& record) const;

 private:
  SpoolAccess& access_;
  const GuardedAdapter& adapter_;
};

}  // namespace scriptorium
